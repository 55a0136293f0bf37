"""Indices of ``get_slice`` that the ``safetensors`` package refuses, and its errors: clients rely on both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import AnamnesisError

if TYPE_CHECKING:
    from collections.abc import Sequence


def checked(index: Any, shape: Sequence[int]) -> Any:
    """The index, if it names elements of the tensor. Where numpy shortens a range, an error is raised."""
    entries = index if isinstance(index, tuple) else (index,)
    if any(isinstance(entry, list) and entry for entry in entries):
        raise AnamnesisError("Non empty lists are not implemented")
    axis = 0
    for position, entry in enumerate(entries):
        if entry is Ellipsis:
            axis = len(shape) - (len(entries) - position - 1)
            continue
        if axis >= len(shape):
            break  # too many, which is refused when it is read
        size = shape[axis]
        if isinstance(entry, slice):
            step = 1 if entry.step is None else entry.step
            if step < 1:
                raise AnamnesisError(f"Slice step must be a positive integer, got {step}")
            last = size if entry.stop is None else entry.stop
            if last > size:
                raise _out_of_range(entries, shape, last - 1, axis)
        elif isinstance(entry, int):
            if entry < -size:
                raise AnamnesisError(f"Invalid index {entry} for dimension {axis} of size {size}")
            if entry >= size:
                raise _out_of_range(entries, shape, entry, axis)
        axis += 1
    return index


def _out_of_range(entries: tuple[Any, ...], shape: Sequence[int], asked: int, axis: int) -> AnamnesisError:
    named = ", ".join(map(_text, entries))
    return AnamnesisError(
        f"Error during slicing [{named}] with shape {list(shape)}: "
        f"index {asked} out of bounds for tensor dimension #{axis} of size {shape[axis]}"
    )


def _text(entry: Any) -> str:
    if entry is Ellipsis:
        return "..."
    if not isinstance(entry, slice):
        return str(entry)
    bounds = f"{'' if entry.start is None else entry.start}:{'' if entry.stop is None else entry.stop}"
    return bounds if entry.step in (None, 1) else f"{bounds}:{entry.step}"
