"""Loading for transformers: :func:`loading`, under which its own ``from_pretrained`` reads files through this package, and
:func:`from_pretrained` for checkpoints that it does not read by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from . import safetensors
from ._checkpoint import Checkpoint
from ._replace import Replaced, Replacements

if TYPE_CHECKING:
    from ._checkpoint import Path
    from ._weights import Weights


def _state_dict_reader(original: Any) -> Any:
    def load_state_dict(
        checkpoint_file: Path, map_location: Any = "cpu", weights_only: bool = True, disable_mmap: bool | None = None
    ) -> Any:
        from . import torch

        path = os.fspath(checkpoint_file)
        if path.endswith(".safetensors"):
            # it calls `safe_open`, which is replaced
            return original(checkpoint_file, map_location, weights_only, disable_mmap)
        return torch.load(path, map_location, mmap=False if disable_mmap else None, weights_only=weights_only)

    return load_state_dict


_PARAMETERS = ("checkpoint_file", "map_location", "weights_only", "disable_mmap")

# read in transformers 5.23
_REPLACEMENTS = Replacements(
    "transformers",
    [
        Replaced("transformers.modeling_utils", "safe_open", lambda _: safetensors.safe_open),
        # the files that are not mapped
        Replaced("transformers.modeling_utils", "_safe_load_bytes", lambda _: safetensors.load),
        Replaced("transformers.modeling_utils", "load_state_dict", _state_dict_reader, _PARAMETERS),
        # heads that predict several tokens
        Replaced("transformers.modeling_layers", "safe_open", lambda _: safetensors.safe_open),
        # weights that are kept on a disk
        Replaced("transformers.integrations.accelerate", "safe_open", lambda _: safetensors.safe_open),
    ],
)


@contextmanager
def loading() -> Iterator[None]:
    """While it is entered, ``from_pretrained`` of transformers reads ``.safetensors`` and ``.bin`` files through this package.

    It replaces functions that transformers calls, for all threads of the process, and the last one that leaves restores them;
    contexts may be nested. Raises ``ImportError``, and replaces nothing, if the installed version has not the functions.
    """
    with _REPLACEMENTS:
        yield


def from_pretrained(
    cls: Any,
    path: Path,
    *,
    dtype: Any = "auto",
    config: Any = None,
    strip_prefix: str | None = None,
    trust_remote_code: bool = False,
    **kwargs: Any,
) -> Any:
    """``cls.from_pretrained`` for every checkpoint that this package opens: ``cls`` is a class of transformers, such as
    ``AutoModelForCausalLM`` or ``LlamaForCausalLM``.

    Weights are dequantised to ``dtype``: ``"auto"`` (the checkpoint's), or bfloat16, float16 or float32, as a name or as
    PyTorch's. They have the names of transformers and are made one at a time, as the model takes them. The configuration
    comes from the checkpoint's directory, without quantisation, or is made of the metadata of a GGUF; ``config`` replaces
    it, for files without one. ``strip_prefix``: only weights whose names begin so, without it: ``state_dict.model.`` of a checkpoint of
    Lightning. The other arguments go to ``cls.from_pretrained``, which reports missing and unexpected weights as always.

    For a GGUF with a known architecture, ``cls`` may also be ``AutoConfig``, ``AutoTokenizer`` or another class that reads a
    directory. Raises ``ValueError`` where there is no configuration, or where the model takes none of the weights, or fewer than it would
    take under a prefix, which the error names; and what ``remember`` raises.
    """
    from ._weights import Weights

    checkpoint = Checkpoint(path)
    weights = Weights(checkpoint, dtype=_name_of(dtype), strip_prefix=strip_prefix or "")
    with TemporaryDirectory() as folder:
        _write_companions(weights, folder, trust_remote_code)
        if not _is_model(cls):
            if checkpoint.format != "gguf":
                raise TypeError(f"{cls.__name__} is no model: {cls.__name__}.from_pretrained({os.fspath(path)!r}) reads it as it is")
            return cls.from_pretrained(folder, trust_remote_code=trust_remote_code, **kwargs)
        return _model(cls, path, folder, weights, config, trust_remote_code, kwargs)


def _name_of(dtype: Any) -> str:
    # the text of `torch.bfloat16` is `torch.bfloat16`
    return str(dtype).removeprefix("torch.")


def _write_companions(weights: Weights, folder: str, code: bool) -> None:
    """The configuration and the files of the tokenizer, in a directory that transformers reads."""
    for name, content in weights.core.companions(code):
        if isinstance(content, str):
            with open(content, "rb") as file:
                content = file.read()
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)


def _is_model(cls: Any) -> bool:
    from transformers import PreTrainedModel

    return issubclass(cls, PreTrainedModel) or hasattr(cls, "from_config")


def _model(
    cls: Any, path: Path, folder: str, weights: Weights, config: Any, trust_remote_code: bool, kwargs: dict[str, Any]
) -> Any:
    import torch
    from transformers import AutoConfig, GenerationConfig, PreTrainedModel

    from ._frameworks.torch import DTYPES

    if config is None:
        if not os.path.exists(os.path.join(folder, "config.json")):
            raise ValueError(f"{os.fspath(path)!r} has no configuration of transformers: pass it as config=")
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    else:
        config = deepcopy(config)
        # the weights are no longer quantised
        if hasattr(config, "quantization_config"):
            del config.quantization_config
    with_info = kwargs.pop("output_loading_info", False)
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        kwargs.setdefault("generation_config", GenerationConfig.from_pretrained(folder))
    if not issubclass(cls, PreTrainedModel):
        # a class that chooses among others does not load without a directory
        with torch.device("meta"):
            chosen = cls.from_config(config, trust_remote_code=trust_remote_code)
        cls, config = type(chosen), chosen.config
    model, info = cls.from_pretrained(
        None,
        config=config,
        state_dict=weights,
        dtype=DTYPES[weights.core.dtype],
        trust_remote_code=trust_remote_code,
        output_loading_info=True,
        **kwargs,
    )
    _check_taken(model, info, weights, path)
    model.config.name_or_path = model.name_or_path = os.fspath(path)
    return (model, info) if with_info else model


def _check_taken(model: Any, info: Any, weights: Weights, path: Path) -> None:
    """Refuses a model that has taken none of the weights, or fewer than under another prefix: what it has not taken is random."""
    own = set(model.state_dict())
    taken = len(own) - len(own.intersection(info["missing_keys"]))
    under: dict[str, int] = {}
    for name in weights:
        at = 0
        while at := name.find(".", at) + 1:
            if name[at:] in own:
                under[name[:at]] = under.get(name[:at], 0) + 1
    most = max(under.values(), default=0)
    if most > taken:
        # several copies of the weights: an average, or an earlier state
        best = " or ".join(f"strip_prefix={prefix!r}" for prefix, count in under.items() if count == most)
        raise ValueError(
            f"{os.fspath(path)!r}: {type(model).__name__} takes {taken} weights as they are called, and {most} without a prefix: pass {best}"
        )
    if own and not taken:
        raise ValueError(
            f"{os.fspath(path)!r}: {type(model).__name__} has none of the {len(weights)} weights, and would be random; the first of them is "
            f"{next(iter(weights), None)!r}, and of the model {next(iter(model.state_dict()))!r}: another class or config="
        )
