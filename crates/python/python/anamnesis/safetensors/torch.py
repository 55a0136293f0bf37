"""The functions of ``safetensors.torch``; reading is for every format.

The helpers that other packages import have the names that they have there.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch

from .._frameworks.torch import DTYPES
from . import TensorSpec, deserialize, load, load_file, safe_open, serialize, serialize_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .._checkpoint import Path

__all__ = [
    "TensorSpec", "deserialize", "load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model", "serialize", "serialize_file",
    "storage_ptr", "storage_size",
]  # fmt: skip

_TYPES = {name: dtype for name, dtype in DTYPES.items() if name not in ("C32", "C128")}
_SIZE = {dtype: dtype.itemsize for dtype in (*_TYPES.values(), torch.float4_e2m1fn_x2)}


def storage_ptr(tensor: torch.Tensor) -> int:
    """The address of the memory that a tensor is a view of."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (NotImplementedError, RuntimeError):
        return 0  # a tensor without memory


def storage_size(tensor: torch.Tensor) -> int:
    """The bytes of the memory that a tensor is a view of."""
    try:
        return int(tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):
        return int(tensor.nelement() * tensor.element_size())


def _getdtype(dtype_str: str) -> torch.dtype:
    return _TYPES[dtype_str]


def _is_complete(tensor: torch.Tensor) -> bool:
    """Whether a tensor has all the memory that it is a view of."""
    return bool(tensor.data_ptr() == storage_ptr(tensor) and tensor.nelement() * tensor.element_size() == storage_size(tensor))


def _end_ptr(tensor: torch.Tensor) -> int:
    """The address behind the last element."""
    if not tensor.nelement():
        return int(tensor.data_ptr())
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.data_ptr() + (last + 1) * tensor.element_size())


def _find_shared_tensors(state_dict: Mapping[str, torch.Tensor]) -> list[set[str]]:
    """The names of tensors in groups: those in a group overlap in memory."""
    by_storage: dict[tuple[torch.device, int, int], list[str]] = defaultdict(list)
    for name, tensor in state_dict.items():
        if tensor.device.type != "meta" and storage_ptr(tensor) and storage_size(tensor):
            by_storage[tensor.device, storage_ptr(tensor), storage_size(tensor)].append(name)
    groups: list[set[str]] = []
    for names in by_storage.values():
        end = 0
        for start, stop, name in sorted((state_dict[name].data_ptr(), _end_ptr(state_dict[name]), name) for name in names):
            if end > start:
                groups[-1].add(name)
            else:
                groups.append({name})
            end = max(end, stop)
    return groups


def _remove_duplicate_names(
    state_dict: Mapping[str, torch.Tensor],
    *,
    preferred_names: Iterable[str] | None = None,
    discard_names: Iterable[str] | None = None,
) -> dict[str, list[str]]:
    """The name that is kept where several share memory, with the names that are removed for it. It is the first of
    ``preferred_names``, or else the first that is not of ``discard_names``, among the tensors that have all of the memory."""
    preferred, discarded = set(preferred_names or ()), set(discard_names or ())
    removed: dict[str, list[str]] = {}
    for shared in _find_shared_tensors(state_dict):
        complete = {name for name in shared if _is_complete(state_dict[name])}
        if not complete:
            raise RuntimeError(
                f"no tensor of {sorted(shared)} has all of the memory that it is a part of, so that none can be kept for the others. "
                "Refusing to save/load the model, since you could be storing much more memory than needed: make contiguous copies"
            )
        kept = min(complete & preferred or complete - discarded or complete)
        if len(shared) > 1:
            removed[kept] = sorted(shared - {kept})
    return removed


def _checked(tensors: Any) -> dict[str, torch.Tensor]:
    """Tensors in memory of the CPU, if they can be saved. They are kept until they are written."""
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}")
    sparse = [name for name, tensor in tensors.items() if tensor.layout != torch.strided]
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this library does not support."
            " You can make it a dense tensor before saving with `.to_dense()` but be aware this might"
            " make a much larger file than needed."
        )
    shared = [sorted(names) for names in _find_shared_tensors(tensors) if len(names) > 1]
    if shared:
        raise RuntimeError(
            f"Some tensors share memory, this will lead to duplicate memory on disk and potential differences when loading them again: {shared}."
            " A potential way to correctly save your model is to use `save_model`."
        )
    made = {}
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. Call `.contiguous()` to pack it before"
                " saving; or, if it is a part of another tensor, save that one and slice it when it is loaded."
            )
        # a copy where the memory is elsewhere, or lazily conjugated
        made[name] = tensor.detach().to("cpu").resolve_conj().resolve_neg()
    return made


