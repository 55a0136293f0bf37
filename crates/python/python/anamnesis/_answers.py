"""Questions about checkpoints: the verbs of the command as functions."""

from __future__ import annotations

import re
from os import fsdecode
from typing import TYPE_CHECKING, Any, Literal, cast

from . import _core
from ._dtype import dtype_name
from ._numbers import whole_bytes
from ._paths import local
from ._progress import reporting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ._checkpoint import Path
    from ._progress import Progress
    from .documents import CheckDocument, DiffDocument, FitDocument, WarmDocument

_DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "f16", "f16": "f16", "float32": "f32", "f32": "f32"}

Engine = Literal["exact", "transformers", "llama.cpp", "vllm"]


# options that have a number, of which a truth value is one in Python
_NUMBERS = ("context", "batch", "tp", "pp", "threads", "nmse", "max_abs", "memory", "overhead", "bandwidth", "threshold", "rank")


def _flags(**options: Any) -> list[str]:
    """Options of the command: ``a_b=True`` is ``--a-b``; a list is the option again for each entry."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True and name in _NUMBERS:
            raise TypeError(f"{name}: a number, not True")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            entries = value if isinstance(value, (list, tuple)) else [value]
            words += [f"{option}={entry}" for entry in entries]
    return words


def _listed(values: str | Iterable[str] | None) -> list[str]:
    return [] if values is None else [values] if isinstance(values, str) else list(values)


def _answer(verb: str, paths: Sequence[Path], words: list[str], progress: Progress) -> Any:
    with reporting(progress, verb) as report:
        try:
            return _core.answer(["anamnesis", verb, *words, *map(_argument, paths)], report)
        except ValueError as error:
            if type(error) is not ValueError:
                raise
            raise ValueError(_by_keywords(str(error), words)) from None


# keywords that the command has under other names
_KEYWORDS = {"no_config": "config=False", "write": "out", "output": "out"}


def _by_keywords(text: str, words: list[str]) -> str:
    """A message of the command's parser, with the keywords of the call in the place of its options."""
    for option in {word.partition("=")[0] for word in words}:
        keyword = option.removeprefix("--").replace("-", "_")
        keyword = _KEYWORDS.get(keyword, keyword)
        text = re.sub(rf"'{option}(?: <[^>]*>)?'|(?<![\w-]){option}(?![\w-])", keyword, text)
    return re.sub(r"\n\s+\[", " [", text)


def _argument(path: Path) -> str:
    """A path that is no option."""
    text = fsdecode(path)
    return f"./{text}" if text.startswith("-") else text


def _bytes(keyword: str, count: int | None) -> str | None:
    return None if count is None else f"{whole_bytes(keyword, count)}B"


def fit(
    source: Path,
    *,
    context: int | None = None,
    batch: int = 1,
    memory: int | None = None,
    overhead: int | None = None,
    engine: Engine | None = None,
    kv: str | None = None,
    dtype: Any = None,
    tp: int | None = None,
    pp: int | None = None,
) -> FitDocument:
    """The memory that a model takes, in bytes: weights, cache and buffers. Headers and the configuration are read, no tensors.

    ``context``: tokens of a sequence, by default the longest that the model was made for; ``batch``: sequences; ``memory`` and
    ``overhead``: bytes that there are, and that something else takes; ``kv``: the type of the cache (``q8_0``, or of keys and values:
    ``q8_0,f16``); ``dtype``: of the weights, if they are converted; ``tp`` and ``pp``: workers. Raises ``OSError`` and
    ``AnamnesisError`` for a model that cannot be read. One that does not fit is no error: see ``memory["fits"]``.

        >>> anamnesis.fit("fixtures/model/scribe-Q8_0.gguf", memory=1 << 30)["memory"]["fits"]
        True
    """
    kind = None if dtype is None else dtype_name(dtype).lower()
    if kind is not None and kind not in _DTYPES:
        raise ValueError(f"dtype {dtype!r}: bfloat16, float16 or float32")
    words = _flags(
        json=True, context=context, batch=batch, memory=_bytes("memory", memory), overhead=_bytes("overhead", overhead or None), engine=engine, kv=kv, dtype=kind and _DTYPES[kind], tp=tp, pp=pp
    )
    document = _answer("fit", [source], words, None)
    return cast("FitDocument", document["models"][0])


