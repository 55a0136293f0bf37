"""The methods of a checkpoint as functions of a source. Options of opening are the parameters of :class:`Checkpoint`."""

from __future__ import annotations

import os

from . import _core
from ._checkpoint import Checkpoint
from ._metadata import metadata_texts, pairs
from ._progress import reporting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Unpack

    from ._checkpoint import Path, Rules, Slices
    from ._options import Borrow, Framework, Loader, Naming, OpenOptions, RememberOptions, Source
    from ._progress import Progress
    from ._results import Loaded, Plan, Summary
    from ._select import Filter


def open(source: Source, **options: Unpack[OpenOptions]) -> Checkpoint:
    """Opens a file, a directory, an index, any part of a split, a URL, the bytes of a file, or a file object. Headers are read, no
    tensors. See :class:`Checkpoint`.

        >>> with anamnesis.open("fixtures/safetensors/sharded") as checkpoint:
        ...     checkpoint["lm_head.weight"].shape
        (32, 16)
    """
    return Checkpoint(source, **options)


def inspect(source: Source, **options: Unpack[OpenOptions]) -> Summary:
    """The document that ``anamnesis inspect --json`` prints.

        >>> anamnesis.inspect("fixtures/safetensors/sharded")["totals"]["tensors"]
        4
    """
    return _core.again(lambda: Checkpoint(source, **options).inspect())


def load(
    source: Source,
    framework: Framework = "torch",
    *,
    filter: Filter | None = None,
    names: Iterable[str] | None = None,
    exclude: Filter | None = None,
    rename: Mapping[str, str] | None = None,
    strip_prefix: str | None = None,
    device: Any = None,
    borrow: Borrow = "auto",
    loader: Loader | None = None,
    align: int = 1,
    dequantise: bool = False,
    tp: tuple[int, int] | None = None,
    rules: Rules | None = None,
    slices: Slices | None = None,
    out: Mapping[str, Any] | None = None,
    progress: Progress = None,
    **options: Unpack[OpenOptions],
) -> Loaded:
    """The stored tensors of a checkpoint: see :meth:`Checkpoint.load`.

        >>> sorted(anamnesis.load("fixtures/safetensors/sharded", "np", filter="lm_head.*"))
        ['lm_head.weight']
    """
    checkpoint = Checkpoint(source, **options)
    return checkpoint.load(
        framework,
        filter=filter,
        names=names,
        exclude=exclude,
        rename=rename,
        strip_prefix=strip_prefix,
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


def load_file(source: Source, device: Any = "cpu") -> dict[str, Any]:
    """The tensors of a file for PyTorch, as ``safetensors.torch.load_file`` returns them, of every format.

        >>> anamnesis.load_file("fixtures/safetensors/sharded")["lm_head.weight"].dtype
        torch.bfloat16
    """
    return dict(load(source, "torch", device=device))


def plan(
    source: Source, *, dtype: Any = "auto", cast: bool = False, naming: Naming = "stored", **options: Unpack[OpenOptions]
) -> Plan:
    """The plan of :func:`remember`: no tensor is read.

        >>> anamnesis.plan("fixtures/model/scribe-Q8_0.gguf")["quantised"]
        True
    """
    return _core.again(lambda: Checkpoint(source, **options).plan(dtype=dtype, cast=cast, naming=naming))


def remember(
    source: Source,
    framework: Framework = "torch",
    *,
    dtype: Any = "auto",
    cast: bool = False,
    naming: Naming = "stored",
    filter: Filter | None = None,
    names: Iterable[str] | None = None,
    exclude: Filter | None = None,
    rename: Mapping[str, str] | None = None,
    strip_prefix: str | None = None,
    native_rounding: bool = False,
    device: Any = None,
    threads: int = 0,
    tp: tuple[int, int] | None = None,
    rules: Rules | None = None,
    slices: Slices | None = None,
    progress: Progress = None,
    **options: Unpack[OpenOptions],
) -> Loaded:
    """The weights of a checkpoint, dequantised, in memory: see :meth:`Checkpoint.remember`. :func:`remember_to` writes them.

        >>> anamnesis.remember("fixtures/model/scribe-Q8_0.gguf", "np", dtype="float32", filter="*attn_q*")["blk.0.attn_q.weight"].dtype
        dtype('float32')
    """
    checkpoint = Checkpoint(source, **options)
    return checkpoint.remember(
        framework,
        dtype=dtype,
        cast=cast,
        naming=naming,
        filter=filter,
        names=names,
        exclude=exclude,
        rename=rename,
        strip_prefix=strip_prefix,
        native_rounding=native_rounding,
        device=device,
        threads=threads,
        tp=tp,
        rules=rules,
        slices=slices,
        progress=progress,
    )


def remember_to(source: Checkpoint | Source, out: Path, **options: Unpack[RememberOptions]) -> list[str]:
    """Dequantises a checkpoint into a safetensors file or a directory: see :meth:`Checkpoint.remember_to`. Returns the files.

        >>> anamnesis.remember_to("fixtures/model/scribe-Q8_0.gguf", "scribe.safetensors", dtype="float16")
        ['scribe.safetensors']
    """
    if isinstance(source, Checkpoint):
        return source.remember_to(out, **options)
    return _core.again(lambda: Checkpoint(source).remember_to(out, **options))


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
    progress: Progress = None,
) -> list[dict[str, Any]]:
    """Changes metadata and names of tensors in safetensors and GGUF files that exist, without writing the tensors where possible.

    Keys of ``set`` may have a type of a GGUF behind a colon (``"x.size:u32"``), which values other than texts need; a key that exists keeps
    its type. ``rename`` has whole names, prefixes that end at a dot, or patterns with ``*``, which are applied in this order. ``copy`` writes new
    files also where the old ones could be changed, ``compact`` removes the room for later edits, and ``recover`` completes an edit that was
    interrupted and changes nothing else. Returns the path, the way and the written bytes of each file.

        >>> import shutil
        >>> path = shutil.copy("fixtures/model/scribe-Q8_0.gguf", "mine.gguf")
        >>> anamnesis.edit(path, set={"general.name": "mine"})[0]["path"]
        'mine.gguf'
        >>> anamnesis.open(path).metadata["general.name"]
        'mine'
    """
    if recover and (set or unset or rename_key or rename or copy or compact):
        raise ValueError("recover: it completes an edit that was interrupted, and changes nothing else")
    changes: _core._Changes = {
        "set": metadata_texts("set", set, lambda: Checkpoint(path)._core, removal="unset=[{key!r}] removes a key"),
        "unset": [unset] if isinstance(unset, str) else list(unset),
        "rename_key": pairs("rename_key", rename_key),
        "rename": pairs("rename", rename),
        "copy": copy,
        "compact": compact,
        "recover": recover,
    }
    with reporting(progress, "edit") as report:
        edited = _core.edit(os.fspath(path), changes, report)
    return [{"path": path, "way": way, "bytes_written": nbytes} for path, way, nbytes in edited]
