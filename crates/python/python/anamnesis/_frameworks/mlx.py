"""Arrays of MLX, copied from the memory that was loaded to MLX's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from . import numpy as _numpy

if TYPE_CHECKING:
    from .. import _core
    from . import Wrap

# those that numpy has as well
DTYPES = {
    "F32": mx.float32, "F16": mx.float16, "F64": mx.float64, "C64": mx.complex64, "BOOL": mx.bool_,
    "I64": mx.int64, "I32": mx.int32, "I16": mx.int16, "I8": mx.int8,
    "U64": mx.uint64, "U32": mx.uint32, "U16": mx.uint16, "U8": mx.uint8,
}  # fmt: skip


def wrapper(device: Any) -> Wrap:
    """Makes arrays; what has no dtype in MLX becomes bytes. MLX has one memory for all devices, so that ``device`` must be
    ``None``. F64 is for operations of the CPU alone."""
    if device is not None:
        raise ValueError(f"MLX has no device {device!r}: its arrays belong to none")
    wrap_numpy = _numpy.wrapper(None)

    def wrap(dtype: str, is_dtype: bool, shape: tuple[int, ...], memory: _core.Memory) -> Any:
        if is_dtype and dtype == "BF16":
            # MLX does not accept the dtype of ml_dtypes
            bits = np.frombuffer(memoryview(memory), np.uint16).reshape(shape)
            return mx.array(bits).view(mx.bfloat16)
        kind = DTYPES.get(dtype) if is_dtype else None
        if kind is None:
            return mx.array(_numpy.as_bytes(shape, memory))
        # the dtype is named, as MLX makes F32 of F64
        return mx.array(wrap_numpy(dtype, is_dtype, shape, memory), dtype=kind)

    return wrap
