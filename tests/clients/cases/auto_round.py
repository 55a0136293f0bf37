"""AutoRound: its own packing, GPTQ's, AWQ's and llm-compressor's."""
import json

import models
import torch
from auto_round import AutoRound
from case import EQUAL, NEAR, Case
from cases import gptq_formula, llmcompressor
from transformers import AutoModelForCausalLM, AutoTokenizer

MADE = "`AutoRound(…, iters=0).quantize_and_save`"
REFERENCE = ("GPTQ's and AWQ's formulas written out in torch; transformers for llm-compressor's form; AutoRound's own "
             "modules for MXFP4")
CLIENT = "transformers, in a process without AutoRound"


def make(scheme, form, name="Llama"):
    def into(plain, out):
        model = AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
        tokenizer = AutoTokenizer.from_pretrained(plain)
        rounder = AutoRound(model, tokenizer, scheme=scheme, iters=0, disable_opt_rtn=True, device_map="cpu")
        rounder.quantize_and_save(str(out), format=form)

    def into_folder(work):
        source = models.quantised(name, into)(work)
        # some formats are written into a folder of their name
        source.path = min(source.path.rglob("config.json")).parent
        return source

    return into_folder


def with_own_model(made):
    def reopened(work):
        source = made(work)
        source.model = AutoModelForCausalLM.from_pretrained(source.path).eval()
        return source

    return reopened


def reference(source):
    tensors = gptq_formula.stored(source.path)
    settings = json.loads((source.path / "config.json").read_text())
    config = settings["quantization_config"]
    packing = config.get("packing_format", config.get("quant_method"))
    weights = {}
    for module in gptq_formula.modules(tensors):
        if "awq" in packing:
            value = gptq_formula.awq(tensors, module)
        else:
            version = 1 if "gptq" in packing and not packing.endswith("v2") else 2
            value = gptq_formula.gptq(tensors, module, config["bits"], version)
        weights[module + ".weight"] = value
    if not weights:
        raise AssertionError(f"no packed weights: {config}")
    # AutoRound writes GPTQ's form as F16
    return from_plain(source, stacked(weights), settings["dtype"])


def from_plain(source, weights, dtype="auto"):
    return models.elsewhere(models.from_plain, models.Source(source.path, source.plain), weights, dtype)


def client(out, source):
    return models.elsewhere(models.opened_folder, out)


def by_own_modules(source):
    """The weights that AutoRound's own modules compute with."""
    modules = source.model.named_modules()
    weights = {name + ".weight": module.dequant_weight_online() for name, module in modules
               if hasattr(module, "dequant_weight_online")}
    if not weights:
        raise AssertionError("no module of AutoRound's")
    return from_plain(source, {name: value.detach() for name, value in weights.items()})


def stacked(weights):
    """Experts as transformers holds them, gate and up projections in one tensor of all experts."""
    found, experts = {}, {}
    for name, value in weights.items():
        if ".experts." not in name:
            found[name] = value
            continue
        prefix, rest = name.split(".experts.")
        number, projection, _ = rest.split(".")
        experts.setdefault(prefix, {}).setdefault(int(number), {})[projection] = value
    for prefix, values in experts.items():
        ordered = [values[number] for number in sorted(values)]
        gate_up = [torch.cat([each["gate_proj"], each["up_proj"]]) for each in ordered]
        found[prefix + ".experts.gate_up_proj"] = torch.stack(gate_up)
        found[prefix + ".experts.down_proj"] = torch.stack([each["down_proj"] for each in ordered])
    return found


def case(scheme, form, own, **more):
    made = make(scheme, form)
    return Case(f"{scheme}, {form}, Llama", with_own_model(made) if own else made, reference, client, own=own, **more)


HUB = "wants a data set of the hub"

CASES = [
    case("W4A16", "auto_round", EQUAL),
    case("W2A16", "auto_round", EQUAL),
    case("W8A16", "auto_round", NEAR),
    case("W4A16", "auto_gptq", None),
    case("W4A16", "auto_awq", NEAR),
    Case("W4A16, llm_compressor, Llama", with_own_model(make("W4A16", "llm_compressor")), llmcompressor.decompressed, client,
         own=EQUAL),
    Case("W4A16, auto_round, Qwen3-MoE", with_own_model(make("W4A16", "auto_round", "Qwen3Moe")), reference, client,
         own=EQUAL),
    Case("MXFP4, auto_round, Llama", with_own_model(make("MXFP4", "auto_round")), by_own_modules, client, own=NEAR),
    Case("NVFP4, auto_round, Llama", make("NVFP4", "auto_round"), reference, unavailable=HUB),
    Case("FP8_STATIC, llm_compressor, Llama", make("FP8_STATIC", "llm_compressor"), reference, unavailable=HUB),
]
