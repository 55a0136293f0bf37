"""Dtypes by the names that frameworks have for them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def dtype_name(dtype: Any) -> str:
    """The name of a dtype: of a text, or a dtype of PyTorch, numpy, ``ml_dtypes``, JAX or MLX."""
    if isinstance(dtype, str):
        return dtype.removeprefix("torch.")
    if dtype is None:
        raise TypeError('dtype: "auto", "bfloat16", "float16", "float32", or a dtype of a framework, not None')
    text = str(dtype)
    # `torch.bfloat16`, `mlx.core.bfloat16`
    if type(dtype).__module__.partition(".")[0] in ("torch", "mlx"):
        return text.rpartition(".")[2]
    # a dtype of numpy, or a scalar type that is one
    name = getattr(dtype, "name", None)
    if name is None and isinstance(dtype, type):
        name = dtype.__name__
    return name if isinstance(name, str) else text
