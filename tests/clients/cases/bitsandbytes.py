"""bitsandbytes: 4 and 8 bits."""
import bitsandbytes
import models
import torch
from case import EQUAL, NEAR, Case
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from transformers.pytorch_utils import Conv1D

MADE = "transformers with `BitsAndBytesConfig`"
REFERENCE = "bitsandbytes' `dequantize_4bit` and `int8_vectorwise_dequant` of each module"
CLIENT = "transformers"


def quantise(config):
    def into(plain, out):
        model = AutoModelForCausalLM.from_pretrained(plain, quantization_config=config)
        model.save_pretrained(out)
        for module in model.modules():
            if isinstance(module, bitsandbytes.nn.Linear4bit):
                # a kernel of some CPUs multiplies by the codes, with other rounding than by dequantised weights
                module.support_avx512bf16_for_cpu = False
        return model

    return into


def reference(source):
    plain, weights = models.load(source.plain), {}
    for name, module in source.model.named_modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            value = bitsandbytes.functional.dequantize_4bit(module.weight.data, module.weight.quant_state)
        elif isinstance(module, bitsandbytes.nn.Linear8bitLt):
            codes, scales = module.weight.CB, module.weight.SCB
            value = bitsandbytes.functional.int8_vectorwise_dequant(codes, scales)
        else:
            continue
        transposed = isinstance(plain.get_submodule(name), Conv1D)
        weights[name + ".weight"] = value.t() if transposed else value
    return models.from_plain(source, weights)


def nf4(**more):
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16, **more)


def int8():
    return BitsAndBytesConfig(load_in_8bit=True)


def fp4():
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_compute_dtype=torch.float16)


def case(label, name, config, tied=False, dtype=torch.bfloat16, own=EQUAL):
    return Case(label, models.quantised(name, quantise(config), tied, dtype), reference, own=own)


CASES = [
    case("nf4, Llama", "Llama", nf4()),
    case("nf4 with nested scales, Llama, tied", "Llama", nf4(bnb_4bit_use_double_quant=True), tied=True),
    case("nf4 stored as BF16, Llama", "Llama", nf4(bnb_4bit_quant_storage=torch.bfloat16)),
    case("nf4, Qwen3-MoE", "Qwen3Moe", nf4()),
    case("fp4 of F16, Mixtral", "Mixtral", fp4(), dtype=torch.float16),
    case("int8, Qwen3, tied", "Qwen3", int8(), tied=True, own=NEAR),
]
