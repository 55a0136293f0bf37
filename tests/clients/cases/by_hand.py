"""FP8 in DeepSeek's form and gpt-oss' MXFP4, which no library writes on a CPU: made by hand, read by transformers."""
import json
import re

import models
import torch
from case import Case, difference, differences
from safetensors.torch import load_file, save_file
from transformers import FineGrainedFP8Config, Mxfp4Config
from transformers.integrations.finegrained_fp8 import _dequantize_fp8_weight

MADE = "by hand: FP8 in blocks of 128 by 128, random MXFP4 blocks"
REFERENCE = "transformers with `dequantize=True`"
CLIENT = "transformers"

BLOCK = 128
NOT_QUANTISED = re.compile(r"lm_head|embed|norm|mlp\.gate\.weight|router")


def rewritten(work, name, change, config):
    """A source whose tensors `change` has replaced, with this `quantization_config`."""
    plain = models.save(models.model(name), work / "plain")
    out = models.save(models.load(plain), work / "quantised")
    tensors = {}
    for key, value in load_file(out / "model.safetensors").items():
        tensors.update(change(key, value))
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    settings = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**settings, "quantization_config": config}))
    return models.Source(out, plain)


def over_blocks(scales, rows, cols):
    return scales.repeat_interleave(BLOCK, 0)[:rows].repeat_interleave(BLOCK, 1)[:, :cols]


def to_fp8(name, weight):
    if weight.ndim != 2 or NOT_QUANTISED.search(name):
        return {name: weight}
    rows, cols = weight.shape
    padded = torch.zeros(-(-rows // BLOCK) * BLOCK, -(-cols // BLOCK) * BLOCK)
    padded[:rows, :cols] = weight.float()
    largest = padded.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK)).abs().amax((1, 3))
    scales = largest / torch.finfo(torch.float8_e4m3fn).max
    codes = (weight.float() / over_blocks(scales, rows, cols)).to(torch.float8_e4m3fn)
    return {name: codes, name + "_scale_inv": scales}


def fp8(name):
    config = dict(quant_method="fp8", activation_scheme="dynamic", weight_block_size=[BLOCK, BLOCK])
    return lambda work: rewritten(work, name, to_fp8, config)


def to_mxfp4(name, weight):
    if not re.search(r"experts\.(gate_up|down)_proj$", name):
        return {name: weight}
    experts, inputs, outputs = weight.shape
    random = torch.Generator().manual_seed(len(name))
    blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), generator=random, dtype=torch.uint8)
    scales = torch.randint(115, 124, (experts, outputs, inputs // 32), generator=random, dtype=torch.uint8)
    return {name + "_blocks": blocks, name + "_scales": scales}


def mxfp4(work):
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    return rewritten(work, "GptOss", to_mxfp4, dict(quant_method="mxfp4", modules_to_not_convert=skipped))


def dequantised(config):
    return lambda source: models.opened(models.load(source.path, quantization_config=config(dequantize=True)))


def ragged_blocks(out, source):
    """Shows that transformers divides rows that are no multiple of 128 into equal blocks when it dequantises, against the
    128 of the configuration and of its own `_dequantize_fp8_weight`, with which our weights agree; all others are equal."""
    ours = models.load(out).state_dict()
    theirs = models.load(source.path, quantization_config=FineGrainedFP8Config(dequantize=True)).state_dict()
    stored = load_file(source.path / "model.safetensors")
    shown = []
    for name, value in stored.items():
        scales = stored.get(name + "_scale_inv")
        if scales is None or len(scales) == 1 or len(value) % BLOCK == 0:
            continue
        rows = len(value) // len(scales)
        by_grid = value.float() * scales.repeat_interleave(rows, 0).repeat_interleave(BLOCK, 1)[:, :value.shape[1]]
        by_128 = _dequantize_fp8_weight(value, scales, [BLOCK, BLOCK], torch.float32)
        wrong = [difference(name, ours[name], by_128.bfloat16()), difference(name, theirs[name], by_grid.bfloat16())]
        if any(wrong):
            raise AssertionError(wrong)
        if difference(name, ours[name], theirs[name]):
            shown.append(name)
            ours[name] = theirs[name]
    wrong = differences(ours, theirs)
    if not shown or wrong:
        raise AssertionError(f"{len(shown)} weights of ragged blocks; others: {wrong[:4]}")
    return (f"{len(ours) - len(shown)} weights equal; {len(shown)} ({shown[0]}, {rows * 2} rows) equal to transformers' own "
            f"`_dequantize_fp8_weight`, whose blocks have 128 rows as configured; its `dequantize=True` takes {rows} rows "
            "a block")


CASES = [
    *(Case(f"FP8, {label}", fp8(name), dequantised(FineGrainedFP8Config))
      for label, name in [("Llama", "Llama"), ("Qwen3-MoE", "Qwen3Moe"), ("Mixtral", "Mixtral")]),
    Case("FP8 with ragged blocks, DeepSeek-V3", fp8("DeepseekV3"), proof=ragged_blocks),
    Case("MXFP4, gpt-oss", mxfp4, dequantised(Mxfp4Config)),
]
