"""The results of calls: documents, loaded tensors, and streams of them."""

from __future__ import annotations

from ._index import WHOLE
from .errors import UnsupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from . import _core
    from ._checkpoint import Checkpoint
    from ._frameworks import Wrap
    from ._index import Box, Selection


# entries that a warning names
_SHOWN = 8


def boxes(chosen: Mapping[str, Selection]) -> dict[str, Box] | None:
    """The boxes that are read; ``None`` if all tensors are read whole."""
    return {name: one.box for name, one in chosen.items() if one.box is not None} or None


def wrapped(wrap: Wrap, chosen: Mapping[str, Selection], row: _core._Loaded) -> Any:
    """The tensor of a loaded row, or what is chosen of it."""
    name, dtype, is_dtype, shape, memory = row
    try:
        made = wrap(dtype, is_dtype, shape, memory)
    except UnsupportedError as e:
        remedy = "exclude= leaves the tensor out, and .raw() has its bytes"
        raise UnsupportedError(f"tensor {name!r}: {e}", remedy=remedy) from None
    return chosen.get(name, WHOLE).apply(made, shape)


def warn_of_refused(checkpoint: Checkpoint, level: int) -> None:
    """Warns of the entries that a whole load leaves out, because they cannot be read: arrays of objects, for example."""
    refused = checkpoint.refused
    if not refused:
        return
    from warnings import warn

    listed = "; ".join(f"{name!r}: {reason}" for name, reason in refused[:_SHOWN])
    more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
    warn(f"{checkpoint.path or 'the checkpoint'}: not loaded: {listed}{more}", stacklevel=level + 1)


class Summary(dict[str, "Any"]):
    """The document that ``anamnesis inspect --json`` prints of a checkpoint: ``docs/json.md`` describes it."""

    def to_dict(self) -> dict[str, Any]:
        return dict(self)

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(t['name'])}<td>{escape(t['dtype'])}<td>{t['shape']}<td style='text-align:right'>{t['nbytes']:,}"
            for t in self["tensors"][:200]
        )
        totals = self["totals"]
        more = "" if len(self["tensors"]) <= 200 else f"<p>and {len(self['tensors']) - 200:,} more"
        return (
            f"<b>{escape(str(self['path']))}</b>: {self['format']}, {totals['tensors']:,} tensors, {totals['nbytes']:,} bytes"
            f"<table><tr><th>name<th>dtype<th>shape<th>bytes{rows}</table>{more}"
        )


class Plan(dict[str, "Any"]):
    """The result that dequantising would have: ``outputs`` (name, scheme, dtype, shape, bytes), ``refused`` (name, reason),
    ``quantised`` and ``notes``."""

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(name)}<td>{escape(scheme)}<td>{escape(dtype)}<td>{list(shape)}<td style='text-align:right'>{nbytes:,}"
            for name, scheme, dtype, shape, nbytes in self["outputs"][:200]
        )
        more = "" if len(self["outputs"]) <= 200 else f"<p>and {len(self['outputs']) - 200:,} more"
        refused = "".join(f"<p>refused: {escape(name)}: {escape(why)}" for name, why in self["refused"])
        notes = "".join(f"<p>{escape(note)}" for note in self["notes"])
        return f"<table><tr><th>name<th>scheme<th>dtype<th>shape<th>bytes{rows}</table>{more}{refused}{notes}"


class Loaded(dict[str, "Any"]):
    """Tensors by name. ``loader`` and ``reason`` say how they were read."""

    loader: str = ""
    reason: str = ""


class Stream:
    """An iterator over names and tensors, which are read ahead. Each tensor has memory of its own. As a context manager, it
    ends the load when it is left."""

    def __init__(self, rows: Iterator[_core._Loaded], wrap: Wrap, chosen: Mapping[str, Selection], name: Callable[[str], str]) -> None:
        from weakref import finalize

        self._rows = rows
        # also when the program ends: threads that read a file object need the interpreter to end themselves
        self._end = finalize(self, rows.close)  # type: ignore[attr-defined]
        self._wrap = wrap
        self._chosen = chosen
        self._name = name

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> tuple[str, Any]:
        row = next(self._rows)
        return self._name(row[0]), wrapped(self._wrap, self._chosen, row)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._end()
