# The interface of the compiled module, which the classes of this package use. `stubtest` compares it with the module.

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypedDict, TypeVar, final

__all__ = [
    "CoreCheckpoint", "CoreDirectory", "CoreStream", "CoreTemplate", "CoreWeights", "CoreWriter", "Elements", "Memory", "__version__", "again",
    "answer", "command", "digests", "dlpack", "edit", "elements", "has_type", "is_url", "load_template", "ls", "new_memory", "objects", "open",
    "pool_bytes", "renamed", "safetensors_header", "shown_path", "trim", "union",
]  # fmt: skip

__version__: str

_T = TypeVar("_T")

# name, dtype, block type or numpy's descriptor, whether it is a dtype, shape, memory
_Loaded = tuple[str, str, bool, tuple[int, ...], "Memory"]
# name, dtype, block type or type of items, whether it is a dtype, shape, bytes, file, offset, elements of a block, its name in loaded rows
_Row = tuple[str, str, bool, tuple[int, ...], int, int, int | None, int, str]
# by a tensor's name, start and end of each axis
_Slices = dict[str, list[tuple[int, int]]] | None
# patterns of names, and rules
_Rules = Sequence[tuple[str, str]] | None
_Progress = Callable[[int, int], object] | None

class _Plan(TypedDict):
    # name, scheme, dtype, shape, bytes
    outputs: list[tuple[str, str, str, tuple[int, ...], int]]
    # name, reason
    refused: list[tuple[str, str]]
    quantised: bool
    notes: list[str]

@final
class Memory:
    @property
    def address(self) -> int: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Elements:
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class CoreStream:
    def __iter__(self) -> Iterator[_Loaded]: ...
    def __next__(self) -> _Loaded: ...
    def close(self) -> None: ...

@final
class CoreDirectory:
    # name, bytes of tensors, names of outputs, description
    def files(self) -> list[tuple[str, int, list[str], str]]: ...
    def prepare(self) -> list[int]: ...
    def complete(self) -> list[Any]: ...
    def remove_abandoned(self) -> None: ...

@final
class CoreWeights:
    @property
    def dtype(self) -> str: ...
    # name, dtype, shape
    def rows(self) -> list[tuple[str, str, tuple[int, ...]]]: ...
    def make(self, name: str) -> _Loaded: ...
    # name, and bytes or the path of a file
    def companions(self, code: bool) -> list[tuple[str, bytes | str]]: ...