def diff(
    a: Path,
    b: Path,
    *,
    values: bool = False,
    nmse: float | None = None,
    max_abs: float | None = None,
    metadata: bool = False,
    config: bool = True,
    rename: Mapping[str, str] | None = None,
    quick: bool = False,
    filter: str | Iterable[str] | None = None,
    exclude: str | Iterable[str] | None = None,
    all: bool = False,
    progress: Progress = None,
) -> DiffDocument:
    """The differences between two checkpoints: names, dtypes, shapes, bytes, and with ``values`` the values of weights, dequantised.

    ``nmse`` and ``max_abs``: distances up to which tensors count as equal; ``metadata``: keys are compared too; ``config=False`` leaves
    ``config.json`` out; ``rename``: patterns of names of ``a``, and names in ``b``; ``quick``: headers alone; ``filter`` and
    ``exclude``: patterns of names; ``all``: equal tensors are listed as well. Raises ``OSError`` and ``AnamnesisError`` for a checkpoint
    that cannot be read.

        >>> anamnesis.diff("fixtures/safetensors/sharded", "fixtures/safetensors/sharded")["same"]
        True
    """
    pairs = [f"{old}={new}" for old, new in (rename or {}).items()]
    words = _flags(
        json=True,
        values=values,
        nmse=nmse,
        max_abs=max_abs,
        metadata=metadata,
        no_config=not config,
        rename=pairs,
        quick=quick,
        filter=_listed(filter),
        exclude=_listed(exclude),
        all=all,
    )
    return cast("DiffDocument", _answer("diff", [a, b], words, progress))


def check(
    source: Path,
    *,
    headers: bool = False,
    stats: bool = False,
    manifest: Path | None = None,
    only: str | Iterable[str] | None = None,
    allow: str | Iterable[str] | None = None,
    filter: str | Iterable[str] | None = None,
    threads: int = 0,
    progress: Progress = None,
) -> CheckDocument:
    """Whether a model is whole, and its values sane: ``findings``, and what was looked at. All bytes are read, unless ``headers``.

    ``stats``: statistics of the values of each weight; ``manifest``: a list of SHA-256 digests to compare with; ``only`` and ``allow``:
    rules whose findings alone are reported, or are left out; ``filter``: patterns of names. Raises ``OSError`` and ``AnamnesisError`` for a
    model that cannot be found. Findings are no error.

        >>> anamnesis.check("fixtures/model/scribe-Q8_0.gguf")["counts"]["error"]
        0
    """
    words = _flags(
        json=True,
        headers=headers,
        stats=stats,
        manifest=None if manifest is None else fsdecode(manifest),
        only=_listed(only),
        allow=_listed(allow),
        filter=_listed(filter),
        threads=threads,
    )
    return cast("CheckDocument", _answer("check", [source], words, progress)["models"][0])


def digest(source: Path, out: Path | None = None, *, overwrite: bool = False, progress: Progress = None) -> dict[str, str]:
    """The SHA-256 digests of the files of a model, by their paths below its directory. ``out``: a file that they are written to, which
    :func:`check` and ``sha256sum -c`` read, or a ``.json``, which has digests of tensors as well.

        >>> [len(digest) for digest in anamnesis.digest("fixtures/model/scribe-Q8_0.gguf").values()]
        [64]
    """
    if out is not None:
        words = _flags(json=True, write=local(out, "digests are written to"), overwrite=overwrite)
        document = _answer("check", [source], words, progress)
        return {file["path"]: file["sha256"] for file in document["models"][0]["files"] if file["sha256"]}
    with reporting(progress, "digest") as report:
        return dict(_core.digests(fsdecode(source), report))


def report(
    source: Path,
    out: Path,
    *,
    check: bool = False,
    stats: bool = False,
    memory: int | None = None,
    batch: int = 1,
    kv: str | None = None,
    overwrite: bool = False,
    progress: Progress = None,
) -> None:
    """Writes a page (HTML, one file) about a model: tensors, memory, and with ``check`` or ``stats`` its values.

        >>> anamnesis.report("fixtures/model/scribe-Q8_0.gguf", "scribe.html", memory=1 << 30)
        >>> open("scribe.html").read(15)
        '<!DOCTYPE html>'
    """
    words = _flags(output=local(out, "a page is written to"), check=check, stats=stats, memory=_bytes("memory", memory), batch=batch, kv=kv, overwrite=overwrite)
    _answer("report", [source], words, progress)


def warm(
    source: Path,
    *,
    rank: int | Iterable[int] | None = None,
    tp: int | None = None,
    threads: int | None = None,
    bandwidth: int | None = None,
    threshold: int = 90,
    progress: Progress = None,
) -> WarmDocument:
    """Reads a model into the page cache, in the order in which workers read it. On Linux.

    ``rank`` of ``tp`` workers: their bytes alone; ``bandwidth``: bytes per second at most; ``threshold``: percent of memory at which
    reading stops. Needs no privileges, and evicts nothing.

        >>> anamnesis.warm("fixtures/model/scribe-Q8_0.gguf")["end"]
        'complete'
    """
    ranks = [] if rank is None else [rank] if isinstance(rank, int) else list(rank)
    words = _flags(json=True, rank=ranks, tp=tp, threads=threads, bandwidth=_bytes("bandwidth", bandwidth), threshold=threshold)
    return cast("WarmDocument", _answer("warm", [source], words, progress)["warm"])
