"""Tensor files: list, load, slice and dequantise safetensors, GGUF, NPY, NPZ and PyTorch files.

    >>> import anamnesis
    >>> checkpoint = anamnesis.open("model.gguf")                       # headers only
    >>> checkpoint["token_embd.weight"].shape
    >>> tensors = checkpoint.load("pt")                                 # stored tensors, for PyTorch
    >>> weights = checkpoint.remember("pt", dtype="bfloat16")           # dequantised

The frameworks are imported when tensors of theirs are requested.
"""

from __future__ import annotations

from ._checkpoint import Checkpoint, Loaded, Plan, Stream, Summary
from ._core import __version__, trim
from ._functions import inspect, load, load_file, open, plan, remember
from ._tensor import Tensor
from .errors import (
    AnamnesisError,
    LimitError,
    MalformedError,
    MissingPartError,
    RefusedGlobalError,
    UnexplainedError,
    UnknownFormatError,
    UnsupportedError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._template import Coverage, Group, Template, predict


# templates are imported when they are used, as they need `typing`
def __getattr__(name: str) -> Any:
    if name in ("Coverage", "Group", "Template", "predict"):
        from . import _template

        return getattr(_template, name)
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
    "Plan",
    "RefusedGlobalError",
    "Stream",
    "Summary",
    "Template",
    "Tensor",
    "UnexplainedError",
    "UnknownFormatError",
    "UnsupportedError",
    "__version__",
    "inspect",
    "load",
    "load_file",
    "open",
    "plan",
    "predict",
    "remember",
    "trim",
]
