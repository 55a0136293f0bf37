"""The load format ``anamnesis`` of vLLM: ``vllm serve MODEL --load-format anamnesis``. vLLM finds it by the entry point
``vllm.general_plugins``, and calls :func:`register` in each of its processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from glob import escape, glob
from typing import Any

from ._checkpoint import Checkpoint
from ._paths import is_url, shown

# keys of `model_loader_extra_config`, with their types
OPTIONS: dict[str, type] = {"source": str, "dequantise": bool, "read_ahead": int, "loader": str}

# as vLLM's own loader looks for files: the first kind that a repository has
_PATTERNS = ["*.safetensors", "*.bin", "*.pt"]


def register() -> None:
    """Registers the load format. May be called again."""
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    class AnamnesisModelLoader(BaseModelLoader):  # type: ignore[misc]
        """Loads weights one by one. ``model_loader_extra_config`` has the keys ``source``, ``dequantise``, ``read_ahead`` and
        ``loader``: ``docs/python.md`` describes them."""

        def __init__(self, load_config: Any) -> None:
            super().__init__(load_config)
            self.options = checked_options(load_config.model_loader_extra_config)

        def download_model(self, model_config: Any) -> None:
            if "source" not in self.options:
                folder(model_config.model, model_config.revision, load_config=self.load_config)

        def load_weights(self, model: Any, model_config: Any) -> None:
            loaded = model.load_weights(self._all_weights(model, model_config))
            # vLLM's own loader checks under the same condition: else parameters would keep what memory held
            if loaded is not None and model_config.quantization is None:
                missing = needed(model) - set(loaded)
                if missing:
                    raise ValueError(f"the checkpoint has no weights for {', '.join(sorted(missing))}")

        def _all_weights(self, model: Any, model_config: Any) -> Iterator[tuple[str, Any]]:
            is_unused = getattr(model, "is_unused_checkpoint_weight", None)
            if "source" in self.options:
                main = [self.options["source"]]
            else:
                patterns = getattr(model, "allow_patterns_overrides", None)
                found = folder(model_config.model, model_config.revision, patterns, load_config=self.load_config)
                main = paths(found, patterns)
            for path in main:
                for name, weight in weights(path, self.options, model_config.dtype):
                    if is_unused is None or not is_unused(name):
                        yield name, weight
            # for models that consist of several checkpoints
            for part in getattr(model, "secondary_weights", ()):
                patterns = part.allow_patterns_overrides
                found = folder(part.model_or_path, part.revision, patterns, part.subfolder, load_config=self.load_config)
                for path in paths(found, patterns):
                    for name, weight in weights(path, self.options, model_config.dtype):
                        yield part.prefix + name, weight

    register_model_loader("anamnesis")(AnamnesisModelLoader)


def needed(model: Any) -> set[str]:
    """The parameters that a checkpoint must have: all but the parameters of layers that make some themselves, after loading
    or while they quantise."""
    made: set[str] = set()
    for prefix, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if getattr(method, "uses_meta_device", False) or hasattr(method, "process_weights_after_loading"):
            made.update(f"{prefix}.{name}" if prefix else name for name, _ in module.named_parameters())
    return {name for name, _ in model.named_parameters()} - made


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


def folder(
    model: str, revision: str | None, patterns: list[str] | None = None, subfolder: str | None = None, *, load_config: Any
) -> str:
    """A local path and a URL as they are; of a model's name its directory in the hub's cache, where vLLM downloads it if it is not offline."""
    found = model
    if not is_url(model) and not os.path.exists(model):
        from vllm.model_executor.model_loader.weight_utils import download_weights_from_hf

        found = download_weights_from_hf(
            model,
            load_config.download_dir,
            list(patterns or _PATTERNS),
            revision,
            subfolder=subfolder,
            ignore_patterns=load_config.ignore_patterns,
        )
    return found if subfolder is None else os.path.join(found, subfolder)


def paths(found: str, patterns: list[str] | None) -> list[str]:
    """The checkpoint, or each of its files that a model names by patterns: the matches of the first pattern that has any."""
    if patterns and is_url(found):
        raise ValueError(f"{shown(found)}: files by patterns ({', '.join(patterns)}), which the model reads, are found in a directory only")
    for pattern in patterns or ():
        files = sorted(glob(os.path.join(escape(found), pattern)))
        if files:
            return files
    if patterns:
        raise ValueError(f"{found!r} has no files {' or '.join(patterns)}, which the model reads")
    return [found]


def weights(path: str, options: dict[str, Any], dtype: Any) -> Iterator[tuple[str, Any]]:
    """Names and tensors, one by one: no more than ``read_ahead`` bytes are read ahead, and nothing keeps a tensor."""
    checkpoint = Checkpoint(path)
    if options.get("dequantise"):
        from ._weights import Weights

        # the dtype of the model, which vLLM has chosen
        for name, weight in Weights(checkpoint, dtype=str(dtype).removeprefix("torch.")).items():
            yield name, weight[...]
        return
    if checkpoint.format == "gguf":
        raise ValueError(f"{path!r}: models of vLLM take the weights of a GGUF with the option dequantise")
    settings = {name: options[name] for name in ("read_ahead", "loader") if name in options}
    with checkpoint.stream("torch", **settings) as stream:
        yield from stream
