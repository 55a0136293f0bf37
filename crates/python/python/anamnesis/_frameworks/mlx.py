"""Arrays of MLX, copied from the memory that was loaded to MLX's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from . import numpy as _numpy

if TYPE_CHECKING:
    from .. import _core
    from . import Wrap


def wrapper(device: Any) -> Wrap:
    """Makes arrays. MLX has one memory for all devices, so that ``device`` must be ``None``."""
    if device is not None:
        raise ValueError(f"MLX has no device {device!r}: its arrays belong to none")
    wrap_numpy = _numpy.wrapper(None)

    def wrap(dtype: str, is_dtype: bool, shape: tuple[int, ...], memory: _core.Memory) -> Any:
        if is_dtype and dtype == "BF16":
            # MLX does not accept the dtype of ml_dtypes
            bits = np.frombuffer(memoryview(memory), np.uint16).reshape(shape)
            return mx.array(bits).view(mx.bfloat16)
        array = wrap_numpy(dtype, is_dtype, shape, memory)
        if array.dtype.kind == "V" or array.dtype in (np.float64, np.complex128):
            raise ValueError(f"MLX has no dtype for {dtype}")
        return mx.array(array)

    return wrap
