"""Indices of tensors: which box of elements is read, and what is selected from it afterwards."""

from __future__ import annotations

from operator import index as whole_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# the most axes of an array of numpy; a nested list, or one of truth values, may be a mask of that many
MAX_AXES = 64
# start and end of each axis
Box = list[tuple[int, int]]


class Selection:
    """A box that is read, and the index that is applied to it. ``box`` is ``None`` where the whole tensor is read.

    ``reverse``: axes whose order is reversed first, because PyTorch has no negative steps. ``last_is_whole``: what is selected
    along the last axis is all of the box.
    """

    __slots__ = ("box", "last_is_whole", "rest", "reverse")

    def __init__(self, box: Box | None, reverse: list[int], rest: Any, last_is_whole: bool) -> None:
        self.box, self.reverse, self.rest, self.last_is_whole = box, reverse, rest, last_is_whole

    def apply(self, tensor: Any, shape: tuple[int, ...]) -> Any:
        """Selects from the tensor that was read, which has ``shape`` in elements."""
        if self.rest is None:
            return tensor
        if tuple(tensor.shape) != shape and (len(tensor.shape) != len(shape) or not self.last_is_whole):
            # its last axis counts bytes
            raise ValueError("a tensor without a dtype in this framework is indexed by whole blocks, and not along its last axis")
        if self.reverse:
            flip = getattr(tensor, "flip", None)
            if flip is not None:
                tensor = flip(self.reverse)
            else:
                steps = [slice(None, None, -1 if axis in self.reverse else 1) for axis in range(len(shape))]
                tensor = tensor[tuple(steps)]
        return tensor[self.rest]


WHOLE = Selection(None, [], None, True)


def selection(index: Any, shape: Sequence[int]) -> Selection:
    """The selection that an index makes in a tensor of this shape. A basic index (numbers, ranges, an ellipsis, ``None``)
    needs a box; masks and arrays are selected by the framework from the whole tensor.

    Raises ``IndexError`` as numpy does.
    """
    if index is Ellipsis:
        return WHOLE
    if isinstance(index, str) or isinstance(index, list) and index and all(isinstance(name, str) for name in index):
        # fields of a structured dtype of numpy
        return Selection(None, [], index, False)
    entries = index if isinstance(index, tuple) else (index,)
    basic = [_basic(entry) for entry in entries]
    if any(entry is NotImplemented for entry in basic):
        # the axes that an ellipsis stands for are not counted here
        counted = not any(entry is Ellipsis for entry in entries)
        return Selection(None, [], entries, counted and sum(map(_axes_of, entries)) < len(shape))
    used = sum(entry is not None and entry is not Ellipsis for entry in basic)
    if used > len(shape):
        raise IndexError(f"too many indices: {used}, for a tensor of {len(shape)} axes")
    ellipses = sum(entry is Ellipsis for entry in basic)
    if ellipses > 1:
        raise IndexError("an index can have one ellipsis")
    if not ellipses:
        basic.append(Ellipsis)
    box: Box = []
    reverse: list[int] = []
    rest: list[Any] = []
    last_is_whole = True
    for entry in basic:
        if entry is None:
            rest.append(None)
        elif entry is Ellipsis:
            # kept, because numpy makes a scalar of an element, and an array with an ellipsis
            if ellipses:
                rest.append(Ellipsis)
            box += [(0, size) for size in shape[len(box) : len(box) + len(shape) - used]]
        else:
            axis = len(box)
            read, left = _axis(entry, axis, shape[axis])
            if isinstance(left, slice) and (left.step or 1) < 0:
                reverse.append(axis)
                left = slice(None, None, -left.step)
            if axis == len(shape) - 1:
                last_is_whole = left == slice(None)
            box.append(read)
            rest.append(left)
    # the index () makes a scalar of a tensor without axes
    trivial = (shape or ellipses) and not reverse and all(entry is Ellipsis or entry == slice(None) for entry in rest)
    return Selection(box, reverse, None if trivial else tuple(rest), last_is_whole)


def _basic(entry: Any) -> Any:
    """A number, a range, an ellipsis or ``None``; ``NotImplemented`` for everything else."""
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    # an array of one number is an index too, and a truth value is a mask
    axes: int = getattr(entry, "ndim", 0)
    if isinstance(entry, bool) or axes > 0 or "bool" in str(getattr(entry, "dtype", "")):
        return NotImplemented
    try:
        return whole_number(entry)
    except TypeError:
        return NotImplemented


def _axes_of(entry: Any) -> int:
    """How many axes an entry of an index selects from: a mask as many as it has."""
    if entry is None or isinstance(entry, bool):
        return 0
    if isinstance(entry, list | tuple) and not _is_flat_numbers(entry):
        return MAX_AXES
    return int(entry.ndim) if "bool" in str(getattr(entry, "dtype", "")) else 1


def _is_flat_numbers(entry: list[Any] | tuple[Any, ...]) -> bool:
    return all(isinstance(one, int) and not isinstance(one, bool) for one in entry)


def _axis(entry: int | slice, axis: int, size: int) -> tuple[tuple[int, int], int | slice]:
    """The range of an axis that is read, and the index of what is selected from it."""
    if isinstance(entry, int):
        at = entry + size if entry < 0 else entry
        if not 0 <= at < size:
            raise IndexError(f"index {entry} is out of bounds for axis {axis}, which has {size}")
        return (at, at + 1), 0
    numbers = range(*entry.indices(size))
    if not numbers:
        return (0, 0), slice(None)
    low, high = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
    step = numbers.step
    return (low, high + 1), slice(None) if step == 1 or low == high else slice(None, None, step)


def check_blocks(name: str, dtype: str, shape: Sequence[int], unit: int, chosen: Selection) -> None:
    """Refuses a box that cuts a block: elements that share scales or a byte are read together."""
    if unit == 1 or chosen.box is None or not shape or chosen.box == [(0, size) for size in shape]:
        return
    start, end = chosen.box[-1]
    if start % unit or end % unit and end != shape[-1]:
        raise ValueError(
            f"tensor {name!r}: indices {start} to {end} of the last axis cut blocks of {unit} elements ({dtype}): "
            "index whole blocks, or dequantise with .remember(index=…)"
        )
