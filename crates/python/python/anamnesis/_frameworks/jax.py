"""Arrays of JAX, copied from the memory that was loaded to JAX's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from . import numpy as _numpy

if TYPE_CHECKING:
    from .. import _core
    from . import Wrap


def wrapper(device: Any) -> Wrap:
    """Makes arrays on ``device``, a device of JAX or the name of a platform."""
    target = jax.devices(device)[0] if isinstance(device, str) else device
    wrap_numpy = _numpy.wrapper(None)

    def wrap(dtype: str, is_dtype: bool, shape: tuple[int, ...], memory: _core.Memory) -> Any:
        return jax.device_put(wrap_numpy(dtype, is_dtype, shape, memory), target)

    return wrap
