"""``anamnesis.numpy.load`` and the arrays of a checkpoint against ``numpy.load``: every dtype that numpy saves, in both orders and both byte
orders, whole and in parts, read and mapped."""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import anamnesis
import anamnesis.numpy
import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
Array = np.ndarray[Any, Any]


def _record(fields: Any, count: int = 12) -> Array:
    """Elements of a structured dtype, of bytes that say something in each field."""
    kind = np.dtype(fields)
    rng = np.random.default_rng(kind.itemsize)
    return np.frombuffer(rng.integers(32, 64, count * kind.itemsize, np.uint8).tobytes(), kind).copy()


def _kinds() -> dict[str, Array]:
    made: dict[str, Array] = {
        "S": np.array([b"a", b"bc", b"", b"\0x"] * 3), "S0": np.zeros(12, "S0"), "U": np.array(["a", "bcd", "", "é€😀"] * 3),
        "U0": np.zeros(12, "U0"), "V3": np.frombuffer(bytes(range(36)), "V3"), "V0": np.zeros(12, "V0"),
        "bool": np.arange(12) % 3 == 0, "f2": np.arange(12, dtype="f2"), "i1": np.arange(12, dtype="i1"),
        "longdouble": np.arange(12, dtype=np.longdouble) / 3, "clongdouble": np.arange(12, dtype=np.clongdouble) * (1 + 2j) / 3,
    }  # fmt: skip
    for code in ("i2", "u4", "i8", "f4", "f8", "c8", "c16"):
        made[code] = np.arange(12).astype(code)
    for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "25s", "7D"):
        made[f"M8[{unit}]"] = np.arange(-4, 8).astype(f"M8[{unit}]")
        made[f"m8[{unit}]"] = np.arange(-4, 8).astype(f"m8[{unit}]")
    made["M8"], made["m8"] = np.array(["NaT"] * 12, "M8"), np.arange(12).astype("m8")
    made |= {
        "fields": _record([("a", "i4"), ("b", "U2"), ("c", "M8[s]")]),
        "nested": _record([("p", [("x", "f4"), ("y", "u2")]), ("q", "S3")]),
        "subarrays": _record([("m", "i2", (2, 3)), ("n", [("z", "u1"), ("w", "i4", (2,))], (2,))]),
        "aligned": _record(np.dtype([("a", "u1"), ("b", "i8"), ("c", "u2")], align=True)),
        "offsets": _record({"names": ["a", "b"], "formats": ["i2", "i4"], "offsets": [3, 9], "itemsize": 20}),
        "titles": _record([(("the title", "a"), "i4"), ("b", "i2")]),
        "names": _record([("it's", "i4"), ('"', "i2"), ("é€", "u1"), ("a\\b", "u1")]),
        "mixed orders": _record([("a", ">i4"), ("b", "<i4"), ("c", ">U2"), ("d", "<M8[ns]"), ("e", "S3")]),
        "no fields": np.zeros(12, np.dtype([])),
    }  # fmt: skip
    return made


def _arrays() -> dict[str, Array]:
    """Each kind of element, as it is and big endian, in C and in Fortran order, without axes, and without elements."""
    made: dict[str, Array] = {}
    for kind, flat in _kinds().items():
        for order, array in {"": flat, "big ": flat.astype(flat.dtype.newbyteorder(">"))}.items():
            made |= {
                f"{order}{kind}": array, f"{order}{kind} C": array.reshape(3, 4), f"{order}{kind} F": np.asfortranarray(array.reshape(3, 2, 2)),
                f"{order}{kind} scalar": array[1:2].reshape(()), f"{order}{kind} empty": array[:0].reshape(0, 3),
            }  # fmt: skip
    return made


ARRAYS = _arrays()


