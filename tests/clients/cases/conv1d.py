"""GPT-2's Conv1D modules, whose weights are [in, out]."""
import models
import torch
from case import EQUAL, NEAR, Case
from cases import bitsandbytes

MADE = "transformers; quantised with `BitsAndBytesConfig`, or `pytorch_model.bin`"
REFERENCE = "bitsandbytes' own dequantisation, transposed as the class stores it; the saved state"
CLIENT = "transformers"


def pytorch_model(work):
    made = models.model("GPT2", tied=True)
    made.config.save_pretrained(work / "bin")
    torch.save(made.state_dict(), work / "bin/pytorch_model.bin")
    return models.Source(work / "bin", model=made)


CASES = [
    bitsandbytes.case("nf4, GPT-2, tied", "GPT2", bitsandbytes.nf4(), tied=True),
    bitsandbytes.case("int8, GPT-2, tied", "GPT2", bitsandbytes.int8(), tied=True, own=NEAR),
    Case("pytorch_model.bin, GPT-2, tied", pytorch_model, lambda source: models.opened(source.model), own=EQUAL),
]
