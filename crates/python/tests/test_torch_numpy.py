"""Values of numpy inside files of ``torch.save``: as ``torch.load(weights_only=False)`` returns them, without the code that it runs."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import anamnesis
import numpy as np
import pytest
from test_numpy_load import ARRAYS, same, values

torch = pytest.importorskip("torch", reason="torch is not installed")

import anamnesis.torch  # noqa: E402

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
NUMPY_1 = (b"numpy._core.", b"numpy.core.")


def saved(value: Any, protocol: int = 2) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, pickle_protocol=protocol)
    return file.getvalue()


def legacy(value: Any, protocol: int = 2) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    return file.getvalue()


def expected(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=False)


def same_array(found: Any, wanted: Any) -> None:
    same(found, wanted)
    assert found.flags.writeable


# `newbyteorder` makes a dtype whose titles are in its fields and are no keys
SAVED = {name: array for name, array in ARRAYS.items() if not name.startswith("big titles")}


@pytest.mark.parametrize("save", [saved, legacy])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_arrays_have_their_dtype_order_and_bytes(protocol: int, save: Any) -> None:
    content = save(SAVED, protocol)
    found, wanted = anamnesis.torch.load(content), expected(content)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        try:
            same_array(found[name], array)
        except AssertionError as e:
            raise AssertionError(name) from e


def test_modules_of_numpy_1_are_known() -> None:
    content = legacy({"a": np.arange(3), "s": np.float32(2.5)})
    older = content.replace(*NUMPY_1)
    assert older != content
    found = anamnesis.torch.load(older)
    assert found["a"].tolist() == [0, 1, 2] and found["s"] == 2.5 and type(found["s"]) is np.float32


def test_axes_in_another_order() -> None:
    array = np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2)
    content = saved({"a": array}, 5)
    found = anamnesis.torch.load(content)["a"]
    same_array(found, expected(content)["a"])
    assert found.strides == expected(content)["a"].strides


def test_scalars_have_their_type() -> None:
    scalars = {
        name: array[1] for name, array in ARRAYS.items() if array.shape == (12,) and array.dtype.isnative and array.dtype.names is None
    } | {"record": ARRAYS["fields"][1], "nan": np.float64("nan")}
    for protocol in (2, 4):
        content = saved(scalars, protocol)
        found, wanted = anamnesis.torch.load(content), expected(content)
        for name, scalar in wanted.items():
            assert type(found[name]) is type(scalar) and found[name].dtype == scalar.dtype, name
            assert values(np.asarray(found[name])) == values(np.asarray(scalar)), name


def test_dtypes_are_values() -> None:
    dtypes = {name: array.dtype for name, array in SAVED.items()} | {"sub": np.dtype(("i4", (2, 3)))}
    content = saved(dtypes)
    found, wanted = anamnesis.torch.load(content), expected(content)
    for name, dtype in wanted.items():
        assert found[name] == dtype and found[name].str == dtype.str and found[name].fields == dtype.fields, name


def test_arrays_of_objects_have_plain_ones() -> None:
    shared = [1, 2]
    objects = np.empty((2, 3), object)
    objects[...] = "x"
    objects[0, 1], objects[1, 2], objects[1, 0] = shared, {"t": torch.ones(2)}, None
    itself = np.empty(2, object)
    itself[0], itself[1] = itself, np.arange(3)
    value = {"a": objects, "f": np.asfortranarray(objects), "s": shared, "i": itself, "z": np.array(None, object), "e": np.empty((0, 2), object)}
    content = saved(value)
    found, wanted = anamnesis.torch.load(content), expected(content)
    for name in ("a", "f"):
        assert found[name].dtype == object and found[name].shape == (2, 3) and found[name][0, 1] is found["s"]
        assert found[name][0, 0] == "x" and found[name][1, 0] is None and torch.equal(found[name][1, 2]["t"], torch.ones(2))
        assert found[name].flags.f_contiguous == wanted[name].flags.f_contiguous
    assert found["i"][0] is found["i"] and found["i"][1].tolist() == [0, 1, 2]
    assert found["z"].shape == () and found["z"][()] is None and found["e"].shape == (0, 2)


def test_the_random_state_of_a_trainer(tmp_path: Path) -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    # the form of `Trainer._save_rng_state` of transformers, with the states of two devices
    states = {
        "python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.random.get_rng_state(),
        "cuda": [torch.arange(16, dtype=torch.uint8), torch.arange(16, dtype=torch.uint8)],
    }  # fmt: skip
    torch.save(states, tmp_path / "rng_state.pth")
    found, wanted = anamnesis.torch.load(tmp_path / "rng_state.pth"), torch.load(tmp_path / "rng_state.pth", weights_only=False)
    assert found.keys() == wanted.keys() and found["python"] == wanted["python"]
    assert found["numpy"][0] == "MT19937" and found["numpy"][2:] == wanted["numpy"][2:]
    same_array(found["numpy"][1], wanted["numpy"][1])
    assert torch.equal(found["cpu"], wanted["cpu"]) and all(map(torch.equal, found["cuda"], wanted["cuda"]))
    following = random.random(), np.random.random(), torch.rand(1)
    random.setstate(found["python"])
    np.random.set_state(found["numpy"])
    torch.random.set_rng_state(found["cpu"])
    assert (random.random(), np.random.random(), torch.rand(1)) == following


@pytest.mark.parametrize("path", sorted((FIXTURES / "pth").rglob("*arrays*.pth")) + [FIXTURES / "pth" / "numpy_array.pth"], ids=lambda p: p.name)
def test_the_fixtures_have_what_pytorch_loads(path: Path) -> None:
    found, wanted = anamnesis.torch.load(path), torch.load(path, weights_only=False)
    pending = [(found, wanted)]
    compared = 0
    while pending:
        ours, theirs = pending.pop()
        assert type(ours) is type(theirs)
        if isinstance(theirs, dict):
            assert list(ours) == list(theirs)
            pending += [(ours[key], theirs[key]) for key in theirs]
        elif isinstance(theirs, np.ndarray) and theirs.dtype != object:
            same_array(ours, theirs)
            compared += 1
        elif isinstance(theirs, np.ndarray):
            pending += list(zip(ours.flat, theirs.flat))
        elif isinstance(theirs, torch.Tensor):
            assert torch.equal(ours, theirs)
        else:
            assert ours == theirs
    assert compared


class _Made:
    """An object that pickles as a call with these arguments, and this state."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.made = (function, args, state) if state is not None else (function, args)

    def __reduce__(self) -> Any:
        return self.made


