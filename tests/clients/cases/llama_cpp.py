"""llama.cpp's converter on outputs in shards."""
import os
import pathlib
import subprocess
import sys

import gguf
import models
import numpy
import torch
from case import Case
from cases import bitsandbytes

MADE = "transformers with `BitsAndBytesConfig`, written in shards"
REFERENCE = "bitsandbytes' own dequantisation"
CLIENT = "llama.cpp's `convert_hf_to_gguf.py`; the values of its GGUF, with rows of the query and key projections in order"

# the toy vocabulary has no pre-tokenizer that the converter knows
CONVERT = """
import runpy, sys
folder = sys.argv[1]
sys.path[:0] = [folder, folder + "/gguf-py"]
import conversion.base
conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "default"
sys.argv = ["convert", *sys.argv[2:]]
runpy.run_path(folder + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def unpermuted(rows, heads):
    """The order of transformers, which rotates halves where llama.cpp rotates pairs."""
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def converted(out, source):
    shards = len(list(out.glob("model-*.safetensors")))
    if shards < 2:
        raise AssertionError("the output is not in shards")
    file = out.parent / "model.gguf"
    command = [sys.executable, "-c", CONVERT, os.environ["LLAMA_CPP"], str(out), "--outfile", str(file), "--outtype", "f32"]
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    if done.returncode:
        raise AssertionError(f"the converter failed: {done.stderr.strip().splitlines()[-1]}")
    config = models.load(source.plain).config
    architecture = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == "llama")
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    weights = {}
    for name in models.load(source.plain).state_dict():
        tensor = stored.pop(names.get_name(name, try_suffixes=(".weight", ".bias")))
        value = numpy.array(tensor.data).reshape(tensor.shape[::-1])
        if "q_proj" in name:
            value = unpermuted(value, config.num_attention_heads)
        if "k_proj" in name:
            value = unpermuted(value, config.num_key_value_heads)
        weights[name] = torch.from_numpy(value).bfloat16()
    if stored:
        raise AssertionError(f"more tensors than the model has: {sorted(stored)}")
    return models.State(weights)


def weights(source):
    return models.State(bitsandbytes.reference(source).weights)


def make(work):
    if not pathlib.Path(os.environ.get("LLAMA_CPP", ""), "convert_hf_to_gguf.py").is_file():
        raise FileNotFoundError("LLAMA_CPP names no folder with convert_hf_to_gguf.py")
    return models.quantised("Llama", bitsandbytes.quantise(bitsandbytes.nf4()))(work)


CASES = [Case("nf4, Llama", make, weights, converted, ("--shard-size", "300KB"), unavailable="needs llama.cpp")]