def saved(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def same(found: Any, expected: Any, order: bool = True) -> None:
    assert type(found) is type(expected) and found.shape == expected.shape
    if order:
        assert (found.dtype, found.dtype.str) == (expected.dtype, expected.dtype.str) and found.dtype.fields == expected.dtype.fields
        assert not found.nbytes or (found.flags.c_contiguous, found.flags.f_contiguous) == (expected.flags.c_contiguous, expected.flags.f_contiguous)
    else:
        assert found.dtype in (expected.dtype, expected.dtype.newbyteorder("<")) and found.dtype.names == expected.dtype.names
        assert found.dtype.newbyteorder("<") == found.dtype
    assert values(found) == values(expected)


def values(array: Any) -> Any:
    """The elements as bytes, without those between fields, and those behind the 10 of a long double, which numpy copies or does not."""
    if array.dtype.names is None:
        made = array.astype(array.dtype.newbyteorder("<")).tobytes()
        if array.dtype.char in "gG" and np.finfo(np.longdouble).nmant == 63:
            return np.frombuffer(made, np.uint8).reshape(-1, np.dtype(np.longdouble).itemsize)[:, :10].tobytes()
        return made
    return [values(array[name]) for name in array.dtype.names]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arrays") / "all.npz"
    np.savez(path, **ARRAYS)  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arrays") / "packed.npz"
    np.savez_compressed(path, **ARRAYS)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize("kind", _kinds())
def test_a_file_of_one_array_is_what_numpy_loads(kind: str, tmp_path: Path) -> None:
    for name in (name for name in ARRAYS if name.removeprefix("big ").partition(" ")[0] == kind.partition(" ")[0]):
        path = tmp_path / "one.npy"
        path.write_bytes(saved(ARRAYS[name]))
        expected = np.load(path)
        for found in (anamnesis.numpy.load(path), anamnesis.numpy.load(path.read_bytes()), anamnesis.numpy.load(io.BytesIO(path.read_bytes()))):
            same(found, expected)
            assert found.flags.writeable
        loaded = anamnesis.load(path, "np")
        same(loaded[""], expected, order=False)
        with anamnesis.open(path) as checkpoint, checkpoint.stream("np") as stream:
            same(dict(stream)[""], expected, order=False)


@pytest.mark.parametrize("which", ["archive", "compressed"])
def test_an_archive_has_what_numpy_loads(which: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(which)
    with anamnesis.numpy.load(path) as found, np.load(path) as expected:
        assert found.files == expected.files and list(found) == list(expected) and len(found) == len(ARRAYS)
        for name in expected.files:
            same(found[name], expected[name])
        same(found["U.npy"], expected["U.npy"])
        same(found.f.U, expected.f.U)
        assert "U" in found and "U.npy" in found and "none" not in found and "U" in dir(found.f)
        with pytest.raises(KeyError, match="none"):
            found["none"]
        with pytest.raises(AttributeError):
            found.f.none  # noqa: B018
    with pytest.raises(ValueError, match="closed"):
        found["U"]


@pytest.mark.parametrize("kind", _kinds())
def test_tensors_are_arrays(kind: str, archive: Path) -> None:
    checkpoint = anamnesis.open(archive)
    for name in (name for name in ARRAYS if name.removeprefix("big ").partition(" ")[0] == kind.partition(" ")[0]):
        tensor, expected = checkpoint[name], ARRAYS[name]
        for found in (np.asarray(tensor), np.array(tensor), tensor.numpy(), tensor[...]):
            same(found, expected, order=False)
        if expected.shape == (3, 4):
            for index in [slice(1, 3), (slice(None), slice(1, None, 2)), (slice(None, None, -1), 2), (1, slice(3)), ([0, 2], [1, 1])]:
                same(tensor[index], expected[index], order=False)
            assert values(np.asarray(tensor[2, 1])) == values(np.asarray(expected[2, 1]))
        if expected.dtype.names and expected.size:
            assert set(np.asarray(tensor).dtype.fields or ()) >= set(expected.dtype.fields or ())
            first = expected.dtype.names[0]
            same(tensor[first], expected[first], order=False)
            assert tensor[[first]].dtype.names == (first,)
        out = {name: np.empty(expected.shape, expected.dtype.newbyteorder("<"))}
        if expected.dtype.itemsize:
            assert values(checkpoint.load("np", out=out)[name]) == values(expected)
        if sys.version_info >= (3, 12) and not name.startswith("big ") and kind != "mixed orders":
            _same_buffer(kind, tensor, np.array(expected, order="C"))


def _same_buffer(kind: str, tensor: Any, expected: Array) -> None:
    """A buffer has the format that numpy gives it, or there is none."""
    try:
        ours = memoryview(tensor)
    except BufferError as e:
        assert ".numpy()" in str(e) and kind not in ("S", "U", "bool", "f8", "c16", "nested")
        return
    view = memoryview(expected)
    assert (ours.itemsize, ours.shape, ours.nbytes) == (view.itemsize, view.shape, view.nbytes)
    assert np.asarray(ours).dtype == expected.dtype and np.array_equal(np.asarray(ours), expected)


def test_other_frameworks_get_the_bytes(archive: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = anamnesis.open(archive)["U C"]
    assert tensor.torch().dtype == torch.uint8 and tensor.torch().numpy().tobytes() == ARRAYS["U C"].tobytes()
    with pytest.raises(BufferError, match="DLPack has no type for U3"):
        np.from_dlpack(tensor)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize("kind", _kinds())
def test_a_map_is_the_map_of_numpy(kind: str, mode: Any, tmp_path: Path) -> None:
    for name in (name for name in ARRAYS if name.removeprefix("big ").partition(" ")[0] == kind.partition(" ")[0]):
        path, other = tmp_path / "one.npy", tmp_path / "other.npy"
        path.write_bytes(saved(ARRAYS[name]))
        other.write_bytes(path.read_bytes())
        found = anamnesis.numpy.load(path, mmap_mode=mode)
        if not ARRAYS[name].nbytes:
            same(found, np.load(path))  # an array without bytes, of which there is no map
            continue
        expected = np.load(other, mmap_mode=mode)
        same(found, expected)
        assert type(found) is np.memmap and (found.mode, found.offset) == (expected.mode, expected.offset)
        assert found.filename and Path(found.filename) == path
        if mode == "r":
            with pytest.raises(ValueError, match="read-only"):
                found[...] = found
            continue
        found.reshape(-1, order="A")[:1] = expected.reshape(-1, order="A")[:1] = found.reshape(-1, order="A")[-1:]
        found.flush()
        expected.flush()
        assert path.read_bytes() == other.read_bytes()
        assert (mode == "r+") == (values(np.load(path)) == values(found)) or values(found) == values(ARRAYS[name])


def test_arrays_of_an_archive_are_mapped_where_they_are_stored(archive: Path, compressed: Path) -> None:
    before = archive.read_bytes()
    for mode in ("r", "c"):
        with anamnesis.numpy.load(archive, mmap_mode=mode) as mapped:
            for name, expected in ARRAYS.items():
                assert values(mapped[name]) == values(expected) and mapped[name].dtype == expected.dtype, name
                assert not expected.nbytes or type(mapped[name]) is np.memmap
            if mode == "c":
                mapped["f8"][:] = 0
    assert archive.read_bytes() == before
    with pytest.raises(ValueError, match="checksum"):
        anamnesis.numpy.load(archive, mmap_mode="r+")
    with pytest.raises(ValueError, match="'S' is compressed.*mmap_mode=None"):
        anamnesis.numpy.load(compressed, mmap_mode="r")


def test_what_has_no_map_is_refused_by_name(archive: Path) -> None:
    with pytest.raises(ValueError, match="local file"):
        anamnesis.numpy.load("https://127.0.0.1:9/a.npy", mmap_mode="r")
    with pytest.raises(ValueError, match="local file"):
        anamnesis.numpy.load(io.BytesIO(saved(np.ones(3))), mmap_mode="r")
    with pytest.raises(ValueError, match="w\\+"):
        anamnesis.numpy.load(archive, mmap_mode="w+")
    with pytest.raises(ValueError, match="gguf"):
        anamnesis.numpy.load(FIXTURES / "model" / "scribe-Q8_0.gguf", mmap_mode="r")


def test_a_file_that_became_shorter_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "one.npy"
    np.save(path, np.ones(1000))
    arrays = anamnesis.numpy.Arrays(anamnesis.open(path), "r+")
    with open(path, "r+b") as file:
        file.truncate(400)
    with pytest.raises(anamnesis.UnsupportedError, match="shorter"):
        arrays[""]
    assert path.stat().st_size == 400


def test_arrays_of_objects_are_named_and_not_read(tmp_path: Path) -> None:
    path, one = tmp_path / "some.npz", tmp_path / "one.npy"
    np.savez(path, a=np.ones(3), b=np.array([{}, None]), c=np.array(["x"]))
    np.save(one, np.array([{}, None]))
    with pytest.warns(UserWarning, match="some.npz: not loaded: 'b': an object array") as caught:
        arrays = anamnesis.numpy.load(path)
    assert caught[0].filename == __file__ and arrays.files == ["a", "c"]
    assert np.array_equal(arrays["a"], np.ones(3)) and arrays["c"].tolist() == ["x"]
    with pytest.raises(anamnesis.UnsupportedError, match="'b' cannot be read: an object array"):
        arrays["b"]
    with pytest.warns(UserWarning, match="'b': an object array") as caught:
        assert list(anamnesis.load(path, "np")) == ["a", "c"]
    assert caught[0].filename == __file__
    for load in (anamnesis.numpy.load, lambda path: anamnesis.load(path, "np")):
        with pytest.raises(anamnesis.UnsupportedError, match="object array"):
            load(one)
    with pytest.raises(ValueError, match="allow_pickle"):
        anamnesis.numpy.load(one, allow_pickle=True)


def test_arrays_that_were_saved_one_after_the_other(tmp_path: Path) -> None:
    expected = [np.arange(5), np.array(["a", "bcd"]), np.asfortranarray(np.ones((2, 3), ">f4")), np.array(2.5)]
    plain = b"before" + b"".join(map(saved, expected))
    (tmp_path / "all").write_bytes(plain)
    (tmp_path / "all.gz").write_bytes(gzip.compress(plain))
    for file in (io.BytesIO(plain), open(tmp_path / "all", "rb"), gzip.open(tmp_path / "all.gz")):
        with file:
            assert file.read(6) == b"before"
            for array in expected:
                same(anamnesis.numpy.load(file), array)
            with pytest.raises(EOFError):
                anamnesis.numpy.load(file)


def test_what_numpy_has_no_dtype_for_is_refused_by_name(tmp_path: Path) -> None:
    foreign = "<f12" if np.dtype(np.longdouble).itemsize == 16 else "<f16"
    sizes = {foreign: int(foreign[2:]), "<c24" if foreign == "<f12" else "<c32": 2 * int(foreign[2:])}
    for descr, size in sizes.items():
        content = saved(np.zeros(2, f"V{size}")).replace(f"'|V{size}'".encode(), f"'{descr}'".encode())
        with pytest.raises(anamnesis.UnsupportedError, match=f"numpy has no dtype for '{descr}' on this machine") as caught:
            anamnesis.numpy.load(content)
        assert ".raw()" in (caught.value.remedy or "")
        with zipfile.ZipFile(tmp_path / "both.npz", "w") as both:
            both.writestr("long.npy", content)
            both.writestr("short.npy", saved(np.ones(2)))
        with pytest.raises(anamnesis.UnsupportedError, match="tensor 'long': numpy has no dtype"):
            anamnesis.load(tmp_path / "both.npz", "np")
        assert list(anamnesis.load(tmp_path / "both.npz", "np", exclude="long")) == ["short"]
        assert bytes(anamnesis.open(content)[""].raw()) == bytes(2 * size)


def test_descriptors_that_no_array_has_are_refused() -> None:
    for descr in (b"('<i4', (2,))", b"[(('a', 'b'), '<i4'), ('a', '<i4')]"):
        text = b"{'descr': " + descr + b", 'fortran_order': False, 'shape': (1,), }"
        content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8)
        with pytest.raises(anamnesis.UnsupportedError, match="numpy"):
            anamnesis.numpy.load(content)


def test_the_fixtures_of_numpy_and_other_formats() -> None:
    for path in [*(FIXTURES / "npy").glob("*.npy"), *(FIXTURES / "npz").glob("*.npz")]:
        try:
            expected = np.load(path)
            names = [None] if isinstance(expected, np.ndarray) else expected.files
            found = anamnesis.numpy.load(path)
        except (ValueError, OSError, NotImplementedError, anamnesis.AnamnesisError):
            continue  # refused by one of both, as tests of the formats say
        for name in names:
            try:
                array = expected if name is None else expected[name]
            except (ValueError, NotImplementedError):
                continue
            if isinstance(array, np.ndarray):
                same(found if name is None else found[name], array)
    weights = anamnesis.numpy.load(FIXTURES / "safetensors" / "sharded")
    assert weights["lm_head.weight"].shape == (32, 16)
