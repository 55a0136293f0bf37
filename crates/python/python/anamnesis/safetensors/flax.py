"""``load_file`` and ``load`` as in ``safetensors.flax``, for every format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._checkpoint import Checkpoint
from . import mapped

if TYPE_CHECKING:
    from .._checkpoint import Path


def load_file(filename: Path, *, backend: str = "mmap") -> dict[str, Any]:
    """The tensors of a file, for JAX."""
    return dict(Checkpoint(filename, mmap=mapped(backend)).load("jax"))


def load(data: bytes) -> dict[str, Any]:
    """The tensors in the bytes of a file, for JAX."""
    return dict(Checkpoint(data).load("jax"))
