"""The interface of ``torch.load``, for every format: ``anamnesis.torch.load(path)``. Nothing that a file names is imported or
called."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from os import fsdecode
from typing import TYPE_CHECKING, Any, BinaryIO

import torch

from . import _core
from ._checkpoint import Checkpoint
from ._numpy_values import fill, numpy_value
from ._source import content_of
from .errors import UnsupportedError

if TYPE_CHECKING:
    from typing import TypeAlias

    from ._checkpoint import Path
    from ._options import Borrow

    # puts a storage, which was saved from a place, where it is wanted
    _Restore: TypeAlias = Callable[[torch.UntypedStorage, str], torch.UntypedStorage]
    _MapLocation: TypeAlias = str | torch.device | Mapping[str, str | torch.device] | Callable[[Any, str], Any] | None

_DICTS: dict[str, Any] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter, "defaultdict": defaultdict}


class OpaqueObject:
    """An object of a class that was not imported: its qualified name, the arguments of its construction, its state and
    its items."""

    def __init__(self, class_name: str) -> None:
        self.class_name = class_name
        self.args: tuple[Any, ...] = ()
        self.state: Any = None
        self.items: Any = None

    def __repr__(self) -> str:
        return f"<OpaqueObject {self.class_name}>"


class RefusedValue:
    """A value that cannot be given, with the reason. Only with ``opaque=True``."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"<RefusedValue: {self.reason}>"


def load(
    f: Path | bytes | BinaryIO,
    map_location: _MapLocation = None,
    pickle_module: None = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    opaque: bool = False,
    limits: Mapping[str, int | None] | None = None,
) -> Any:
    """The object that ``torch.load(f, weights_only=True)`` returns: the same containers, tensors, parameters, strides and ties.
    For other formats, and for directories, the tensors by name.

    ``f``: a path, a URL, the bytes of a file, or an object with ``read``, which is read from its position to its end; of a file that is
    open at its beginning, the path is used. ``map_location``: a device or its name; a dictionary of them by the place that a tensor was
    saved from (``{"cuda:1": "cpu"}``); or a function of a storage and its place, which returns a storage, or ``None`` to leave it.
    Without one, and where it says nothing, tensors are on the CPU. ``mmap``: ``True`` maps the file (privately), and otherwise the
    bytes are copied, as the file may be saved again while its tensors are in use. ``opaque`` keeps objects of unknown
    classes as :class:`OpaqueObject` instead of refusing the file, and what depends on them as :class:`RefusedValue`.

        >>> import anamnesis.torch
        >>> sorted(anamnesis.torch.load("fixtures/pth/tied.pth"))
        ['emb.weight', 'flat', 'head.weight', 'rows', 'view_t']
    """
    if weights_only is not None and not weights_only:
        raise ValueError("weights_only=False would run the code that a file names, which this package never does")
    if pickle_module is not None:
        raise ValueError("pickle_module would run the code that a file names, which this package never does")
    restore = _restore(map_location)
    source = _source(f)
    if mmap and isinstance(source, bytes):
        raise ValueError("mmap=True needs the path of a file")
    found = _core.objects(source, mmap=bool(mmap), opaque=opaque, limits=dict(limits or {}))
    if found is None:
        checkpoint = Checkpoint(source, mmap=mmap is not False, opaque=opaque, limits=limits)
        device = torch.device(map_location) if isinstance(map_location, str | torch.device) else None
        borrow: Borrow = "auto" if mmap is None else mmap
        loaded = checkpoint.load("torch", device=device, borrow=borrow)
        if device is not None or map_location is None:
            return dict(loaded)
        moved: dict[tuple[int, int], torch.UntypedStorage] = {}
        return {name: _restored(tensor, restore, moved) for name, tensor in loaded.items()}
    nodes, locations, core = found
    loader = "mmap" if mmap else None
    rows, _, _ = core.load(None, borrow=bool(mmap), loader=loader)
    storages = {int(row[0]): restore(_storage(row[4]), locations[int(row[0])]) for row in rows}
    path = None if isinstance(source, bytes) else source
    return _Builder(nodes, storages, path, opaque).build()


def _source(f: Any) -> str | bytes:
    """The path of what is loaded, or its bytes."""
    if isinstance(f, bytes):
        return f
    if not hasattr(f, "read"):
        return fsdecode(f)
    path = _path_of(f)
    if path is not None:
        return path
    return content_of(f)


def _path_of(f: Any) -> str | None:
    """The path of a file that is open at its beginning and is still found by it."""
    name = getattr(f, "name", None)
    if not isinstance(name, str):
        return None
    try:
        same = os.path.samestat(os.fstat(f.fileno()), os.stat(name))
        return os.path.abspath(name) if same and f.tell() == 0 and isinstance(f.read(0), bytes) else None
    # such objects have only a part of the methods of files
    except (AttributeError, OSError, ValueError):
        return None


