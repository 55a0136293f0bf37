"""Runs the tests of the safetensors package, from its source distribution, with this package as the module ``safetensors``: ``python
safetensors_suite.py``. The test files are not changed.

Left out are frameworks that are not installed, and that this package does not serve, each by name.
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
    "test_multithreaded.py": ["torch"], "test_threadable.py": [], "test_handle.py": ["fsspec"],
    "test_mlx_comparison.py": ["mlx"], "test_flax_comparison.py": ["jax", "flax"],
}  # fmt: skip

# frameworks of the suite that this package does not serve
NOT_SERVED = {"test_tf_comparison.py": "TensorFlow", "test_paddle_comparison.py": "Paddle"}

PLUGIN = '''
import importlib
import sys

# while the exception of the installed package can be found
import anamnesis.safetensors as ours

sys.modules["safetensors"] = ours
for name in ("torch", "numpy", "flax", "mlx"):
    try:
        sys.modules["safetensors." + name] = importlib.import_module("anamnesis.safetensors." + name)
    except ImportError:
        pass
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
        for file, framework in NOT_SERVED.items():
            print(f"left out: {file}: this package has no tensors of {framework}")
        files = []
        for file, imported in FILES.items():
            absent = [name for name in imported if find_spec(name) is None]
            if absent:
                print(f"SKIPPED: {file}: {', '.join(absent)} is not installed")
            else:
                files.append(file)
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "in_our_place", *(f"tests/{file}" for file in files)]
        path = os.pathsep.join(filter(None, [str(tests), os.environ.get("PYTHONPATH")]))
        return subprocess.run(command, cwd=tests.parent, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
