"""Arrays of numpy, over the memory that was loaded. The dtypes of machine learning come from ``ml_dtypes``."""

from __future__ import annotations

from ast import literal_eval
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UnsupportedError
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


def is_descriptor(dtype: str, is_dtype: bool) -> bool:
    """Whether this is numpy's descriptor of items that only numpy has a type for, as loaded rows have it: no block type begins so."""
    return not is_dtype and dtype[:1] in ("<", ">", "|", "[", "(")


def item_dtype(descriptor: str, subarray: bool = False) -> np.dtype[Any]:
    """The dtype of a descriptor, each number in the byte order that it is stored with. ``subarray`` allows the dtype of an array, which no
    array has. Raises ``UnsupportedError`` where numpy has none on
    this machine, as for long doubles of another one."""
    # the grammar of the descriptor was checked when the header was read: literals of a bounded depth
    descr: Any = literal_eval(descriptor) if descriptor[:1] in "[(" else descriptor
    try:
        kind: np.dtype[Any] = np.lib.format.descr_to_dtype(descr)
    except (TypeError, ValueError) as e:
        raise UnsupportedError(f"numpy has no dtype for {_short(descriptor)} on this machine: {e}") from None
    if kind.hasobject or kind.subdtype is not None and not subarray:
        raise UnsupportedError(f"no array of numpy has elements of {_short(descriptor)}")
    return kind


def _little(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype with little-endian numbers. ``newbyteorder`` loses the titles of fields."""
    if kind.subdtype is not None:
        base, shape = kind.subdtype
        return np.dtype((_little(base), shape))
    if kind.names is None or kind.fields is None:
        little: np.dtype[Any] = kind.newbyteorder("<")
        return little
    # recursion is bounded by the depth of descriptors
    rows: list[tuple[Any, ...]] = [kind.fields[name] for name in kind.names]
    formats, offsets = [_little(row[0]) for row in rows], [row[1] for row in rows]
    titles = [row[2] if len(row) > 2 else None for row in rows]
    # the names are texts, and the titles texts or None
    fields: Any = {"names": kind.names, "formats": formats, "offsets": offsets, "titles": titles, "itemsize": kind.itemsize}
    made: np.dtype[Any] = np.dtype(fields)
    return made


def _short(descriptor: str) -> str:
    return repr(descriptor if len(descriptor) <= 80 else f"{descriptor[:80]}…")


def stored_dtype(dtype: str, is_dtype: bool, big: bool) -> np.dtype[Any] | None:
    """The dtype with the byte order of the file, as ``numpy.load`` has it; ``None`` for what becomes bytes. ``big`` says whether the numbers
    are big endian."""
    if is_descriptor(dtype, is_dtype):
        kind: np.dtype[Any] | None = item_dtype(dtype)
        # the descriptor of fields has the byte order of each
        big = big and kind is not None and kind.names is None
    else:
        kind = _kind(dtype, is_dtype)
    if big and kind is not None:
        kind = kind.newbyteorder(">")
    return kind


def has_buffer(descriptor: str) -> bool:
    """Whether a buffer of such items has their dtype: the protocol has no format for dates, and none of which numpy makes raw bytes, padding
    or some subarrays again."""
    try:
        kind = _little(item_dtype(descriptor))
        one: Any = np.empty(1, kind)
        found = np.asarray(memoryview(one)).dtype
    # numpy has several errors for it
    except (UnsupportedError, BufferError, RuntimeError, TypeError, ValueError):
        return False
    return found == kind and found.fields == kind.fields


def _kind(dtype: str, is_dtype: bool) -> np.dtype[Any] | None:
    """The dtype of arrays; ``None`` for what becomes bytes."""
    if is_descriptor(dtype, is_dtype):
        # loaded bytes are little endian
        return _little(item_dtype(dtype))
    if not has_dtype(dtype, is_dtype):
        return None
    return np.dtype(DTYPES[dtype]) if dtype in DTYPES else _ml_dtype(ML_DTYPES[dtype])


def has_dtype(dtype: str, is_dtype: bool) -> bool:
    """Whether arrays have elements of this dtype, or bytes."""
    return is_descriptor(dtype, is_dtype) or is_dtype and (dtype in DTYPES or dtype in ML_DTYPES)


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
            return as_bytes(shape, memory)
        if is_dtype:
            return np.frombuffer(memoryview(memory), np.uint8).view(kind).reshape(shape)
        if len(memory) != kind.itemsize * prod(shape):
            raise UnsupportedError(f"numpy has items of {kind.itemsize} bytes for {_short(dtype)}, and the file others")
        # also of items without bytes, which no view has
        return np.ndarray(shape, kind, memoryview(memory))

    return wrap


def as_bytes(shape: tuple[int, ...], memory: _core.Memory) -> np.ndarray[Any, Any]:
    """An array of the bytes, whose last axis counts them."""
    return np.frombuffer(memoryview(memory), np.uint8).reshape(byte_shape(shape, len(memory)))
