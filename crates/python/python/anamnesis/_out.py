"""Loading into tensors of the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._frameworks import memory_of, wrong_out

if TYPE_CHECKING:
    from ._index import Selection
    from ._tensor import Tensor


def output(framework: str, tensor: Tensor, given: Any, chosen: Selection, shared: bool) -> tuple[str, Any]:
    """The name of a tensor and the memory that it, or the box that is chosen of it, is loaded into. With ``shared`` it is a share
    of unknown shape, of which the load compares the length."""
    if chosen.rest is not None:
        raise wrong_out(tensor.name, "a range of each axis can be loaded into memory, without steps and numbers")
    shape, nbytes = tensor.part(chosen)
    return tensor.name, memory_of(framework, tensor.name, given, tensor._loaded_dtype, tensor._is_dtype, None if shared else shape, nbytes)


def outputs(
    framework: str, tensors: Mapping[str, Tensor], out: Mapping[str, Any], chosen: Mapping[str, Selection], shared: bool
) -> list[tuple[str, Any]]:
    """Names and memory for :meth:`CoreCheckpoint.load_into`."""
    from ._index import WHOLE

    return [output(framework, tensors[name], given, chosen.get(name, WHOLE), shared) for name, given in out.items()]
