"""The functions of ``safetensors.flax``; reading is for every format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import load_file_for, load_for, numpy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._checkpoint import Path


def _arrays(tensors: Mapping[str, Any]) -> dict[str, Any]:
    import numpy as np

    return {name: np.asarray(array) for name, array in tensors.items()}


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file with these arrays, by name."""
    return numpy.save(_arrays(tensors), metadata)


def save_file(tensors: Mapping[str, Any], filename: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file with these arrays, by name. A file that exists is replaced when the new one is complete."""
    numpy.save_file(_arrays(tensors), filename, metadata)


def load_file(filename: Path, *, backend: str = "mmap") -> dict[str, Any]:
    """The tensors of a file as arrays of JAX."""
    return load_file_for("jax", filename, backend=backend)


def load(data: bytes) -> dict[str, Any]:
    """The tensors in the bytes of a file as arrays of JAX."""
    return load_for("jax", data)
