"""Arrays of JAX, copied from the memory that was loaded to JAX's own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import jax

from . import numpy as _numpy

if TYPE_CHECKING:
    from .. import _core
    from . import Wrap

# the second is its place before JAX 0.8
_enable_x64: Any = jax.enable_x64 if hasattr(jax, "enable_x64") else import_module("jax.experimental").enable_x64


def wrapper(device: Any) -> Wrap:
    """Makes arrays on ``device``, a device of JAX or the name of a platform. Arrays of 64 bits keep them: by its own default JAX
    would make 32 of them."""
    target = jax.devices(device)[0] if isinstance(device, str) else device
    wrap_numpy = _numpy.wrapper(None)

    def wrap(dtype: str, is_dtype: bool, shape: tuple[int, ...], memory: _core.Memory) -> Any:
        # JAX has none of the items that only numpy has a type for
        is_item = _numpy.is_descriptor(dtype, is_dtype)
        array = _numpy.as_bytes(shape, memory) if is_item else wrap_numpy(dtype, is_dtype, shape, memory)
        with _enable_x64(True):
            return jax.device_put(array, target)

    return wrap
