"""Writing as the ``safetensors`` package: the same functions, and the same bytes."""

from __future__ import annotations

import ctypes
from operator import index as whole_number
from os import fsdecode

from .. import _core
from .._checkpoint import Checkpoint
from .._writer import write_pieces
from ._errors import SafetensorError, raising

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from .._checkpoint import Path

# the name in a header by the name in frameworks. Files of the package have tensors in the descending order of this table
_CODES = {
    "bool": "BOOL", "float4_e2m1fn_x2": "F4", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "int16": "I16", "uint16": "U16",
    "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32", "float32": "F32", "complex64": "C64", "float64": "F64",
    "int64": "I64", "uint64": "U64",
}  # fmt: skip
_ORDER = {code: number for number, code in enumerate(_CODES.values())}


class TensorSpec:
    """A tensor that is written: the name of its dtype in frameworks (``float32``), its shape, and the address and the number of
    its bytes, which must exist until they are written. ``float4_e2m1fn_x2`` has two elements in a byte: the last axis of the given
    shape counts bytes, and of :attr:`shape` elements.

    Raises ``SafetensorError`` for a dtype that the format does not have.
    """

    __slots__ = ("data_len", "data_ptr", "dtype", "shape")

    def __init__(self, *, dtype: str, shape: Sequence[int], data_ptr: int, data_len: int) -> None:
        if not isinstance(dtype, str):
            raise TypeError(f"dtype: a text, not {type(dtype).__name__}")
        if dtype not in _CODES:
            raise SafetensorError(f"Unknown dtype {dtype!r}. Supported dtypes: {', '.join(_CODES)}")
        self.dtype = _CODES[dtype]
        self.shape = [_count("shape", size) for size in shape]
        if self.dtype == "F4" and self.shape:
            self.shape[-1] *= 2
        self.data_ptr = _count("data_ptr", data_ptr)
        self.data_len = _count("data_len", data_len)

    def __repr__(self) -> str:
        return f"TensorSpec(dtype={self.dtype!r}, shape={self.shape}, data_ptr={self.data_ptr}, data_len={self.data_len})"


def _count(what: str, number: Any) -> int:
    count = whole_number(number)
    if count < 0:
        raise OverflowError(f"{what}: can't convert negative int to unsigned")
    return count


def _rows(tensors: Mapping[str, TensorSpec]) -> list[tuple[str, str, list[int]]]:
    """Names, dtypes and shapes in the order of the file."""
    for name, spec in tensors.items():
        if not isinstance(name, str) or not isinstance(spec, TensorSpec):
            raise TypeError(f"tensor {name!r}: a name and a TensorSpec, not {type(name).__name__} and {type(spec).__name__}")
    order = sorted(tensors.items(), key=lambda row: (-_ORDER[row[1].dtype], row[0]))
    return [(name, spec.dtype, spec.shape) for name, spec in order]


def _keys(metadata: Mapping[str, str] | None) -> list[tuple[str, str]] | None:
    if metadata is None:
        return None
    if not hasattr(metadata, "items"):
        raise TypeError(f"metadata: a dictionary of texts, not {type(metadata).__name__}")
    keys = list(metadata.items())
    for key, value in keys:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata: {key!r}: {value!r}: keys and values are texts")
    return keys


def _prepared(
    tensors: Mapping[str, TensorSpec], rows: list[tuple[str, str, list[int]]], keys: list[tuple[str, str]] | None
) -> tuple[bytes, list[tuple[str, memoryview]]]:
    """The header, and names and bytes of the tensors in the order of the file."""
    with raising():
        header, order = _core.safetensors_header(rows, keys)
    for name, nbytes in order:
        spec = tensors[name]
        if spec.data_len != nbytes:
            raise SafetensorError(
                f"Error while serializing: tensor {name!r}: {spec.dtype} {spec.shape} has {nbytes} bytes, and {spec.data_len} were given"
            )
    return header, [(name, _memory(tensors[name])) for name, _ in order]


def _memory(spec: TensorSpec) -> memoryview:
    if not spec.data_len:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * spec.data_len).from_address(spec.data_ptr)).cast("B")


def serialize(tensor_dict: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a file with these tensors. Raises ``SafetensorError`` for a tensor whose bytes do not fit its shape."""
    header, contents = _prepared(tensor_dict, _rows(tensor_dict), _keys(metadata))
    return b"".join([header, *(content for _, content in contents)])


def serialize_file(tensor_dict: Mapping[str, TensorSpec], filename: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a file with these tensors, whose bytes are :func:`serialize`'s. A file that exists is replaced, when the new one is
    complete and on the disk: maps and tensors of the old one stay valid. Raises ``SafetensorError`` as :func:`serialize`, and
    ``OSError``."""
    rows, keys = _rows(tensor_dict), _keys(metadata)
    _, contents = _prepared(tensor_dict, rows, keys)
    with raising():
        writer = _core.CoreWriter(fsdecode(filename), rows, container="safetensors", metadata=keys, overwrite=True)
        try:
            for name, content in contents:
                write_pieces(writer, name, content)
            writer.finish()
        finally:
            writer.close()


def deserialize(bytes: bytes) -> list[tuple[str, dict[str, Any]]]:  # noqa: A002  the safetensors package gave the name
    """The tensors in the bytes of a file: names, each with ``shape``, ``dtype`` and ``data``, in the order of the file."""
    with raising():
        checkpoint = Checkpoint(bytes)
        rows, _, _ = checkpoint._core.load(None)
        return [
            (name, {"shape": list(shape), "dtype": dtype, "data": bytearray(memoryview(memory))}) for name, dtype, _, shape, memory in rows
        ]
