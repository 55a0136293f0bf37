"""The examples of docs/python.md run, in a process each, in the root of the repository."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)
# packages for the modules that examples import
NEEDED = {"torch": ["torch"], "ray": ["ray"], "transformers": ["torch", "transformers"]}


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_run(example: str) -> None:
    for module, packages in NEEDED.items():
        for package in packages:
            if f"import anamnesis.{module}\n" in example and find_spec(package) is None:
                pytest.skip(f"SKIPPED: {package} is not installed")
    run = subprocess.run([sys.executable, "-c", example], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 17
