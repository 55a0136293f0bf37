"""Checkpoints and tensors: descriptions that read bytes on request."""

from __future__ import annotations

# the class of `collections.abc`, which every interpreter has when it starts
from _collections_abc import Mapping
from os import fsdecode

from . import _core
from ._frameworks import wrap_for
from ._index import WHOLE, selection
from ._select import chosen_names
from ._tensor import Tensor

# avoids importing `typing`, which takes as long as starting the interpreter
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from os import PathLike
    from typing import Any

    from ._frameworks import Wrap
    from ._index import Box, Selection
    from ._select import Filter

    Path = str | PathLike[str]
    Progress = Callable[[int, int], object]
    # the part of a tensor that is read, by the tensor's name
    Slices = Mapping[str, Any]
    # patterns of names, and how tensors are split over workers
    Rules = Mapping[str, str]


def boxes(chosen: Mapping[str, Selection]) -> dict[str, Box] | None:
    """The boxes that are read; ``None`` if all tensors are read whole."""
    return {name: one.box for name, one in chosen.items() if one.box is not None} or None


def _wrapped(wrap: Wrap, chosen: Mapping[str, Selection], row: _core._Loaded) -> Any:
    name, dtype, is_dtype, shape, memory = row
    return chosen.get(name, WHOLE).apply(wrap(dtype, is_dtype, shape, memory), shape)


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


class Loaded(dict[str, "Any"]):
    """Tensors by name. ``loader`` and ``reason`` say how they were read."""

    loader: str = ""
    reason: str = ""


