from types import SimpleNamespace

PARALLEL = SimpleNamespace(
    enable_expert_parallel=False,
    enable_ep_weight_filter=False,
    enable_eplb=False,
    data_parallel_size=1,
    prefill_context_parallel_size=1,
    tensor_parallel_size=1,
    expert_placement_strategy="linear",
)


def get_current_vllm_config():
    return SimpleNamespace(parallel_config=PARALLEL)