def _specs(tensors: Mapping[str, torch.Tensor]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tensor.shape,
            data_ptr=tensor.data_ptr(),
            data_len=tensor.nelement() * tensor.element_size(),
        )
        for name, tensor in tensors.items()
    }


def save(tensors: dict[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file with these tensors, by name: dense and contiguous ones that share no memory. Raises
    ``ValueError`` and ``RuntimeError`` for others, and ``SafetensorError`` for a dtype that the format does not have.

        >>> import torch
        >>> from anamnesis.safetensors.torch import load, save
        >>> load(save({"a": torch.arange(3)}))["a"].tolist()
        [0, 1, 2]
    """
    checked = _checked(tensors)
    return serialize(_specs(checked), metadata)


def save_file(tensors: dict[str, torch.Tensor], filename: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file with these tensors, as :func:`save`. A file that exists is replaced when the new one is complete, so
    that a file may be written to the path from which its tensors were loaded.

        >>> import torch
        >>> from anamnesis.safetensors.torch import load_file, save_file
        >>> save_file({"a": torch.arange(3)}, "t.safetensors")
        >>> load_file("t.safetensors")["a"].tolist()
        [0, 1, 2]
    """
    checked = _checked(tensors)
    serialize_file(_specs(checked), filename, metadata)


def save_model(
    model: torch.nn.Module, filename: Path, metadata: Mapping[str, str] | None = None, force_contiguous: bool = True
) -> None:
    """Writes the state of a model. One of the tensors that share memory is written; the metadata has the name of each other one, with
    its name. ``force_contiguous`` packs tensors that are not contiguous.

        >>> import torch
        >>> from anamnesis.safetensors.torch import load_model, save_model
        >>> save_model(torch.nn.Linear(2, 3), "model.safetensors")
        >>> load_model(torch.nn.Linear(2, 3), "model.safetensors")
        (set(), [])
    """
    state = model.state_dict()
    keys = dict(metadata or {})
    for kept, removed in _remove_duplicate_names(state).items():
        for name in removed:
            keys.setdefault(name, kept)
            del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    try:
        save_file(dict(state), filename, keys or metadata)
    except ValueError as error:
        raise ValueError(f"{error} Or use save_model(..., force_contiguous=True), which packs them.") from error


def load_model(
    model: torch.nn.Module, filename: Path, strict: bool = True, device: Any = "cpu", *, backend: str = "mmap"
) -> tuple[Any, list[str]]:
    """Loads a file into a model. Returns the names that the file lacks and those that the model lacks; with ``strict`` such names are a
    ``RuntimeError``. A name that shares its memory with another one is not missing.

        >>> import torch
        >>> from anamnesis.safetensors.torch import load_model, save_file
        >>> save_file({"weight": torch.ones(3, 2)}, "weight.safetensors")
        >>> load_model(torch.nn.Linear(2, 3), "weight.safetensors", strict=False)
        ({'bias'}, [])
    """
    state = load_file(filename, device, backend=backend)
    removed = _remove_duplicate_names(model.state_dict(), preferred_names=state)
    absent, extra = model.load_state_dict(state, strict=False)
    missing, unexpected = set(absent), list(extra)
    for names in removed.values():
        for name in names:
            if name in missing:
                missing.remove(name)
            else:
                unexpected.append(name)
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for what, names in (("Missing", sorted(missing)), ("Unexpected", sorted(unexpected))):
            if names:
                quoted = ", ".join(f'"{name}"' for name in names)
                lines.append(f"    {what} key(s) in state_dict: {quoted}")
        raise RuntimeError("\n".join(lines))
    return missing, unexpected


def _view2torch(safeview: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, torch.Tensor]:
    """Tensors of what :func:`anamnesis.safetensors.deserialize` returns."""
    made = {}
    for name, view in safeview:
        dtype = _getdtype(view["dtype"])
        data = torch.frombuffer(view["data"], dtype=dtype) if view["data"] else torch.empty(0, dtype=dtype)
        made[name] = data.reshape(view["shape"])
    return made
