"""Values of numpy inside files of ``torch.save``, made of their descriptors and bytes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from .errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as e:
        raise ImportError("the file has values of numpy: pip install numpy") from e
    return numpy


def numpy_value(node: tuple[Any, ...]) -> Any:
    """The value of a node; an array of objects without them. Raises ``UnsupportedError`` where numpy has no such dtype on this machine."""
    match node:
        case ("numpy_dtype", str(descriptor)):
            return _dtype(descriptor)
        case ("numpy_scalar", str(descriptor), bytearray(memory)):
            return _array(descriptor, (), memory)[()]
        case ("numpy_array", str(descriptor), shape, axes, bytearray(memory), bool(native)):
            array = _array(descriptor, shape, memory)
            if native and not array.dtype.isnative:
                array = array.byteswap(inplace=True).view(array.dtype.newbyteorder("="))
            return array if axes is None else array.transpose(axes)
        case ("numpy_objects", shape, bool(fortran), _):
            return _numpy().empty(shape, object, "F" if fortran else "C")
    raise AssertionError(node[0])


def fill(array: Any, objects: Iterable[Any]) -> None:
    """Sets the elements of an array of objects, which are in C order."""
    # by whole indices, at which an array takes any object for one
    whole = array if array.shape else array.reshape(1)
    for index, one in zip(_numpy().ndindex(whole.shape), objects):
        whole[index] = one


def _dtype(descriptor: str) -> Any:
    _numpy()
    from ._frameworks.numpy import item_dtype

    return item_dtype(descriptor, subarray=True)


def _array(descriptor: str, shape: tuple[int, ...], memory: bytearray) -> Any:
    dtype = _dtype(descriptor)
    if dtype.subdtype is not None or dtype.itemsize * prod(shape) != len(memory):
        raise UnsupportedError(f"no array of numpy has elements of {descriptor[:80]!r}")
    return _numpy().ndarray(shape, dtype, memory)