def _restore(map_location: _MapLocation) -> _Restore:
    """The function that puts a storage, which was saved from a place, where it is wanted."""
    if map_location is None:
        return lambda storage, _: storage
    if isinstance(map_location, str | torch.device):
        device = torch.device(map_location)
        return lambda storage, _: _moved(storage, device)
    if isinstance(map_location, Mapping):
        devices = {place: torch.device(device) for place, device in map_location.items()}
        return lambda storage, place: _moved(storage, devices[place]) if place in devices else storage
    if not callable(map_location):
        raise TypeError("map_location must be a device, its name, a dictionary of places, a function or None")
    function = map_location

    def restore(storage: torch.UntypedStorage, place: str) -> torch.UntypedStorage:
        moved = function(storage, place)
        if isinstance(moved, torch.storage.TypedStorage):
            moved = moved._untyped_storage
        if moved is not None and not isinstance(moved, torch.UntypedStorage):
            raise TypeError(f"map_location returned {type(moved).__name__}, and neither a storage nor None")
        return storage if moved is None else moved

    return restore


def _moved(storage: torch.UntypedStorage, device: torch.device) -> torch.UntypedStorage:
    if device.type == "cpu":
        return storage
    return torch.empty(0, dtype=torch.uint8).set_(storage).to(device).untyped_storage()


def _restored(tensor: torch.Tensor, restore: _Restore, moved: dict[tuple[int, int], torch.UntypedStorage]) -> torch.Tensor:
    """A tensor in the storage that takes the place of its own. ``moved``: by address and length, the storages of tensors before it, which may be tied to it."""
    storage = tensor.untyped_storage()
    # storages without bytes have one address
    key = (storage.data_ptr(), storage.nbytes())
    if key not in moved:
        moved[key] = restore(storage, "cpu")
    made = torch.empty(0, dtype=tensor.dtype, device=moved[key].device)
    return made.set_(moved[key], tensor.storage_offset(), tensor.shape, tensor.stride())


def _storage(memory: _core.Memory) -> torch.UntypedStorage:
    # `frombuffer` refuses memory without bytes
    made = torch.frombuffer(memory, dtype=torch.uint8) if len(memory) else torch.empty(0, dtype=torch.uint8)
    return made.untyped_storage()


