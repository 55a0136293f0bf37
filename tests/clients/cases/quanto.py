"""quanto: 8, 4 and 2 bits. quanto computes in the dtype of the scales, which --native-rounding does too."""
import json

import models
import torch
from case import NEAR, Case
from optimum import quanto
from optimum.quanto.tensor.grouped import ungroup
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, QuantoConfig

MADE = "quanto: `QuantizedModelForCausalLM`, or `save_file` with `quantization_map`, as its README shows"
REFERENCE = "`dequantize()` of each weight; where the case says F32, the same formula in F32 with one rounding"
CLIENT = "transformers"


def by_wrapper(kind):
    def into(plain, out):
        model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
        wrapped = quanto.QuantizedModelForCausalLM.quantize(model, weights=kind, exclude="lm_head")
        wrapped.save_pretrained(out)
        return wrapped._wrapped

    return into


def by_map(kind):
    def into(plain, out):
        model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
        quanto.quantize(model, weights=kind, exclude="lm_head")
        quanto.freeze(model)
        out.mkdir()
        save_file(model.state_dict(), out / "model.safetensors")
        (out / "quantization_map.json").write_text(json.dumps(quanto.quantization_map(model)))
        model.config.save_pretrained(out)
        return model

    return into


def by_transformers(plain, out):
    config = QuantoConfig(weights="int8")
    model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16, quantization_config=config)
    model.save_pretrained(out)
    return model


def weights_of(source, dequantise):
    found = {}
    for name, module in source.model.named_modules():
        if isinstance(module, quanto.QModuleMixin) and isinstance(module.weight, quanto.QTensor):
            found[name + ".weight"] = dequantise(module.weight)
    if not found:
        raise AssertionError("quanto quantised nothing")
    return models.from_plain(source, found)


def reference(source):
    return weights_of(source, lambda weight: weight.dequantize())


def in_f32(weight):
    """quanto's formula (`tensor/qbits.py`) on values of F32, rounded when it is stored."""
    if hasattr(weight, "weight_qbits_tensor") and type(weight) is not quanto.WeightQBitsTensor:
        weight = weight.weight_qbits_tensor()
    codes = weight._data.unpack().float()
    values = weight._scale.float() * codes - weight._shift.float()
    return ungroup(values, axis=weight.axis, orig_shape=weight.shape)


def case(label, quantise, name="Llama", own=NEAR, unavailable=""):
    make = models.quantised(name, quantise)
    return Case(label, make, reference, options=("--native-rounding",), own=own, unavailable=unavailable)


KINDS = {"int8": quanto.qint8, "float8": quanto.qfloat8, "int4": quanto.qint4, "int2": quanto.qint2}

CASES = [
    *(case(f"{name}, wrapper, Llama", by_wrapper(kind)) for name, kind in KINDS.items()),
    *(case(f"{name}, map, Qwen2", by_map(kind), "Qwen2") for name, kind in KINDS.items()),
    *(Case(f"{name} in F32, wrapper, Llama", models.quantised("Llama", by_wrapper(KINDS[name])),
           lambda source: weights_of(source, in_f32), own=NEAR) for name in ("int4", "int2")),
    case("int8, through transformers, Llama", by_transformers, unavailable="transformers does not save quanto's weights"),
]
