"""Dequantised weights with the names of clients, which are made one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._frameworks import wrap_for

if TYPE_CHECKING:
    from . import _core
    from ._checkpoint import Checkpoint
    from ._frameworks import Wrap


class Weight:
    """A weight that is made when it is indexed. Nothing keeps it."""

    __slots__ = ("_core", "_name", "_shape", "_dtype", "_wrap")

    def __init__(self, core: _core.CoreWeights, row: tuple[str, str, tuple[int, ...]], wrap: Wrap) -> None:
        self._core, self._wrap = core, wrap
        self._name, self._dtype, self._shape = row

    def __repr__(self) -> str:
        return f"<Weight {self._name!r}: {self._dtype} {list(self._shape)}>"

    # the methods of a slice of safetensors, for which clients take it
    def get_shape(self) -> list[int]:
        return list(self._shape)

    def get_dtype(self) -> str:
        return self._dtype

    def __getitem__(self, index: Any) -> Any:
        _, dtype, is_dtype, shape, memory = self._core.make(self._name)
        made = self._wrap(dtype, is_dtype, shape, memory)
        return made if index is Ellipsis else made[index]


class Weights(Mapping[str, Weight]):
    """The weights that :meth:`Checkpoint.remember` returns, planned together and not made.

    ``strip_prefix``: only weights whose names begin so, by the rest of their names. Raises what ``remember`` raises if one of the weights
    cannot be made, and ``ValueError`` for a prefix that none has.
    """

    def __init__(self, checkpoint: Checkpoint, framework: str = "torch", *, dtype: str = "auto", strip_prefix: str = "") -> None:
        self.core = checkpoint._core.weights(dtype=dtype)
        wrap = wrap_for(framework, None)
        rows = self.core.rows()
        self._rows = {row[0].removeprefix(strip_prefix): Weight(self.core, row, wrap) for row in rows if row[0].startswith(strip_prefix)}
        if rows and not self._rows:
            raise ValueError(f"strip_prefix: no weight has a name that begins with {strip_prefix!r}; the first is {rows[0][0]!r}")

    def __getitem__(self, name: str) -> Weight:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
