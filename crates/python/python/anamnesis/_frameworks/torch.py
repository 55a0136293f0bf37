"""Tensors of PyTorch, over the memory that was loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import byte_shape

if TYPE_CHECKING:
    from .. import _core
    from . import Wrap

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
    "C32": torch.complex32, "C64": torch.complex64, "C128": torch.complex128,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz, "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}  # fmt: skip


def wrapper(device: Any) -> Wrap:
    """Makes tensors on ``device``; what has no dtype in PyTorch becomes bytes."""
    target = None if device is None else torch.device(device)
    if target == torch.device("cpu"):
        target = None

    def wrap(dtype: str, is_dtype: bool, shape: tuple[int, ...], memory: _core.Memory) -> Any:
        kind = DTYPES.get(dtype) if is_dtype else None
        if is_dtype and dtype == "F4" and shape and shape[-1] % 2 == 0:
            # two elements in a byte, as PyTorch packs them
            kind = torch.float4_e2m1fn_x2
            shape = (*shape[:-1], shape[-1] // 2)
        if kind is None:
            kind, shape = torch.uint8, byte_shape(shape, len(memory))
        # `frombuffer` refuses memory without bytes
        tensor = torch.frombuffer(memory, dtype=kind) if len(memory) else torch.empty(0, dtype=kind)
        tensor = tensor.view(shape)
        return tensor if target is None else tensor.to(target)

    return wrap
