"""Numpy, PyTorch and the protocols of buffers and of DLPack see the values of a tensor, on every Python; and a refusal where they have
no type for them, never bytes in the place of values."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anamnesis
import numpy as np
import pytest

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
GGUF = FIXTURES / "model" / "scribe-Q8_0.gguf"
# from this version on, numpy requests a buffer of a class of Python
HAS_BUFFERS = sys.version_info >= (3, 12)

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "F64": np.array([[1.5, -2.25], [0.0, 3e300]]),
    "F32": np.array([0.0, 1.0, 2.0, 3.0], np.float32),
    "F16": np.array([[[1.5]], [[-2.0]]], np.float16),
    "I64": np.array([1 << 40, -1]),
    "I32": np.array([[-(1 << 30), 7, 9]], np.int32),
    "I16": np.array([-300, 300], np.int16),
    "I8": np.array([-1, 2, 3], np.int8),
    "U64": np.array([1 << 63], np.uint64),
    "U32": np.array([1 << 31, 5], np.uint32),
    "U16": np.array([65535], np.uint16),
    "U8": np.array([[1, 2], [3, 255]], np.uint8),
    "BOOL": np.array([True, False, True]),
    "C64": np.array([1 + 2j, -3j], np.complex64),
    "C128": np.array([[1 - 2j]]),
    "scalar": np.array(2.5, np.float32),
    "empty": np.zeros((3, 0, 2), np.int32),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> anamnesis.Checkpoint:
    path = tmp_path_factory.mktemp("values") / "all.npz"
    np.savez(path, **ARRAYS)
    return anamnesis.open(path)


@pytest.mark.parametrize("name", ARRAYS)
def test_numpy_sees_the_values(checkpoint: anamnesis.Checkpoint, name: str) -> None:
    tensor, expected = checkpoint[name], ARRAYS[name]
    for found in (np.asarray(tensor), np.array(tensor), np.array(tensor, copy=True), np.asanyarray(tensor)):
        assert found.dtype == expected.dtype and found.shape == expected.shape, name
        assert found.tobytes() == expected.tobytes()
    wide = np.array(tensor, dtype=np.complex128)
    assert np.array_equal(wide, expected.astype(np.complex128))
    stacked = np.stack([tensor, tensor])
    assert stacked.dtype == expected.dtype and np.array_equal(stacked, np.stack([expected, expected]))
    assert np.array_equal(np.add(tensor, 0), expected + 0)
    assert not expected.size or np.mean(tensor) == np.mean(expected)


def test_the_mean_of_four_floats_is_theirs(checkpoint: anamnesis.Checkpoint) -> None:
    assert float(np.asarray(checkpoint["F32"]).mean()) == 1.5
    assert float(np.mean(checkpoint["F32"])) == 1.5


@pytest.mark.skipif(not HAS_BUFFERS, reason="SKIPPED: classes have buffers from Python 3.12 on")
@pytest.mark.parametrize("name", ARRAYS)
def test_a_buffer_has_format_and_shape(checkpoint: anamnesis.Checkpoint, name: str) -> None:
    expected = ARRAYS[name]
    view, ours = memoryview(expected), memoryview(checkpoint[name])
    assert (ours.itemsize, ours.shape, ours.ndim, ours.nbytes) == (view.itemsize, view.shape, view.ndim, view.nbytes)
    assert ours.c_contiguous and ours.strides == (view.strides if expected.size else ours.strides)
    # `l` and `q` are one format where a long has 64 bits
    assert np.asarray(ours).dtype == expected.dtype
    if expected.dtype.kind not in "c":
        assert ours.tolist() == expected.tolist()
    assert ours.tobytes() == expected.tobytes() == bytes(checkpoint[name].raw())


@pytest.mark.skipif(HAS_BUFFERS, reason="SKIPPED: a class has no buffer before Python 3.12")
def test_no_buffer_is_an_error(checkpoint: anamnesis.Checkpoint) -> None:
    with pytest.raises(TypeError):
        memoryview(checkpoint["F32"])  # type: ignore[arg-type]


def test_dlpack_has_the_values(checkpoint: anamnesis.Checkpoint) -> None:
    for name, expected in ARRAYS.items():
        found = np.from_dlpack(checkpoint[name])
        assert found.dtype == expected.dtype and np.array_equal(found, expected), name


def test_pytorch_sees_the_values(checkpoint: anamnesis.Checkpoint) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for name, expected in ARRAYS.items():
        tensor = checkpoint[name]
        for convert in (torch.as_tensor, torch.tensor, torch.from_dlpack, lambda t: t.torch()):
            found = convert(tensor)
            assert found.dtype == torch.from_numpy(expected.reshape(-1)).dtype, (name, convert)
            assert tuple(found.shape) == expected.shape and np.array_equal(found.numpy(), expected), (name, convert)
        wide = torch.as_tensor(tensor, dtype=torch.complex128)
        assert np.array_equal(wide.numpy(), expected.astype(np.complex128)), name


def test_what_takes_bytes_for_numbers_is_refused(checkpoint: anamnesis.Checkpoint, tmp_path: Path) -> None:
    tensor = checkpoint["F64"]
    if HAS_BUFFERS:
        with open(tmp_path / "bytes", "wb") as file, pytest.raises(BufferError, match="raw"):
            file.write(tensor)  # type: ignore[arg-type]
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if HAS_BUFFERS:
        # it reads any buffer as float32, whatever its format
        with pytest.raises((ValueError, RuntimeError), match="buffer"):
            torch.asarray(tensor)
    else:
        assert np.array_equal(torch.asarray(tensor).numpy(), ARRAYS["F64"])


def test_jax_sees_the_values(checkpoint: anamnesis.Checkpoint) -> None:
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    assert float(jnp.mean(jnp.asarray(checkpoint["F32"]))) == 1.5
    assert float(jnp.from_dlpack(checkpoint["F32"]).mean()) == 1.5


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_of_machine_learning_are_those_of_ml_dtypes(tmp_path: Path, name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    stored = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}[name]
    expected = np.array([[1.5, -2.0, 0.25, 4.0]], getattr(ml_dtypes, name))
    path = tmp_path / "t.safetensors"
    with anamnesis.TensorWriter(path, {"t": (stored, expected.shape)}) as out:
        out.write("t", expected.tobytes())
    tensor = anamnesis.open(path)["t"]
    assert tensor.dtype == stored
    for found in (np.asarray(tensor), np.array(tensor), tensor.numpy()):
        assert found.dtype == expected.dtype and np.array_equal(found.astype(np.float32), expected.astype(np.float32))
    assert np.array_equal(np.array(tensor, dtype=np.float32), expected.astype(np.float32))
    assert np.stack([tensor, tensor]).astype(np.float32).mean() == expected.astype(np.float32).mean()
    # neither struct nor numpy has the format: no buffer, and the bytes by their own name
    with pytest.raises((BufferError, TypeError)):
        memoryview(tensor)  # type: ignore[arg-type]
    assert bytes(tensor.raw()) == expected.tobytes()


def test_blocks_have_no_values_until_they_are_dequantised() -> None:
    tensor = anamnesis.open(GGUF)["blk.0.attn_q.weight"]
    with pytest.raises(TypeError, match=r"Q8_0.*remember"):
        np.asarray(tensor)
    with pytest.raises(TypeError, match="Q8_0"):
        np.array(tensor, dtype=np.float32)
    with pytest.raises(BufferError, match="Q8_0"):
        np.from_dlpack(tensor)
    with pytest.raises((BufferError, TypeError)):
        memoryview(tensor)  # type: ignore[arg-type]
    # the bytes, by name
    assert tensor.numpy().tobytes() == bytes(tensor.raw())
    assert tensor.remember("np", dtype="float32").shape == tensor.shape


def test_a_copy_that_is_not_wanted_is_refused(checkpoint: anamnesis.Checkpoint) -> None:
    tensor = checkpoint["F32"]
    assert tensor.__array__(copy=False).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        tensor.__array__(np.dtype("f8"), copy=False)


def test_what_is_seen_is_memory_of_its_own(checkpoint: anamnesis.Checkpoint) -> None:
    first, second = np.asarray(checkpoint["F32"]), np.asarray(checkpoint["F32"])
    first[0] = 100
    assert second[0] == 0 and checkpoint["F32"].numpy()[0] == 0
