"""Weights for programs that run models and load them tensor by tensor: vLLM and SGLang."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from glob import escape, glob
from typing import Any

from ._checkpoint import Checkpoint
from ._paths import is_url, shown
from .errors import UnsupportedError

# keys of `model_loader_extra_config`, with their types
OPTIONS: dict[str, type] = {"source": str, "dequantise": bool, "read_ahead": int, "loader": str}

# as the programs look for files: the first kind that a repository has
PATTERNS = ["*.safetensors", "*.bin", "*.pt"]

# files of trainers, which hold no weights
_NO_WEIGHTS = {"training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"}


def checked_options(given: Any) -> dict[str, Any]:
    """The options in ``model_loader_extra_config``. Raises ``ValueError`` for others, and for values of other types."""
    if not isinstance(given, dict):
        raise ValueError(f"model_loader_extra_config must be a dictionary for the load format anamnesis, not {type(given).__name__}")
    for name, value in given.items():
        expected = OPTIONS.get(name)
        if expected is None:
            raise ValueError(f"model_loader_extra_config: {name!r} is unknown to the load format anamnesis, which has {', '.join(OPTIONS)}")
        # a truth value is a number of Python
        if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
            raise ValueError(f"model_loader_extra_config: {name} must be of the type {expected.__name__}, not {value!r}")
    return dict(given)


def checkpoints(found: str, patterns: list[str] | None) -> list[Checkpoint]:
    """The checkpoint; or each of the files that a model names by patterns, which are the matches of the first pattern that has any;
    or, of a local directory with several checkpoints and no index, all files of the first kind that it has."""
    if patterns and is_url(found):
        raise ValueError(f"{shown(found)}: files by patterns ({', '.join(patterns)}), which the model reads, are found in a directory only")
    for pattern in patterns or ():
        files = sorted(glob(os.path.join(escape(found), pattern)))
        if files:
            return [Checkpoint(file, single=True) for file in files]
    if patterns:
        raise ValueError(f"{found!r} has no files {' or '.join(patterns)}, which the model reads")
    try:
        return [Checkpoint(found)]
    except UnsupportedError:
        files = _without_index(found)
        if not files:
            raise
        return [Checkpoint(file, single=True) for file in files]


def _without_index(found: str) -> list[str]:
    """The files of the first kind in a local directory; none where an index names the files of a checkpoint."""
    if is_url(found) or glob(os.path.join(escape(found), "*.index.json")):
        return []
    for pattern in PATTERNS:
        files = sorted(glob(os.path.join(escape(found), pattern)))
        files = [file for file in files if os.path.basename(file) not in _NO_WEIGHTS]
        if files:
            return files
    return []


def weights(
    checkpoint: Checkpoint, options: dict[str, Any], dtype: Any, unused: Callable[[str], bool] | None = None
) -> Iterator[tuple[str, Any]]:
    """Names and tensors, one by one: no more than ``read_ahead`` bytes are read ahead, and nothing keeps a tensor. Those that are
    ``unused`` are neither read nor made."""
    if options.get("dequantise"):
        from ._weights import Weights

        # the dtype of the model, which the program has chosen
        for name, weight in Weights(checkpoint, dtype=str(dtype).removeprefix("torch.")).items():
            if unused is None or not unused(name):
                yield name, weight[...]
        return
    if checkpoint.format == "gguf":
        raise ValueError(f"{checkpoint.path!r}: models take the weights of a GGUF with the option dequantise")
    names = [name for name in checkpoint if unused is None or not unused(name)]
    if not names:
        return
    settings = {name: options[name] for name in ("read_ahead", "loader") if name in options}
    with checkpoint.stream("torch", names=None if len(names) == len(checkpoint) else names, **settings) as stream:
        yield from stream
