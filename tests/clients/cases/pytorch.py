"""PyTorch checkpoints of models: one file, tied heads, shards, and other files of a training run beside them."""
import json

import models
import torch
from case import EQUAL, Case

MADE = "`torch.save` of the state of a model of transformers"
REFERENCE = "the saved state"
CLIENT = "transformers"


def one_file(tied):
    def make(work):
        made = models.model("Llama", tied)
        out = work / "bin"
        made.config.save_pretrained(out)
        models.tokenizer().save_pretrained(out)
        torch.save(made.state_dict(), out / "pytorch_model.bin")
        return models.Source(out, model=made)

    return make


def shards(work):
    source = one_file(False)(work)
    (source.path / "pytorch_model.bin").unlink()
    state, files = source.model.state_dict(), {}
    for number, keys in enumerate((list(state)[:10], list(state)[10:]), 1):
        name = f"pytorch_model-{number:05}-of-00002.bin"
        torch.save({key: state[key] for key in keys}, source.path / name)
        files.update(dict.fromkeys(keys, name))
    index = {"metadata": {"total_size": sum(value.nbytes for value in state.values())}, "weight_map": files}
    (source.path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return source


def beside_other_files(*names):
    """A checkpoint of a training run: `model.safetensors` and what the trainer keeps beside it."""
    def make(work):
        made = models.model("Llama")
        out = models.save(made, work / "checkpoint-500")
        other = torch.nn.Linear(8, 8)
        optimizer = torch.optim.AdamW(other.parameters())
        other(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        states = {"optimizer.pt": optimizer.state_dict(), "pytorch_model.bin": other.state_dict(),
                  "rng_state.pth": {"cpu": torch.get_rng_state()}}
        for name in names:
            torch.save(states[name], out / name)
        return models.Source(out, model=made)

    return make


def saved(source):
    return models.opened(source.model)


def one_head(out, source):
    """The state, of a file that holds the tied output layer once."""
    from safetensors.torch import load_file

    if "lm_head.weight" in load_file(out / "model.safetensors"):
        raise AssertionError("the output holds lm_head.weight, which is tied")
    return models.opened(models.load(out))


CASES = [
    Case("pytorch_model.bin, Llama", one_file(False), saved, own=EQUAL),
    Case("pytorch_model.bin, Llama, tied", one_file(True), saved, one_head, own=EQUAL),
    Case("shards with an index, Llama", shards, saved, own=EQUAL),
    Case("shards with an index, Llama", shards, saved, options=("--shard-size", "300KB"), own=EQUAL),
    Case("with optimizer.pt and rng_state.pth", beside_other_files("optimizer.pt", "rng_state.pth"), saved, own=EQUAL),
    Case("with another pytorch_model.bin", beside_other_files("pytorch_model.bin"), saved, own=EQUAL),
]
