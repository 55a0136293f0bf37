"""The exception of the ``safetensors`` package: its own class where the package is installed, so that programs that catch it need not
change."""

from __future__ import annotations

from contextlib import contextmanager

from ..errors import AnamnesisError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    class SafetensorError(Exception):
        """A file, an index or an argument that safetensors refuses."""

else:
    try:
        from safetensors import SafetensorError
    except ImportError:

        class SafetensorError(Exception):
            """A file, an index or an argument that safetensors refuses."""


_classes: dict[type[AnamnesisError], type[AnamnesisError]] = {}


def _both(kind: type[AnamnesisError]) -> type[AnamnesisError]:
    """The class that is an exception of this package and of safetensors; one for all errors of a kind."""
    if kind not in _classes:
        _classes[kind] = type(kind.__name__, (kind, SafetensorError), {"__doc__": kind.__doc__, "__module__": kind.__module__})
    return _classes[kind]


@contextmanager
def raising() -> Iterator[None]:
    """Raises exceptions of this package as exceptions of safetensors too: with path, offset and remedy."""
    try:
        yield
    except AnamnesisError as error:
        if isinstance(error, SafetensorError):
            raise
        kind = _both(type(error))
        both = kind.__new__(kind, *error.args)
        both.__dict__.update(error.__dict__)
        raise both.with_traceback(error.__traceback__) from error.__cause__
