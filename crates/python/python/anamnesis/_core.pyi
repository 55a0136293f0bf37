# The interface of the compiled module, which the classes of this package use. `stubtest` compares it with the module.

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypedDict, final

__all__ = ["CoreCheckpoint", "CoreStream", "Memory", "__version__", "command", "objects", "open", "pool_bytes", "trim"]

__version__: str

# name, dtype or block type, whether it is a dtype, shape, memory
_Loaded = tuple[str, str, bool, tuple[int, ...], "Memory"]
# name, dtype or block type, whether it is a dtype, shape, bytes, file, offset
_Row = tuple[str, str, bool, tuple[int, ...], int, int, int | None]
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
class CoreStream:
    def __iter__(self) -> Iterator[_Loaded]: ...
    def __next__(self) -> _Loaded: ...
    def close(self) -> None: ...

@final
class CoreCheckpoint:
    @property
    def format(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def files(self) -> list[tuple[Any, int]]: ...
    @property
    def refused(self) -> list[tuple[str, str]]: ...
    @property
    def warnings(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def __contains__(self, name: str, /) -> bool: ...
    def names(self) -> list[str]: ...
    def row(self, name: str) -> _Row: ...
    def rows(self) -> list[_Row]: ...
    def metadata_keys(self) -> list[str]: ...
    def metadata(self, key: str) -> Any: ...
    def summary(self) -> str: ...
    def plan(self, *, dtype: str = "auto", cast: bool = False, names: str = "stored") -> _Plan: ...
    def load(
        self,
        names: set[str] | None = None,
        *,
        borrow: bool = True,
        loader: str | None = None,
        align: int = 1,
        rows: dict[str, tuple[int, int]] | None = None,
        progress: _Progress = None,
    ) -> tuple[list[_Loaded], str, str]: ...
    def stream(
        self,
        names: set[str] | None = None,
        *,
        loader: str | None = None,
        align: int = 1,
        read_ahead: int = ...,
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
        progress: _Progress = None,
    ) -> list[_Loaded]: ...
    def remember_to(
        self,
        out: str,
        outputs: set[str] | None = None,
        *,
        dtype: str = "auto",
        cast: bool = False,
        names: str | None = None,
        native_rounding: bool = False,
        shard_size: int | None = None,
        overwrite: bool = False,
        code: bool = False,
        untie: bool = False,
        threads: int = 0,
        progress: _Progress = None,
    ) -> list[Any]: ...

def open(
    source: str | bytes,
    *,
    mmap: bool = True,
    single: bool = False,
    opaque: bool = False,
    void_as: Sequence[str] | None = None,
    limits: dict[str, int | None] | None = None,
) -> CoreCheckpoint: ...
# kind and contents of each node of the object, and its storages
def objects(
    source: str | bytes,
    *,
    mmap: bool = True,
    opaque: bool = False,
    limits: dict[str, int | None] | None = None,
) -> tuple[list[tuple[Any, ...]], CoreCheckpoint] | None: ...
def pool_bytes() -> tuple[int, int]: ...
def trim() -> int: ...
def command(arguments: Sequence[str]) -> int: ...
