"""The interface of ``numpy.load``, for every format: ``anamnesis.numpy.load(path)``. Nothing that a file names is imported or called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from os import fsdecode
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from . import _core
from ._checkpoint import Checkpoint
from ._frameworks.numpy import stored_dtype
from ._results import warn_of_refused
from ._source import content_of, seeks_to_its_end
from .errors import UnsupportedError

if TYPE_CHECKING:
    from ._checkpoint import Path
    from ._tensor import Tensor

_MODES = ("r", "r+", "c")


def load(
    file: Path | bytes | BinaryIO,
    mmap_mode: str | None = None,
    allow_pickle: bool = False,
    fix_imports: bool = True,
    encoding: str = "ASCII",
    *,
    max_header_size: int = 10_000,
    limits: Mapping[str, int | None] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """The array that ``numpy.load(file)`` returns, with the dtype, byte order and order of the file; of an archive, and of every other
    format, :class:`Arrays` by name.

    ``file``: a path, a URL, the bytes of a file, or an object with ``read``, which is read from its position on, and is behind the array
    afterwards. ``mmap_mode``: ``"r"``, ``"r+"`` or ``"c"`` map the array of a local ``.npy`` file; ``"r+"`` writes to the file. Arrays that an archive
    holds uncompressed are mapped too, by ``"r"`` and ``"c"``; ``numpy.load`` copies these. ``fix_imports`` and ``encoding`` are about pickles,
    which are not read, and ``max_header_size`` about a parser that is not used: :attr:`Limits` bounds what a header may cost.

    Arrays of objects are pickles: a file of one is refused, and an archive is read without them, with a warning that names them.

        >>> import anamnesis.numpy
        >>> anamnesis.numpy.load("fixtures/npy/v1.npy").dtype
        dtype('float32')
    """
    if allow_pickle:
        raise ValueError("allow_pickle=True would run the code that a file names, which this package never does")
    if mmap_mode is not None and mmap_mode not in _MODES:
        raise ValueError(f'mmap_mode {mmap_mode!r}: "r", "r+" or "c"; other modes make a new file')
    source, behind = _source(file)
    if mmap_mode is not None and (not isinstance(source, str) or _core.is_url(source)):
        raise ValueError(f"mmap_mode={mmap_mode!r} needs the path of a local file: mmap_mode=None reads the bytes of a URL or a file object")
    checkpoint = Checkpoint(source, limits=limits, storage_options=storage_options)
    arrays = Arrays(checkpoint, mmap_mode)
    if checkpoint.format != "npy":
        warn_of_refused(checkpoint, 2)
        return arrays
    (tensor,) = checkpoint.values()
    array = arrays[tensor.name]
    checkpoint.close()
    if behind is not None:
        # arrays that were saved one after the other are loaded so
        behind((tensor.offset or 0) + tensor.nbytes)
    return array


class Arrays(Mapping[str, Any]):
    """The arrays of a checkpoint by name, each of which is read when it is looked up: as of ``numpy.load``, ``files`` has their names, and
    attributes of ``f`` are the arrays. A context manager closes the files."""

    def __init__(self, checkpoint: Checkpoint, mode: str | None) -> None:
        self._checkpoint, self._mode = checkpoint, mode
        self.files: list[str] = list(checkpoint)
        self.f = _Attributes(self)
        if mode is not None:
            for name in self.files:
                _check_mapped(checkpoint, name, mode)

    def __getitem__(self, name: str) -> Any:
        found = name if name in self._checkpoint else name.removesuffix(".npy")
        if found not in self._checkpoint:
            for refused, reason in self._checkpoint.refused:
                if refused == found:
                    raise UnsupportedError(f"{self._checkpoint.path or 'the archive'}: {found!r} cannot be read: {reason}")
            raise KeyError(f"{name} is not an array of {self._checkpoint.path or 'the archive'}")
        tensor = self._checkpoint[found]
        return _read(tensor) if self._mode is None else _mapped(tensor, self._mode)

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._checkpoint or name.removesuffix(".npy") in self._checkpoint)

    def __repr__(self) -> str:
        names = ", ".join(self.files[:5]) + (", …" if len(self.files) > 5 else "")
        return f"<Arrays {self._checkpoint.path or 'of bytes'!r}: {names}>"

    def __enter__(self) -> Arrays:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files. Arrays that were read stay valid."""
        self._checkpoint.close()


class _Attributes:
    """Arrays as attributes."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def __getattr__(self, name: str) -> Any:
        try:
            return self._arrays[name]
        except KeyError:
            raise AttributeError(name) from None

    def __dir__(self) -> list[str]:
        return list(self._arrays)


def _read(tensor: Tensor) -> Any:
    """An array with the byte order and the order of its file."""
    array = tensor.numpy()
    big, fortran, _ = tensor.checkpoint._core.stored_form(tensor.name)
    dtype = stored_dtype(tensor._loaded_dtype, tensor._is_dtype, big)
    if dtype is not None and array.dtype != dtype:
        array = array.astype(dtype)
    return np.asfortranarray(array) if fortran else array


def _check_mapped(checkpoint: Checkpoint, name: str, mode: str) -> None:
    """Refuses to map what is not an array in a file of its own bytes."""
    if checkpoint.format not in ("npy", "npz"):
        raise ValueError(
            f"{checkpoint.path}: mmap_mode is for .npy and .npz files, and this is {checkpoint.format}: anamnesis.load(path, \"np\", borrow=True) maps it"
        )
    if checkpoint.format == "npz" and mode == "r+":
        raise ValueError(
            f"{checkpoint.path}: mmap_mode=\"r+\" would leave an archive with a checksum that is not of its bytes: \"c\" keeps changes in memory"
        )
    if checkpoint._core.stored_form(name)[2]:
        raise ValueError(f"{checkpoint.path}: {name!r} is compressed, and is not mapped: mmap_mode=None reads it, as numpy.load does")


def _mapped(tensor: Tensor, mode: str) -> Any:
    """An array in a map of its file."""
    big, fortran, _ = tensor.checkpoint._core.stored_form(tensor.name)
    dtype = stored_dtype(tensor._loaded_dtype, tensor._is_dtype, big)
    if dtype is None or not tensor.nbytes:
        return _read(tensor)  # bytes, or none: there is nothing to map
    path, offset = tensor.file or "", tensor.offset or 0
    with open(path, "r+b" if mode == "r+" else "rb") as file:
        # a map of more than the file has would make it longer with "r+", and end the process where it is read otherwise
        if os.fstat(file.fileno()).st_size < offset + tensor.nbytes:
            raise UnsupportedError(f"{path}: the file has become shorter since its header was read", path)
        return np.memmap(file, dtype, mode, offset, tensor.shape, "F" if fortran else "C")  # type: ignore[call-overload]


class _Rest:
    """A file object from its position on."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._start: int = file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        self._file.seek(self._start + offset if whence == 0 else offset, whence)
        return self.tell()

    def tell(self) -> int:
        at: int = self._file.tell()
        return at - self._start

    def read(self, size: int = -1) -> Any:
        return self._file.read(size)


def _source(file: Any) -> tuple[Any, Any]:
    """The source that is opened, and a function that sets the position of a file object, counted from where it is."""
    if isinstance(file, bytes):
        return file, None
    if not hasattr(file, "read"):
        return fsdecode(file), None
    if not hasattr(file, "seek"):
        return content_of(file), None
    start = file.tell()
    whole = seeks_to_its_end(file)
    file.seek(start)
    if not file.read(1):
        raise EOFError("No data left in file")
    file.seek(start)
    return (_Rest(file) if whole else content_of(file)), lambda length: file.seek(start + length)
