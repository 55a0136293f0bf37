"""A hub with one folder: ``HUB``'s."""

HUB = {"folder": "", "calls": []}


def download_weights_from_hf(model_name_or_path, cache_dir, allow_patterns, revision=None, subfolder=None, ignore_patterns=None):
    HUB["calls"].append((model_name_or_path, cache_dir, allow_patterns, revision, subfolder, ignore_patterns))
    return HUB["folder"]
