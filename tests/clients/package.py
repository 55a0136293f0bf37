"""Models that a client has opened, opened once more with their files read through the Python package."""
import contextlib
import importlib.util
import sys
import unittest.mock

# in the log of a group, for each of them
EQUAL = "through the Python package: equal"

INSTALLED = importlib.util.find_spec("anamnesis") is not None


def forbidden(*_, **__):
    raise AssertionError("a file was read by another package")


@contextlib.contextmanager
def loading():
    """The package's context, in which the client reads no safetensors file by itself."""
    import anamnesis.diffusers
    import safetensors.torch
    import transformers.modeling_utils

    with (unittest.mock.patch.object(transformers.modeling_utils, "safe_open", forbidden),
          unittest.mock.patch.object(safetensors.torch, "load_file", forbidden),
          anamnesis.diffusers.loading()):
        yield


def check(made, load):
    """Fails if what `load` returns, with its files read through the package, differs from `made` in a bit of a weight. Both are
    modules by name."""
    from case import differences

    if not INSTALLED:
        return
    with loading():
        again = load()
    for part, module in made.items():
        wrong = differences(again[part].state_dict(), module.state_dict())
        if wrong or not module.state_dict():
            raise AssertionError(f"through the Python package: {part or 'the model'}: {'; '.join(wrong[:4])}")
        # standard output has the results of some groups
        print(f"{EQUAL}: {type(module).__name__}, {len(module.state_dict())} tensors", file=sys.stderr, flush=True)


def summary(logs):
    """How many models groups have opened through the package."""
    if not INSTALLED:
        return "SKIPPED: the Python package is not installed"
    return f"{sum(log.read_text(errors='replace').count(EQUAL) for log in logs)} models equal through the Python package"
