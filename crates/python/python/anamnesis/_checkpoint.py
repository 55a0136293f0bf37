"""Checkpoints and tensors: descriptions that read bytes on request."""

from __future__ import annotations

# the class of `collections.abc`, which every interpreter has when it starts
from _collections_abc import Mapping
from os import fsdecode

from . import _core
from ._frameworks import wrap_for

# that of `typing`, which takes as long to import as the interpreter to start
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike
    from typing import Any

    from ._frameworks import Wrap

    Path = str | PathLike[str]
    # a pattern as of a shell, names, or a function of a name
    Filter = str | Iterable[str] | Callable[[str], bool]
    Progress = Callable[[int, int], object]


def select(wanted: Filter | None, names: Iterable[str]) -> set[str] | None:
    """The names that a filter accepts; ``None`` without a filter. Names that are given must exist."""
    if wanted is None:
        return None
    if isinstance(wanted, str):
        from fnmatch import fnmatchcase

        return {name for name in names if fnmatchcase(name, wanted)}
    if callable(wanted):
        return {name for name in names if wanted(name)}
    chosen, known = set(wanted), set(names)
    for name in chosen:
        if name not in known:
            raise KeyError(name)
    return chosen


class Summary(dict[str, "Any"]):
    """What ``anamnesis inspect --json`` prints of a checkpoint: ``docs/json.md`` describes it."""

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
    """What dequantising makes: ``outputs`` (name, scheme, dtype, shape, bytes), ``refused`` (name, reason), ``quantised``
    and ``notes``."""


class Loaded(dict[str, "Any"]):
    """Tensors by name. ``loader`` and ``reason`` say how they were read."""

    loader: str = ""
    reason: str = ""


class Tensor:
    """The description of a stored tensor: nothing of it has been read.

    ``dtype`` has the names of safetensors (``BF16``) and ggml (``Q4_K``); ``shape`` counts elements, outermost axis first.
    """

    __slots__ = ("checkpoint", "dtype", "file", "name", "nbytes", "offset", "shape")

    def __init__(self, checkpoint: Checkpoint, row: tuple[str, str, bool, tuple[int, ...], int, int, int | None]) -> None:
        self.checkpoint = checkpoint
        self.name, self.dtype, _, self.shape, self.nbytes, file, self.offset = row
        self.file: str | None = checkpoint.files[file][0] if checkpoint.files else None

    def __repr__(self) -> str:
        return f"<Tensor {self.name!r}: {self.dtype} {list(self.shape)}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def to(self, framework: str, index: Any = None, device: Any = None) -> Any:
        """The tensor, or what ``index`` selects of it. Of a range of the first axis, only those rows are read."""
        rows, rest = _rows(index, self.shape)
        core = self.checkpoint._core
        ranges = None if rows is None else {self.name: rows}
        loaded, _, _ = core.load({self.name}, rows=ranges)
        _, dtype, is_dtype, shape, memory = loaded[0]
        tensor = wrap_for(framework, device)(dtype, is_dtype, shape, memory)
        return tensor if rest is None else tensor[rest]

    def torch(self, index: Any = None, device: Any = None) -> Any:
        """As a tensor of PyTorch."""
        return self.to("torch", index, device)

    def numpy(self, index: Any = None) -> Any:
        """As an array of numpy."""
        return self.to("numpy", index)

    def __getitem__(self, index: Any) -> Any:
        """What ``index`` selects, as an array of numpy."""
        return self.numpy(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def remember(self, framework: str = "torch", dtype: str = "auto", device: Any = None) -> Any:
        """The weight of this name, dequantised."""
        made = self.checkpoint.remember(framework, dtype=dtype, filter=[self.name], device=device)
        return made[self.name]


def _rows(index: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int] | None, Any]:
    """The range of the first axis that an index needs, and what is left of the index for the rows that were read."""
    if index is None:
        return None, None
    first, *rest = index if isinstance(index, tuple) else (index,)
    if not shape:
        return None, index
    size = shape[0]
    if isinstance(first, slice):
        start, stop, step = first.indices(size)
        if step == 1:
            return (start, max(start, stop)), (slice(None), *rest) if rest else None
        return None, index
    if isinstance(first, int) and not isinstance(first, bool):
        row = first + size if first < 0 else first
        if not 0 <= row < size:
            raise IndexError(f"index {first} is out of bounds for an axis of {size}")
        return (row, row + 1), (0, *rest)
    # masks, arrays, an ellipsis: selected by the framework
    return None, index


