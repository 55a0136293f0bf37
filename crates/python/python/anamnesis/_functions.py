"""The methods of a checkpoint as functions of a path. Options of opening are the parameters of :class:`Checkpoint`."""

from __future__ import annotations

import os

from . import _core
from ._checkpoint import Checkpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from ._checkpoint import Loaded, Path, Plan, Progress, Rules, Slices, Summary
    from ._select import Filter


def open(source: Path | bytes, **options: Any) -> Checkpoint:
    """Opens a file, a directory, an index, any part of a split, or the bytes of a file. Headers are read, no tensors."""
    return Checkpoint(source, **options)


def inspect(source: Path | bytes, **options: Any) -> Summary:
    """The document that ``anamnesis inspect --json`` prints."""
    return _core.again(lambda: Checkpoint(source, **options).inspect())


def load(
    source: Path | bytes,
    framework: str = "torch",
    *,
    filter: Filter | None = None,
    names: Iterable[str] | None = None,
    device: Any = None,
    borrow: bool | str = "auto",
    loader: str | None = None,
    align: int = 1,
    dequantise: bool = False,
    tp: tuple[int, int] | None = None,
    rules: Rules | None = None,
    slices: Slices | None = None,
    out: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Loaded:
    """The stored tensors of a checkpoint: see :meth:`Checkpoint.load`."""
    checkpoint = Checkpoint(source, **options)
    return checkpoint.load(
        framework,
        filter=filter,
        names=names,
        device=device,
        borrow=borrow,
        loader=loader,
        align=align,
        dequantise=dequantise,
        tp=tp,
        rules=rules,
        slices=slices,
        out=out,
        progress=progress,
    )


def load_file(source: Path | bytes, device: Any = "cpu") -> dict[str, Any]:
    """The tensors of a file for PyTorch, as ``safetensors.torch.load_file`` returns them, of every format."""
    return dict(load(source, "torch", device=device))


def plan(source: Path | bytes, *, dtype: str = "auto", cast: bool = False, names: str = "stored", **options: Any) -> Plan:
    """The plan of :func:`remember`."""
    return _core.again(lambda: Checkpoint(source, **options).plan(dtype=dtype, cast=cast, names=names))


def remember(source: Path | bytes, out: Path, **options: Any) -> list[str]:
    """Dequantises a checkpoint into a safetensors file or a directory: see :meth:`Checkpoint.remember_to`. Returns the files."""
    return _core.again(lambda: Checkpoint(source).remember_to(out, **options))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    # numbers, booleans and lists as JSON has them
    import json

    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def edit(
    path: Path,
    *,
    set: Mapping[str, Any] | None = None,
    unset: Iterable[str] = (),
    rename_key: Mapping[str, str] | None = None,
    rename: Mapping[str, str] | None = None,
    copy: bool = False,
    compact: bool = False,
    recover: bool = False,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Changes metadata and names of tensors in safetensors and GGUF files that exist, without writing the tensors where possible.

    Keys of ``set`` may have a type of a GGUF behind a colon (``"x.size:u32"``); a key that exists keeps its type. ``rename`` has whole names,
    prefixes that end at a dot, or patterns with ``*``, which are applied in this order. ``copy`` writes new files also where the old
    ones could be changed, ``compact`` removes the room for later edits, and ``recover`` completes an edit that was interrupted and
    changes nothing else. Returns the path, the way and the written bytes of each file.
    """
    changes: _core._Changes = {
        "set": [(key, _text(value)) for key, value in (set or {}).items()],
        "unset": list(unset),
        "rename_key": list((rename_key or {}).items()),
        "rename": list((rename or {}).items()),
        "copy": copy,
        "compact": compact,
        "recover": recover,
    }
    edited = _core.edit(os.fspath(path), changes, progress)
    return [{"path": path, "way": way, "bytes_written": nbytes} for path, way, nbytes in edited]
