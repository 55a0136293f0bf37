"""One conversion by many processes, of any scheduler."""

from __future__ import annotations

import os
from os import fsdecode
from typing import TYPE_CHECKING, Any

from ._checkpoint import Checkpoint
from ._dtype import dtype_name
from ._numbers import shard_bytes
from ._paths import is_url, local
from ._progress import reporting

if TYPE_CHECKING:
    from typing import Unpack

    from . import _core
    from ._checkpoint import Path
    from ._options import Naming, OpenOptions
    from ._progress import Progress, Report
    from ._select import Filter


def shared_path(path: Path) -> str:
    """A path as it is in every process."""
    text = fsdecode(path)
    return text if is_url(text) else os.path.abspath(text)


def make_file(
    src: str, options: OpenOptions, dst: str, text: str, shared: dict[str, Any], threads: int = 0, progress: Report | None = None
) -> bool:
    """Makes the file that a text of :meth:`CoreDirectory.files` describes. ``shared``: the options of the whole conversion."""
    return Checkpoint(src, **options)._core.make_file(dst, text, threads=threads, progress=progress, **shared)


class Parts:
    """The files of a conversion, which processes make in any order: see :func:`parts`. It can be pickled."""

    def __init__(
        self, src: str, dst: str, shard_size: int, outputs: set[str] | None, code: bool, shared: dict[str, Any], options: OpenOptions
    ) -> None:
        self._arguments = (src, dst, shard_size, outputs, code, shared, options)
        directory = self._directory()
        described = directory.files()
        #: The names of all files, in the order of the checkpoint.
        self.names: list[str] = [name for name, _, _, _ in described]
        #: The bytes of the tensors of each file.
        self.nbytes: dict[str, int] = {name: nbytes for name, nbytes, _, _ in described}
        self._texts = {name: text for name, _, _, text in described}
        directory.prepare()

    def _directory(self) -> _core.CoreDirectory:
        src, dst, shard_size, outputs, code, shared, options = self._arguments
        return Checkpoint(src, **options)._core.output_directory(dst, shard_size, outputs, code=code, **shared)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<Parts {self._arguments[1]!r}: {len(self.names)} files>"

    def make(self, name: str, *, threads: int = 0, progress: Progress = None) -> bool:
        """Makes a file, whole or not at all. False if it is there already. Raises ``KeyError`` for another name, and what
        :func:`anamnesis.remember_to` raises.

            >>> parts = anamnesis.parts("fixtures/model/scribe-Q8_0.gguf", "made", shard_size=100_000)
            >>> parts.make(parts.names[0])
            True
        """
        src, dst, _, _, _, shared, options = self._arguments
        text = self._texts[name]
        with reporting(progress, name) as report:
            return make_file(src, options, dst, text, shared, threads, report)

    def complete(self) -> list[str]:
        """Writes the other files and, last, the index: readers find no checkpoint before. Returns the files of tensors. May be called by
        each process. Raises ``MissingPartError`` if a file is missing.

            >>> parts = anamnesis.parts("fixtures/model/scribe-Q8_0.gguf", "complete", shard_size=100_000)
            >>> all(parts.make(name) for name in parts.names)
            True
            >>> len(parts.complete()) == len(parts)
            True
        """
        return [fsdecode(file) for file in self._directory().complete()]


def parts(
    source: Path,
    out: Path,
    *,
    shard_size: int = 5_000_000_000,
    dtype: Any = "auto",
    cast: bool = False,
    naming: Naming | None = None,
    filter: Filter | None = None,
    exclude: Filter | None = None,
    native_rounding: bool = False,
    overwrite: bool = False,
    code: bool = False,
    untie: bool = False,
    **options: Unpack[OpenOptions],
) -> Parts:
    """The files of a directory that :func:`anamnesis.remember_to` would write, to be made by many processes or machines: each calls this
    with the same arguments, or gets the pickled result, and makes some of ``names``; then one, or each, calls ``complete``.

    ``shard_size``: bytes of tensors in a file. The directory must be on a file system that all processes see. Files that are complete are
    not made again. Raises what ``remember_to`` raises, before any file is made.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     parts = anamnesis.parts("fixtures/model/scribe-Q8_0.gguf", folder, shard_size=100_000)
        ...     made = [parts.make(name) for name in parts.names]
        ...     len(parts.complete()) == len(made)
        True
    """
    shard_size = shard_bytes(shard_size)
    src, dst, kind = shared_path(source), os.path.abspath(local(out, "processes write to")), dtype_name(dtype)
    if dst.endswith((".safetensors", ".gguf")):
        raise ValueError(f"{dst!r} has the name of a file: parts are the files of a directory")
    core = Checkpoint(src, **options)
    style = naming or core._core.client_names
    outputs = core._outputs(kind, cast, style, {"filter": filter, "exclude": exclude})
    shared: dict[str, Any] = {
        "dtype": kind, "cast": cast, "names": naming, "native_rounding": native_rounding, "overwrite": overwrite, "untie": untie,
    }  # fmt: skip
    return Parts(src, dst, shard_size, outputs.names, code, shared, options)
