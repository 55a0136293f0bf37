"""Checkpoints of more files than a process may open, and a process that can open none: each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SKIPPED: files are closed and opened again on Linux")

PREPARED = """
import errno, json, os, resource, struct, sys
from pathlib import Path
import numpy as np
import anamnesis

folder = Path(sys.argv[1]) / "model"
folder.mkdir()
SHARDS = 1000


def name(number):
    return f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"


def content(number):
    return np.arange(5000, dtype=np.float32) + number


names = {}
for number in range(SHARDS):
    header = json.dumps({f"t{number}": {"dtype": "F32", "shape": [5000], "data_offsets": [0, 20000]}}).encode()
    (folder / name(number)).write_bytes(struct.pack("<Q", len(header)) + header + content(number).tobytes())
    names[f"t{number}"] = name(number)
(folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def descriptors():
    return len(os.listdir("/proc/self/fd"))
"""


def run(script: str, folder: Path) -> None:
    text = PREPARED + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", text, str(folder)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_ten_checkpoints_of_a_thousand_shards_are_open_under_a_limit_of_256(tmp_path: Path) -> None:
    script = """
    opened = [anamnesis.open(folder, mmap=number % 2 == 0) for number in range(10)]
    assert descriptors() < 130, descriptors()
    for number, checkpoint in enumerate(opened):
        for loader in (None, "pread", "io_uring")[: 3 if number == 0 else 1]:
            loaded = checkpoint.load("np", loader=loader)
            assert all(np.array_equal(loaded[f"t{n}"], content(n)) for n in range(SHARDS))
            assert descriptors() < 130, descriptors()
    for n in (0, 500, 999):
        assert np.array_equal(opened[3][f"t{n}"].numpy(), content(n))
    out = anamnesis.convert(opened[1], folder.parent / f"{folder.name}.safetensors")
    assert np.array_equal(anamnesis.open(out[0])["t7"].numpy(), content(7))
    # of another model by now
    os.replace(folder / name(3), folder / "other")
    os.replace(folder / name(500), folder / name(501))
    try:
        opened[1]["t501"].numpy()
    except anamnesis.ReplacedError as error:
        assert name(501) in str(error), error
    else:
        raise AssertionError("the tensor of another file")
    """
    run(script, tmp_path)


def test_exhausted_descriptors_are_an_error_of_the_system(tmp_path: Path) -> None:
    script = """
    import anamnesis._list, anamnesis._convert, anamnesis._writer, anamnesis.errors
    fixture = folder / name(0)
    opened = anamnesis.open(fixture)
    # modules are files too
    opened["t0"].numpy()
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    calls = {
        "open": lambda: anamnesis.open(fixture),
        "open of a directory": lambda: anamnesis.open(folder),
        "load": lambda: anamnesis.load(fixture, "np"),
        "inspect": lambda: anamnesis.inspect(folder),
        "plan": lambda: anamnesis.plan(fixture),
        "remember": lambda: anamnesis.remember(fixture, folder.parent / f"{folder.name}.safetensors", dtype="float32"),
        "convert": lambda: anamnesis.convert(opened, folder.parent / f"{folder.name}.safetensors"),
        "writer": lambda: anamnesis.TensorWriter(folder / "out.safetensors", {"t": ("F32", (1,))}).finish(),
        "edit": lambda: anamnesis.edit(fixture, set={"a": "b"}),
        "template": lambda: anamnesis.Template.open(folder / "none"),
    }
    for what, call in calls.items():
        try:
            call()
        except OSError as error:
            assert error.errno == errno.EMFILE, (what, error)
        except Exception as error:
            raise AssertionError(what) from error
        else:
            raise AssertionError(f"{what} did without a descriptor")
    assert np.array_equal(opened["t0"].numpy(), content(0))
    for one in held:
        os.close(one)
    assert np.array_equal(anamnesis.load(folder, "np")["t999"], content(999))
    """
    run(script, tmp_path)
