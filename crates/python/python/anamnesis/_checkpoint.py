"""Checkpoints and tensors: descriptions that read bytes on request."""

from __future__ import annotations

# the class of `collections.abc`, which every interpreter has when it starts
from _collections_abc import Mapping
from os import fsdecode

from . import _core
from ._dtype import dtype_name
from ._frameworks import wrap_for
from ._index import selection
from ._numbers import shard_bytes
from ._progress import reporting
from ._results import Loaded, Plan, Stream, Summary, boxes, warn_of_refused, wrapped
from ._select import Chosen, choose
from ._source import opened, variables
from ._tensor import Tensor

# avoids importing `typing`, which takes as long as starting the interpreter
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike
    from typing import Any

    from ._index import Selection
    from ._options import Borrow, Framework, Limits, Loader, Naming, Source
    from ._progress import Progress
    from ._select import Filter

    Path = str | PathLike[str]
    # the part of a tensor that is read, by the tensor's name
    Slices = Mapping[str, Any]
    # patterns of names, and how tensors are split over workers
    Rules = Mapping[str, str]


class _Closed:
    """In the place of what a closed checkpoint had."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError("the checkpoint is closed")

    def __len__(self) -> int:
        raise ValueError("the checkpoint is closed")

    def __contains__(self, name: object) -> bool:
        raise ValueError("the checkpoint is closed")


class Checkpoint(Mapping[str, Tensor]):
    """The tensors of a file, a directory, an index or a split, by name. Opening reads headers only.

    ``source``: a path or a URL; the bytes of a file (``bytes``, ``bytearray``, ``memoryview``, ``mmap``), or a file object that has
    ``seek`` and ``read``, such as ``io.BytesIO`` or a file of fsspec or obstore, which is used while the checkpoint is.

    ``mmap``: files may be mapped. ``single``: one file of several, alone. ``opaque``: objects of unknown classes in PyTorch files are kept as
    what they are called. ``assume="plain"``: weights are as they are stored, whatever is said about them. ``void_as``: dtypes of items without a type in
    NumPy files. ``limits``: bounds of what a file may cost. ``storage_options``: credentials and endpoints, as variables of the
    environment are called (``aws_access_key_id``).

    Raises ``OSError``; ``AnamnesisError`` and its subclasses for what cannot be read; ``TypeError`` for what is no source.

        >>> with anamnesis.open("fixtures/model/scribe-Q8_0.gguf") as checkpoint:
        ...     checkpoint["blk.0.attn_q.weight"].shape
        (64, 64)
    """

    def __init__(
        self,
        source: Source,
        *,
        mmap: bool = True,
        single: bool = False,
        opaque: bool = False,
        assume: str | None = None,
        void_as: Iterable[str] = (),
        limits: Limits | Mapping[str, int | None] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        plain = opened(source)
        self._arguments: tuple[Any, ...] = (plain, mmap, single, opaque, assume, [void_as] if isinstance(void_as, str) else list(void_as), dict(limits or {}), storage_options)
        self._core = self._opened(all_maps=False)
        self._tied: dict[str, str] | None = None
        self.path: str | None = plain if isinstance(plain, str) else None
        # path and length
        self.files: list[tuple[str | None, int]] = self._core.files

    def close(self) -> None:
        """Closes the files. Tensors that were loaded stay valid; nothing more can be read.

            >>> checkpoint = anamnesis.open("fixtures/safetensors/sharded")
            >>> head = checkpoint.load("np", names=["lm_head.weight"])
            >>> checkpoint.close()
            >>> head["lm_head.weight"].shape
            (32, 16)
        """
        self._core = _Closed()  # type: ignore[assignment]

    def __enter__(self) -> Checkpoint:
        self._core.format  # noqa: B018  raises if it is closed
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
        plain, mmap, *_ = self._arguments
        if self._borrows or not mmap or not isinstance(plain, str):
            return self._core
        return self._opened(all_maps=True)

    def _opened(self, all_maps: bool) -> _core.CoreCheckpoint:
        plain, mmap, single, opaque, assume, void, limits, storage_options = self._arguments
        return _core.open(
            plain,
            mmap=mmap,
            all_maps=all_maps,
            single=single,
            opaque=opaque,
            assume=assume,
            void_as=void,
            limits=limits,
            storage_options=variables(storage_options),
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
        what = self.path or "of bytes"
        if isinstance(self._core, _Closed):
            return f"<Checkpoint {what!r}: closed>"
        return f"<Checkpoint {what!r}: {self.format}, {len(self)} tensors>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _repr_html_(self) -> str:
        return self.inspect()._repr_html_()

    # opened again, in another process for example: nothing that is open can be sent
    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self._arguments[0], (str, bytes)):
            raise TypeError(f"a checkpoint of a {type(self._arguments[0]).__name__} cannot be pickled: it has no path to be opened again")
        return _opened, self._arguments

    def inspect(self) -> Summary:
        """The summary that ``anamnesis inspect --json`` prints.

            >>> anamnesis.open("fixtures/model/scribe-Q8_0.gguf").inspect()["format"]
            'gguf'
        """
        return Summary(self._core.summary())

    def load(
        self,
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
    ) -> Loaded:
        """Stored tensors in memory; quantised ones are still quantised (see :meth:`remember`).

        ``borrow``: with ``"auto"`` tensors of local safetensors files in the page cache lie in a private map of the file, which
        is copied on write, and others in memory of their own; ``False`` always copies, ``True`` always maps. ``progress`` is
        called with the number of complete bytes and of all bytes, or ``True`` for a bar (of tqdm where it is installed); an exception
        of it, or an interrupt, ends the load.

        ``names``, ``filter`` and ``exclude`` say which tensors: a pattern, names and patterns, or a function; one that is for no
        tensor is an error. ``strip_prefix`` and ``rename`` give them other names in the result: ``rename`` maps a whole name, a prefix
        at a dot, or a pattern with ``*``, in order. ``slices`` says which parts of some of them: an index, by stored name. ``tp=(rank,
        world)`` loads a tensor-parallel worker's share of each, by the rules of ``anamnesis template predict``, which
        ``rules`` precede: patterns of names, each with ``column``, ``row``, ``replicated``, ``vocab``, ``kv``, ``qkv`` or ``gate-up``.
        ``dequantise``: as :meth:`remember`, with the names that the weights have in PyTorch.

        On a GPU (``device="cuda"``) tensors are copied from pinned memory while the next ones are read, which ``borrow`` and
        ``align`` do not concern; shares of ``tp`` are copied when they are loaded.

        ``out``: contiguous tensors of PyTorch or numpy by name, which are loaded into and returned; each has the dtype and the
        shape of what is loaded. After an error their content is unspecified.

            >>> loaded = anamnesis.open("fixtures/safetensors/sharded").load("np", filter="lm_head.*")
            >>> list(loaded), loaded["lm_head.weight"].shape
            (['lm_head.weight'], (32, 16))
        """
        if out is not None:
            names_or_memory = (filter, names, exclude, rename, strip_prefix, device)
            if dequantise or any(one is not None for one in names_or_memory) or borrow is True or align != 1:
                raise ValueError("out: it names the tensors and has their memory; filter, names, exclude, rename, strip_prefix, device, "
                                 "borrow, align and dequantise are for other loads")
            from ._out import outputs

            chosen = self._selections(slices)
            memory = outputs(framework, self, out, chosen, tp is not None)
            loaded = Loaded(out)
            with reporting(progress, "load") as report:
                loaded.loader, loaded.reason = self._core.load_into(
                    memory, loader=loader, slices=boxes(chosen), tp=tp, rules=_rows_of(rules), progress=report
                )
            return loaded
        if dequantise:
            if borrow != "auto" or loader is not None or align != 1:
                raise ValueError("dequantise: borrow, loader and align are for stored tensors")
            return self._remember(
                framework,
                self._core.client_names,
                dict(filter=filter, names=names, exclude=exclude, rename=rename, strip_prefix=strip_prefix),
                device=device,
                tp=tp,
                rules=rules,
                slices=slices,
                progress=progress,
            )
        if borrow not in (True, False, "auto"):
            raise ValueError(f"borrow {borrow!r}: True, False or \"auto\"")
        if borrow is True and loader is None:
            loader = "mmap"
        wanted = choose(self, filter=filter, names=names, exclude=exclude, rename=rename, strip_prefix=strip_prefix)
        if filter is None and names is None:
            warn_of_refused(self, 3)
        if tp is None and _is_cuda(framework, device):
            from ._device import CudaCopies
            from ._device import load as load_to_device

            listed = self if wanted.names is None else [name for name in self if name in wanted.names]
            copies = CudaCopies(_torch_device(device))
            with reporting(progress, "load") as report:
                loaded = load_to_device(self, copies, listed, self._selections(slices), loader=loader, progress=report)
            if not wanted.new:
                return loaded
            renamed = Loaded({wanted.name(name): tensor for name, tensor in loaded.items()})
            renamed.loader, renamed.reason = loaded.loader, loaded.reason
            return renamed
        wrap, chosen = wrap_for(framework, device), self._selections(slices)
        core = self._mapping() if loader == "mmap" else self._core
        with reporting(progress, "load") as report:
            rows, used, reason = core.load(
                wanted.names,
                borrow=self._borrows if borrow == "auto" else bool(borrow),
                loader=loader,
                align=align,
                slices=boxes(chosen),
                tp=tp,
                rules=_rows_of(rules),
                progress=report,
            )
        loaded = Loaded({wanted.name(row[0]): wrapped(wrap, chosen, row) for row in rows})
        loaded.loader, loaded.reason = used, reason
        return loaded

    def stream(
        self,
        framework: Framework = "torch",
        *,
        filter: Filter | None = None,
        names: Iterable[str] | None = None,
        exclude: Filter | None = None,
        rename: Mapping[str, str] | None = None,
        strip_prefix: str | None = None,
        device: Any = None,
        loader: Loader | None = None,
        align: int = 1,
        read_ahead: int = 256 << 20,
        dequantise: bool = False,
        dtype: Any = "auto",
        cast: bool = False,
        naming: Naming | None = None,
        tp: tuple[int, int] | None = None,
        rules: Rules | None = None,
        slices: Slices | None = None,
    ) -> Stream:
        """Names and tensors, one by one, while the next ones are read: at most ``read_ahead`` bytes of them. The other
        options are the options of :meth:`load`.

        ``dequantise``: weights as :meth:`remember` makes them, in ``dtype`` (and with ``cast`` plain tensors too), one at a time, with the names that they have in PyTorch
        unless ``naming`` says otherwise. They are planned before the first one: what cannot be made is an error then.

            >>> stream = anamnesis.open("fixtures/model/scribe-Q8_0.gguf").stream("np", dequantise=True, dtype="float32")
            >>> next(stream)[0]
            'model.embed_tokens.weight'
        """
        options: dict[str, Any] = dict(filter=filter, names=names, exclude=exclude, rename=rename, strip_prefix=strip_prefix)
        if dequantise:
            if loader is not None or align != 1 or tp is not None or rules is not None or slices is not None:
                raise ValueError("dequantise: loader, align, tp, rules and slices are for stored tensors; load(dequantise=True) has tp, "
                                 "rules and slices")
            core = self._core.weights(dtype=dtype_name(dtype), cast=cast, names=naming)
            made = [row[0] for row in core.rows()]
            weights = choose(made, **options)
            each = (core.make(name) for name in made if weights.names is None or name in weights.names)
            return Stream(each, wrap_for(framework, device), {}, weights.name)
        if dtype != "auto" or cast or naming is not None:
            raise ValueError("dtype, cast and naming are for weights that are made: pass dequantise=True")
        wanted = choose(self, **options)
        wrap, chosen = wrap_for(framework, device), self._selections(slices)
        rows = self._core.stream(
            wanted.names,
            loader=loader,
            align=align,
            read_ahead=read_ahead,
            slices=boxes(chosen),
            tp=tp,
            rules=_rows_of(rules),
        )
        return Stream(rows, wrap, chosen, wanted.name)

    def _selections(self, slices: Slices | None) -> dict[str, Selection]:
        return {name: self[name].selection(index) for name, index in (slices or {}).items()}

    def plan(self, *, dtype: Any = "auto", cast: bool = False, naming: Naming = "stored") -> Plan:
        """The plan of :meth:`remember`: no tensor is read.

            >>> plan = anamnesis.open("fixtures/model/scribe-Q8_0.gguf").plan(dtype="float32")
            >>> {output[2] for output in plan["outputs"]}
            {'F32'}
        """
        return Plan(self._core.plan(dtype=dtype_name(dtype), cast=cast, names=naming))

    def _outputs(self, dtype: str, cast: bool, naming: str, options: Mapping[str, Any]) -> Chosen:
        """The outputs that are chosen, and their new names."""
        if all(one is None for one in options.values()):
            return Chosen(None, {})
        plan = self._core.plan(dtype=dtype, cast=cast, names=naming)
        # a refused weight exists, and its refusal is the better error
        known = [output[0] for output in plan["outputs"]] + [name for name, _ in plan["refused"]]
        return choose(known, **options)

    def remember(
        self,
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
    ) -> Loaded:
        """All weights, dequantised to ``bfloat16``, ``float16`` or ``float32`` (or a framework's dtype) as their schemes' references do,
        and the plain tensors, in memory: these keep their dtype, unless ``cast``. ``naming="hf"`` gives the tensors of a GGUF the names of transformers. ``names``, ``filter``,
        ``exclude``, ``rename``, ``strip_prefix``, ``tp``, ``rules`` and ``slices`` are as for :meth:`load`, of the outputs: these have no
        blocks, so that any range of elements is made.

            >>> weights = anamnesis.open("fixtures/model/scribe-Q8_0.gguf").remember("np", dtype="float32", filter="blk.0.attn_q.*")
            >>> weights["blk.0.attn_q.weight"].dtype.name
            'float32'
        """
        return self._remember(
            framework,
            naming,
            dict(filter=filter, names=names, exclude=exclude, rename=rename, strip_prefix=strip_prefix),
            dtype=dtype_name(dtype),
            cast=cast,
            native_rounding=native_rounding,
            device=device,
            threads=threads,
            tp=tp,
            rules=rules,
            slices=slices,
            progress=progress,
        )

    def _remember(
        self,
        framework: str,
        naming: str,
        options: Mapping[str, Any],
        *,
        dtype: str = "auto",
        cast: bool = False,
        native_rounding: bool = False,
        device: Any = None,
        threads: int = 0,
        tp: tuple[int, int] | None = None,
        rules: Rules | None = None,
        slices: Slices | None = None,
        progress: Progress = None,
    ) -> Loaded:
        outputs = self._outputs(dtype, cast, naming, options)
        chosen: dict[str, Selection] = {}
        if slices:
            shapes = {output[0]: output[3] for output in self._core.plan(dtype=dtype, cast=cast, names=naming)["outputs"]}
            chosen = {name: selection(index, shapes[name]) for name, index in slices.items()}
        wrap = wrap_for(framework, device)
        with reporting(progress, "remember") as report:
            rows = self._core.remember(
                outputs.names,
                dtype=dtype,
                cast=cast,
                names=naming,
                native_rounding=native_rounding,
                threads=threads,
                slices=boxes(chosen),
                tp=tp,
                rules=_rows_of(rules),
                progress=report,
            )
        return Loaded({outputs.name(row[0]): wrapped(wrap, chosen, row) for row in rows})

    def remember_to(
        self,
        out: Path,
        *,
        dtype: Any = "auto",
        cast: bool = False,
        naming: Naming | None = None,
        filter: Filter | None = None,
        exclude: Filter | None = None,
        rename: Mapping[str, str] | None = None,
        strip_prefix: str | None = None,
        native_rounding: bool = False,
        shard_size: int | None = None,
        overwrite: bool = False,
        code: bool = False,
        untie: bool = False,
        threads: int = 0,
        progress: Progress = None,
    ) -> list[str]:
        """As :meth:`remember`, into a safetensors file, or into a directory that clients open. Returns the files.

        ``out``: a directory (one that exists, a path that ends in ``/``, or with ``shard_size`` in bytes), or a file. By default a directory
        has the names of transformers. Raises ``FileExistsError`` unless ``overwrite``.

            >>> anamnesis.open("fixtures/model/scribe-Q8_0.gguf").remember_to("model/", shard_size=100_000)[-1]
            'model/model-00003-of-00003.safetensors'
        """
        shard_size = None if shard_size is None else shard_bytes(shard_size)
        path, kind = fsdecode(out), dtype_name(dtype)
        style = naming or self._core.names_in(path, shard_size)
        options = dict(filter=filter, exclude=exclude, rename=rename, strip_prefix=strip_prefix)
        outputs = self._outputs(kind, cast, style, options)
        with reporting(progress, "remember") as report:
            files = self._core.remember_to(
                path,
                outputs.names,
                renamed=outputs.new,
                dtype=kind,
                cast=cast,
                names=style,
                native_rounding=native_rounding,
                shard_size=shard_size,
                overwrite=overwrite,
                code=code,
                untie=untie,
                threads=threads,
                progress=report,
            )
        return [fsdecode(file) for file in files]


def _opened(
    source: str | bytes,
    mmap: bool,
    single: bool,
    opaque: bool,
    assume: str | None,
    void: list[str],
    limits: dict[str, int | None],
    storage_options: Mapping[str, str] | None = None,
) -> Checkpoint:
    return Checkpoint(
        source, mmap=mmap, single=single, opaque=opaque, assume=assume, void_as=void, limits=limits, storage_options=storage_options
    )


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

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __repr__(self) -> str:
        return f"<metadata: {len(self)} keys>"
