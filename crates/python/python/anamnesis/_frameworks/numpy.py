"""Arrays of numpy, over the memory that was loaded. The dtypes of machine learning are those of ``ml_dtypes``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import byte_shape

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


def wrapper(device: Any) -> Wrap:
    """Makes arrays; what has no dtype in numpy or ``ml_dtypes`` becomes bytes."""
    if device not in (None, "cpu"):
        raise ValueError(f"numpy has no device {device!r}")

    def wrap(dtype: str, is_dtype: bool, shape: tuple[int, ...], memory: _core.Memory) -> Any:
        if is_dtype and dtype in DTYPES:
            kind = np.dtype(DTYPES[dtype])
        elif is_dtype and dtype in ML_DTYPES:
            kind = _ml_dtype(ML_DTYPES[dtype])
        else:
            kind, shape = np.dtype(np.uint8), byte_shape(shape, len(memory))
        return np.frombuffer(memoryview(memory), np.uint8).view(kind).reshape(shape)

    return wrap
