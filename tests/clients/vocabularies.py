"""Tokenizers from llama.cpp's vocabulary files against llama.cpp's own results.

usage: vocabularies.py CONVERTER_BINARY LLAMA_CPP_MODELS_DIR WORK_DIR

CONVERTER_BINARY is target/debug/examples/gguf_to_hugging_face; LLAMA_CPP_MODELS_DIR is `models/` of llama.cpp, whose
`ggml-vocab-*.gguf.inp` and `.out` hold texts and their tokens.
"""
import pathlib
import subprocess
import sys

from tokenizers import Tokenizer

binary, models, work = sys.argv[1:4]
for path in sorted(pathlib.Path(models).glob("ggml-vocab-*.gguf")):
    texts = path.with_name(path.name + ".inp")
    if not texts.exists():
        continue
    out = pathlib.Path(work) / path.stem
    done = subprocess.run([binary, str(path), str(out), "f32"], capture_output=True, text=True)
    if done.returncode or not (out / "tokenizer.json").exists():
        print(f"{path.stem:32} none: {(done.stdout + done.stderr).strip()[:160]}")
        continue
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    inputs = texts.read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    results = path.with_name(path.name + ".out").read_text(encoding="utf-8").splitlines()
    wrong = []
    for text, result in zip(inputs, results):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if ids != [int(n) for n in result.split()]:
            wrong.append(text)
    print(f"{path.stem:32} {len(results) - len(wrong)} of {len(results)} equal {wrong[:3]!r:.200}")
