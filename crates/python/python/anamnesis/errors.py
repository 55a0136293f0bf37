"""The exceptions of this package. Failures of the system are ``OSError``, invalid arguments ``ValueError``, unknown names
``KeyError``, and a pool without room ``MemoryError``.
"""

from __future__ import annotations


class AnamnesisError(Exception):
    """A file that cannot be read, or not as requested.

    ``path``, ``format`` and ``offset`` (in bytes) say where, as far as they are known; ``remedy`` what can be done.
    """

    def __init__(
        self,
        message: str,
        path: str | None = None,
        format: str | None = None,
        offset: int | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.path = path
        self.format = format
        self.offset = offset
        self.remedy = remedy


class UnknownFormatError(AnamnesisError):
    """The first bytes belong to no supported format."""


class MalformedError(AnamnesisError):
    """The file breaks the rules of its format."""


class UnsupportedError(AnamnesisError):
    """The file may be valid, but what it holds is not supported."""


class UnexplainedError(UnsupportedError):
    """The files say something about stored weights that is not known, so that weights that were made without it could be wrong.

    ``assume="plain"`` ignores it.
    """


class MissingPartError(AnamnesisError):
    """A file of a sharded or split checkpoint is absent."""


class ReplacedError(AnamnesisError):
    """Another process has replaced the checkpoint while it was read; opening it again finds one of the two, whole."""


class LimitError(AnamnesisError):
    """Reading the file would cost more than a limit allows: ``what`` needs ``needed``, and ``limit`` is ``allowed``."""

    def __init__(
        self,
        message: str,
        path: str | None = None,
        format: str | None = None,
        offset: int | None = None,
        remedy: str | None = None,
        *,
        what: str = "",
        needed: int = 0,
        allowed: int = 0,
        limit: str = "",
    ) -> None:
        super().__init__(message, path, format, offset, remedy)
        self.what = what
        self.needed = needed
        self.allowed = allowed
        self.limit = limit


class RefusedGlobalError(AnamnesisError):
    """A pickle names the global ``module.name``, which is no plain data. Nothing of it was run."""

    def __init__(
        self,
        message: str,
        path: str | None = None,
        format: str | None = None,
        offset: int | None = None,
        remedy: str | None = None,
        *,
        module: str = "",
        name: str = "",
    ) -> None:
        super().__init__(message, path, format, offset, remedy)
        self.module = module
        self.name = name


# by the kind that documents and the library have for an error
_CLASSES: dict[str, type[Exception]] = {
    "unknown_format": UnknownFormatError,
    "malformed": MalformedError,
    "unsupported": UnsupportedError,
    "unexplained": UnexplainedError,
    "limit": LimitError,
    "refused_global": RefusedGlobalError,
    "missing_part": MissingPartError,
    "replaced": ReplacedError,
    "invalid_argument": ValueError,
    "no_match": ValueError,
}


def class_of(kind: str) -> type[Exception]:
    """The class of the exceptions for a kind of error; of a kind that is not known here, the base class."""
    return _CLASSES.get(kind, AnamnesisError)
