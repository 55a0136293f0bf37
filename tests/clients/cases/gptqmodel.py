"""GPTQModel: GPTQ in order and in act order, and AWQ."""
import json

import gptqmodel
import models
from case import Case
from cases import gptq_formula
from gptqmodel import GPTQModel, QuantizeConfig

MADE = "GPTQModel on 8 seeded sequences"
REFERENCE = "GPTQ's formula written out in torch"
CLIENT = "transformers"

# its loader takes two workers, of which it has one on a machine of 2 cores
gptqmodel._default_cpu_workers = lambda: 2


def quantise(settings):
    def into(plain, out):
        model = GPTQModel.load(str(plain), QuantizeConfig(device="cpu", **settings))
        sequence = {"input_ids": list(range(1, 129)), "attention_mask": [1] * 128}
        model.quantize([sequence] * 8, batch_size=1)
        model.save(str(out))

    return into


def reference(bits):
    def state(source):
        tensors = gptq_formula.stored(source.path)
        names = gptq_formula.modules(tensors)
        if not names:
            raise AssertionError("GPTQModel packed nothing")
        dtype = json.loads((source.path / "config.json").read_text())["dtype"]
        return models.from_plain(source, {n + ".weight": gptq_formula.gptq(tensors, n, bits) for n in names}, dtype)

    return state


def case(label, bits, **settings):
    settings = dict(bits=bits, group_size=32, **settings)
    return Case(f"{label}, Llama", models.quantised("Llama", quantise(settings)), reference(bits))


CASES = [
    case("4 bits", 4),
    case("8 bits", 8),
    case("2 bits", 2),
    case("4 bits in act order", 4, desc_act=True),
]
