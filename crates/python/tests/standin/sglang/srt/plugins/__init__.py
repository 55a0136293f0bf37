from importlib.metadata import entry_points

from .hook_registry import HookRegistry


def load_plugins():
    for point in entry_points(group="sglang.srt.plugins"):
        point.load()()
    HookRegistry.apply_hooks()
