"""Other readers of safetensors files."""
import json

import ml_dtypes
import mlx.core as mx
import models
import numpy
import safetensors
import safetensors.numpy
import torch
from case import Case
from cases import bitsandbytes

MADE = "transformers with `BitsAndBytesConfig`, nf4"
REFERENCE = "bitsandbytes' own dequantisation"
CLIENT = "the reader that the case names"


def from_numpy(arrays):
    """Tensors of arrays of ml_dtypes' BF16, which torch does not read."""
    copies = {name: torch.from_numpy(numpy.array(array).view(numpy.uint16)) for name, array in arrays.items()}
    return models.State({name: value.view(torch.bfloat16) for name, value in copies.items()})


def safe_open(file):
    with safetensors.safe_open(file, "numpy") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}


def by_mlx(file):
    return {name: numpy.array(array.view(mx.uint16)) for name, array in mx.load(str(file)).items()}


def by_hand(file):
    """The format's own definition: the length of the header, the header, the bytes."""
    data = file.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    if start % 8:
        raise AssertionError(f"the bytes begin at {start}, which is not aligned")
    arrays = {}
    for name, tensor in header.items():
        first, end = tensor["data_offsets"]
        values = numpy.frombuffer(data[start + first:start + end], ml_dtypes.bfloat16)
        arrays[name] = values.reshape(tensor["shape"])
    return arrays


def case(label, read):
    make = models.quantised("Llama", bitsandbytes.quantise(bitsandbytes.nf4()))
    return Case(label, make, lambda source: models.State(bitsandbytes.reference(source).weights),
                lambda out, source: from_numpy(read(out / "model.safetensors")))


CASES = [
    case("safetensors.numpy.load_file", safetensors.numpy.load_file),
    case("safetensors.safe_open", safe_open),
    case("mlx.core.load", by_mlx),
    case("the bytes, by the format's definition", by_hand),
]
