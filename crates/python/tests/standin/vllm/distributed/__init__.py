"""A process has a rank in each group; a group of one process does not exist."""

from types import SimpleNamespace

RANKS = {}


def get_dp_group():
    return SimpleNamespace(rank_in_group=RANKS["dp"])


def get_pcp_group():
    return SimpleNamespace(rank_in_group=RANKS["pcp"])


def get_tensor_model_parallel_rank():
    return RANKS["tp"]
