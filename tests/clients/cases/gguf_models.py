"""GGUF files of each architecture, back as Hugging Face checkpoints, with their tokenizers (`gguf_names.py`)."""
import functools
import os
import pathlib
import re
import subprocess
import sys

import gguf_names
from case import Case

MADE = "transformers, and llama.cpp's `convert_hf_to_gguf.py` to F16 and Q8_0"
REFERENCE = ("the model before it was converted, its logits, and 2000 seeded texts in its own tokenizer; of Q8_0, the values that "
             "gguf-py decodes, and what transformers' `from_pretrained(…, gguf_file=…)` loads from the same file")
CLIENT = "transformers"

SCRIPT = pathlib.Path(gguf_names.__file__)
KIND = re.compile(r"(f16|q8_0): (\d+) of (\d+) weights differ, logits (\S+)(.*)")


@functools.cache
def lines(folder):
    """The lines that `gguf_names.py` prints, one for each model in the order of `CASES`, as they are printed."""
    command = [sys.executable, str(SCRIPT), os.environ["ANAMNESIS"], str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "KINDS": "f16,q8_0"})
    return process.stdout


def check(name):
    def into(row, work):
        if not pathlib.Path(os.environ.get("LLAMA_CPP", ""), "convert_hf_to_gguf.py").is_file():
            row.result, row.note = "skipped", "needs llama.cpp"
            return
        line = lines(work.parent).readline().strip()
        print(line)
        if line.split()[:1] != [name]:
            raise AssertionError(f"not the line of this model: {line}")
        fill(row, line[len(name):].strip())

    return into


def own_reader(part):
    """The result of transformers' own reader of GGUF for the Q8_0 file: the same weights, or why it does not load it."""
    match = re.fullmatch(r"(\d+) of (\d+) equal.*, logits (\S+)", part)
    if not match:
        return f"`gguf_file=` {part}"
    if match[1] != match[2]:
        raise AssertionError(part)
    return f"`gguf_file=`: {match[2]} equal, logits {'equal' if float(match[3]) == 0 else 'within ' + match[3]}"


def fill(row, line):
    """The row of a line: the weights of F16 are the original's, and the logits too but for the order of operations. Weights
    of Q8_0 have the values of gguf-py."""
    parts = [part.strip() for part in line.split(" | ")]
    kinds = {match[1]: match for match in map(KIND.match, parts) if match}
    counts = next((re.match(r"tokenizer (\d+)/(\d+)", part) for part in parts if part.startswith("tokenizer ")), None)
    if kinds.keys() != {"f16", "q8_0"} or "LOADING" in line or not counts:
        raise AssertionError(line)
    exact, storage = kinds["f16"], kinds["q8_0"]
    decoded = next((re.match(r"gguf-py (\d+) of (\d+) equal", part) for part in parts if part.startswith("gguf-py ")), None)
    if exact[2] != "0" or float(exact[4]) > 1e-3 or counts[1] != counts[2] or not decoded or decoded[1] != decoded[2]:
        raise AssertionError(line)
    own = next(part.removeprefix("gguf_file ") for part in parts if part.startswith("gguf_file "))
    row.weights = f"{exact[3]} equal (F16)"
    row.logits = f"{'equal' if float(exact[4]) == 0 else 'within ' + exact[4]} (F16), within {storage[4]} (Q8_0)"
    row.note = f"{counts[1]} texts equal; Q8_0: {decoded[2]} as gguf-py, {own_reader(own)}"


CASES = [Case(name, check=check(name)) for name, _, _ in gguf_names.cases()]
