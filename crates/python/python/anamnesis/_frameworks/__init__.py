"""Loaded bytes as tensors of a framework. Each module imports its framework, and is imported when that is requested."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .. import _core

    # dtype, block type or numpy's descriptor, whether it is a dtype, shape, memory -> tensor
    Wrap = Callable[[str, bool, tuple[int, ...], _core.Memory], Any]

_MODULES = {"pt": "torch", "torch": "torch", "np": "numpy", "numpy": "numpy", "jax": "jax", "mlx": "mlx", "dlpack": "dlpack"}


def wrap_for(framework: str, device: Any) -> Wrap:
    """The function that makes a tensor of a framework, on a device, from dtype, shape and memory."""
    module = _MODULES.get(framework)
    if module is None:
        known = ", ".join(_MODULES)
        raise ValueError(f"framework {framework!r}: it must be one of {known}")
    from importlib import import_module

    wrap: Wrap = import_module(f"{__name__}.{module}").wrapper(device)
    return wrap


def memory_of(
    framework: str, name: str, tensor: Any, dtype: str, is_dtype: bool, shape: tuple[int, ...] | None, nbytes: int
) -> Any:
    """The memory of a tensor of the caller, which a load writes to, as an object with a buffer of bytes. It must have the dtype
    and, if it is known, the shape that :func:`wrap_for` would give the loaded tensor."""
    module = _MODULES.get(framework)
    if module not in ("torch", "numpy"):
        raise ValueError(f"out: tensors of {framework} cannot be written to")
    from importlib import import_module

    return import_module(f"{__name__}.{module}").memory_of(name, tensor, dtype, is_dtype, shape, nbytes)


def wrong_out(name: str, what: str) -> ValueError:
    """A description of the fault of a caller's tensor."""
    return ValueError(f"out: tensor {name!r}: {what}")


def byte_shape(shape: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
    """The shape of a tensor as bytes: its last axis counts bytes instead of elements, where rows have whole bytes."""
    rows = 1
    for size in shape[:-1]:
        rows *= size
    if len(shape) < 2 or rows == 0 or nbytes % rows:
        return (nbytes,)
    return (*shape[:-1], nbytes // rows)
