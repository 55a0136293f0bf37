"""Runs the tests of the safetensors package, from its source distribution, with the reading functions of this package in the place of
its own: ``python safetensors_suite.py``. The test files are not changed; what they import is. Files are written by safetensors.

Left out are the frameworks that this package does not serve, and tests of what is not reading, each with its reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path

VERSION = "0.8.0"

# and what each imports
FILES = {
    "test_simple.py": ["torch"], "test_pt_comparison.py": ["torch"], "test_pt_model.py": ["torch"], "test_pread_backend.py": ["torch"],
    "test_multithreaded.py": ["torch"], "test_threadable.py": ["numpy"], "test_mlx_comparison.py": ["mlx"], "test_flax_comparison.py": ["jax", "flax"],
}  # fmt: skip

# part of a test's name: why it is not run
LEFT_OUT = {
    "test_exception": "what `serialize` raises for an unknown dtype is not reading",
}

PLUGIN = '''
import importlib
import safetensors
import anamnesis.safetensors as ours

safetensors.safe_open = ours.safe_open
safetensors.SafetensorError = ours.SafetensorError
for name in ("torch", "numpy", "flax", "mlx"):
    try:
        theirs = importlib.import_module("safetensors." + name)
        own = importlib.import_module("anamnesis.safetensors." + name)
    except ImportError:
        continue
    theirs.load, theirs.load_file = own.load, own.load_file
    if hasattr(theirs, "safe_open"):
        theirs.safe_open = ours.safe_open
'''


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        archive = f"safetensors=={VERSION}"
        if subprocess.run([*pip, "--no-binary", "safetensors", "--dest", folder, archive], check=False).returncode:
            print(f"SKIPPED: the source of {archive} cannot be downloaded")
            return 0
        with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as tar:
            tar.extractall(folder, filter="data")
        tests = Path(folder) / f"safetensors-{VERSION}" / "bindings" / "python" / "tests"
        (tests / "data").mkdir(exist_ok=True)
        (tests / "in_our_place.py").write_text(PLUGIN)
        for part, reason in LEFT_OUT.items():
            print(f"left out: {part}: {reason}")
        files = []
        for file, imported in FILES.items():
            absent = [name for name in imported if find_spec(name) is None]
            if absent:
                print(f"SKIPPED: {file}: {', '.join(absent)} is not installed")
            else:
                files.append(file)
        if not files:
            return 0
        without = [f"not {part}" for part in LEFT_OUT]
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "in_our_place", *(f"tests/{file}" for file in files)]
        if without:
            command += ["-k", " and ".join(without)]
        return subprocess.run(command, cwd=tests.parent, env={**os.environ, "PYTHONPATH": str(tests)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
