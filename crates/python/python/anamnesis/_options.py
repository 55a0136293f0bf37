"""Types of arguments, for type checkers and editors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable

Framework = Literal["pt", "torch", "np", "numpy", "jax", "mlx", "dlpack"]
Borrow = bool | Literal["auto"]
Loader = Literal["mmap", "pread", "pread_direct", "io_uring", "io_uring_direct"]
# names of outputs: as they are stored, or of transformers
Naming = Literal["stored", "hf"]
Container = Literal["safetensors", "gguf", "npz", "npy"]


class FileObject(Protocol):
    """An open file, ``io.BytesIO``, a file of fsspec or obstore."""

    def seek(self, offset: int, whence: int = 0, /) -> Any: ...
    def read(self, size: int = -1, /) -> Any: ...


Path = str | PathLike[str]
# a path or a URL, the bytes of a file, or a file object
Source = Path | bytes | bytearray | memoryview | FileObject


class Limits(TypedDict, total=False):
    """Bounds of what a file may cost; ``None``: unlimited. Bytes, except ``tensors``, ``depth``, ``steps`` and ``expansion``."""

    memory: int | None
    tensors: int | None
    depth: int | None
    steps: int | None
    tensor_bytes: int | None
    tile_bytes: int | None
    expansion: int | None


class OpenOptions(TypedDict, total=False):
    """The options of :class:`~anamnesis.Checkpoint`."""

    mmap: bool
    single: bool
    opaque: bool
    assume: Literal["plain"] | None
    void_as: Iterable[str]
    limits: Limits | None
    storage_options: Mapping[str, str] | None


class RememberOptions(TypedDict, total=False):
    """The options of dequantising."""

    dtype: Any
    cast: bool
    naming: Naming | None
    filter: Any
    exclude: Any
    rename: Mapping[str, str] | None
    strip_prefix: str | None
    native_rounding: bool
    shard_size: int | None
    overwrite: bool
    code: bool
    untie: bool
    threads: int
    progress: Callable[[int, int], object] | bool | None
