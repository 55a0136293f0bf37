"""accelerate: `load_checkpoint_and_dispatch`, in memory and with layers on a disk."""
import pathlib
import tempfile

import accelerate
import models
import transformers
from accelerate.utils.modeling import get_state_dict_offloaded_model
from case import EQUAL, Case
from cases import bitsandbytes

MADE = "transformers with `BitsAndBytesConfig`, nf4"
REFERENCE = "bitsandbytes' `dequantize_4bit` of each module"
CLIENT = "accelerate's `load_checkpoint_and_dispatch`, strict"

# a layer that is read from a disk whenever it runs
ON_DISK = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu", "model.layers.0": "cpu",
           "model.layers.1": "disk"}


def client(device_map):
    def opened(out, source):
        with accelerate.init_empty_weights():
            made = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(out))
        made.tie_weights()
        with tempfile.TemporaryDirectory() as folder:
            made = accelerate.load_checkpoint_and_dispatch(made, out, device_map, offload_folder=folder, strict=True).eval()
            on_disk = [file.name for file in pathlib.Path(folder).glob("*.dat")] + [name for name, value in made.named_parameters() if value.is_meta]
            if ("disk" in device_map.values()) != bool(on_disk):
                raise AssertionError(f"on the disk: {on_disk}")
            weights = get_state_dict_offloaded_model(made) if on_disk else made.state_dict()
            return models.State({name: value.clone() for name, value in weights.items()}, models.logits(made))

    return opened


def case(label, device_map, *options, tied=False):
    make = models.quantised("Llama", bitsandbytes.quantise(bitsandbytes.nf4()), tied)
    return Case(label, make, bitsandbytes.reference, client(device_map), options, own=EQUAL)


CASES = [
    case("one file", {"": "cpu"}),
    case("one file, tied", {"": "cpu"}, tied=True),
    case("shards", {"": "cpu"}, "--shard-size", "200KB"),
    case("shards, a layer on a disk", ON_DISK, "--shard-size", "200KB"),
]
