"""Checkpoints converted, loaded and listed by many machines, with Ray, which is imported when a function is called.

The paths must lead to the same files on every node: a shared file system, or a URL where files are read. Only names go through Ray's object store; bytes go
from the source to the file that is written. ``docs/many-machines.md`` has the arithmetic.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from errno import ENOENT
from typing import TYPE_CHECKING, Any, NamedTuple

from ._checkpoint import Checkpoint
from ._dtype import dtype_name
from ._numbers import shard_bytes
from ._parts import make_file, shared_path
from ._paths import is_url, local, shown
from ._progress import reporting

if TYPE_CHECKING:
    from typing import Unpack

    from ._checkpoint import Path
    from ._options import Framework, Naming, OpenOptions
    from ._progress import Progress
    from ._results import Loaded
    from ._select import Filter

# between two reports of a worker, and two of the driver
SECONDS = 0.5
# endings of files that ``inspect`` lists.
_ENDINGS = (".safetensors", ".gguf", ".npz", ".npy", ".pt", ".pth", ".ckpt", ".bin")


class File(NamedTuple):
    """A file that is to be made: its name, the bytes of its tensors, and their names."""

    name: str
    nbytes: int
    outputs: list[str]


def remember_to(
    src: Path,
    dst: Path,
    *,
    dtype: Any = "auto",
    shard_size: int = 5_000_000_000,
    cast: bool = False,
    naming: Naming | None = None,
    filter: Filter | None = None,
    native_rounding: bool = False,
    overwrite: bool = False,
    code: bool = False,
    untie: bool = False,
    cpus: float = 1,
    memory: float | None = None,
    max_retries: int = 3,
    locality: Callable[[File], str | None] | None = None,
    progress: Progress = None,
    **options: Unpack[OpenOptions],
) -> list[str]:
    """Dequantises a checkpoint into the directory ``dst``, a task for each file. Returns the files.

    The directory has the bytes that :func:`anamnesis.remember_to` writes on one machine, and the index comes last: a reader finds
    a checkpoint or none. Files that are there, complete and of the same plan, are not made again, so that a second call goes on
    where the first one ended. A task is repeated up to ``max_retries`` times after an ``OSError`` and where its worker or node
    is lost; errors of the source are not repeated.

    ``locality(file)`` returns the id of the node that should make a file, or ``None``; without it files are spread.
    ``progress`` is called with the number of bytes that are made and of all bytes, twice a second; ``True`` draws a bar. An
    interrupt, or an exception of ``progress``, cancels the tasks, which leave no unfinished file. ``options`` are the
    parameters of :class:`Checkpoint`.
    """
    # before Ray is imported, which takes seconds
    shard_size = shard_bytes(shard_size)
    src, dst = shared_path(src), os.path.abspath(local(dst, "many machines write to"))
    import ray

    checkpoint = Checkpoint(src, **options)
    kind = dtype_name(dtype)
    # the options of the driver and of all workers
    shared: dict[str, Any] = {
        "dtype": kind,
        "cast": cast,
        "names": naming,
        "native_rounding": native_rounding,
        "overwrite": overwrite,
        "untie": untie,
    }
    # outputs have the names that clients of a directory need
    outputs = checkpoint._outputs(kind, cast, naming or checkpoint._core.client_names, {"filter": filter})
    directory = checkpoint._core.output_directory(dst, shard_size, outputs.names, code=code, **shared)
    described = directory.files()
    to_make = directory.prepare()
    with reporting(progress, "remember") as report:
        total = sum(nbytes for _, nbytes, _, _ in described)
        done = total - sum(described[number][1] for number in to_make)
        # by file; without a listener nothing is sent
        bytes_made = None if report is None else _listener()
        task = ray.remote(_make)
        waiting: dict[Any, int] = {}
        try:
            for number in to_make:
                name, nbytes, made, text = described[number]
                node = None if locality is None else locality(File(name, nbytes, made))
                settings = task.options(
                    name=f"remember {name}",
                    num_cpus=cpus,
                    memory=memory,
                    max_retries=max_retries,
                    retry_exceptions=[OSError],
                    scheduling_strategy=_strategy(node),
                )
                made_by = settings.remote(src, options, dst, text, max(1, int(cpus)), shared, bytes_made, number)
                waiting[made_by] = number
            reported = done
            if report is not None:
                report(done, total)
            while waiting:
                # an interrupt is handled between two waits
                ready, _ = ray.wait(list(waiting), timeout=SECONDS)
                for reference in ready:
                    _value(reference)
                    done += described[waiting.pop(reference)][1]
                # a file that is made again begins again
                if report is not None and (made_now := done + _bytes_of(bytes_made, list(waiting.values()))) > reported:
                    reported = made_now
                    report(reported, total)
        except BaseException:
            _cancel(waiting)
            directory.remove_abandoned()
            raise
    return [os.fsdecode(file) for file in directory.complete()]


def _make(
    src: str, options: OpenOptions, dst: str, text: str, threads: int, shared: dict[str, Any], bytes_made: Any, number: int
) -> bool:
    """One file, in a worker."""
    sent = time.monotonic()

    def send(done: int, _: int) -> None:
        nonlocal sent
        if time.monotonic() - sent >= SECONDS:
            sent = time.monotonic()
            bytes_made.made.remote(number, done)

    return make_file(src, options, dst, text, shared, threads, None if bytes_made is None else send)


class _BytesMade:
    """An actor: the bytes of files that are being made."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}

    def made(self, number: int, nbytes: int) -> None:
        self._bytes[number] = nbytes

    def of(self, numbers: list[int]) -> int:
        return sum(self._bytes.get(number, 0) for number in numbers)


