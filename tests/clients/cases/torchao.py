"""torchao: integers, floats and microscaling formats as tensor classes."""
import models
import torch
from case import EQUAL, NEAR, Case
from torchao import quantization as ao
from torchao.prototype import mx_formats
from transformers import AutoModelForCausalLM, TorchAoConfig

MADE = "transformers with `TorchAoConfig`"
REFERENCE = "`dequantize()` of each tensor class"
CLIENT = "transformers"


def quantise(config, more):
    def into(plain, out):
        wrapped = TorchAoConfig(config(), **more)
        model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16, quantization_config=wrapped)
        model.save_pretrained(out)
        return model

    return into


def reference(source):
    weights = {}
    for name, module in source.model.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(weight, torch.Tensor) and type(weight) not in (torch.Tensor, torch.nn.Parameter):
            weights[name + ".weight"] = weight.dequantize()
    if not weights:
        raise AssertionError("torchao quantised nothing")
    return models.from_plain(source, weights)


def case(label, config, name="Llama", tied=False, own=EQUAL, unavailable="", **more):
    make = models.quantised(name, quantise(config, more), tied)
    return Case(label, make, reference, own=own, unavailable=unavailable)


def intx(dtype, granularity):
    return lambda: ao.IntxWeightOnlyConfig(weight_dtype=dtype, granularity=granularity)


def embeddings():
    by_name = {"_default": intx(torch.int4, ao.PerGroup(32))(), "model.embed_tokens": intx(torch.int8, ao.PerAxis(0))()}
    return ao.FqnToConfig(by_name)


CASES = [
    case("Int8 weight only, Llama", ao.Int8WeightOnlyConfig, own=NEAR),
    case("Int8 weight only, groups of 32, Llama", lambda: ao.Int8WeightOnlyConfig(granularity=ao.PerGroup(32)), own=NEAR),
    case("Int8 weight only, Qwen3, tied", ao.Int8WeightOnlyConfig, "Qwen3", tied=True, own=NEAR),
    case("Int8 weight only, Qwen3-MoE", ao.Int8WeightOnlyConfig, "Qwen3Moe", own=NEAR),
    case("Int8 with dynamic activations, Llama", ao.Int8DynamicActivationInt8WeightConfig, own=NEAR),
    case("Int4 in groups of 32 with dynamic activations, Llama", lambda: ao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=ao.PerGroup(32)), own=NEAR),
    case("Intx int4 in groups of 32, Llama", intx(torch.int4, ao.PerGroup(32))),
    case("Intx int2 by rows, Llama", intx(torch.int2, ao.PerAxis(0))),
    case("Intx int4, embeddings int8, Llama, tied", embeddings, tied=True, include_input_output_embeddings=True,
         modules_to_not_convert=[]),
    case("Float8 weight only, Llama", ao.Float8WeightOnlyConfig),
    case("NVFP4 weight only, Llama", mx_formats.NVFP4WeightOnlyConfig),
    case("MXFP8, Llama", mx_formats.MXDynamicActivationMXWeightConfig, own=None),
    case("Int4 weight only, Llama", lambda: ao.Int4WeightOnlyConfig(group_size=32), unavailable="needs mslk"),
    case("Int4 plain_int32, Llama", lambda: ao.Int4WeightOnlyConfig(group_size=32, int4_packing_format="plain_int32"),
         unavailable="fails on a CPU"),
    case("Float8 by rows with dynamic activations, Llama",
         lambda: ao.Float8DynamicActivationFloat8WeightConfig(granularity=ao.PerRow()), unavailable="fails on a CPU"),
]
