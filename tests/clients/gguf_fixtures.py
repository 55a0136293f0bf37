"""Writes fixtures/gguf/names: small seeded models as llama.cpp's converter stores them, and what transformers has of them.

usage: LLAMA_CPP=DIR gguf_fixtures.py OUT_DIR WORK_DIR [CASE ...]

`expected.json` holds, for each case, the shape and the SHA-256 of the F32 bytes of every tensor that transformers saves, and
its configuration. The GGUF files are F16; the models' values are exact in F16.
"""
import hashlib
import json
import os
import pathlib
import shutil
import sys

import gguf_names as names
from safetensors.torch import load_file

# between 20 and 70 KB a file
names.BASE.update(vocab_size=300, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
names.VOCABULARY.update(bytes=262, spm=400, unigram=290)
# without the table of NFKC, which has 240 KB
names.UNIGRAM_NORMALIZATION.update(normalization_rule_name="identity")
names.MOE.update(num_experts=2, num_experts_per_tok=1)
names.MLA.update(n_routed_experts=2, num_experts_per_tok=1, moe_intermediate_size=16, kv_lora_rank=16, qk_rope_head_dim=8,
                 qk_nope_head_dim=16, v_head_dim=16, head_dim=8)
names.SIZES.update(qwen2moe=dict(moe_intermediate_size=16, shared_expert_intermediate_size=48), qwen3moe=dict(moe_intermediate_size=16),
                   qwen3={}, gemma3={}, gpt2={}, deepseek2=dict(num_hidden_layers=2), deepseek3=dict(num_hidden_layers=2))
names.SIZES.update({"gemma3-linear": {}, "phi3-longrope": dict(vocab_size=400)})

out, work, *chosen = sys.argv[1:]
path = pathlib.Path(out) / "expected.json"
expected = json.loads(path.read_text()) if path.exists() else {}
for name, config, tokenizer in names.cases():
    if name not in chosen:
        continue
    source = os.path.abspath(f"{work}/{name}")
    names.make(config, tokenizer, source)
    made = f"{source}.gguf"
    failure = names.convert(source, made, "f16", tokenizer)
    if failure:
        sys.exit(f"{name}: {failure}")
    if name in names.REWRITES:
        names.rewritten(made, f"{out}/{name}.gguf", names.REWRITES[name])
    else:
        shutil.copyfile(made, f"{out}/{name}.gguf")
    tensors = {}
    for file in pathlib.Path(source).glob("*.safetensors"):
        for key, value in load_file(file).items():
            tensors[key] = [list(value.shape), hashlib.sha256(value.float().numpy().tobytes()).hexdigest()]
    expected[name] = {"config": json.loads((pathlib.Path(source) / "config.json").read_text()), "tensors": tensors}
    print(name, os.path.getsize(f"{out}/{name}.gguf"))
path.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
