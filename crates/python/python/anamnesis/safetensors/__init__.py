"""The interface of the ``safetensors`` package (0.8): ``from anamnesis.safetensors import safe_open``, and ``load_file``, ``save_file``
and the like in ``anamnesis.safetensors.torch``, ``numpy``, ``flax`` and ``mlx``. Every format is read; safetensors are written."""

from __future__ import annotations

from os import fsdecode

from .. import _core
from .._checkpoint import Checkpoint
from ._errors import SafetensorError, raising
from ._serialize import TensorSpec, deserialize, serialize, serialize_file
from ._slices import by_ranges, by_torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._checkpoint import Path
    from .._options import Framework
    from .._tensor import Tensor

__version__ = _core.__version__

__all__ = [
    "PySafeSlice",
    "SafetensorError",
    "TensorSpec",
    "deserialize",
    "load",
    "load_file",
    "safe_open",
    "serialize",
    "serialize_file",
]

_FRAMEWORKS: dict[str, Framework] = {
    "pt": "torch", "torch": "torch", "pytorch": "torch", "np": "numpy", "numpy": "numpy",
    "jax": "jax", "flax": "jax", "mlx": "mlx",
}  # fmt: skip


def mapped(backend: str) -> bool:
    """Whether files are mapped."""
    if backend not in ("mmap", "pread"):
        raise SafetensorError(f'backend {backend!r} is invalid (expected one of: "mmap", "pread")')
    return backend == "mmap"


class PySafeSlice:
    """A tensor of which ranges are read: ``safe_open(…).get_slice(name)[2:4]``."""

    def __init__(self, tensor: Tensor, framework: Framework, device: Any, mmap: bool = True) -> None:
        self._tensor, self._framework, self._device, self._mmap = tensor, framework, device, mmap

    def get_shape(self) -> list[int]:
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        return self._tensor.dtype

    def __getitem__(self, index: Any) -> Any:
        """The elements that ``index`` selects, by the rules that safetensors has for the framework: PyTorch's own with
        ``backend="mmap"``; otherwise numbers, ranges and an ellipsis, and a range must end within its axis."""
        if self._framework == "torch" and self._mmap:
            return by_torch(self._tensor, index, self._device)
        return by_ranges(self._tensor, self._framework, index, self._device)


class safe_open:  # noqa: N801  the safetensors package gave the name
    """Opens a checkpoint for reading tensor by tensor.

    ``framework``: ``pt``, ``np``, ``flax`` or ``mlx``. ``device``: of PyTorch. ``backend``: ``mmap``, or ``pread``, whose tensors have
    memory of their own. Raises ``SafetensorError``, and ``FileNotFoundError``.
    """

    def __init__(self, filename: Path, framework: str, device: Any = "cpu", *, backend: str = "mmap") -> None:
        if framework not in _FRAMEWORKS:
            raise SafetensorError(f"framework {framework} is invalid: one of {', '.join(_FRAMEWORKS)}")
        self._framework = _FRAMEWORKS[framework]
        if self._framework != "torch" and device is not None and str(device) != "cpu":
            raise SafetensorError(f"Device {device} is not supported for framework {framework}")
        self._device = None if device is None or str(device) == "cpu" else device
        self._mmap = mapped(backend)
        try:
            with raising():
                self._checkpoint: Checkpoint | None = Checkpoint(filename, mmap=self._mmap)
        except FileNotFoundError as e:
            # clients compare the text of the safetensors package
            missing = FileNotFoundError(f"No such file or directory: {fsdecode(filename)}")
            missing.errno = e.errno
            raise missing from None

    @property
    def _open(self) -> Checkpoint:
        if self._checkpoint is None:
            raise SafetensorError("File is closed")
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
        # the package tells a header without keys from none
        return found if found or self._open._core.has_empty_metadata else None

    def _tensor(self, name: str) -> Tensor:
        checkpoint = self._open
        if name not in checkpoint:
            raise SafetensorError(f"File does not contain tensor {name}")
        return checkpoint[name]

    def get_tensor(self, name: str) -> Any:
        tensor = self._tensor(name)
        with raising():
            return tensor.to(self._framework, device=self._device)

    def get_tensors(self, names: list[str] | None = None) -> dict[str, Any]:
        """All tensors, or the named ones."""
        for name in names or ():
            self._tensor(name)
        with raising():
            return dict(self._open.load(self._framework, names=names, device=self._device))

    def get_slice(self, name: str) -> PySafeSlice:
        return PySafeSlice(self._tensor(name), self._framework, self._device, self._mmap)


class _safe_open_handle(safe_open):  # noqa: N801  the safetensors package gave the name
    """As :class:`safe_open`, for an open file that has a name."""

    def __init__(self, f: Any, framework: str, device: Any = "cpu", *, backend: str = "mmap") -> None:
        f.fileno  # noqa: B018  a file of the system
        super().__init__(f.name, framework, device, backend=backend)


def load_file_for(framework: Framework, filename: Path, *, backend: str = "mmap", device: Any = None) -> dict[str, Any]:
    """The tensors of a file."""
    with safe_open(filename, framework, device, backend=backend) as f:
        return f.get_tensors()


def load_for(framework: Framework, data: bytes) -> dict[str, Any]:
    """The tensors in the bytes of a file."""
    with raising():
        return dict(Checkpoint(data).load(framework))


def load_file(filename: Path, device: Any = "cpu", *, backend: str = "mmap") -> dict[str, Any]:
    """The tensors of a file, for PyTorch.

        >>> import anamnesis.safetensors
        >>> anamnesis.safetensors.load_file("fixtures/model/scribe-Q8_0.gguf")["blk.0.attn_norm.weight"].shape
        torch.Size([64])
    """
    return load_file_for("torch", filename, backend=backend, device=device)


def load(data: bytes) -> dict[str, Any]:
    """The tensors in the bytes of a file, for PyTorch.

        >>> import anamnesis.safetensors
        >>> with open("fixtures/model/scribe-Q8_0.gguf", "rb") as file:
        ...     anamnesis.safetensors.load(file.read())["blk.0.attn_norm.weight"].shape
        torch.Size([64])
    """
    return load_for("torch", data)
