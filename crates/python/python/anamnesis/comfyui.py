"""Loading for ComfyUI: :func:`install` replaces ``comfy.utils.load_torch_file``, with which ComfyUI and its custom nodes read models.

A custom node of one line, ``custom_nodes/anamnesis_loader.py``: ``import anamnesis.comfyui; anamnesis.comfyui.install()``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from . import safetensors
from ._checkpoint import Checkpoint
from ._replace import Replaced, Replacements


def _reader(original: Any) -> Any:
    def load_torch_file(ckpt: Any, safe_load: bool = False, device: Any = None, return_metadata: bool = False) -> Any:
        import comfy.utils

        path = os.fspath(ckpt)
        metadata = None
        if path.lower().endswith((".safetensors", ".sft")):
            if _has_offloader():
                # which reads weights again from the file that it has mapped itself
                return original(ckpt, safe_load, device, return_metadata)
            checkpoint = Checkpoint(path, single=True)
            tensors = dict(checkpoint.load("torch", device=device, borrow=False if comfy.utils.DISABLE_MMAP else "auto"))
            if return_metadata:
                with safetensors.safe_open(path, "pt") as file:
                    metadata = file.metadata()
        elif path.lower().endswith(".gguf"):
            tensors = dict(Checkpoint(path).remember("torch"))
            if device is not None:
                tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
        else:
            tensors = _of_pytorch(path, device, comfy.utils.MMAP_TORCH_FILES)
        _annotate(tensors, path)
        return (tensors, metadata) if return_metadata else tensors

    return load_torch_file


def _has_offloader() -> bool:
    """Whether ComfyUI's offloader maps files. Versions before it have no such module."""
    try:
        from comfy import memory_management
    except ImportError:
        return False
    return bool(getattr(memory_management, "aimdo_enabled", False))


def _annotate(tensors: dict[str, Any], path: str) -> None:
    """Notes the file of each tensor, for ComfyUI's choice of where to offload it. Earlier versions have no such module."""
    try:
        from comfy.storage import annotate_state_dict
    except ImportError:
        return
    annotate_state_dict(tensors, path)


def _of_pytorch(path: str, device: Any, mmap: bool) -> Any:
    """The weights of a file of PyTorch: the value of ``state_dict``, or a dictionary that is alone in another one."""
    from . import torch

    # trainers store objects beside the weights, which nothing here reads
    loaded = torch.load(path, device, mmap=mmap, opaque=True)
    found = loaded
    if "state_dict" in loaded:
        found = loaded["state_dict"]
    elif len(loaded) == 1:
        (only,) = loaded.values()
        found = only if isinstance(only, dict) else loaded
    if any(isinstance(value, torch.OpaqueObject | torch.RefusedValue) for value in (found, *found.values())):
        # raises the error that names it
        torch.load(path, device, mmap=mmap)
    return found


# read in ComfyUI 0.38
_REPLACEMENTS = Replacements(
    "comfy", [Replaced("comfy.utils", "load_torch_file", _reader, ("ckpt", "safe_load", "device", "return_metadata"))]
)


@contextmanager
def loading() -> Iterator[None]:
    """While it is entered, ``comfy.utils.load_torch_file`` reads files through this package, as :func:`install` says. The last one of
    nested contexts, and of all threads, restores ComfyUI's function."""
    with _REPLACEMENTS:
        yield


def install() -> None:
    """``comfy.utils.load_torch_file`` reads files through this package from now on, in the whole process. May be called again.

    The same weights are returned, also of a file of a trainer with objects of unknown classes, which are not made; a GGUF, which
    ComfyUI does not read, is dequantised, by the names that it has. Safetensors files are left to ComfyUI while its offloader
    (``comfy-aimdo``) is on, which maps them itself. A node that has copied the function before keeps ComfyUI's. Raises
    ``ImportError``, and replaces nothing, if ComfyUI has no such function or calls it otherwise.
    """
    _install()


@cache
def _install() -> None:
    _REPLACEMENTS.__enter__()
