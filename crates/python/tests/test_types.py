"""Types find errors of a program before it runs."""

from __future__ import annotations

import json
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


def mypy(program: Path) -> list[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", str(PACKAGE / "pyproject.toml"), str(program)]
    path = {**os.environ, "MYPYPATH": str(PACKAGE / "python")}
    run = subprocess.run(command, capture_output=True, text=True, env=path, cwd=program.parent, check=False)
    return [line.split(":")[1] for line in run.stdout.splitlines() if ": error:" in line]


def pyright(program: Path) -> list[str]:
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(PACKAGE / "python")], "include": [program.name]}
    (program.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=program.parent, check=False)
    try:
        found = json.loads(run.stdout)
    except ValueError:
        # it runs on Node, which its package loads where the machine has none
        pytest.skip(f"SKIPPED: pyright does not run here: {run.stderr.strip()[-200:]}")
    assert found["summary"]["filesAnalyzed"] >= 1, run.stdout
    return [str(row["range"]["start"]["line"] + 1) for row in found["generalDiagnostics"] if row["severity"] == "error"]


# the lines of a program that have errors, by its checker
CHECKERS = {"mypy": mypy, "pyright": pyright}


@pytest.mark.parametrize("checker", CHECKERS)
def test_typos_are_errors(checker: str, tmp_path: Path) -> None:
    if find_spec(checker) is None:
        pytest.skip(f"SKIPPED: {checker} is not installed")
    errors, program = CHECKERS[checker], tmp_path / "program.py"
    program.write_text(RIGHT)
    assert errors(program) == []
    program.write_text("import anamnesis\n\n" + "\n".join(TYPOS))
    found = errors(program)
    missed = [typo for number, typo in enumerate(TYPOS, 3) if str(number) not in found]
    assert not missed