@final
class CoreCheckpoint:
    @property
    def format(self) -> str: ...
    @property
    def is_mapped(self) -> bool: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def client_names(self) -> str: ...
    @property
    def files(self) -> list[tuple[str | None, int]]: ...
    @property
    def refused(self) -> list[tuple[str, str]]: ...
    @property
    def warnings(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def __contains__(self, name: str, /) -> bool: ...
    def names(self) -> list[str]: ...
    def row(self, name: str) -> _Row: ...
    def rows(self) -> list[_Row]: ...
    # whether it is big endian, in Fortran order, compressed
    def stored_form(self, name: str) -> tuple[bool, bool, bool]: ...
    def tied(self) -> dict[str, str]: ...
    @property
    def has_empty_metadata(self) -> bool: ...
    def metadata_keys(self) -> list[str]: ...
    def metadata(self, key: str) -> Any: ...
    def summary(self) -> dict[str, Any]: ...
    def names_in(self, out: str, shard_size: int | None = None) -> str: ...
    def plan(self, *, dtype: str = "auto", cast: bool = False, names: str = "stored") -> _Plan: ...
    def weights(self, *, dtype: str = "auto", cast: bool = False, names: str | None = None) -> CoreWeights: ...
    def predict(
        self,
        *,
        tp: int = 1,
        pp: int = 1,
        dp: int = 1,
        ep: int = 1,
        heads: int | None = None,
        kv_heads: int | None = None,
        experts: int | None = None,
        rules: _Rules = None,
        order: str = "file",
        whole: bool = False,
        max_gap: int = 0,
    ) -> CoreTemplate: ...
    def load(
        self,
        names: set[str] | None = None,
        *,
        borrow: bool = True,
        loader: str | None = None,
        align: int = 1,
        slices: _Slices = None,
        tp: tuple[int, int] | None = None,
        rules: _Rules = None,
        progress: _Progress = None,
    ) -> tuple[list[_Loaded], str, str]: ...
    def load_into(
        self,
        out: Sequence[tuple[str, Any]],
        *,
        loader: str | None = None,
        slices: _Slices = None,
        tp: tuple[int, int] | None = None,
        rules: _Rules = None,
        progress: _Progress = None,
    ) -> tuple[str, str]: ...
    def stream(
        self,
        names: set[str] | None = None,
        *,
        loader: str | None = None,
        align: int = 1,
        read_ahead: int = ...,
        slices: _Slices = None,
        tp: tuple[int, int] | None = None,
        rules: _Rules = None,
    ) -> CoreStream: ...
    def remember(
        self,
        outputs: set[str] | None = None,
        *,
        dtype: str = "auto",
        cast: bool = False,
        names: str = "stored",
        native_rounding: bool = False,
        threads: int = 0,
        slices: _Slices = None,
        tp: tuple[int, int] | None = None,
        rules: _Rules = None,
        progress: _Progress = None,
    ) -> list[_Loaded]: ...
    def remember_to(
        self,
        out: str,
        outputs: set[str] | None = None,
        *,
        renamed: dict[str, str] | None = None,
        dtype: str = "auto",
        cast: bool = False,
        names: str = "stored",
        native_rounding: bool = False,
        shard_size: int | None = None,
        overwrite: bool = False,
        code: bool = False,
        untie: bool = False,
        threads: int = 0,
        progress: _Progress = None,
    ) -> list[Any]: ...
    def convert_to(
        self,
        out: str,
        *,
        selected: set[str] | None = None,
        excluded: set[str] | None = None,
        dtype: str = "stored",
        cast: bool = False,
        rename: Sequence[tuple[str, str]] = ...,
        container: str | None = None,
        metadata: Sequence[tuple[str, str | None]] = ...,
        void: bool = False,
        alignment: int | None = None,
        tp: tuple[int, int] | None = None,
        shard_size: int | None = None,
        overwrite: bool = False,
        code: bool = False,
        untie: bool = False,
        threads: int = 0,
        progress: _Progress = None,
    ) -> list[Any]: ...
    def quantise_to(
        self,
        out: str,
        file_type: str,
        *,
        imatrix: str | None = None,
        pure: bool = False,
        tensor_types: Sequence[tuple[str, str]] = ...,
        requantise: bool = False,
        via: str | None = None,
        tokenizer_pre: str | None = None,
        overwrite: bool = False,
        threads: int = 0,
        progress: _Progress = None,
    ) -> list[Any]: ...
    def output_directory(
        self,
        out: str,
        shard_size: int,
        outputs: set[str] | None = None,
        *,
        dtype: str = "auto",
        cast: bool = False,
        names: str | None = None,
        native_rounding: bool = False,
        overwrite: bool = False,
        code: bool = False,
        untie: bool = False,
    ) -> CoreDirectory: ...
    def make_file(
        self,
        out: str,
        file: str,
        *,
        dtype: str = "auto",
        cast: bool = False,
        names: str | None = None,
        native_rounding: bool = False,
        overwrite: bool = False,
        untie: bool = False,
        threads: int = 0,
        progress: _Progress = None,
    ) -> bool: ...

@final
class CoreWriter:
    def __new__(
        cls,
        out: str,
        tensors: Sequence[tuple[str, str, Sequence[int]]],
        *,
        container: str | None = None,
        metadata: Sequence[tuple[str, str]] | None = ...,
        shard_size: int | None = None,
        overwrite: bool = False,
        void: bool = False,
    ) -> CoreWriter: ...
    def order(self) -> list[str]: ...
    def write(self, name: str, bytes: Any) -> None: ...
    def finish(self) -> list[Any]: ...
    def close(self) -> None: ...

@final
class CoreTemplate:
    @property
    def nbytes(self) -> int: ...
    @property
    def files(self) -> list[str]: ...
    @property
    def parameters(self) -> list[tuple[str, str]]: ...
    # rank, name, bytes, accesses
    @property
    def groups(self) -> list[tuple[int, str, int, int]]: ...
    # bytes, covered bytes, agreement of the order; of each file its path, bytes, covered bytes
    def coverage(self, by: CoreTemplate) -> tuple[int, int, float | None, list[tuple[str, int, int]]]: ...
    def save(self, path: str, overwrite: bool) -> None: ...

def ls(
    root: str, *, has: Sequence[str] = ..., all_snapshots: bool = False, threads: int = 0
) -> list[tuple[Any, str | None, str | None, int | None, str | None, str | None, int | None, int | None, int | None, str | None, str | None]]: ...
def again(call: Callable[[], _T]) -> _T: ...
def union(sources: Sequence[str]) -> CoreCheckpoint: ...
def load_template(path: str) -> CoreTemplate: ...
def open(
    source: Any,
    *,
    mmap: bool = True,
    all_maps: bool = False,
    single: bool = False,
    opaque: bool = False,
    assume: str | None = None,
    void_as: Sequence[str] | None = None,
    limits: dict[str, int | None] | None = None,
    storage_options: Sequence[tuple[str, str]] | None = None,
) -> CoreCheckpoint: ...
# kind and contents of each node of the object, the place that each storage was saved from, and the storages
def objects(
    source: str | bytes,
    *,
    mmap: bool = True,
    opaque: bool = False,
    limits: dict[str, int | None] | None = None,
) -> tuple[list[tuple[Any, ...]], list[str], CoreCheckpoint] | None: ...
def new_memory(nbytes: int) -> Memory: ...
# the same bytes as elements of a format of `struct`
def elements(memory: Memory, format: str, shape: Sequence[int]) -> Elements: ...
def is_url(path: str) -> bool: ...
def shown_path(path: str) -> str: ...
# a capsule
def dlpack(memory: Memory, code: int, bits: int, lanes: int, shape: Sequence[int], *, versioned: bool) -> Any: ...
def pool_bytes() -> tuple[int, int]: ...
def trim() -> int: ...
def command(arguments: Sequence[str]) -> int: ...
def answer(arguments: Sequence[str], progress: _Progress = None) -> Any: ...
# paths below the directory of a model, and digests
def digests(path: str, progress: _Progress = None) -> list[tuple[str, str]]: ...

class _Changes(TypedDict):
    set: list[tuple[str, str]]
    unset: list[str]
    rename_key: list[tuple[str, str]]
    rename: list[tuple[str, str]]
    copy: bool
    compact: bool
    recover: bool

# whether a key has a type of a GGUF behind a colon
def has_type(key: str) -> bool: ...
def renamed(names: Sequence[str], rename: Sequence[tuple[str, str]]) -> list[str]: ...

# the header, and names and bytes in its order
def safetensors_header(
    tensors: Sequence[tuple[str, str, Sequence[int]]], metadata: Sequence[tuple[str, str]] | None
) -> tuple[bytes, list[tuple[str, int]]]: ...

# path, way, bytes written
def edit(path: str, changes: _Changes, progress: _Progress = None) -> list[tuple[str, str, int]]: ...
