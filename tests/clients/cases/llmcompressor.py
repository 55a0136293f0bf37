"""compressed-tensors, as llmcompressor writes them."""
import models
import torch
from case import Case
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

MADE = "llmcompressor's `oneshot` with `QuantizationModifier`"
REFERENCE = "transformers, with `CompressedTensorsConfig(run_compressed=False)`"
CLIENT = "transformers"


def quantise(scheme, ignore):
    def into(plain, out):
        from llmcompressor import oneshot
        from llmcompressor.modifiers.quantization import QuantizationModifier

        model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
        oneshot(model=model, recipe=QuantizationModifier(targets="Linear", scheme=scheme, ignore=["lm_head", *ignore]))
        model.save_pretrained(out, save_compressed=True)
        return model

    return into


def decompressed(source):
    model = models.load(source.path, quantization_config=CompressedTensorsConfig(run_compressed=False))
    found = model.state_dict()
    plain = models.load(source.plain).state_dict().keys()
    # scales and zero points stay in the module beside the weight that was made of them
    return models.from_plain(source, {name: found[name] for name in plain})


def own_output_fails(out, source):
    """Shows that transformers does not find the experts of llmcompressor's own output either: the same names are missing."""
    failures, own = [], dict(quantization_config=CompressedTensorsConfig(run_compressed=False))
    for folder, options in [(source.path, own), (out, {})]:
        _, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **options)
        failures.append({str(name) for name in info["missing_keys"] if "experts" in str(name)})
    quantised, ours = failures
    if not ours or ours != quantised:
        raise AssertionError(f"missing: {sorted(quantised)} of llmcompressor's output, {sorted(ours)} of ours")
    return ("llmcompressor's own output lacks the same experts when transformers opens it: "
            f"{len(ours)} names, such as {min(ours)}")


def case(scheme, label="Llama", name="Llama", tied=False, ignore=(), **more):
    make = models.quantised(name, quantise(scheme, ignore), tied)
    return Case(f"{scheme}, {label}", make, decompressed, **more)


SCHEMES = ["FP8_DYNAMIC", "FP8_BLOCK", "W8A8", "W8A16", "W4A16", "W4A16_ASYM", "NVFP4A16", "MXFP4A16", "MXFP8"]

CASES = [
    *map(case, SCHEMES),
    case("FP8_DYNAMIC", "Qwen3-MoE", "Qwen3Moe", ignore=["re:.*mlp.gate$"]),
    case("W4A16", "Qwen3, tied", "Qwen3", tied=True),
    case("NVFP4A16", "Mixtral", "Mixtral", ignore=["re:.*gate$"], proof=own_output_fails),
]
