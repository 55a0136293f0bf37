"""Loading for diffusers: :func:`loading`, under which its ``from_pretrained`` and ``from_single_file`` read files through this
package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from . import safetensors
from ._replace import Replaced, Replacements


def _state_dict_reader(original: Any) -> Any:
    def load_state_dict(checkpoint_file: Any, disable_mmap: bool = False, map_location: Any = "cpu") -> Any:
        from . import torch

        if isinstance(checkpoint_file, dict):
            return checkpoint_file
        path = os.fspath(checkpoint_file)
        if path.endswith(".gguf"):
            # as quantised parameters of diffusers' own class
            return original(checkpoint_file, disable_mmap, map_location)
        if path.endswith(".safetensors") and not disable_mmap:
            return safetensors.load_file(path, map_location)
        # called for safetensors files too, by name
        return torch.load(path, map_location, mmap=False if disable_mmap else None)

    return load_state_dict


_PARAMETERS = ("checkpoint_file", "disable_mmap", "map_location")
# those that have copied the function: of models, their shards, and single files
_MODULES = ("models.modeling_utils", "models.model_loading_utils", "loaders.single_file_utils")

# read in diffusers 0.42
_REPLACEMENTS = Replacements(
    "diffusers", [Replaced(f"diffusers.{module}", "load_state_dict", _state_dict_reader, _PARAMETERS) for module in _MODULES]
)


@contextmanager
def loading() -> Iterator[None]:
    """While it is entered, models of diffusers are read through this package, and so are models of transformers, which
    pipelines contain.

    As :func:`anamnesis.transformers.loading` otherwise. LoRA files, IP adapters and textual inversions, and the shards of a
    model that is loaded with ``parallel_config``, are read by diffusers itself.
    """
    with ExitStack() as entered:
        entered.enter_context(_REPLACEMENTS)
        if find_spec("transformers") is not None:
            from . import transformers

            entered.enter_context(transformers.loading())
        yield
