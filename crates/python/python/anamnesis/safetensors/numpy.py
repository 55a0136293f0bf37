"""The functions of ``safetensors.numpy``; reading is for every format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import TensorSpec, deserialize, load_file_for, load_for, safe_open, serialize, serialize_file

__all__ = ["TensorSpec", "deserialize", "load", "load_file", "safe_open", "save", "save_file", "serialize", "serialize_file"]

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._checkpoint import Path

    Arrays = Mapping[str, np.ndarray[Any, Any]]


def _contiguous(tensors: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays whose memory is what a file has: in C order, little endian. They are kept until they are written."""
    made = {}
    for name, array in tensors.items():
        if not isinstance(array, np.ndarray | np.generic):
            raise ValueError(f"Key `{name}` is invalid, expected np.ndarray but received {type(array)}")
        # numpy gives an array without axes one axis here
        made[name] = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    return made


def _specs(arrays: dict[str, np.ndarray[Any, Any]]) -> dict[str, TensorSpec]:
    return {
        name: TensorSpec(dtype=array.dtype.name, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, array in arrays.items()
    }


def save(tensor_dict: Arrays, metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file with these arrays, by name. Raises ``SafetensorError`` for a dtype that the format does not
    have.

        >>> import numpy as np
        >>> from anamnesis.safetensors.numpy import load, save
        >>> load(save({"a": np.arange(3)}))["a"].tolist()
        [0, 1, 2]
    """
    arrays = _contiguous(tensor_dict)
    return serialize(_specs(arrays), metadata)


def save_file(tensor_dict: Arrays, filename: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file with these arrays, by name. A file that exists is replaced when the new one is complete.

        >>> import numpy as np
        >>> from anamnesis.safetensors.numpy import load_file, save_file
        >>> save_file({"a": np.arange(3)}, "a.safetensors", metadata={"format": "np"})
        >>> load_file("a.safetensors")["a"].tolist()
        [0, 1, 2]
    """
    arrays = _contiguous(tensor_dict)
    serialize_file(_specs(arrays), filename, metadata)


def load_file(filename: Path, *, backend: str = "mmap") -> dict[str, Any]:
    """The tensors of a file as arrays.

        >>> from anamnesis.safetensors.numpy import load_file
        >>> load_file("fixtures/model/scribe-Q8_0.gguf")["blk.0.attn_norm.weight"].shape
        (64,)
    """
    return load_file_for("numpy", filename, backend=backend)


def load(data: bytes) -> dict[str, Any]:
    """The tensors in the bytes of a file as arrays.

        >>> from anamnesis.safetensors.numpy import load
        >>> with open("fixtures/model/scribe-Q8_0.gguf", "rb") as file:
        ...     load(file.read())["blk.0.attn_norm.weight"].shape
        (64,)
    """
    return load_for("numpy", data)
