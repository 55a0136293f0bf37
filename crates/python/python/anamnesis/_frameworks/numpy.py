"""Arrays of numpy, over the memory that was loaded. The dtypes of machine learning come from ``ml_dtypes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import byte_shape, wrong_out

if TYPE_CHECKING:
    from .. import _core
    from . import Wrap

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?", "C64": "<c8", "C128": "<c16",
}  # fmt: skip
ML_DTYPES = {
    "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip


def _ml_dtype(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError as e:
        raise ImportError(f"numpy has no {name} of its own: pip install ml_dtypes") from e
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def _kind(dtype: str, is_dtype: bool) -> np.dtype[Any] | None:
    """The dtype of arrays; ``None`` for what becomes bytes."""
    if not has_dtype(dtype, is_dtype):
        return None
    return np.dtype(DTYPES[dtype]) if dtype in DTYPES else _ml_dtype(ML_DTYPES[dtype])


def has_dtype(dtype: str, is_dtype: bool) -> bool:
    """Whether arrays have elements of this dtype, or bytes."""
    return is_dtype and (dtype in DTYPES or dtype in ML_DTYPES)


def memory_of(name: str, array: Any, dtype: str, is_dtype: bool, shape: tuple[int, ...] | None, nbytes: int) -> Any:
    """The memory of an array that a load writes to."""
    if not isinstance(array, np.ndarray):
        raise wrong_out(name, f"{type(array).__name__} is no array of numpy")
    kind = _kind(dtype, is_dtype)
    if kind is None:
        kind, shape = np.dtype(np.uint8), None if shape is None else byte_shape(shape, nbytes)
    if array.dtype != kind:
        raise wrong_out(name, f"the array has {array.dtype}, and the tensor {kind} ({dtype})")
    if shape is not None and array.shape != shape:
        raise wrong_out(name, f"the array has the shape {array.shape}, and the tensor {shape}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise wrong_out(name, "the array is not contiguous and writable")
    return array.reshape(-1).view(np.uint8)


def wrapper(device: Any) -> Wrap:
    """Makes arrays; what has no dtype in numpy or ``ml_dtypes`` becomes bytes."""
    if device not in (None, "cpu"):
        raise ValueError(f"numpy has no device {device!r}")

    def wrap(dtype: str, is_dtype: bool, shape: tuple[int, ...], memory: _core.Memory) -> Any:
        kind = _kind(dtype, is_dtype)
        if kind is None:
            kind, shape = np.dtype(np.uint8), byte_shape(shape, len(memory))
        return np.frombuffer(memoryview(memory), np.uint8).view(kind).reshape(shape)

    return wrap