class _Builder:
    """Makes objects of nodes. Containers that can change are made empty and filled at the end, so that an object may contain
    itself; the others are made after what they consist of, without recursion."""

    def __init__(
        self,
        nodes: list[tuple[Any, ...]],
        storages: dict[int, torch.UntypedStorage],
        path: str | None,
        opaque: bool,
    ) -> None:
        self.nodes, self.storages, self.path, self.opaque = nodes, storages, path, opaque
        self.made: dict[int, Any] = {}

    def build(self) -> Any:
        for first in range(len(self.nodes)):
            pending = [first]
            while pending:
                number = pending[-1]
                if number in self.made:
                    pending.pop()
                    continue
                missing = [part for part in self._parts(number) if part not in self.made]
                if missing:
                    pending += missing
                    continue
                self.made[number] = self._make(number)
                pending.pop()
        for number in range(len(self.nodes)):
            self._fill(number)
        return self.made[0]

    def _parts(self, number: int) -> tuple[int, ...]:
        """The nodes that must exist before this one."""
        node = self.nodes[number]
        match node[0]:
            case "tuple" | "frozenset":
                parts: tuple[int, ...] = node[1]
                return parts
            case "parameter":
                return (node[1],)
            case "sparse":
                parts = node[2]
                return parts
            case "tensor" if node[8] is not None and len(node[8]) == 3:
                return (node[8][0], node[8][1])
        return ()

    def _make(self, number: int) -> Any:
        node = self.nodes[number]
        of = self.made
        match node:
            case ("value", value):
                return value
            case ("integer", str(text)):
                return int(text, 16) if "x" in text else int(text)
            case ("tuple", items):
                return tuple(of[i] for i in items)
            case ("frozenset", items):
                return frozenset(of[i] for i in items)
            case ("list", _):
                return []
            case ("set", _):
                return set()
            case ("dict", str(name), _, _):
                return _DICTS[name]()
            case ("opaque", str(name), _, _, _):
                return OpaqueObject(name)
            case ("size", sizes):
                return torch.Size(sizes)
            case ("dtype", str(name)):
                return getattr(torch, name)
            case ("device", str(name)):
                return torch.device(name)
            case ("layout", str(name)):
                return torch.serialization._get_layout(name)  # type: ignore[no-untyped-call]
            case ("storage", int(index), dtype):
                # as PyTorch returns it, also of an untyped one
                return self._typed(index, getattr(torch, dtype or "uint8"))
            case ("tensor", *_):
                return self._tensor(node)
            case ("parameter", int(data), bool(requires_grad), _):
                return torch.nn.Parameter(of[data], requires_grad)
            case ("meta", str(dtype), shape, strides, requires_grad):
                meta = torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device="meta")
                return meta.requires_grad_(requires_grad)
            case ("sparse", str(layout), parts, shape, coalesced):
                return self._sparse(layout, [of[part] for part in parts], shape, coalesced)
            case ("numpy_dtype" | "numpy_scalar" | "numpy_array" | "numpy_objects", *_):
                try:
                    return numpy_value(node)
                except UnsupportedError as e:
                    raise self._refusal(str(e)) from None
            case ("refused" | "named", str(why)) if self.opaque:
                return RefusedValue(why)
            case ("named", str(name)):
                raise self._refusal(f"{name} is named as a value, which is not plain data")
            case ("refused", str(why)):
                raise self._refusal(why)
        raise AssertionError(node[0])

    def _typed(self, index: int, dtype: torch.dtype) -> torch.storage.TypedStorage:
        typed = torch.storage.TypedStorage
        return typed(wrap_storage=self.storages[index], dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]

    def _tensor(self, node: tuple[Any, ...]) -> torch.Tensor:
        _, index, name, offset, shape, strides, requires_grad, (conj, neg), quantizer, _ = node
        dtype = getattr(torch, name)
        if quantizer is not None:
            if len(quantizer) == 2:
                how: tuple[Any, ...] = (torch.per_tensor_affine, *quantizer)
            else:
                scales, zero_points = self.made[quantizer[0]], self.made[quantizer[1]]
                exact = scales.dtype == torch.float64
                scheme = torch.per_channel_affine if exact else torch.per_channel_affine_float_qparams
                how = (scheme, scales, zero_points, quantizer[2])
            storage = self._typed(index, dtype)
            made: torch.Tensor = torch._utils._rebuild_qtensor(  # type: ignore[no-untyped-call]
                storage, offset, shape, strides, how, requires_grad, OrderedDict()
            )
            return made
        untyped = self.storages[index]
        tensor = torch.empty((0,), dtype=dtype, device=untyped.device)
        tensor.set_(untyped, offset, shape, strides)
        if conj:
            tensor = tensor.conj()
        if neg:
            tensor = torch._neg_view(tensor)
        return tensor.requires_grad_() if requires_grad else tensor

    def _sparse(self, layout: str, parts: list[torch.Tensor], shape: Any, coalesced: bool | None) -> torch.Tensor:
        if layout == "sparse_coo":
            indices, values = parts
            # the indices are not trusted
            return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True, is_coalesced=coalesced)
        kind = getattr(torch, layout)
        pointers, indices, values = parts
        return torch.sparse_compressed_tensor(pointers, indices, values, shape, layout=kind, check_invariants=True)

    def _fill(self, number: int) -> None:
        node, of = self.nodes[number], self.made
        target = of[number]
        match node:
            case ("list", items):
                target.extend(of[i] for i in items)
            case ("set", items):
                target.update(of[i] for i in items)
            case ("dict", _, entries, attributes):
                for key, value in entries:
                    target[of[key]] = of[value]
                if attributes is not None:
                    target.__dict__.update(self._complete(attributes))
            case ("numpy_objects", _, _, items):
                fill(target, (of[i] for i in items))
            case ("opaque", _, arguments, state, items):
                target.args = tuple(of[i] for i in arguments)
                target.state = None if state is None else of[state]
                target.items = None if items is None else of[items]
            case ("parameter", _, _, attributes) if attributes is not None:
                torch._utils._set_obj_state(target, self._complete(attributes))  # type: ignore[no-untyped-call]
            case ("tensor", *_, attributes) if attributes is not None:
                torch._utils._set_obj_state(target, self._complete(attributes))  # type: ignore[no-untyped-call]

    def _complete(self, number: int) -> Any:
        """Attributes, which are filled when they are set: a dictionary, or a tuple of two."""
        node = self.nodes[number]
        match node:
            case ("dict", _, entries, _):
                return {self.made[key]: self.made[value] for key, value in entries}
            case ("tuple", items):
                return tuple(self._complete(item) for item in items)
        return self.made[number]

    def _refusal(self, why: str) -> UnsupportedError:
        where = self._name_of(why)
        text = f"{where}: {why}" if where else why
        return UnsupportedError(text if self.path is None else f"{self.path}: {text}", self.path, "pth")

    def _name_of(self, why: str) -> str:
        """The keys that lead to the first node that is refused for this reason."""
        above: dict[int, tuple[int, str]] = {}
        pending = [0]
        for number in pending:
            node = self.nodes[number]
            if node[0] in ("refused", "named") and (node[1] == why or node[0] == "named"):
                names: list[str] = []
                while number:
                    number, name = above[number]
                    names.append(name)
                return "".join(reversed(names))
            for child, name in self._children(node):
                if child not in above and child:
                    above[child] = (number, name)
                    pending.append(child)
        return ""

    def _children(self, node: tuple[Any, ...]) -> list[tuple[int, str]]:
        match node:
            case ("dict", _, entries, _):
                keyed = [(value, f"[{self.nodes[key][1]!r}]") for key, value in entries]
                return keyed + [(key, ".keys()") for key, _ in entries]
            case ("list" | "tuple" | "set" | "frozenset", items) | ("numpy_objects", _, _, items):
                return [(item, f"[{i}]") for i, item in enumerate(items)]
            case ("parameter", data, _, _):
                return [(data, ".data")]
            case ("opaque", _, arguments, state, items):
                rest = [(arg, f".args[{i}]") for i, arg in enumerate(arguments)]
                return rest + [(part, name) for part, name in ((state, ".state"), (items, ".items")) if part is not None]
        return []
