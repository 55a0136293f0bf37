"""Loading to a GPU: tensors are read into pinned memory, and copied from it to the device while the next ones are read."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ._frameworks.torch import kind_and_shape
from ._index import WHOLE
from ._results import Loaded, boxes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ._checkpoint import Checkpoint
    from ._progress import Report
    from ._index import Selection
    from ._tensor import Tensor

# The size of a slot of pinned memory, unless a tensor is larger. Two of them: one is read into while the other is
# copied. Large enough that starting a load (a tenth of a millisecond) does not count, small enough that the first copy
# begins soon.
SLOT_BYTES = 128 << 20
SLOTS = 2
# the alignment of tensors in a slot; the device copies from any address, and host memory is read in such lines
ALIGN = 64


class Copies(Protocol):
    """Copies to a device that run by themselves."""

    def slot(self, nbytes: int) -> torch.Tensor:
        """Pinned memory of this many bytes."""

    def copy(self, host: torch.Tensor) -> torch.Tensor:
        """Begins to copy a tensor in pinned memory, which must not change until :meth:`wait`."""

    def mark(self) -> Any:
        """A mark for :meth:`wait`: the end of all copies so far."""

    def wait(self, mark: Any) -> None: ...

    def finish(self) -> None:
        """Work that is given to the device from now on runs after all copies."""


class CudaCopies:
    """Copies on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # what used the memory of the new tensors before has ended when they are written
        self._stream.wait_stream(torch.cuda.current_stream(device))

    def slot(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, host: torch.Tensor) -> torch.Tensor:
        # on the caller's stream, on which it is used and freed
        made = torch.empty_like(host, device=self._device, pin_memory=False)
        with torch.cuda.stream(self._stream):
            made.copy_(host, non_blocking=True)
        made.record_stream(self._stream)
        return made

    def mark(self) -> Any:
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._stream)
        return event

    def wait(self, mark: Any) -> None:
        mark.synchronize()

    def finish(self) -> None:
        torch.cuda.current_stream(self._device).wait_stream(self._stream)


class _Read:
    """A tensor, or the box of it, that is read into a slot."""

    __slots__ = ("at", "chosen", "name", "nbytes", "shape", "tensor")

    def __init__(self, tensor: Tensor, chosen: Selection) -> None:
        self.tensor, self.name, self.chosen, self.at = tensor, tensor.name, chosen, 0
        self.shape, self.nbytes = tensor.part(chosen)

    def view(self, slot: torch.Tensor) -> torch.Tensor:
        kind, made = kind_and_shape(self.tensor.dtype, self.tensor._is_dtype, self.shape, self.nbytes)
        return slot[self.at : self.at + self.nbytes].view(kind).view(made or ())


def _groups(reads: Iterable[_Read], slot: int) -> Iterator[list[_Read]]:
    """Reads that share a slot."""
    group: list[_Read] = []
    end = 0
    for read in reads:
        if group and end + read.nbytes > slot:
            yield group
            group, end = [], 0
        read.at = end
        end += -(-read.nbytes // ALIGN) * ALIGN
        group.append(read)
    if group:
        yield group


def load(
    checkpoint: Checkpoint,
    copies: Copies,
    names: Iterable[str],
    chosen: Mapping[str, Selection],
    *,
    loader: str | None = None,
    progress: Report | None = None,
    slot_bytes: int = SLOT_BYTES,
) -> Loaded:
    """Loads tensors to the device of ``copies``. Tied tensors are tied there too."""
    order = list(names)
    known = set(order)
    # tensors that are loaded whole, with the one that they are tied to
    same_as = {
        name: first for name, first in checkpoint.tied.items() if {name, first} <= known and not {name, first} & chosen.keys()
    }
    reads = [_Read(checkpoint[name], chosen.get(name, WHOLE)) for name in order if name not in same_as]
    reads.sort(key=lambda read: (read.tensor.file or "", read.tensor.offset or 0))
    total, done = sum(read.nbytes for read in reads), 0
    found: dict[str, torch.Tensor] = {}
    loaded = Loaded()
    slots: list[tuple[torch.Tensor, Any]] = []
    turns = cycle(range(SLOTS))
    try:
        for group in _groups(reads, slot_bytes):
            number, needed = next(turns), group[-1].at + group[-1].nbytes
            if number == len(slots):
                slots.append((copies.slot(max(needed, min(slot_bytes, total))), None))
            slot, mark = slots[number]
            if mark is not None:
                copies.wait(mark)
            if slot.numel() < needed:
                slot = copies.slot(needed)
            bytes_of_slot = slot.numpy()
            loaded.loader, loaded.reason = checkpoint._core.load_into(
                [(read.name, bytes_of_slot[read.at : read.at + read.nbytes]) for read in group],
                loader=loader,
                slices=boxes({read.name: read.chosen for read in group}),
                progress=_after(progress, done, total),
            )
            for read in group:
                found[read.name] = copies.copy(read.view(slot))
            slots[number] = (slot, copies.mark())
            done += sum(read.nbytes for read in group)
    finally:
        # no copy reads a slot that is gone
        for _, mark in slots:
            if mark is not None:
                copies.wait(mark)
        copies.finish()
    for name in order:
        tensor = found[same_as.get(name, name)]
        selected = chosen.get(name, WHOLE).apply(tensor, tuple(tensor.shape))
        loaded[name] = selected.view(selected.shape) if name in same_as else selected
    return loaded


def _after(progress: Report | None, done: int, total: int) -> Report | None:
    """The callback of a part of the load."""
    if progress is None:
        return None
    report = progress
    return lambda of_part, _: report(done + of_part, total)
