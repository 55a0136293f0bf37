"""``load_file`` and ``load`` as in ``safetensors.torch``, for every format."""

from . import load, load_file

__all__ = ["load", "load_file"]
