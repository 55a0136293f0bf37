"""Paths and URLs: which of the two a caller's path is, and where only one of them is of use."""

from __future__ import annotations

from os import fsdecode

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._checkpoint import Path


def is_url(path: Path) -> bool:
    """Whether a path is the text of a URL that is opened. Raises ``ValueError`` for one that has lost a slash, as those that
    ``pathlib`` has read, and for another scheme."""
    return _core.is_url(fsdecode(path))


def local(path: Path, what: str) -> str:
    """The text of a path of this machine. Raises ``ValueError`` for a URL: ``what`` names what would be done with it."""
    text = fsdecode(path)
    if is_url(text):
        raise ValueError(f"{shown(text)}: {what} a path of this machine, and not a URL")
    return text


def shown(url: str) -> str:
    """A URL without what may be a secret."""
    return _core.shown_path(url)
