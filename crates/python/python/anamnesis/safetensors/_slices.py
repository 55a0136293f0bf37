"""Indices of ``get_slice``: accepted and refused as the ``safetensors`` package (0.8) does, whose errors clients rely on.

With its default backend PyTorch itself selects; for all other frameworks, and with ``backend="pread"``, numbers, ranges and an
ellipsis select, and a range must end within its axis.
"""

from __future__ import annotations

from operator import index as whole_number
from typing import TYPE_CHECKING, Any

from ._errors import SafetensorError, raising

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._options import Framework
    from .._tensor import Tensor

_LARGEST = 2**31 - 1


def by_ranges(tensor: Tensor, framework: Framework, index: Any, device: Any) -> Any:
    """The elements that an index selects by the rules of safetensors itself."""
    entries = _entries(index, tensor.shape)
    _check(entries, tensor.shape)
    selected = (*(at if isinstance(at, int) else slice(*at) for at in entries), ...)
    try:
        with raising():
            return tensor.to(framework, selected, device)
    except ValueError as error:
        # elements smaller than a byte
        raise SafetensorError(str(error)) from error


def by_torch(tensor: Tensor, index: Any, device: Any) -> Any:
    """The elements that PyTorch selects."""
    entries = index if isinstance(index, tuple) else (index,)
    basic = all(entry is None or entry is Ellipsis or _is_number(entry) or isinstance(entry, slice) for entry in entries)
    if not basic or sum(entry is Ellipsis for entry in entries) > 1:
        # a mask or an array selects from the whole, and PyTorch alone takes a second ellipsis
        with raising():
            whole = tensor.to("torch")
        return _moved(whole[index], device)
    import torch

    # without bytes: raises the errors of PyTorch, before a byte is read
    torch.empty(tensor.shape, device="meta")[index]
    try:
        with raising():
            return tensor.to("torch", index, device)
    except ValueError:
        # elements smaller than a byte, of which PyTorch counts bytes
        with raising():
            whole = tensor.to("torch")
        return _moved(whole[index], device)


def _moved(tensor: Any, device: Any) -> Any:
    return tensor if device is None else tensor.to(device)


def _is_number(entry: Any) -> bool:
    return isinstance(entry, int) and not isinstance(entry, bool)


def _entries(index: Any, shape: Sequence[int]) -> list[int | tuple[int | None, int | None, int]]:
    """Numbers, and ranges as start, stop and step."""
    if isinstance(index, list):
        if index:
            raise SafetensorError("Non empty lists are not implemented")
        return [(0, 0, 1)]
    given = index if isinstance(index, tuple) else (index,)
    ellipses = sum(entry is Ellipsis for entry in given)
    if ellipses > 1:
        raise SafetensorError("Only one ellipsis (...) is allowed in slice index")
    entries: list[int | tuple[int | None, int | None, int]] = []
    for entry in given:
        axis = len(entries)
        if entry is Ellipsis:
            entries += [(None, None, 1)] * max(len(shape) - len(given) + 1, 0)
        elif isinstance(entry, slice):
            start, stop = _bound(entry.start), _bound(entry.stop)
            step = 1 if entry.step is None else whole_number(entry.step)
            if step < 1:
                raise SafetensorError(f"Slice step must be a positive integer, got {step}")
            entries.append((start, stop, step))
        else:
            entries.append(_number(entry, axis, shape[axis] if axis < len(shape) else 0))
    return entries


def _bound(bound: Any) -> int | None:
    if bound is None:
        return None
    number = whole_number(bound)
    if number < 0:
        raise OverflowError("can't convert negative int to unsigned")
    return number


def _number(entry: Any, axis: int, size: int) -> int:
    try:
        number = whole_number(entry)
    except TypeError:
        number = _LARGEST + 1
    if not -_LARGEST - 1 <= number <= _LARGEST:
        text = f"Unsupported slice index at position {axis}: expected slice, int, or ellipsis"
        raise SafetensorError(text)
    if number < -size:
        raise SafetensorError(f"Invalid index {number} for dimension {axis} of size {size}")
    return number + size if number < 0 else number


def _check(entries: list[int | tuple[int | None, int | None, int]], shape: Sequence[int]) -> None:
    """Refuses what lies outside of the tensor: the last axis first, as safetensors does."""
    why = "more slicing indexes than dimensions in tensor" if len(entries) > len(shape) else None
    for axis in reversed(range(min(len(entries), len(shape)))):
        if why is not None:
            break
        entry, size = entries[axis], shape[axis]
        start, stop = (entry, entry + 1) if isinstance(entry, int) else (entry[0] or 0, size if entry[1] is None else entry[1])
        if start >= size or stop > size:
            asked = start if start >= size else max(stop - 1, 0)
            why = f"index {asked} out of bounds for tensor dimension #{axis} of size {size}"
        elif stop < start:
            why = f"the range {_text(entry)} of dimension #{axis} ends before it starts"
    if why is not None:
        named = ", ".join(map(_text, entries))
        raise SafetensorError(f"Error during slicing [{named}] with shape {list(shape)}: {why}")


def _text(entry: int | tuple[int | None, int | None, int]) -> str:
    if isinstance(entry, int):
        return str(entry)
    start, stop, step = entry
    bounds = f"{'' if start is None else start}:{'' if stop is None else stop}"
    return bounds if step == 1 else f"{bounds}:{step}"
