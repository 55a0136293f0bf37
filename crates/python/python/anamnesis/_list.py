"""The models of trees, caches and buckets."""

from __future__ import annotations

from dataclasses import dataclass
from os import fsdecode
from typing import TYPE_CHECKING

from . import _core

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ._checkpoint import Path


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that :func:`ls` has found: fields of ``anamnesis ls --json``, of which unknown ones are ``None``."""

    path: str
    #: ``safetensors``, ``gguf``, ``npy``, ``npz``, ``pth`` or ``dcp``
    format: str | None
    architecture: str | None
    #: elements of its weights, without scales
    parameters: int | None
    #: the stored dtype with the most bytes
    dtype: str | None
    #: the scheme of its quantised weights, or the label of a GGUF
    quantisation: str | None
    #: bytes of its files
    nbytes: int | None
    #: the longest context that it was made for, in tokens
    context: int | None
    #: the number of its files
    files: int | None
    #: why it cannot be opened
    error: str | None
    #: why it may not be what it seems: half edited or half replaced, or a configuration that cannot be read
    note: str | None


def ls(root: Path = ".", *, has: str | Iterable[str] | None = None, all_snapshots: bool = False, threads: int = 0) -> list[ModelEntry]:
    """The models at and below a path: a tree, a hub cache, a store of Ollama, a bucket. Headers are read, no tensors. In the order of
    paths; a file that cannot be opened is an entry with its ``error``.

    ``has``: models with a tensor or a weight whose full name matches this pattern, or each of these, as ``--has`` of the command. ``all_snapshots``: every revision of a hub cache, and not
    the one that ``main`` names. Raises ``FileNotFoundError`` for a root that does not exist.

        >>> [model.format for model in anamnesis.ls("fixtures/safetensors/sharded")]
        ['safetensors']
    """
    patterns = [] if has is None else [has] if isinstance(has, str) else list(has)
    rows = _core.ls(fsdecode(root), has=patterns, all_snapshots=all_snapshots, threads=threads)
    return [ModelEntry(fsdecode(row[0]), *row[1:]) for row in rows]