class Stream:
    """An iterator over names and tensors, which are read ahead. Each tensor has memory of its own. As a context manager, it
    ends the load when it is left."""

    def __init__(self, core: _core.CoreStream, wrap: Wrap, chosen: Mapping[str, Selection]) -> None:
        self._core = core
        self._wrap = wrap
        self._chosen = chosen

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> tuple[str, Any]:
        row = next(self._core)
        return row[0], _wrapped(self._wrap, self._chosen, row)

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
        assume: str | None = None,
        void_as: Iterable[str] = (),
        limits: Mapping[str, int | None] | None = None,
    ) -> None:
        plain = source if isinstance(source, bytes) else fsdecode(source)
        self._arguments: tuple[Any, ...] = (plain, mmap, single, opaque, assume, list(void_as), dict(limits or {}))
        plain, mmap, single, opaque, assume, void, bounds = self._arguments
        self._core = _core.open(plain, mmap=mmap, single=single, opaque=opaque, assume=assume, void_as=void, limits=bounds)
        self._tied: dict[str, str] | None = None
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
    def _borrows(self) -> bool:
        """Whether tensors lie in a map of the file by default: where the usual writers make a new file."""
        return self._core.is_mapped

    def _mapping(self) -> _core.CoreCheckpoint:
        """The checkpoint with maps of its files, whatever their format is."""
        plain, mmap, single, opaque, assume, void, limits = self._arguments
        if self._borrows or not mmap or isinstance(plain, bytes):
            return self._core
        return _core.open(
            plain, mmap=True, all_maps=True, single=single, opaque=opaque, assume=assume, void_as=void, limits=limits
        )

    @property
    def warnings(self) -> list[str]:
        """Findings about the files that do not prevent reading them."""
        return self._core.warnings

    @property
    def refused(self) -> list[tuple[str, str]]:
        """Entries that are listed and cannot be read: name and reason."""
        return self._core.refused

    @property
    def tied(self) -> Mapping[str, str]:
        """Tied tensors, each with the first one that has its bytes, dtype and shape. Compressed and strided ones are not known."""
        if self._tied is None:
            self._tied = self._core.tied()
        return self._tied

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
    ) -> Loaded:
        """Stored tensors in memory; quantised ones are still quantised (see :meth:`remember`).

        ``borrow``: with ``"auto"`` tensors of local safetensors files in the page cache lie in a private map of the file, which
        is copied on write, and others in memory of their own; ``False`` always copies, ``True`` always maps. ``progress`` is
        called with the number of complete bytes and of all bytes; an exception of it, or an interrupt, ends the load.

        ``names`` and ``filter`` say which tensors, ``slices`` which parts of some of them: an index, by name. ``tp=(rank,
        world)`` loads a tensor-parallel worker's share of each, by the rules of ``anamnesis template predict``, which
        ``rules`` precede: patterns of names, each with ``column``, ``row``, ``replicated``, ``vocab``, ``kv``, ``qkv`` or ``gate-up``.
        ``dequantise``: as :meth:`remember`, with the names that the weights have in PyTorch.

        On a GPU (``device="cuda"``) tensors are copied from pinned memory while the next ones are read, which ``borrow`` and
        ``align`` do not concern; shares of ``tp`` are copied when they are loaded.

        ``out``: contiguous tensors of PyTorch or numpy by name, which are loaded into and returned; each has the dtype and the
        shape of what is loaded. After an error their content is unspecified.
        """
        if out is not None:
            if dequantise or filter is not None or names is not None or device is not None or borrow is True or align != 1:
                raise ValueError("out: it names the tensors and has their memory; filter, names, device, borrow, align and "
                                 "dequantise are for other loads")
            from ._out import outputs

            chosen = self._selections(slices)
            memory = outputs(framework, self, out, chosen, tp is not None)
            loaded = Loaded(out)
            loaded.loader, loaded.reason = self._core.load_into(
                memory, loader=loader, slices=boxes(chosen), tp=tp, rules=_rows_of(rules), progress=progress
            )
            return loaded
        if dequantise:
            if borrow != "auto" or loader is not None or align != 1:
                raise ValueError("dequantise: borrow, loader and align are for stored tensors")
            style = self._core.client_names
            return self.remember(
                framework,
                names=style,
                filter=self._outputs(filter, "auto", False, style, names),
                device=device,
                tp=tp,
                rules=rules,
                slices=slices,
                progress=progress,
            )
        if borrow is True and loader is None:
            loader = "mmap"
        wanted = chosen_names(filter, names, self)
        if tp is None and _is_cuda(framework, device):
            from ._device import CudaCopies
            from ._device import load as load_to_device

            listed = self if wanted is None else [name for name in self if name in wanted]
            copies = CudaCopies(_torch_device(device))
            return load_to_device(self, copies, listed, self._selections(slices), loader=loader, progress=progress)
        wrap, chosen = wrap_for(framework, device), self._selections(slices)
        core = self._mapping() if loader == "mmap" else self._core
        rows, used, reason = core.load(
            wanted,
            borrow=self._borrows if borrow == "auto" else bool(borrow),
            loader=loader,
            align=align,
            slices=boxes(chosen),
            tp=tp,
            rules=_rows_of(rules),
            progress=progress,
        )
        loaded = Loaded({row[0]: _wrapped(wrap, chosen, row) for row in rows})
        loaded.loader, loaded.reason = used, reason
        return loaded

    def stream(
        self,
        framework: str = "torch",
        *,
        filter: Filter | None = None,
        names: Iterable[str] | None = None,
        device: Any = None,
        loader: str | None = None,
        align: int = 1,
        read_ahead: int = 256 << 20,
        tp: tuple[int, int] | None = None,
        rules: Rules | None = None,
        slices: Slices | None = None,
    ) -> Stream:
        """Names and tensors, one by one, while the next ones are read: at most ``read_ahead`` bytes of them. The other
        options are the options of :meth:`load`."""
        wrap, chosen = wrap_for(framework, device), self._selections(slices)
        core = self._core.stream(
            chosen_names(filter, names, self),
            loader=loader,
            align=align,
            read_ahead=read_ahead,
            slices=boxes(chosen),
            tp=tp,
            rules=_rows_of(rules),
        )
        return Stream(core, wrap, chosen)

    def _selections(self, slices: Slices | None) -> dict[str, Selection]:
        return {name: self[name].selection(index) for name, index in (slices or {}).items()}

    def plan(self, *, dtype: str = "auto", cast: bool = False, names: str = "stored") -> Plan:
        """The plan of :meth:`remember`."""
        return Plan(self._core.plan(dtype=dtype, cast=cast, names=names))

    def _outputs(
        self, wanted: Filter | None, dtype: str, cast: bool, names: str, listed: Iterable[str] | None = None
    ) -> set[str] | None:
        if wanted is None and listed is None:
            return None
        plan = self._core.plan(dtype=dtype, cast=cast, names=names)
        # a refused weight exists, and its refusal is the better error
        known = [output[0] for output in plan["outputs"]] + [name for name, _ in plan["refused"]]
        return chosen_names(wanted, listed, known)

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
        tp: tuple[int, int] | None = None,
        rules: Rules | None = None,
        slices: Slices | None = None,
        progress: Progress | None = None,
    ) -> Loaded:
        """All weights, dequantised to ``bfloat16``, ``float16`` or ``float32`` as their schemes' references do, and the
        plain tensors, in memory. ``names="hf"`` gives the tensors of a GGUF the names of transformers. ``tp``, ``rules`` and
        ``slices`` are as for :meth:`load`, of the outputs: these have no blocks, so that any range of elements is made."""
        outputs = self._outputs(filter, dtype, cast, names)
        chosen: dict[str, Selection] = {}
        if slices:
            shapes = {output[0]: output[3] for output in self._core.plan(dtype=dtype, cast=cast, names=names)["outputs"]}
            chosen = {name: selection(index, shapes[name]) for name, index in slices.items()}
        wrap = wrap_for(framework, device)
        rows = self._core.remember(
            outputs,
            dtype=dtype,
            cast=cast,
            names=names,
            native_rounding=native_rounding,
            threads=threads,
            slices=boxes(chosen),
            tp=tp,
            rules=_rows_of(rules),
            progress=progress,
        )
        return Loaded({row[0]: _wrapped(wrap, chosen, row) for row in rows})

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
        path = fsdecode(out)
        names = names or self._core.names_in(path, shard_size)
        files = self._core.remember_to(
            path,
            self._outputs(filter, dtype, cast, names),
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


def _opened(
    source: str | bytes, mmap: bool, single: bool, opaque: bool, assume: str | None, void: list[str], limits: dict[str, int | None]
) -> Checkpoint:
    return Checkpoint(source, mmap=mmap, single=single, opaque=opaque, assume=assume, void_as=void, limits=limits)


def _is_cuda(framework: str, device: Any) -> bool:
    """Whether tensors are copied to a GPU."""
    return framework in ("pt", "torch") and device is not None and _torch_device(device).type == "cuda"


def _torch_device(device: Any) -> Any:
    from torch import device as device_of

    return device_of(device)


def _rows_of(rules: Rules | None) -> list[tuple[str, str]] | None:
    return None if rules is None else list(rules.items())


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
