"""Types find errors of a program before it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]

RIGHT = """
import anamnesis
import io

tensors = anamnesis.load(io.BytesIO(b""), "np", filter="a.*", rename={"a": "b"}, borrow="auto", progress=True)
with anamnesis.open("a.gguf", limits={"memory": None}, assume="plain") as checkpoint:
    shape: tuple[int, ...] = checkpoint["a"].shape
files: list[str] = anamnesis.remember_to("a", "b/", naming="hf", shard_size=1 << 30)
fits: bool | None = (anamnesis.fit("a", engine="vllm")["memory"] or {"fits": None})["fits"]
"""

# one error each
TYPOS = [
    'anamnesis.load("a", "pytorch")',
    'anamnesis.load("a", "np", fliter="x")',
    'anamnesis.load("a", "np", borrow="always")',
    'anamnesis.load("a", "np", loader="mmapped")',
    'anamnesis.load(3)',
    'anamnesis.open("a", nmap=True)',
    'anamnesis.open("a", assume="plane")',
    'anamnesis.open("a", limits={"memroy": 3})',
    'anamnesis.remember("a", naming="transformers")',
    'anamnesis.remember_to("a", "b", overwite=True)',
    'anamnesis.fit("a", engine="llamacpp")',
    'anamnesis.check("a")["finding"]',
    'anamnesis.convert("a", "b", container="npzip")',
]


def errors(program: Path) -> list[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", str(PACKAGE / "pyproject.toml"), str(program)]
    path = {**os.environ, "MYPYPATH": str(PACKAGE / "python")}
    run = subprocess.run(command, capture_output=True, text=True, env=path, cwd=program.parent, check=False)
    return [line for line in run.stdout.splitlines() if ": error:" in line]


def test_typos_are_errors_of_mypy(tmp_path: Path) -> None:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    program = tmp_path / "program.py"
    program.write_text(RIGHT)
    assert errors(program) == []
    program.write_text("import anamnesis\n\n" + "\n".join(TYPOS))
    found = {line.split(":")[1] for line in errors(program)}
    missed = [typo for number, typo in enumerate(TYPOS, 3) if str(number) not in found]
    assert not missed
