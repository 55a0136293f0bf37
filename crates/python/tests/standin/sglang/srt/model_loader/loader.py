from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch

from sglang.srt.configs.load_config import LoadFormat

HUB = {}


class BaseModelLoader(ABC):
    def __init__(self, load_config):
        self.load_config = load_config

    @abstractmethod
    def download_model(self, model_config):
        raise NotImplementedError

    @abstractmethod
    def load_model(self, *, model_config, device_config):
        raise NotImplementedError


class DefaultModelLoader(BaseModelLoader):
    @dataclass
    class Source:
        model_or_path: str
        revision: Any
        prefix: str = ""
        fall_back_to_pt: bool = True
        allow_patterns_overrides: Any = None
        model_config: Any = None

        @classmethod
        def init_new(cls, model_config, model):
            overrides = getattr(model, "allow_patterns_overrides", None)
            return cls(model_config.model_path, model_config.revision, allow_patterns_overrides=overrides, model_config=model_config)

    def __init__(self, load_config):
        super().__init__(load_config)
        if load_config.model_loader_extra_config:
            raise ValueError(f"unexpected options {load_config.model_loader_extra_config}")

    def _prepare_weights(self, model_name_or_path, revision, fall_back_to_pt, allow_patterns_overrides=None):
        from pathlib import Path

        if self.load_config.load_format != LoadFormat.AUTO:
            raise ValueError(f"Unknown load_format: {self.load_config.load_format}")
        folder = HUB.get(model_name_or_path, model_name_or_path)
        for pattern in allow_patterns_overrides or ["*.safetensors", "*.bin"]:
            files = sorted(str(path) for path in Path(folder).glob(pattern))
            if files:
                return str(folder), files, pattern.endswith(".safetensors")
        raise RuntimeError(f"Cannot find any model weights with `{model_name_or_path}`")

    def _get_weights_iterator(self, source, *, resolved_source=None, startup_prefetch_started=False, startup_prefetch_active=False):
        raise AssertionError("weights were read by SGLang")

    @classmethod
    def _filter_mtp_weights(cls, weights_iterator, prefix, draft_model_idx):
        for name, tensor in weights_iterator:
            if not name.startswith("model.mtp.layers.") or name.split(".")[3] == str(draft_model_idx):
                yield prefix + name, tensor

    def _get_all_weights(self, model_config, model):
        yield from self._get_weights_iterator(self.Source.init_new(model_config, model))
        for source in getattr(model, "secondary_weights", ()):
            yield from self._get_weights_iterator(source)

    def download_model(self, model_config):
        self._prepare_weights(model_config.model_path, model_config.revision, fall_back_to_pt=True)

    def load_model(self, *, model_config, device_config):
        before = torch.get_default_dtype()
        torch.set_default_dtype(model_config.dtype)
        try:
            model = model_config.make()
            model.load_weights(self._get_all_weights(model_config, model))
        finally:
            torch.set_default_dtype(before)
        return model.eval()


def get_model_loader(load_config, model_config=None):
    if isinstance(load_config.load_format, type):
        return load_config.load_format(load_config)
    return DefaultModelLoader(load_config)
