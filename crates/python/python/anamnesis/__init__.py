"""Tensor files: list, load, slice and dequantise safetensors, GGUF, NPY, NPZ and PyTorch files.

    >>> import anamnesis
    >>> checkpoint = anamnesis.open("model.gguf")                       # headers only
    >>> checkpoint["token_embd.weight"].shape
    >>> tensors = checkpoint.load("pt")                                 # stored tensors, for PyTorch
    >>> weights = checkpoint.remember("pt", dtype="bfloat16")           # dequantised

The frameworks are imported when tensors of theirs are requested.
"""

from __future__ import annotations

from ._checkpoint import Checkpoint
from ._core import __version__, trim
from ._functions import edit, inspect, load, load_file, open, plan, remember, remember_to
from ._results import Loaded, Plan, Stream, Summary
from ._tensor import Tensor
from .errors import (
    AnamnesisError,
    LimitError,
    MalformedError,
    MissingPartError,
    RefusedGlobalError,
    ReplacedError,
    UnexplainedError,
    UnknownFormatError,
    UnsupportedError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from . import comfyui, diffusers, documents, numpy, ray, safetensors, sglang, torch, transformers, vllm
    from ._answers import check, diff, digest, fit, report, warm
    from ._convert import convert
    from ._list import ModelEntry, ls
    from ._parts import Parts, parts
    from ._template import Coverage, Group, Template, predict
    from ._writer import TensorWriter

# modules that are imported when they are used
_LATER = {
    "Coverage": "_template",
    "Group": "_template",
    "ModelEntry": "_list",
    "Template": "_template",
    "ls": "_list",
    "predict": "_template",
    "TensorWriter": "_writer",
    "convert": "_convert",
    "check": "_answers",
    "diff": "_answers",
    "digest": "_answers",
    "fit": "_answers",
    "report": "_answers",
    "warm": "_answers",
    "Parts": "_parts",
    "parts": "_parts",
}
_MODULES = ("comfyui", "diffusers", "documents", "numpy", "ray", "safetensors", "sglang", "torch", "transformers", "vllm")


def __getattr__(name: str) -> Any:
    if name in _LATER or name in _MODULES:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AnamnesisError",
    "Checkpoint",
    "Coverage",
    "Group",
    "LimitError",
    "Loaded",
    "MalformedError",
    "MissingPartError",
    "ModelEntry",
    "Parts",
    "Plan",
    "RefusedGlobalError",
    "ReplacedError",
    "Stream",
    "Summary",
    "Template",
    "Tensor",
    "TensorWriter",
    "UnexplainedError",
    "UnknownFormatError",
    "UnsupportedError",
    "__version__",
    "check",
    "convert",
    "diff",
    "digest",
    "edit",
    "fit",
    "inspect",
    "load",
    "load_file",
    "ls",
    "open",
    "parts",
    "plan",
    "predict",
    "remember",
    "remember_to",
    "report",
    "trim",
    "warm",
]


def __dir__() -> list[str]:
    # modules of frameworks, which need not be installed, are not for `import *`
    return [*__all__, *_MODULES]
