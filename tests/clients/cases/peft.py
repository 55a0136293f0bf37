"""Adapters of peft, on a model that peft opens them for."""
import models
import torch
from case import EQUAL, Case
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict

MADE = "peft's `save_pretrained` of a LoRA with random weights, F32"
REFERENCE = "the adapter in memory"
CLIENT = "`PeftModel.from_pretrained` on the base model"


def adapter(safetensors):
    def make(work):
        plain = models.save(models.model("Llama", dtype=torch.float32), work / "plain")
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        torch.manual_seed(1)
        made = get_peft_model(models.load(plain), config).eval()
        made.save_pretrained(work / "adapter", safe_serialization=safetensors)
        return models.Source(work / "adapter", plain, made)

    return make


def state(made):
    return models.State(get_peft_model_state_dict(made), models.logits(made))


def client(out, source):
    return state(PeftModel.from_pretrained(models.load(source.plain), out).eval())


CASES = [
    Case("adapter_model.safetensors", adapter(True), lambda source: state(source.model), client, own=EQUAL),
    Case("adapter_model.bin", adapter(False), lambda source: state(source.model), client, own=EQUAL),
]
