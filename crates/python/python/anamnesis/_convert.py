"""Copying tensors as they are stored."""

from __future__ import annotations

from os import fsdecode
from typing import TYPE_CHECKING

from . import _core
from ._checkpoint import Checkpoint
from ._dtype import dtype_name
from ._metadata import metadata_texts, pairs
from ._numbers import shard_bytes
from ._progress import reporting
from ._select import renames, select

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing import Any

    from ._checkpoint import Path
    from ._options import Container, Source
    from ._progress import Progress
    from ._select import Filter


def convert(
    source: Checkpoint | Source | Sequence[Path],
    out: Path,
    *,
    dtype: Any = "stored",
    cast: bool = False,
    filter: Filter | None = None,
    exclude: Filter | None = None,
    rename: Mapping[str, str] | None = None,
    strip_prefix: str | None = None,
    container: Container | None = None,
    metadata: Mapping[str, Any] | None = None,
    void: bool = False,
    alignment: int | None = None,
    tp: tuple[int, int] | None = None,
    shard_size: int | None = None,
    overwrite: bool = False,
    code: bool = False,
    untie: bool = False,
    threads: int = 0,
    progress: Progress = None,
    type: str | None = None,
    imatrix: Path | None = None,
    pure: bool = False,
    tensor_types: Mapping[str, str] | None = None,
    requantise: bool = False,
    via: Any = None,
    tokenizer_pre: str | None = None,
) -> list[str]:
    """Copies tensors **as they are stored** into a file or a directory: merges, splits, renames, leaves out, or writes another
    container. Returns the files.

    ``source``: a path, an open checkpoint, or several paths, which are one model. ``out``: a directory (one that exists, a path
    that ends in ``/``, or with ``shard_size`` in bytes) or a file, whose ending is the container unless ``container`` is
    ``safetensors``, ``gguf``, ``npz`` or ``npy``.

    ``filter`` and ``exclude`` are for names of tensors and of weights; the stored parts of a quantised weight go together.
    ``strip_prefix``, and then ``rename``, give other names: ``rename`` maps a whole name, a prefix at a dot, or a pattern with ``*`` to another one, in order; one that is for no tensor is a
    ``ValueError``. ``metadata`` sets keys, and leaves out those with ``None``; a key may have a type of a GGUF behind a colon (``"x.size:u32"``),
    which values other than texts need. ``dtype="bfloat16"`` dequantises, as
    :func:`remember`. ``tp=(rank, world)`` writes a tensor-parallel worker's share.

        >>> anamnesis.convert("fixtures/safetensors/sharded", "merged.safetensors")
        ['merged.safetensors']

    ``type`` makes a GGUF instead, byte for byte as llama.cpp does, of a GGUF or a Hugging Face checkpoint: ``"q4_k_m"``, ``"q8_0"``,
    ``"f16"`` and so on, ``"auto"`` for the dtype of the checkpoint. ``imatrix`` is a file of llama-imatrix; ``pure`` gives all weights
    one type; ``tensor_types`` maps regular expressions to types; ``requantise`` allows weights that are quantised already; ``via`` is
    the float between a checkpoint and the blocks, and ``tokenizer_pre`` llama.cpp's name of its pre-tokenizer. Only
    ``overwrite``, ``threads`` and ``progress`` go with them.

        >>> anamnesis.convert("fixtures/model/scribe-Q8_0.gguf", "small.gguf", type="q4_0", requantise=True)
        ['small.gguf']
    """
    chosen = {
        "dtype": dtype != "stored",
        "cast": cast,
        "filter": filter is not None,
        "exclude": exclude is not None,
        "rename": rename is not None,
        "strip_prefix": strip_prefix is not None,
        "container": container is not None,
        "metadata": metadata is not None,
        "void": void,
        "alignment": alignment is not None,
        "tp": tp is not None,
        "shard_size": shard_size is not None,
        "code": code,
        "untie": untie,
    }
    of_types = {
        "imatrix": imatrix is not None,
        "pure": pure,
        "tensor_types": tensor_types is not None,
        "requantise": requantise,
        "via": via is not None,
        "tokenizer_pre": tokenizer_pre is not None,
    }
    for name, is_chosen in (of_types if type is None else chosen).items():
        if is_chosen:
            raise ValueError(f"{name} {'needs' if type is None else 'does not go with'} type")

    def convert_one(core: _core.CoreCheckpoint) -> list[str]:
        if type is not None:
            with reporting(progress, "convert") as report:
                files = core.quantise_to(
                    fsdecode(out),
                    type,
                    imatrix=None if imatrix is None else fsdecode(imatrix),
                    pure=pure,
                    tensor_types=list((tensor_types or {}).items()),
                    requantise=requantise,
                    via=None if via is None else dtype_name(via),
                    tokenizer_pre=tokenizer_pre,
                    overwrite=overwrite,
                    threads=threads,
                    progress=report,
                )
            return [fsdecode(file) for file in files]
        selected = excluded = None
        if filter is not None or exclude is not None:
            plan = core.plan()
            weights = [output[0] for output in plan["outputs"]] + [name for name, _ in plan["refused"]]
            known = {*core.names(), *weights}
            selected, excluded = select(filter, known), select(exclude, known, "exclude")
            if not (known if selected is None else selected) - (excluded or set()):
                raise ValueError("filter and exclude leave no tensor")
        keys: list[tuple[str, str | None]] = []
        for key, value in pairs("metadata", metadata):
            # a GGUF has types of its own, which a key keeps
            stored = (lambda: core) if core.format == "gguf" else None
            keys += [(key, None)] if value is None else metadata_texts("metadata", {key: value}, stored, removal="")
        with reporting(progress, "convert") as report:
            files = core.convert_to(
                fsdecode(out),
                selected=selected,
                excluded=excluded,
                dtype=dtype_name(dtype),
                cast=cast,
                rename=renames(rename, strip_prefix),
                container=container,
                metadata=keys,
                void=void,
                alignment=alignment,
                tp=tp,
                shard_size=None if shard_size is None else shard_bytes(shard_size),
                overwrite=overwrite,
                code=code,
                untie=untie,
                threads=threads,
                progress=report,
            )
        return [fsdecode(file) for file in files]

    if isinstance(source, Checkpoint):
        return convert_one(source._core)
    if isinstance(source, (list, tuple)):
        return _core.again(lambda: convert_one(_core.union([fsdecode(path) for path in source])))
    return _core.again(lambda: convert_one(Checkpoint(source)._core))  # type: ignore[arg-type]
