"""MLX: affine codes and microscaling formats, opened by transformers and by mlx-lm."""
import mlx.core as mx
import mlx_lm
import models
import numpy
import torch
from case import Case, compare_logits
from mlx.utils import tree_flatten

MADE = "mlx-lm's `convert(quantize=True)`"
REFERENCE = "mlx-lm's `convert(dequantize=True)`, opened by the same client"
CLIENT = "transformers; mlx-lm, whose logits are compared too"


def quantise(settings):
    def into(plain, out):
        mlx_lm.convert(str(plain), str(out), quantize=True, **settings)

    return into


def logits(folder):
    model, _ = mlx_lm.load(str(folder))
    ids = mx.array(numpy.arange(1, 33).reshape(2, 16))
    found = numpy.array(model(ids).astype(mx.float32))
    return torch.from_numpy(found), dict(tree_flatten(model.parameters()))


def dequantised(source):
    folder = source.path.parent / "dequantised"
    if not folder.exists():
        mlx_lm.convert(str(source.path), str(folder), dequantize=True)
    return folder


def client(out, source):
    ours, parameters = logits(out)
    theirs, expected = logits(dequantised(source))
    compare_logits(ours, theirs)
    wrong = [name for name in expected if not mx.array_equal(parameters[name], expected[name]).item()]
    if wrong or parameters.keys() != expected.keys():
        raise AssertionError(f"mlx_lm.load: {len(wrong)} of {len(expected)} parameters differ: {wrong[:4]}")
    return models.opened(models.load(out))


def case(label, name="Llama", tied=False, unavailable="", **settings):
    return Case(label, models.quantised(name, quantise(settings), tied),
                lambda source: models.opened(models.load(dequantised(source))), client, ("--native-rounding",),
                unavailable=unavailable)


CASES = [
    case("affine, 4 bits, Llama", q_bits=4, q_group_size=32),
    case("affine, 8 bits, Llama", q_bits=8, q_group_size=64),
    case("affine, 2 bits, Llama", q_bits=2, q_group_size=64),
    case("affine, 4 bits, Qwen3, tied", "Qwen3", tied=True, q_bits=4, q_group_size=32),
    case("affine, 4 bits, Qwen3-MoE", "Qwen3Moe", q_bits=4, q_group_size=32,
         unavailable="mlx-lm does not read the config.json that transformers 5 writes"),
    case("mxfp4, Llama", q_mode="mxfp4", q_bits=4, q_group_size=32),
    case("nvfp4, Llama", q_mode="nvfp4", q_bits=4, q_group_size=16),
]
