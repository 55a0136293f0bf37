"""Tensors of torchao in safetensors files: each is stored as several parts, which a file's metadata describe."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# the entry that names the tensors, each of which has an entry of its own
_NAMES = "tensor_names"


def joined(rows: Iterable[tuple[str, Any]], metadata: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and tensors, with torchao's tensors in the place of their parts: each as soon as its last part was read. Nothing else is
    kept. Raises ``ValueError`` for a tensor that lacks parts at the end."""
    from torchao.prototype.safetensors.safetensors_support import unflatten_tensor_state_dict

    wanted = _parts(metadata)
    whole = {part: name for name, parts in wanted.items() for part in parts}
    there: dict[str, dict[str, Any]] = {}
    for name, tensor in rows:
        if name not in whole:
            yield name, tensor
            continue
        made = whole[name]
        parts = there.setdefault(made, {})
        parts[name] = tensor
        if len(parts) == len(wanted[made]):
            del there[made]
            # the parts of one tensor only: the function compares each tensor with each part
            yield from unflatten_tensor_state_dict(parts, {made: metadata[made], _NAMES: json.dumps([made])})[0].items()
    for made, parts in there.items():
        lacking = ", ".join(sorted(wanted[made] - set(parts)))
        raise ValueError(f"the tensor {made!r} of torchao lacks the parts {lacking}")


def _parts(metadata: Mapping[str, Any]) -> dict[str, set[str]]:
    """The stored names of the parts of each tensor that has parts."""
    found = {}
    for name in json.loads(metadata[_NAMES]) if _NAMES in metadata else ():
        module, _, own = name.rpartition(".")
        described = json.loads(metadata[name])
        parts = described.get("_tensor_data_names")
        if parts:
            found[name] = {f"{module}._{own}_{part}" for part in parts}
    return found
