"""Tensors of the DLPack protocol (https://dmlc.github.io/dlpack), over the memory that was loaded, for ``from_dlpack`` of any framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core
from . import byte_shape

if TYPE_CHECKING:
    from . import Wrap

# type code, bits, elements of a lane
DTYPES = {
    "F64": (2, 64, 1), "F32": (2, 32, 1), "F16": (2, 16, 1), "BF16": (4, 16, 1),
    "I64": (0, 64, 1), "I32": (0, 32, 1), "I16": (0, 16, 1), "I8": (0, 8, 1),
    "U64": (1, 64, 1), "U32": (1, 32, 1), "U16": (1, 16, 1), "U8": (1, 8, 1), "BOOL": (6, 8, 1),
    "C32": (5, 32, 1), "C64": (5, 64, 1), "C128": (5, 128, 1),
    "F8_E4M3": (10, 8, 1), "F8_E4M3FNUZ": (11, 8, 1), "F8_E5M2": (12, 8, 1), "F8_E5M2FNUZ": (13, 8, 1), "F8_E8M0": (14, 8, 1),
    "F4": (17, 4, 2),
}  # fmt: skip
BYTES = DTYPES["U8"]
# `kDLCPU`, the only device of loaded memory
CPU = (1, 0)


class DLPackTensor:
    """A tensor that frameworks take by ``from_dlpack``. ``dtype`` is the stored one, of which ``shape`` counts elements; where
    DLPack has no such type, the tensor that they take is one of bytes."""

    __slots__ = ("_dims", "_kind", "_memory", "dtype", "shape")

    def __init__(self, dtype: str, is_dtype: bool, shape: tuple[int, ...], memory: _core.Memory) -> None:
        self.dtype, self.shape, self._memory = dtype, shape, memory
        kind = DTYPES.get(dtype) if is_dtype else None
        dims = shape
        if kind is not None and kind[2] > 1:
            # two elements in a byte, of rows with whole bytes
            lanes = kind[2]
            dims = (*shape[:-1], shape[-1] // lanes) if shape else ()
            if not shape or shape[-1] % lanes:
                kind = None
        if kind is None:
            kind, dims = BYTES, byte_shape(shape, len(memory))
        self._kind, self._dims = kind, dims

    def __repr__(self) -> str:
        return f"<DLPackTensor: {self.dtype} {list(self.shape)}>"

    def __getitem__(self, index: Any) -> Any:
        raise ValueError("dlpack: a range of each axis can be loaded, without steps, numbers and masks")

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule: of the versioned structure where the consumer knows version 1."""
        if stream is not None:
            raise ValueError("dlpack: memory of the CPU has no stream")
        if dl_device is not None and tuple(dl_device) != CPU:
            raise BufferError(f"dlpack: the tensor is in memory of the CPU, not on device {tuple(dl_device)}")
        memory = self._memory
        if copy:
            memory = _core.new_memory(len(memory))
            memoryview(memory)[:] = memoryview(self._memory)
        versioned = max_version is not None and max_version[0] >= 1
        return _core.dlpack(memory, *self._kind, self._dims, versioned=versioned)


def wrapper(device: Any) -> Wrap:
    """Makes tensors in memory of the CPU."""
    if device not in (None, "cpu"):
        raise ValueError(f"dlpack: tensors are loaded to memory of the CPU, not to {device!r}")
    return DLPackTensor
