"""The reading interface of the ``safetensors`` package, for every format: ``from anamnesis.safetensors import safe_open``, and
``load_file`` and ``load`` in ``anamnesis.safetensors.torch``, ``numpy``, ``flax`` and ``mlx``."""

from __future__ import annotations

from functools import partial
from os import fsdecode

from .._checkpoint import Checkpoint
from ..errors import AnamnesisError
from ._slices import checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._checkpoint import Path
    from .._tensor import Tensor

# the exception for a file that cannot be read
SafetensorError = AnamnesisError

_FRAMEWORKS = {
    "pt": "torch", "torch": "torch", "pytorch": "torch", "np": "numpy", "numpy": "numpy",
    "jax": "jax", "flax": "jax", "mlx": "mlx",
}  # fmt: skip


def mapped(backend: str) -> bool:
    """Whether files are mapped."""
    if backend not in ("mmap", "pread"):
        raise ValueError(f"backend {backend!r}: mmap or pread")
    return backend == "mmap"


class PySafeSlice:
    """A tensor of which ranges are read: ``safe_open(…).get_slice(name)[2:4]``."""

    def __init__(self, tensor: Tensor, framework: str, device: Any) -> None:
        self._tensor, self._framework, self._device = tensor, framework, device

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        """The elements that ``index`` selects. Unlike a :class:`~anamnesis.Tensor`, a range must end within its axis."""
        return self._tensor.to(self._framework, checked(index, self._tensor.shape), self._device)


class safe_open:  # noqa: N801  the safetensors package gave the name
    """Opens a checkpoint for reading tensor by tensor."""

    def __init__(self, filename: Path, framework: str, device: Any = "cpu", *, backend: str = "mmap") -> None:
        if framework not in _FRAMEWORKS:
            raise ValueError(f"framework {framework!r}: it must be one of {', '.join(_FRAMEWORKS)}")
        self._framework = _FRAMEWORKS[framework]
        self._device = device if self._framework == "torch" else None
        mmap = mapped(backend)
        try:
            self._checkpoint: Checkpoint | None = Checkpoint(filename, mmap=mmap)
        except FileNotFoundError as e:
            # clients compare the text of the safetensors package
            missing = FileNotFoundError(f"No such file or directory: {fsdecode(filename)}")
            missing.errno = e.errno
            raise missing from None

    @property
    def _open(self) -> Checkpoint:
        if self._checkpoint is None:
            raise SafetensorError("the file is closed")
        return self._checkpoint

    def __enter__(self) -> safe_open:
        self._open
        return self

    def __exit__(self, *_: object) -> None:
        self._checkpoint = None

    def keys(self) -> list[str]:
        return sorted(self._open)

    def offset_keys(self) -> list[str]:
        """The names in the order of the file."""
        return list(self._open)

    def metadata(self) -> dict[str, str] | None:
        found = dict(self._open.metadata)
        return found or None

    def get_tensor(self, name: str) -> Any:
        return self._open[name].to(self._framework, device=self._device)

    def get_tensors(self, names: list[str] | None = None) -> dict[str, Any]:
        """All tensors, or the named ones."""
        return self._open.load(self._framework, filter=names, device=self._device)

    def get_slice(self, name: str) -> PySafeSlice:
        return PySafeSlice(self._open[name], self._framework, self._device)


def load_file_for(framework: str, filename: Path, *, backend: str = "mmap", device: Any = None) -> dict[str, Any]:
    """The tensors of a file."""
    return dict(Checkpoint(filename, mmap=mapped(backend)).load(framework, device=device))


def load_for(framework: str, data: bytes) -> dict[str, Any]:
    """The tensors in the bytes of a file."""
    return dict(Checkpoint(data).load(framework))


def load_file(filename: Path, device: Any = "cpu", *, backend: str = "mmap") -> dict[str, Any]:
    """The tensors of a file, for PyTorch."""
    return load_file_for("torch", filename, backend=backend, device=device)


load = partial(load_for, "torch")
