"""I/O templates: which worker of an inference service reads which bytes of a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from . import _core
from ._checkpoint import Checkpoint
from ._paths import local

if TYPE_CHECKING:
    from ._checkpoint import Path, Rules


class Group(NamedTuple):
    """The reads of one worker."""

    rank: int
    name: str
    nbytes: int
    accesses: int


class Coverage(NamedTuple):
    """How much of a template another one has: bytes, and how many of them are covered; ``order``, from 0 to 1, says how far
    the orders agree, and is ``None`` where there is nothing to compare. ``files``: path, bytes, covered bytes."""

    nbytes: int
    covered: int
    order: float | None
    files: list[tuple[str, int, int]]


class Template:
    """Files, and for each worker the byte ranges that it reads, in order. Made by :func:`predict` or :meth:`open`."""

    def __init__(self, core: _core.CoreTemplate) -> None:
        self._core = core

    @classmethod
    def open(cls, path: Path) -> Template:
        """A template that was saved, recorded or predicted.

            >>> anamnesis.predict("fixtures/safetensors/sharded").save("open.template")
            >>> anamnesis.Template.open("open.template").nbytes == anamnesis.predict("fixtures/safetensors/sharded").nbytes
            True
        """
        return cls(_core.load_template(local(path, "a template is read from")))

    @property
    def groups(self) -> list[Group]:
        """The reads of each worker, by rank."""
        return [Group(*group) for group in self._core.groups]

    @property
    def files(self) -> list[str]:
        return self._core.files

    @property
    def nbytes(self) -> int:
        """Bytes of all workers; what two of them read counts twice."""
        return self._core.nbytes

    @property
    def parameters(self) -> dict[str, str]:
        """Parameters of the service: degrees of parallelism, for example."""
        return dict(self._core.parameters)

    def coverage(self, other: Template) -> Coverage:
        """How much of this template ``other`` has.

            >>> alone, both = anamnesis.predict("fixtures/safetensors/sharded"), anamnesis.predict("fixtures/safetensors/sharded", tp=2)
            >>> alone.coverage(both).covered == alone.nbytes
            True
        """
        return Coverage(*self._core.coverage(other._core))

    def save(self, path: Path, overwrite: bool = False) -> None:
        """Writes the binary form, or JSON if the path ends in ``.json``.

            >>> anamnesis.predict("fixtures/safetensors/sharded", tp=2).save("model.template")
            >>> len(anamnesis.Template.open("model.template").groups)
            2
        """
        self._core.save(local(path, "a template is written to"), overwrite)

    def __repr__(self) -> str:
        return f"<Template: {len(self._core.groups)} workers, {len(self.files)} files, {self.nbytes} bytes>"


def predict(
    source: Path,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    heads: int | None = None,
    kv_heads: int | None = None,
    experts: int | None = None,
    rules: Rules | None = None,
    order: str = "file",
    whole: bool = False,
    max_gap: int = 0,
    **options: Any,
) -> Template:
    """Predicts which worker of a service with these degrees of parallelism reads which bytes, from the headers alone.

    ``rules`` precede the rules of ``load(tp=…)``; ``order`` is ``file``, ``layer`` or ``name``; with ``whole`` a worker
    reads the whole of each tensor that it has a share of. Reads with up to ``max_gap`` bytes between them are one. The other
    options are the options of opening.

        >>> [group.rank for group in anamnesis.predict("fixtures/safetensors/sharded", tp=2).groups]
        [0, 1]
    """
    core = Checkpoint(source, **options)._core.predict(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        heads=heads,
        kv_heads=kv_heads,
        experts=experts,
        rules=None if rules is None else list(rules.items()),
        order=order,
        whole=whole,
        max_gap=max_gap,
    )
    return Template(core)
