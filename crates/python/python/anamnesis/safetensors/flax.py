"""``load_file`` and ``load`` as in ``safetensors.flax``, for every format."""

from functools import partial

from . import load_file_for, load_for

load_file = partial(load_file_for, "jax")
load = partial(load_for, "jax")