def _listener() -> Any:
    """The actor, on the driver's node, which is not lost without the driver."""
    import ray

    here = _strategy(ray.get_runtime_context().get_node_id())
    return ray.remote(_BytesMade).options(num_cpus=0, max_restarts=-1, scheduling_strategy=here).remote()


def _bytes_of(bytes_made: Any, numbers: list[int]) -> int:
    import ray

    if bytes_made is None:
        return 0
    try:
        made: int = ray.get(bytes_made.of.remote(numbers))
    except ray.exceptions.RayActorError:
        return 0  # it restarts; progress is worth no file
    return made


def _strategy(node: str | None) -> Any:
    if node is None:
        return "SPREAD"
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # soft: any other node makes the file if this one is lost
    return NodeAffinitySchedulingStrategy(node_id=node, soft=True)


def _value(reference: Any) -> Any:
    """The value of a task, or the exception that it raised, as a call on this machine raises it."""
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


def _cancel(waiting: dict[Any, int]) -> None:
    import ray

    for reference in waiting:
        ray.cancel(reference)
    if waiting:
        # running tasks end at their next check, several times a second
        ray.wait(list(waiting), num_returns=len(waiting), timeout=30)


def load(
    src: Path,
    rank: int,
    world: int,
    framework: Framework = "torch",
    *,
    device: Any = None,
    filter: Filter | None = None,
    **options: Unpack[OpenOptions],
) -> Loaded:
    """The tensor-parallel share of worker ``rank`` of ``world``, for a call in an actor: it reads the bytes of its share
    only. ``options`` are the parameters of :class:`Checkpoint`."""
    return Checkpoint(src, **options).load(framework, device=device, filter=filter, tp=(rank, world))


def inspect(prefix: Path, **options: Unpack[OpenOptions]) -> list[dict[str, Any]]:
    """The checkpoints in and below a directory or a URL, a task for each: ``path``, ``format``, ``tensors``, ``nbytes``, and
    ``quantisation``, the names of their schemes. One that cannot be read has ``error`` instead. Raises ``FileNotFoundError`` if
    there is none."""
    found = _found(shared_path(prefix))
    import ray

    task = ray.remote(_describe).options(scheduling_strategy="SPREAD", num_cpus=1)
    described = ray.get([task.remote(path, options) for path in found])
    return list(described)


def _found(prefix: str) -> list[str]:
    """The paths of the checkpoints in and below a directory or a URL, of which there is one at least."""
    if is_url(prefix):
        from ._list import ls

        found, prefix = [model.path for model in ls(prefix)], shown(prefix)
    else:
        found = list(_checkpoints(prefix))
    if not found:
        raise FileNotFoundError(ENOENT, "no checkpoint is in or below it", prefix)
    return found


def _describe(path: str, options: OpenOptions) -> dict[str, Any]:
    from .errors import AnamnesisError

    try:
        summary = Checkpoint(path, **options).inspect()
    except (AnamnesisError, OSError) as error:
        return {"path": path, "error": str(error)}
    schemes = {weight["scheme"] for weight in summary["weights"] if weight.get("scheme")}
    totals = summary["totals"]
    return {
        "path": path,
        "format": summary["format"],
        "tensors": totals["tensors"],
        "nbytes": totals["nbytes"],
        "quantisation": sorted(schemes),
    }


def _checkpoints(prefix: str) -> Iterator[str]:
    """Directories with an index, shards of torch.distributed.checkpoint or a configuration, and all other tensor files."""
    for directory, below, files in os.walk(prefix):
        below.sort()
        tensors = sorted(name for name in files if name.endswith(_ENDINGS) and not name.startswith("."))
        has_index = any(name.endswith(".index.json") for name in files) or ".metadata" in files
        weights = [name for name in tensors if name.endswith((".safetensors", ".bin"))]
        if has_index or ("config.json" in files and weights):
            yield directory
            tensors = [name for name in tensors if name not in weights]
        for name in tensors:
            part = name.rpartition("-of-")[0].rpartition("-")[2]
            # any file of a split GGUF opens all of them
            if not (name.endswith(".gguf") and part.isdigit() and int(part) > 1):
                yield os.path.join(directory, name)
