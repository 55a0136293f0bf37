"""``anamnesis.safetensors`` beside the safetensors package: the bytes that are written, the elements that indices select, and errors."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anamnesis
import anamnesis.safetensors as ours
import anamnesis.safetensors.numpy as our_numpy
import numpy as np
import pytest

theirs = pytest.importorskip("safetensors")
their_numpy = pytest.importorskip("safetensors.numpy")

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool", "complex64"]


def dictionary(of: random.Random) -> dict[str, np.ndarray]:
    made = {}
    for _ in range(of.randint(0, 12)):
        shape = tuple(of.choice([0, 1, 2, 3, 5]) for _ in range(of.randint(0, 3)))
        bytes = np.frombuffer(of.randbytes(8 * int(np.prod(shape))), np.uint64).reshape(shape)
        made[of.choice("abcäß.") + str(of.randint(0, 99))] = np.asarray(bytes % 2).astype(of.choice(DTYPES))
    return made


@pytest.mark.parametrize("seed", range(60))
def test_written_bytes_are_equal(seed: int, tmp_path: Path) -> None:
    of = random.Random(seed)
    tensors = dictionary(of)
    metadata = of.choice([None, {"format": "np"}, {"a\n\"b": "ü"}])
    expected = their_numpy.save(dict(tensors), metadata)
    assert our_numpy.save(tensors, metadata) == expected
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"something else")
    our_numpy.save_file(tensors, path, metadata)
    assert path.read_bytes() == expected
    assert ours.deserialize(expected) == [(name, dict(view)) for name, view in sorted(theirs.deserialize(expected), key=lambda row: order(expected, row[0]))]


def order(contents: bytes, name: str) -> int:
    return list(anamnesis.open(contents)).index(name)


def test_arrays_that_are_not_contiguous_are_written_by_their_values(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for given in (array.T, array[:, ::2], array.astype(">f4")):
        assert np.array_equal(our_numpy.load(our_numpy.save({"a": given}))["a"], given)


def test_pytorch_writes_the_same_bytes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import anamnesis.safetensors.torch as our_torch
    import safetensors.torch as their_torch

    kinds = [dtype for dtype in our_torch._TYPES.values() if dtype not in (torch.complex64,)]
    tensors = {f"t{i}": torch.zeros((3, 2)).to(dtype) for i, dtype in enumerate(kinds)}
    tensors["four"] = torch.arange(6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(3, 2)
    tensors["scalar"] = torch.tensor(1.5)
    expected = their_torch.save(tensors, {"format": "pt"})
    assert our_torch.save(tensors, {"format": "pt"}) == expected
    # over the file that the tensors are mapped from
    path = tmp_path / "a.safetensors"
    path.write_bytes(expected)
    loaded = our_torch.load_file(path)
    our_torch.save_file(loaded, path, {"format": "pt"})
    assert path.read_bytes() == expected


def selected(open_file: Any, index: Any) -> Any:
    try:
        return np.asarray(open_file.get_slice("t")[index])
    except Exception as error:  # noqa: BLE001  the kinds are compared
        return error


def random_index(of: random.Random, shape: tuple[int, ...]) -> Any:
    def entry(size: int) -> Any:
        bound = lambda: of.choice([None, None, *range(size + 1), size + 2, -1])  # noqa: E731
        one = [of.randint(-size - 1, size), slice(bound(), bound(), of.choice([None, None, 1, 2, 3, 0, -1])), ..., slice(None)]
        return of.choice([*one, None, [0], True] if of.random() < 0.2 else one)

    entries = [entry(of.choice(shape)) for _ in range(of.randint(0, len(shape) + 1))]
    return entries[0] if len(entries) == 1 and of.random() < 0.5 else tuple(entries)


@pytest.mark.parametrize(("framework", "backend"), [("np", "mmap"), ("np", "pread"), ("pt", "mmap"), ("pt", "pread")])
def test_indices_select_the_same(framework: str, backend: str, tmp_path: Path) -> None:
    if framework == "pt":
        pytest.importorskip("torch")
    of = random.Random(7)
    for number, shape in enumerate([(5,), (3, 4), (2, 3, 4), ()]):
        path = tmp_path / f"{number}.safetensors"
        their_numpy.save_file({"t": np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)}, path)
        with ours.safe_open(path, framework, backend=backend) as our_file, theirs.safe_open(path, framework, backend=backend) as their_file:
            for _ in range(750):
                index = random_index(of, shape or (1,))
                if backwards(index) and not (framework == "pt" and backend == "mmap"):
                    continue  # safetensors' own subtraction overflows
                found, expected = selected(our_file, index), selected(their_file, index)
                what = (shape, index, found, expected)
                if isinstance(expected, Exception):
                    assert isinstance(found, type(expected)), what
                    if isinstance(expected, theirs.SafetensorError):
                        assert str(found) == str(expected), what
                else:
                    assert not isinstance(found, Exception), what
                    assert found.shape == expected.shape and np.array_equal(found, expected), what


def backwards(index: Any) -> bool:
    """Whether a range ends before it starts."""
    ranges = [entry for entry in (index if isinstance(index, tuple) else (index,)) if isinstance(entry, slice)]
    return any(one.stop is not None and (one.start or 0) > one.stop for one in ranges)


def test_errors_are_of_the_package(tmp_path: Path) -> None:
    assert ours.SafetensorError is theirs.SafetensorError
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(b"\x08\0\0\0\0\0\0\0{}")
    calls = [
        lambda: ours.safe_open(damaged, "np"),
        lambda: our_numpy.load_file(damaged),
        lambda: our_numpy.load(b"\x08\0\0\0\0\0\0\0{}"),
        lambda: ours.deserialize(b"no"),
        lambda: ours.safe_open(damaged, "fortran"),
        lambda: ours.safe_open(damaged, "np", backend="tape"),
        lambda: ours.safe_open(damaged, "np", device="cuda"),
        lambda: ours.TensorSpec(dtype="float5", shape=[1], data_ptr=0, data_len=0),
        lambda: ours.serialize({"a": ours.TensorSpec(dtype="float32", shape=[2], data_ptr=1, data_len=4)}),
    ]
    for call in calls:
        with pytest.raises(theirs.SafetensorError):
            call()
    with pytest.raises(anamnesis.AnamnesisError) as both:
        ours.safe_open(damaged, "np")
    assert both.value.path == str(damaged)
    with pytest.raises(TypeError):
        ours.serialize({"a": 3})  # type: ignore[dict-item]


def test_names_that_are_not_there_and_closed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    our_numpy.save_file({"a": np.zeros(2)}, path)
    with ours.safe_open(path, "np") as file:
        for call in (file.get_tensor, file.get_slice, lambda name: file.get_tensors([name])):
            with pytest.raises(theirs.SafetensorError, match="File does not contain tensor b"):
                call("b")
    with pytest.raises(theirs.SafetensorError, match="File is closed"):
        file.keys()


def test_models_are_saved_and_loaded(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import anamnesis.safetensors.torch as our_torch

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Linear(3, 3)
            self.b = self.a

    path = tmp_path / "model.safetensors"
    model, other = Tied(), Tied()
    our_torch.save_model(model, path)
    assert our_torch.load_model(other, path) == (set(), [])
    assert torch.equal(other.b.weight, model.a.weight)
    with pytest.raises(RuntimeError, match="share memory"):
        our_torch.save_file(model.state_dict(), path)
    with pytest.raises(RuntimeError, match="Unexpected"):
        our_torch.load_model(torch.nn.Linear(3, 3), path)


def test_every_name_of_the_package_is_here() -> None:
    import safetensors.numpy

    assert {name for name in vars(theirs) if not name.startswith("_") or name == "_safe_open_handle"} - {"torch", "numpy", "flax", "mlx"} <= set(dir(ours))
    assert {"save", "save_file", "load", "load_file"} <= set(dir(our_numpy)) & set(dir(safetensors.numpy))
    if pytest.importorskip("torch"):
        import anamnesis.safetensors.torch as our_torch
        import safetensors.torch as their_torch

        functions = {name for name, value in vars(their_torch).items() if callable(value) and value.__module__ == their_torch.__name__}
        assert functions - set(dir(our_torch)) <= {"_filter_shared_not_shared", "_flatten_as_ptr", "_evaluate_tensors_for_save", "_to_ndarray"}


def test_metadata_without_a_key_is_written_and_read_as_such(tmp_path: Path) -> None:
    arrays, path, copy = {"a": np.arange(3, dtype="f4")}, tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    for metadata in (None, {}, {"format": "np"}):
        content = their_numpy.save(arrays, metadata)
        assert our_numpy.save(arrays, metadata) == content
        our_numpy.save_file(arrays, path, metadata)
        assert path.read_bytes() == content
        with ours.safe_open(path, "np") as file:
            assert file.metadata() == metadata
        anamnesis.convert(path, copy, overwrite=True)
        with ours.safe_open(copy, "np") as file:
            assert file.metadata() == (metadata or {"format": "pt"})
        with anamnesis.TensorWriter(path, {"a": ("F32", (3,))}, metadata=metadata, overwrite=True) as out:
            out.write("a", arrays["a"])
        with ours.safe_open(path, "np") as file:
            assert file.metadata() == metadata
