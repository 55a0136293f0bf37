"""The load format ``anamnesis`` of vLLM: ``vllm serve MODEL --load-format anamnesis``. vLLM finds it by the entry point
``vllm.general_plugins``, and calls :func:`register` in each of its processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from ._engines import PATTERNS, checked_options, checkpoints, weights
from ._paths import is_url


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
            others = experts_of_others(model_config)
            patterns = None
            if "source" in self.options:
                found = self.options["source"]
            else:
                patterns = getattr(model, "allow_patterns_overrides", None)
                found = folder(model_config.model, model_config.revision, patterns, load_config=self.load_config)
            unused = either(others, getattr(model, "is_unused_checkpoint_weight", None))
            yield from self._weights(found, patterns, model_config, unused)
            # for models that consist of several checkpoints
            for part in getattr(model, "secondary_weights", ()):
                patterns = part.allow_patterns_overrides
                found = folder(part.model_or_path, part.revision, patterns, part.subfolder, load_config=self.load_config)
                for name, weight in self._weights(found, patterns, model_config, either(others, part.is_unused_weight)):
                    yield part.prefix + name, weight

        def _weights(
            self, found: str, patterns: list[str] | None, model_config: Any, unused: Callable[[str], bool] | None
        ) -> Iterator[tuple[str, Any]]:
            opened = checkpoints(found, patterns)
            rows = (row for one in opened for row in weights(one, self.options, model_config.dtype, unused))
            if model_config.quantization != "torchao":
                return rows
            from ._torchao import joined

            # each of several files may have parts of a tensor that another one describes
            return joined(rows, {name: value for one in opened for name, value in one.metadata.items()})

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
            list(patterns or PATTERNS),
            revision,
            subfolder=subfolder,
            ignore_patterns=load_config.ignore_patterns,
        )
    return found if subfolder is None else os.path.join(found, subfolder)


def experts_of_others(model_config: Any) -> Callable[[str], bool] | None:
    """Whether a stored tensor is the weight of an expert that other processes have: those are not read. ``None`` where this process
    needs all of them, as by vLLM's option ``enable_ep_weight_filter``."""
    from vllm.config import get_current_vllm_config

    parallel = get_current_vllm_config().parallel_config
    filters = model_config.is_moe and parallel.enable_expert_parallel and parallel.enable_ep_weight_filter
    # where experts are copied to balance their use, any process may need any of them
    if not filters or parallel.enable_eplb or model_config.get_num_experts() <= 0:
        return None
    from vllm.distributed import get_dp_group, get_pcp_group, get_tensor_model_parallel_rank
    from vllm.model_executor.model_loader.ep_weight_filter import compute_local_expert_ids, should_skip_weight

    # experts are divided among all processes of the three groups, the outer one first; a group of one process may not exist
    groups: list[tuple[int, Callable[[], int]]] = [
        (parallel.data_parallel_size, lambda: get_dp_group().rank_in_group),
        (parallel.prefill_context_parallel_size, lambda: get_pcp_group().rank_in_group),
        (parallel.tensor_parallel_size, get_tensor_model_parallel_rank),
    ]
    processes, rank = 1, 0
    for size, rank_in_group in groups:
        processes, rank = processes * size, rank * size + (rank_in_group() if size > 1 else 0)
    own = compute_local_expert_ids(model_config.get_num_experts(), processes, rank, placement=parallel.expert_placement_strategy)
    return None if own is None else lambda name: should_skip_weight(name, own)


def either(*conditions: Callable[[str], bool] | None) -> Callable[[str], bool] | None:
    """Whether one of the conditions that exist is true of a name."""
    known = [condition for condition in conditions if condition is not None]
    return (lambda name: any(condition(name) for condition in known)) if known else None
