"""Checkpoints of training programs: wrapped names, optimizer states, objects of unknown classes."""
import argparse
import pathlib

import lightning
import models
import numpy
import pytorch_lightning
import torch
from case import Case, attempt
from safetensors.torch import load_file

MADE = "`torch.save` of a training state; `lightning.Trainer`"
REFERENCE = "the saved state"
CLIENT = "`torch.nn.Module.load_state_dict(strict=True)` on `safetensors.torch.load_file`"


def module():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))


def training_state(made):
    """A step of training, so that the optimizer and the normalisation have a state."""
    optimizer = torch.optim.AdamW(made.parameters())
    made(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    return {
        "epoch": 3, "model": made.state_dict(), "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state(),
        "ema": {"decay": 0.99, "shadow": {name: value.clone() for name, value in made.state_dict().items()}},
        "best": numpy.float64(0.5), "history": numpy.zeros(3),
    }


def saved(more=None, key=None):
    def make(work):
        made = module()
        state = training_state(made)
        state = {key: state["model"]} if key else state
        file = work / "last.pt"
        torch.save({**state, **(more or {})}, file)
        return models.Source(file, model=made)

    return make


def refused_first(named, make):
    """The file, after the command has refused it with the class's name and the flag that reads it."""
    def checked(work):
        source = make(work)
        done = attempt(source.path, f"{work / 'refused'}/")
        message = done.stderr
        if done.returncode != 1 or named not in message or "--opaque" not in message or (work / "refused").exists():
            raise AssertionError(f"status {done.returncode}: {message}")
        return source

    return checked


def by_lightning(work):
    class Lit(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters()
            self.net = module()

        def training_step(self, batch, _):
            return self.net(batch[0]).pow(2).mean()

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    made = Lit()
    keep = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=work, filename="last")
    trainer = lightning.Trainer(max_epochs=1, logger=False, default_root_dir=work, enable_progress_bar=False,
                                accelerator="cpu", callbacks=[keep])
    trainer.fit(made, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 8)), 4))
    return models.Source(work / "last.ckpt", model=made)


def load_state_dict(out, source):
    made = type(source.model)() if isinstance(source.model, lightning.LightningModule) else module()
    made.load_state_dict(load_file(out / "model.safetensors"), strict=True)
    return models.State(made.state_dict())


def state(source):
    return models.State(source.model.state_dict())


def stable_diffusion(work):
    """A checkpoint of Stable Diffusion 1.x: a class of Lightning is the key of a dictionary."""
    source = saved(key="unused")(work)
    weights = {"model.diffusion_model." + name: value for name, value in source.model.state_dict().items()}
    callbacks = {pytorch_lightning.callbacks.ModelCheckpoint: {"best": None}}
    torch.save({"state_dict": weights, "callbacks": callbacks, "global_step": 1}, source.path)
    return source


def case(label, make, *options):
    return Case(label, make, state, load_state_dict, options)


MODEL = ("--filter", "model.*", "--strip-prefix", "model")
OPAQUE = ("--opaque", *MODEL)

CASES = [
    case("model, optimizer and EMA", saved(), *MODEL),
    case("EMA of the same", saved(), "--filter", "ema.shadow.*", "--strip-prefix", "ema.shadow"),
    case("names of DistributedDataParallel", saved(key="module"), "--strip-prefix", "module"),
    case("names of torch.compile", saved(key="_orig_mod"), "--strip-prefix", "_orig_mod"),
    case("another name of the whole model", saved(key="net"), "--rename", "net.="),
    case("Lightning", by_lightning, "--filter", "state_dict.*", "--strip-prefix", "state_dict"),
    *(case(f"with {name}", refused_first(name, saved(more)), *OPAQUE) for name, more in [
        ("argparse.Namespace", {"args": argparse.Namespace(lr=1e-3)}),
        ("pathlib.PosixPath", {"path": pathlib.PosixPath("runs/1")}),
        ("transformers.training_args.TrainingArguments", {"args": __import__("transformers").TrainingArguments("runs")}),
    ]),
    case("Stable Diffusion 1.x", refused_first("pytorch_lightning.callbacks.model_checkpoint.ModelCheckpoint",
         stable_diffusion), "--opaque", "--strip-prefix", "state_dict.model.diffusion_model"),
]