class Stream:
    """An iterator over names and tensors, which are read ahead. Each tensor has memory of its own. As a context manager, it
    ends the load when it is left."""

    def __init__(self, core: _core.CoreStream, wrap: Wrap) -> None:
        self._core = core
        self._wrap = wrap

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> tuple[str, Any]:
        name, dtype, is_dtype, shape, memory = next(self._core)
        return name, self._wrap(dtype, is_dtype, shape, memory)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._core.close()


class Checkpoint(Mapping[str, Tensor]):
    """The tensors of a file, a directory, an index or a split, by name. Opening reads headers only."""

    def __init__(
        self,
        source: Path | bytes,
        *,
        mmap: bool = True,
        single: bool = False,
        opaque: bool = False,
        void_as: Iterable[str] = (),
        limits: Mapping[str, int | None] | None = None,
    ) -> None:
        plain = source if isinstance(source, bytes) else fsdecode(source)
        self._arguments: tuple[Any, ...] = (plain, mmap, single, opaque, list(void_as), dict(limits or {}))
        plain, mmap, single, opaque, void, bounds = self._arguments
        self._core = _core.open(plain, mmap=mmap, single=single, opaque=opaque, void_as=void, limits=bounds)
        self.path: str | None = None if isinstance(plain, bytes) else plain
        # path and length
        self.files: list[tuple[str | None, int]] = self._core.files

    @property
    def format(self) -> str:
        """``safetensors``, ``gguf``, ``npy``, ``npz``, ``pth``."""
        return self._core.format

    @property
    def nbytes(self) -> int:
        return self._core.nbytes

    @property
    def warnings(self) -> list[str]:
        """Findings about the files that do not prevent reading them."""
        return self._core.warnings

    @property
    def refused(self) -> list[tuple[str, str]]:
        """Entries that are listed and cannot be read: name and reason."""
        return self._core.refused

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Keys and values of the file. Long arrays are read when they are looked up."""
        return _Metadata(self._core)

    def __getitem__(self, name: str) -> Tensor:
        return Tensor(self, self._core.row(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.names())

    def __len__(self) -> int:
        return len(self._core)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._core

    def __repr__(self) -> str:
        return f"<Checkpoint {self.path or 'of bytes'!r}: {self.format}, {len(self)} tensors>"

    def _repr_html_(self) -> str:
        return self.inspect()._repr_html_()

    # opened again, in another process for example: nothing that is open can be sent
    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, self._arguments

    def inspect(self) -> Summary:
        """The summary that ``anamnesis inspect --json`` prints."""
        return Summary(self._core.summary())

    def load(
        self,
        framework: str = "torch",
        *,
        filter: Filter | None = None,
        device: Any = None,
        borrow: bool | str = "auto",
        loader: str | None = None,
        align: int = 1,
        progress: Progress | None = None,
    ) -> Loaded:
        """Stored tensors in memory; quantised ones are still quantised (see :meth:`remember`).

        ``borrow``: with ``"auto"`` tensors of local files in the page cache lie in a private map of the file, which is
        copied on write, and others in memory of their own; ``False`` always copies, ``True`` always maps. ``progress`` is
        called with the bytes that are complete and those of all; an exception of it, or an interrupt, ends the load.
        """
        if borrow is True and loader is None:
            loader = "mmap"
        names = select(filter, self)
        wrap = wrap_for(framework, device)
        rows, used, reason = self._core.load(names, borrow=bool(borrow), loader=loader, align=align, progress=progress)
        loaded = Loaded({row[0]: wrap(row[1], row[2], row[3], row[4]) for row in rows})
        loaded.loader, loaded.reason = used, reason
        return loaded

    def stream(
        self,
        framework: str = "torch",
        *,
        filter: Filter | None = None,
        device: Any = None,
        loader: str | None = None,
        align: int = 1,
        read_ahead: int = 256 << 20,
    ) -> Stream:
        """Names and tensors, one by one, while the next ones are read: at most ``read_ahead`` bytes of them."""
        wrap = wrap_for(framework, device)
        names = select(filter, self)
        return Stream(self._core.stream(names, loader=loader, align=align, read_ahead=read_ahead), wrap)

    def plan(self, *, dtype: str = "auto", cast: bool = False, names: str = "stored") -> Plan:
        """What :meth:`remember` would make."""
        return Plan(self._core.plan(dtype=dtype, cast=cast, names=names))

    def _outputs(self, wanted: Filter | None, dtype: str, cast: bool, names: str) -> set[str] | None:
        if wanted is None:
            return None
        plan = self._core.plan(dtype=dtype, cast=cast, names=names)
        # a refused weight exists, and its refusal is the better error
        return select(wanted, [output[0] for output in plan["outputs"]] + [name for name, _ in plan["refused"]])

    def remember(
        self,
        framework: str = "torch",
        *,
        dtype: str = "auto",
        cast: bool = False,
        names: str = "stored",
        filter: Filter | None = None,
        native_rounding: bool = False,
        device: Any = None,
        threads: int = 0,
        progress: Progress | None = None,
    ) -> Loaded:
        """All weights, dequantised to ``bfloat16``, ``float16`` or ``float32`` as their schemes' references do, and the plain
        tensors, in memory. ``names="hf"`` gives those of a GGUF the names of transformers."""
        outputs = self._outputs(filter, dtype, cast, names)
        wrap = wrap_for(framework, device)
        rows = self._core.remember(
            outputs,
            dtype=dtype,
            cast=cast,
            names=names,
            native_rounding=native_rounding,
            threads=threads,
            progress=progress,
        )
        return Loaded({row[0]: wrap(row[1], row[2], row[3], row[4]) for row in rows})

    def remember_to(
        self,
        out: Path,
        *,
        dtype: str = "auto",
        cast: bool = False,
        names: str | None = None,
        filter: Filter | None = None,
        native_rounding: bool = False,
        shard_size: int | None = None,
        overwrite: bool = False,
        code: bool = False,
        untie: bool = False,
        threads: int = 0,
        progress: Progress | None = None,
    ) -> list[str]:
        """As :meth:`remember`, into a safetensors file, or into a directory that clients open. Returns the files."""
        outputs = self._outputs(filter, dtype, cast, names or "stored")
        files = self._core.remember_to(
            fsdecode(out),
            outputs,
            dtype=dtype,
            cast=cast,
            names=names,
            native_rounding=native_rounding,
            shard_size=shard_size,
            overwrite=overwrite,
            code=code,
            untie=untie,
            threads=threads,
            progress=progress,
        )
        return [fsdecode(file) for file in files]


def _opened(source: str | bytes, mmap: bool, single: bool, opaque: bool, void: list[str], limits: dict[str, int | None]) -> Checkpoint:
    return Checkpoint(source, mmap=mmap, single=single, opaque=opaque, void_as=void, limits=limits)


class _Metadata(Mapping[str, "Any"]):
    def __init__(self, core: _core.CoreCheckpoint) -> None:
        self._core = core

    def __getitem__(self, key: str) -> Any:
        return self._core.metadata(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._core.metadata_keys())

    def __len__(self) -> int:
        return len(self._core.metadata_keys())

    def __repr__(self) -> str:
        return f"<metadata: {len(self)} keys>"
