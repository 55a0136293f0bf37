import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class LoadFormat(str, Enum):
    AUTO = "auto"
    SAFETENSORS = "safetensors"


@dataclass
class LoadConfig:
    load_format: Any = LoadFormat.AUTO
    download_dir: Any = None
    model_loader_extra_config: Any = field(default_factory=dict)
    ignore_patterns: Any = None
    draft_model_idx: Any = None

    def __post_init__(self):
        if isinstance(self.model_loader_extra_config, str):
            self.model_loader_extra_config = json.loads(self.model_loader_extra_config)
        self._verify_load_format()

    def _verify_load_format(self):
        if isinstance(self.load_format, str):
            self.load_format = LoadFormat(self.load_format.lower())
