"""The most ordinary loop, load, change, save to the same path, by every function and for every format: each in a process of its own,
which a map of the file that its writer truncates would end by SIGBUS."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import anamnesis
import numpy as np
import pytest

SCRIPT = """
import sys
from pathlib import Path
import numpy as np
import anamnesis, anamnesis.safetensors, anamnesis.safetensors.numpy

writer, function, path = sys.argv[1], sys.argv[2], Path(sys.argv[3])
# beyond what is kept of a small file, so that pages of the file would be touched
LARGE, SMALL = 1 << 20, 1000


def save(arrays):
    if writer == "numpy.save":
        np.save(path, arrays["a"])
    elif writer in ("numpy.savez", "numpy.savez_compressed"):
        getattr(np, writer.partition(".")[2])(path, **arrays)
    elif writer == "safetensors.numpy":
        from safetensors.numpy import save_file
        save_file(arrays, path)
    elif writer == "safetensors.torch":
        import torch
        from safetensors.torch import save_file
        save_file({name: torch.from_numpy(array) for name, array in arrays.items()}, path)
    elif writer in ("torch.save", "torch.save of old"):
        import torch
        new = writer == "torch.save"
        torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path, _use_new_zipfile_serialization=new)
    elif writer == "gguf":
        import gguf
        out = gguf.GGUFWriter(path, "llama")
        for name, array in arrays.items():
            out.add_tensor(name, array)
        out.write_header_to_file(); out.write_kv_data_to_file(); out.write_tensors_to_file(); out.close()
    elif writer == "anamnesis":
        with anamnesis.TensorWriter(path, {name: ("F32", array.shape) for name, array in arrays.items()}, overwrite=True) as out:
            for name in out.order:
                out.write(name, arrays[name])
    else:
        raise AssertionError(writer)


def by_torch(load):
    return {name: tensor.numpy() for name, tensor in load().items()}


def opened(make):
    checkpoint = anamnesis.open(path)
    made = {name: make(tensor) for name, tensor in checkpoint.items()}
    # open until the file is saved
    globals()["kept"] = checkpoint
    return made


def safe_open(get):
    kept = globals()["kept"] = anamnesis.safetensors.safe_open(path, "np")
    return {name: get(kept, name) for name in kept.keys()}


def torch_load(**options):
    import anamnesis.torch
    return anamnesis.torch.load(path, **options)


def out():
    made = {name: np.zeros(tensor.shape, np.float32) for name, tensor in anamnesis.open(path).items()}
    return anamnesis.load(path, "np", out=made)


FUNCTIONS = {
    "load": lambda: anamnesis.load(path, "np"),
    "load copy": lambda: anamnesis.load(path, "np", borrow=False),
    "load dlpack": lambda: {n: np.from_dlpack(t) for n, t in anamnesis.load(path, "dlpack").items()},
    "load slices": lambda: anamnesis.load(path, "np", slices={}),
    "load pt": lambda: by_torch(lambda: anamnesis.load(path)),
    "load_file": lambda: by_torch(lambda: anamnesis.load_file(path)),
    "out": out,
    "numpy": lambda: opened(lambda t: t.numpy()),
    "index": lambda: opened(lambda t: t[...]),
    "asarray": lambda: opened(np.asarray),
    "from_dlpack": lambda: opened(np.from_dlpack),
    "raw": lambda: opened(lambda t: np.frombuffer(t.raw(), np.float32)),
    "tensor.torch": lambda: opened(lambda t: t.torch().numpy()),
    "tensor.remember": lambda: opened(lambda t: t.remember("np", dtype="float32")),
    "stream": lambda: dict(anamnesis.open(path).stream("np")),
    "remember": lambda: anamnesis.open(path).remember("np", dtype="float32"),
    "dequantise": lambda: anamnesis.load(path, "np", dequantise=True),
    "torch.load": lambda: by_torch(torch_load),
    "torch.load copy": lambda: by_torch(lambda: torch_load(mmap=False)),
    "torch.load file": lambda: by_torch(lambda: __import__("anamnesis.torch").torch.load(open(path, "rb"))),
    "safetensors.load_file": lambda: by_torch(lambda: anamnesis.safetensors.load_file(path)),
    "safetensors.numpy": lambda: anamnesis.safetensors.numpy.load_file(path),
    "safe_open": lambda: safe_open(lambda file, name: file.get_tensor(name)),
    "get_slice": lambda: safe_open(lambda file, name: file.get_slice(name)[:]),
}

if function == "names":
    print("\\n".join(FUNCTIONS))
    sys.exit()
random = np.random.default_rng(1)
first = {name: random.random(LARGE, dtype=np.float32) for name in "ab"}
save(first)
loaded = FUNCTIONS[function]()
if not isinstance(loaded, dict):
    loaded = {"a": loaded}
