"""HQQ: 2 to 8 bits with fitted zero points."""
import models
import torch
from case import NEAR, Case
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from hqq.models.hf.base import AutoHQQHFModel
from transformers import AutoModelForCausalLM, HqqConfig

MADE = "hqq's `AutoHQQHFModel`, F16"
REFERENCE = "`HQQLinear.dequantize()`"
CLIENT = "transformers"


def by_hqq(bits, safetensors):
    def into(plain, out):
        model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float16)
        config = BaseQuantizeConfig(nbits=bits, group_size=64)
        AutoHQQHFModel.quantize_model(model, quant_config=config, compute_dtype=torch.float16, device="cpu")
        (AutoHQQHFModel.save_to_safetensors if safetensors else AutoHQQHFModel.save_quantized)(model, str(out))
        return model

    return into


def by_transformers(plain, out):
    config = HqqConfig(nbits=4, group_size=64)
    model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float16, quantization_config=config, device_map="cpu")
    model.save_pretrained(out)
    return model


def reference(source):
    modules = source.model.named_modules()
    return models.from_plain(source, {
        name + ".weight": module.dequantize() for name, module in modules if isinstance(module, HQQLinear)
    })


def case(label, quantise, unavailable=""):
    make = models.quantised("Llama", quantise, dtype=torch.float16)
    return Case(label, make, reference, options=("--native-rounding",), own=NEAR, unavailable=unavailable)


CASES = [
    *(case(f"{bits} bits, qmodel.pt, Llama", by_hqq(bits, False)) for bits in (8, 4, 3, 2, 1)),
    *(case(f"{bits} bits, safetensors, Llama", by_hqq(bits, True)) for bits in (8, 4, 3, 2, 1)),
    case("4 bits, through transformers, Llama", by_transformers, "transformers 5 has no HQQ yet"),
]
