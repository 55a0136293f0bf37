"""Runs that once ended in wrong weights without a word: they end in the right ones, or in a refusal."""
import mlx.core as mx
import mlx_lm
import models
import numpy
import torch
from case import Case, attempt, remember
from cases import bitsandbytes
from mlx.utils import tree_flatten
from safetensors.torch import load_file, save_file

MADE = "torch, safetensors, transformers with `BitsAndBytesConfig`"
REFERENCE = "the tensors that were saved; bitsandbytes' own dequantisation"
CLIENT = "safetensors; mlx-lm, which reads every `model*.safetensors` of a directory"


def two_models(work):
    """The output of one model in small shards, over which the other is written."""
    for name, scale in (("first", 1.0), ("second", 1.5)):
        made = models.model("Llama")
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.mul_(scale)
        models.save(made, work / name)
    remember(work / "first", work / "out", "--shard-size", "200KB")
    done = attempt(work / "second", f"{work / 'out'}/")
    if done.returncode != 1 or "--overwrite" not in done.stderr:
        raise AssertionError(f"not refused: {done.stderr}")
    return models.Source(work / "second", model=made)


def every_file(out, source):
    """The state that mlx-lm has loaded."""
    model, _ = mlx_lm.load(str(out))
    arrays = dict(tree_flatten(model.parameters()))
    values = {name: torch.from_numpy(numpy.array(array.view(mx.uint16))) for name, array in arrays.items()}
    return models.State({name: value.view(torch.bfloat16) for name, value in values.items()})


def numpy_arrays(work):
    arrays = {"w": numpy.full(2, 3.0, numpy.float32)}
    torch.save({"model": {"w": torch.ones(2)}, "ema": arrays}, work / "in.pt")
    return models.Source(work / "in.pt", model={"model.w": torch.ones(2), "ema.w": torch.from_numpy(arrays["w"])})


def tensors(out, source):
    return models.State(load_file(out / "model.safetensors"))


def in_one_file(out, source):
    """The same source written to one file, as a directory without its configuration would be read."""
    file = remember(source.path, out.parent / "one.safetensors", "--dtype", "bf16", into_file=True)
    weights = load_file(file)
    made = models.load(source.plain)
    made.load_state_dict({"lm_head.weight": weights["transformer.wte.weight"], **weights})
    return models.opened(made)


def same_name_twice(work):
    """Keys with dots and nested dictionaries of the same names."""
    state = {"a": {"b": torch.zeros(2)}, "a.b": torch.ones(2)}
    torch.save(state, work / "in.pt")
    return models.Source(work / "in.pt", model=[state["a"]["b"], state["a.b"]])


def both(out, source):
    found = load_file(out / "model.safetensors").values()
    return models.State({f"the tensor of {int(value.sum())}": value for value in found})


def own_directory(work):
    """The output that is its own source, by its name and by a link, is refused; the source is as it was."""
    made = models.model("Llama")
    models.save(made, work / "in")
    (work / "link").symlink_to(work / "in")
    (work / "in/nested").mkdir()
    for out in (work / "in", work / "link", work / "in/nested"):
        done = attempt(work / "in", f"{out}/", "--overwrite")
        if done.returncode == 0:
            raise AssertionError(f"{out} was written")
    (work / "in/nested").rmdir()
    return models.Source(work / "in", model=made)


CASES = [
    Case("stale shards of an earlier run", two_models, lambda source: models.State(source.model.state_dict()),
         every_file, ("--overwrite",)),
    Case("square Conv1D, one file", models.quantised("GPT2", bitsandbytes.quantise(bitsandbytes.int8()), tied=True),
         bitsandbytes.reference, in_one_file),
    Case("numpy arrays in a checkpoint", numpy_arrays, lambda source: models.State(source.model), tensors),
    Case("a dotted key and a nested one", same_name_twice,
         lambda source: models.State({f"the tensor of {int(value.sum())}": value for value in source.model}), both),
    Case("an output that is its source", own_directory, lambda source: models.opened(source.model)),
]
