"""The load format ``anamnesis`` of SGLang: ``python -m sglang.launch_server --model-path MODEL --load-format anamnesis``. SGLang
finds it by the entry point ``sglang.srt.plugins``, and calls :func:`register` in each of its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ._checkpoint import Checkpoint
from ._engines import checked_options, weights

NAME = "anamnesis"


def register() -> None:
    """Adds the load format to the choices of ``--load-format``, and to the configuration that chooses a loader. May be called again."""
    _register()


@cache
def _register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.server_args import add_load_format_choices

    add_load_format_choices([NAME])
    # the formats are an enumeration, which is closed; but a class may take the place of a format
    HookRegistry.register("sglang.srt.configs.load_config.LoadConfig._verify_load_format", choose_loader, HookType.AROUND)


def choose_loader(verify: Callable[[Any], None], load_config: Any) -> None:
    """In the place of the method that makes one of SGLang's formats of a name."""
    name = load_config.load_format
    if isinstance(name, str) and name.lower() == NAME:
        load_config.load_format = _loader_class()
    else:
        verify(load_config)


@cache
def _loader_class() -> type:
    """The class of the loader, whose base is SGLang's."""
    from dataclasses import replace

    from sglang.srt.configs.load_config import LoadFormat
    from sglang.srt.model_loader.loader import DefaultModelLoader
    from sglang.srt.model_loader.weight_utils import maybe_add_mtp_safetensors

    class AnamnesisModelLoader(DefaultModelLoader):  # type: ignore[misc]
        """Loads weights one by one, from the files that SGLang's own loader finds or downloads. ``model_loader_extra_config`` has the
        keys ``source``, ``dequantise``, ``read_ahead`` and ``loader``: ``docs/python.md`` describes them."""

        def __init__(self, load_config: Any) -> None:
            self.options = checked_options(load_config.model_loader_extra_config or {})
            # which has its own options, and rules for the files of each format
            super().__init__(replace(load_config, load_format=LoadFormat.AUTO, model_loader_extra_config={}))

        def download_model(self, model_config: Any) -> None:
            if "source" not in self.options:
                super().download_model(model_config)

        def _get_weights_iterator(self, source: Any, *, resolved_source: Any = None, **_: Any) -> Iterator[tuple[str, Any]]:
            # opened here: what cannot be opened is an error before the model is changed
            opened = self._checkpoints(source, resolved_source)
            rows = (row for checkpoint in opened for row in weights(checkpoint, self.options, _dtype()))
            if self.load_config.draft_model_idx is not None:
                filtered: Iterator[tuple[str, Any]] = self._filter_mtp_weights(rows, source.prefix, self.load_config.draft_model_idx)
                return filtered
            return ((source.prefix + name, weight) for name, weight in rows)

        def _checkpoints(self, source: Any, resolved: Any) -> list[Checkpoint]:
            # the other checkpoints of a model that consists of several have no configuration
            if "source" in self.options and source.model_config is not None:
                return [Checkpoint(self.options["source"])]
            files = self._files(source) if resolved is None else resolved.weight_files
            return [Checkpoint(file, single=True) for file in files]

        def _files(self, source: Any) -> list[str]:
            found = (source.model_or_path, source.revision, source.fall_back_to_pt, source.allow_patterns_overrides)
            folder, files, is_safetensors = self._prepare_weights(*found)
            if is_safetensors and source.model_config is not None:
                files = maybe_add_mtp_safetensors(files, folder, "model.safetensors.index.json", source.model_config.hf_config)
            return list(files)

    return AnamnesisModelLoader


def _dtype() -> Any:
    """The dtype of the model, which SGLang makes the default while it loads."""
    import torch

    return torch.get_default_dtype()