assert len(loaded) == (1 if writer == "numpy.save" else 2), loaded
expected = list(first.values())
# changed in place, as a training loop does
for array in loaded.values():
    array[:10] += 1
# a part of it, so that the file is shorter
save({name: np.ascontiguousarray(array[:SMALL]) for name, array in zip("ab", loaded.values())})
for array, before in zip(loaded.values(), expected):
    assert np.array_equal(array[10:], before[10:]) and np.array_equal(array[:10], before[:10] + 1), "the tensors in memory"
again = anamnesis.load(path, "np", borrow=False)
for array, before in zip(again.values(), expected):
    assert np.array_equal(array[10:], before[10:SMALL]) and np.array_equal(array[:10], before[:10] + 1), "the file"
print("whole")
"""

ENDINGS = {
    "numpy.save": "npy", "numpy.savez": "npz", "numpy.savez_compressed": "npz", "safetensors.numpy": "safetensors",
    "safetensors.torch": "safetensors", "torch.save": "pt", "torch.save of old": "pth", "gguf": "gguf", "anamnesis": "safetensors",
}  # fmt: skip
# without a new file: in the one that exists
WRITERS = list(ENDINGS)
FUNCTIONS = [
    "load", "load copy", "load dlpack", "load slices", "load pt", "load_file", "out", "numpy", "index", "asarray", "from_dlpack", "raw",
    "tensor.torch", "tensor.remember", "stream", "remember", "dequantise", "torch.load", "torch.load copy", "torch.load file",
    "safetensors.load_file", "safetensors.numpy", "safe_open", "get_slice",
]  # fmt: skip
OF_TORCH = {"load pt", "load_file", "tensor.torch", "torch.load", "torch.load copy", "torch.load file", "safetensors.load_file"}


# a checkpoint that stays open, of which a map would stay too
STALE = """
checkpoint = anamnesis.open(path)
checkpoint.load("np"), checkpoint.remember("np", dtype="float32"), checkpoint["a"].numpy()
save({name: array[:10].copy() for name, array in first.items()})
calls = [
    lambda: checkpoint.load("np"), lambda: checkpoint["a"].numpy(), lambda: checkpoint["a"].raw(),
    lambda: checkpoint["a"].remember("np", dtype="float32"), lambda: checkpoint.remember("np", dtype="float32"),
    lambda: list(checkpoint.stream("np")), lambda: anamnesis.convert(checkpoint, f"{path}.safetensors", void=True),
]
for call in calls:
    try:
        call()
    except (OSError, anamnesis.AnamnesisError):
        pass
    else:
        raise AssertionError("the file is shorter")
print("whole")
"""


def run(writer: str, function: str, path: Path, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, writer, function, str(path)], capture_output=True, text=True, timeout=300)


def test_every_function_is_tried(tmp_path: Path) -> None:
    assert run("anamnesis", "names", tmp_path / "none").stdout.split("\n")[:-1] == FUNCTIONS


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("writer", WRITERS)
def test_load_change_and_save_to_the_same_path(writer: str, function: str, tmp_path: Path) -> None:
    package = writer.partition(".")[0]
    for needed in {package, "torch"} if function in OF_TORCH or writer == "safetensors.torch" else {package}:
        if find_spec(needed) is None:
            pytest.skip(f"SKIPPED: {needed} is not installed")
    done = run(writer, function, tmp_path / f"model.{ENDINGS[writer]}")
    assert (done.returncode, done.stdout) == (0, "whole\n"), f"{done.returncode}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("writer", ["gguf", "torch.save", "numpy.savez"])
def test_a_checkpoint_that_stays_open_is_an_error_when_its_file_is_shorter(writer: str, tmp_path: Path) -> None:
    if find_spec(writer.partition(".")[0]) is None:
        pytest.skip(f"SKIPPED: {writer} is not installed")
    script = SCRIPT.partition("loaded = FUNCTIONS")[0] + STALE
    done = run(writer, "stale", tmp_path / f"model.{ENDINGS[writer]}", script)
    assert (done.returncode, done.stdout) == (0, "whole\n"), f"{done.returncode}\n{done.stderr[-3000:]}"


def test_a_file_of_another_format_is_mapped_on_request(tmp_path: Path) -> None:
    path = tmp_path / "array.npy"
    np.save(path, np.arange(1 << 20, dtype=np.float32))
    checkpoint = anamnesis.open(path)
    found = {borrow: checkpoint.load("np", borrow=borrow) for borrow in ("auto", False, True)}
    assert [loaded.loader for loaded in found.values()] == ["pread", "pread", "mmap"]
    assert all(np.array_equal(array, np.load(path)) for loaded in found.values() for array in loaded.values())
