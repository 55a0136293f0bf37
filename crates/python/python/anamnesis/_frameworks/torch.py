"""Tensors of PyTorch, over the memory that was loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from . import byte_shape, wrong_out

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


def kind_and_shape(
    dtype: str, is_dtype: bool, shape: tuple[int, ...] | None, nbytes: int
) -> tuple[torch.dtype, tuple[int, ...] | None]:
    """The dtype and the shape of tensors; bytes for what has no dtype."""
    if is_dtype and dtype == "F4" and (shape is None or shape and shape[-1] % 2 == 0):
        # two elements in a byte, as PyTorch packs them
        return torch.float4_e2m1fn_x2, None if shape is None else (*shape[:-1], shape[-1] // 2)
    kind = DTYPES.get(dtype) if is_dtype else None
    if kind is None:
        return torch.uint8, None if shape is None else byte_shape(shape, nbytes)
    return kind, shape


def memory_of(name: str, tensor: Any, dtype: str, is_dtype: bool, shape: tuple[int, ...] | None, nbytes: int) -> Any:
    """The memory of a tensor that a load writes to."""
    if not isinstance(tensor, torch.Tensor):
        raise wrong_out(name, f"{type(tensor).__name__} is no tensor of PyTorch")
    kind, shape = kind_and_shape(dtype, is_dtype, shape, nbytes)
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise wrong_out(name, f"a tensor on {tensor.device} ({tensor.layout}) has no memory to load into")
    if tensor.dtype != kind:
        raise wrong_out(name, f"it has {tensor.dtype}, and the stored one {kind} ({dtype})")
    if shape is not None and tuple(tensor.shape) != shape:
        raise wrong_out(name, f"it has the shape {tuple(tensor.shape)}, and the stored one {shape}")
    if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        raise wrong_out(name, "it is not contiguous")
    held = tensor.untyped_storage().nbytes()
    if (tensor.storage_offset() + tensor.numel()) * tensor.element_size() > held and tensor.numel():
        # PyTorch itself would write there
        raise wrong_out(name, f"its storage was released, or shortened: it has {held} bytes")
    # no view of one axis exists of huge axes without elements
    return tensor.detach().view(-1).view(torch.uint8).numpy() if tensor.numel() else bytearray()


def wrapper(device: Any) -> Wrap:
    """Makes tensors on ``device``; what has no dtype in PyTorch becomes bytes."""
    target = None if device is None else torch.device(device)
    if target == torch.device("cpu"):
        target = None

    def wrap(dtype: str, is_dtype: bool, shape: tuple[int, ...], memory: _core.Memory) -> Any:
        kind, made = kind_and_shape(dtype, is_dtype, shape, len(memory))
        # `frombuffer` refuses memory without bytes
        tensor = torch.frombuffer(memory, dtype=kind) if len(memory) else torch.empty(0, dtype=kind)
        tensor = tensor.view(made or ())
        return tensor if target is None else tensor.to(target)

    return wrap