def _dtype(code: str, *state: Any) -> _Made:
    return _Made(np.dtype, code, False, True, state=(3, *state))


def _array(shape: Any, dtype: Any, data: Any, fortran: bool = False) -> _Made:
    reconstruct = np.arange(1).__reduce__()[0]
    return _Made(reconstruct, np.ndarray, (0,), b"b", state=(1, shape, dtype, fortran, data))


HOSTILE: dict[str, Any] = {
    "too few bytes": _array((3,), np.dtype("<i4"), b"12345678"),
    "too many elements": _array((1 << 62, 1 << 62), np.dtype("<i4"), b"1234"),
    "huge item": _array((1,), _dtype("V4", "|", None, ("a",), {"a": (np.dtype("<i4"), 1 << 62)}, (1 << 62) + 4, 1, 0), b"1234"),
    "overlap": _array((1,), _dtype("V4", "|", None, ("a", "b"), {"a": (np.dtype("<i4"), 0), "b": (np.dtype("<i2"), 1)}, 4, 1, 0), b"1234"),
    "size": _array((1,), _dtype("V4", "|", None, ("a",), {"a": (np.dtype("<i4"), 0)}, 2, 1, 0), b"12"),
    "fields of objects": _array((1,), _dtype("V8", "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0), b"12345678"),
    "objects as bytes": _array((1,), np.dtype("O"), b"12345678"),
    "more objects": _array((1,), np.dtype("O"), [1, 2]),
    "unknown code": _array((1,), _dtype("z4", "<", None, None, None, -1, -1, 0), b"1234"),
    "no dtype": _array((1,), 5, b"1234"),
    "subarray of an array": _array((1,), _dtype("V8", "|", (np.dtype("<i4"), (2,)), None, None, 8, 4, 0), b"12345678"),
    "scalar of 8 bytes": _Made(np.float64(0).__reduce__()[0], np.dtype("<f8"), b"1234"),
    "scalar of objects": _Made(np.float64(0).__reduce__()[0], np.dtype("O"), b"12345678"),
    "axes": _Made(np.arange(6).reshape(2, 3).__reduce_ex__(5)[0], b"123456", np.dtype("u1"), (2, 3), "K", (0, 0)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_value_of_numpy_is_refused(name: str) -> None:
    content = io.BytesIO()
    torch.save({"a": {"b": HOSTILE[name]}}, content, pickle_protocol=4)
    with pytest.raises(anamnesis.AnamnesisError):
        anamnesis.torch.load(content.getvalue())


def test_structures_inside_each_other_end() -> None:
    deep: Any = np.dtype("<i4")
    for _ in range(30):
        deep = _dtype("V4", "|", None, ("a",), {"a": (deep, 0)}, 4, 1, 0)
    with pytest.raises(anamnesis.UnsupportedError, match="levels"):
        anamnesis.torch.load(saved({"a": deep}, 4))
    # each level has ten of the one below: 10^12 fields, of a pickle of a few hundred bytes
    wide, size = np.dtype("<i4"), 4
    for _ in range(11):
        wide = _dtype("V4", "|", None, tuple("abcdefghij"), {c: (wide, i * size) for i, c in enumerate("abcdefghij")}, 10 * size, 1, 0)
        size *= 10
    with pytest.raises((anamnesis.LimitError, anamnesis.UnsupportedError)):
        anamnesis.torch.load(saved({"a": wide}, 4))
    itself: Any = _dtype("V4", "|", None, ("a",), {}, 4, 1, 0)
    itself.made[2][4]["a"] = (itself, 0)
    with pytest.raises(anamnesis.AnamnesisError):
        anamnesis.torch.load(saved({"a": itself}, 4))


def test_a_shard_of_a_distributed_tensor_is_refused_by_name() -> None:
    distributed = pytest.importorskip("torch.distributed.tensor", reason="this PyTorch has no distributed tensors")
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        content = saved({"w": distributed.distribute_tensor(torch.ones(4, 2), mesh, [distributed.Shard(0)])})
    finally:
        torch.distributed.destroy_process_group()
    # `torch.load` refuses it too, unless the program has imported the package
    with pytest.raises(anamnesis.RefusedGlobalError, match="torch.distributed"):
        anamnesis.torch.load(content)
    kept = anamnesis.torch.load(content, opaque=True)["w"]
    assert isinstance(kept, anamnesis.torch.RefusedValue) and "DTensor" in kept.reason
