"""Numbers that callers give."""

from __future__ import annotations

from operator import index

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def whole_bytes(keyword: str, count: Any) -> int:
    """A number of bytes. Raises ``TypeError`` for what is no whole number, such as a text of the command's (``"5GB"``)."""
    if not isinstance(count, bool):
        try:
            return index(count)
        except TypeError:
            pass
    raise TypeError(f"{keyword}: a whole number of bytes, not {count!r}")


def shard_bytes(shard_size: Any) -> int:
    """The bytes of a shard. Raises ``TypeError`` as :func:`whole_bytes`, and ``ValueError`` for a number in which no tensor fits."""
    count = whole_bytes("shard_size", shard_size)
    if count < 1:
        raise ValueError(f"shard_size: {count} bytes hold no tensor")
    return count
