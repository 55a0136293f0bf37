"""One worker of an inference service: reads the headers of a model, imports its framework, loads its weights.

    loader.py KIND MODEL [--rank R] [--world W] [--barrier DIR] [--startup SECONDS] [--order file|name]

The use of a tensor is simulated by summing its elements: each byte is read once and released, as in a copy to a device.
Prints one line of JSON with the times of the stages (seconds of CLOCK_MONOTONIC) and a checksum of all loaded bytes.
"""

import argparse, glob, json, os, resource, struct, sys, time

args = argparse.ArgumentParser()
args.add_argument("kind", choices=["mmap", "pread", "torch", "anamnesis"])
args.add_argument("model")
args.add_argument("--rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
args.add_argument("--world", type=int, default=1, help="number of workers")
args.add_argument("--barrier", help="a directory in which all workers create a file before any of them loads")
args.add_argument("--startup", type=float, default=0, help="seconds of computation between importing torch and loading")
args.add_argument("--order", choices=["file", "name"], default="file")
args.add_argument("--anamnesis", default="anamnesis", help="the command, for the kind `anamnesis`")
args = args.parse_args()
begun = time.monotonic()


def header(path):
    """(name, shape, offsets in the file) of each tensor, in file order."""
    with open(path, "rb", buffering=0) as file:
        (size,) = struct.unpack("<Q", file.read(8))
        entries = json.loads(file.read(size))
    entries.pop("__metadata__", None)
    entries = [(name, e["shape"], [8 + size + o for o in e["data_offsets"]]) for name, e in entries.items()]
    return sorted(entries, key=lambda e: e[2][0])


shards = sorted(glob.glob(f"{args.model}/*.safetensors"))
headers = {path: header(path) for path in shards}  # as frameworks do, before anything else

import torch  # here, because its import is the stage after the headers: seconds with few reads of the device

torch.set_num_threads(1)
startup_end = time.monotonic() + args.startup
while time.monotonic() < startup_end:
    sum(range(10000))


def share(size):
    """First and last of this worker's rows or columns, of `size`."""
    each = -(-size // args.world)
    return min(args.rank * each, size), min((args.rank + 1) * each, size)


def slices(name, shape):
    """Rows and columns that this worker loads: output projections are split by columns, other matrices by rows, vectors not
    at all."""
    ranges = [(0, size) for size in shape]
    if len(shape) == 2 and args.world > 1:
        axis = 1 if "o_proj" in name or "down_proj" in name else 0
        ranges[axis] = share(shape[axis])
    return ranges


def tensors():
    """(file, name, shape, offsets) in load order."""
    all_tensors = [(path, *entry) for path in shards for entry in headers[path]]
    return all_tensors if args.order == "file" else sorted(all_tensors, key=lambda e: e[1])


def checksum_of(data):
    return int(data.view(torch.int64).sum())


def load_by_mmap():
    from safetensors import safe_open

    files = {path: safe_open(path, framework="pt") for path in shards}
    for path, name, shape, _ in tensors():
        index = tuple(slice(*ends) for ends in slices(name, shape))
        yield checksum_of(files[path].get_slice(name)[index].contiguous().flatten())


def load_by_pread():
    files = {path: os.open(path, os.O_RDONLY) for path in shards}
    largest = max(entry[3][1] - entry[3][0] for entry in tensors())
    buffer = torch.empty(largest, dtype=torch.uint8)
    view = memoryview(buffer.numpy())
    for path, name, shape, (start, end) in tensors():
        rows, *columns = slices(name, shape)
        row_size = (end - start) // shape[0]
        offset, size = start + rows[0] * row_size, (rows[1] - rows[0]) * row_size
        read = 0
        while read < size:
            read += os.preadv(files[path], [view[read : min(size, read + (16 << 20))]], offset + read)
        data = buffer[:size]
        for first, last in columns:
            data = data.view(torch.int16).reshape(-1, shape[1])[:, first:last].contiguous()
        yield checksum_of(data.flatten())


def load_by_torch():
    for path in sorted(glob.glob(f"{args.model}/*.pth")):
        for tensor in torch.load(path, weights_only=True).values():
            yield checksum_of(tensor.flatten())


def load_by_anamnesis():
    import subprocess

    command = [args.anamnesis, "load", args.model, "--loader", "pread", "--json"]
    document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    global load_seconds
    load_seconds = document["rounds"][0]["seconds"]  # without the command's measurement of the device
    yield document["nbytes"]


if args.barrier:  # as processes that exchange tensors do before they load
    open(f"{args.barrier}/{args.rank}", "w").close()
    deadline = time.monotonic() + 120
    while len(os.listdir(args.barrier)) < args.world:
        if time.monotonic() > deadline:
            sys.exit(f"{args.rank}: not all of {args.world} workers are ready")
        time.sleep(0.002)
load_seconds = None
ready = time.monotonic()
loaders = {"mmap": load_by_mmap, "pread": load_by_pread, "torch": load_by_torch, "anamnesis": load_by_anamnesis}
checksum = sum(loaders[args.kind]()) & (2**63 - 1)
done = time.monotonic() if load_seconds is None else ready + load_seconds
usage = resource.getrusage(resource.RUSAGE_SELF)
times = dict(begun=begun, ready=ready, done=done, checksum=checksum)
usage = dict(major_faults=usage.ru_majflt, cpu=usage.ru_utime + usage.ru_stime)
# one write, so that the lines of workers that end at the same time are not interleaved
os.write(1, (json.dumps(times | usage) + "\n").encode())
