"""One worker of an inference service that starts: looks at the model, imports its framework, loads its weights.

    loader.py KIND MODEL [--rank R] [--world W] [--meet DIR] [--startup SECONDS] [--order file|name]

The use of a tensor is simulated by summing its bytes: each is read once and released, as in a copy to a device.
Prints one line of JSON with the times of the stages (seconds of CLOCK_MONOTONIC) and the sum over all that was read.
"""

import argparse, glob, json, os, resource, struct, sys, time

args = argparse.ArgumentParser()
args.add_argument("kind", choices=["mmap", "pread", "torch", "ours"])
args.add_argument("model")
args.add_argument("--rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
args.add_argument("--world", type=int, default=1)
args.add_argument("--meet", help="a directory in which all workers say that they are ready, before any loads")
args.add_argument("--startup", type=float, default=0, help="more work before loading than importing torch")
args.add_argument("--order", choices=["file", "name"], default="file")
args.add_argument("--anamnesis", default="anamnesis", help="the command, for the kind `ours`")
args = args.parse_args()
begun = time.monotonic()


def header(path):
    """Names, shapes and offsets, in the order of the file."""
    with open(path, "rb", buffering=0) as file:
        (size,) = struct.unpack("<Q", file.read(8))
        entries = json.loads(file.read(size))
    entries.pop("__metadata__", None)
    entries = [(name, e["shape"], [8 + size + o for o in e["data_offsets"]]) for name, e in entries.items()]
    return sorted(entries, key=lambda e: e[2][0])


shards = sorted(glob.glob(f"{args.model}/*.safetensors"))
headers = {path: header(path) for path in shards}  # every framework looks at the model first

import torch  # the framework: seconds of work that asks the device for little

torch.set_num_threads(1)
busy = time.monotonic() + args.startup
while time.monotonic() < busy:
    sum(range(10000))


def share(size):
    """This worker's share of `count` rows or columns."""
    each = -(-size // args.world)
    return min(args.rank * each, size), min((args.rank + 1) * each, size)


def part(name, shape):
    """Rows and columns of a worker: the matrices that others' outputs go into are split by columns, norms not at all."""
    whole = [(0, size) for size in shape]
    if len(shape) == 2 and args.world > 1:
        axis = 1 if "o_proj" in name or "down_proj" in name else 0
        whole[axis] = share(shape[axis])
    return whole


def tensors():
    """(file, name, shape, offsets) in the order in which they are loaded."""
    every = [(path, *entry) for path in shards for entry in headers[path]]
    return every if args.order == "file" else sorted(every, key=lambda e: e[1])


def total(data):
    return int(data.view(torch.int64).sum())


def by_map():
    from safetensors import safe_open

    files = {path: safe_open(path, framework="pt") for path in shards}
    for path, name, shape, _ in tensors():
        cut = tuple(slice(*of) for of in part(name, shape))
        yield total(files[path].get_slice(name)[cut].contiguous().flatten())


def by_pread():
    files = {path: os.open(path, os.O_RDONLY) for path in shards}
    largest = max(entry[3][1] - entry[3][0] for entry in tensors())
    buffer = torch.empty(largest, dtype=torch.uint8)
    view = memoryview(buffer.numpy())
    for path, name, shape, (start, end) in tensors():
        rows, *columns = part(name, shape)
        row = (end - start) // shape[0]
        at, size = start + rows[0] * row, (rows[1] - rows[0]) * row
        read = 0
        while read < size:
            read += os.preadv(files[path], [view[read : min(size, read + (16 << 20))]], at + read)
        data = buffer[:size]
        for first, last in columns:
            data = data.view(torch.int16).reshape(-1, shape[1])[:, first:last].contiguous()
        yield total(data.flatten())


def by_torch():
    for path in sorted(glob.glob(f"{args.model}/*.pth")):
        for tensor in torch.load(path, weights_only=True).values():
            yield total(tensor.flatten())


def by_ours():
    import subprocess

    command = [args.anamnesis, "load", args.model, "--loader", "pread", "--json"]
    document = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    global took
    took = document["rounds"][0]["seconds"]  # the rest is the command looking at the device
    yield document["nbytes"]


if args.meet:  # as a group of processes that will exchange tensors does before it loads
    open(f"{args.meet}/{args.rank}", "w").close()
    patience = time.monotonic() + 120
    while len(os.listdir(args.meet)) < args.world:
        if time.monotonic() > patience:
            sys.exit(f"{args.rank}: not all of {args.world} workers are ready")
        time.sleep(0.002)
took = None
ready = time.monotonic()
kinds = {"mmap": by_map, "pread": by_pread, "torch": by_torch, "ours": by_ours}
checksum = sum(kinds[args.kind]()) & (2**63 - 1)
done = time.monotonic() if took is None else ready + took
used = resource.getrusage(resource.RUSAGE_SELF)
# one write, so that lines of workers that end together stay whole
times = dict(begun=begun, ready=ready, done=done, checksum=checksum)
used = dict(major_faults=used.ru_majflt, cpu=used.ru_utime + used.ru_stime)
os.write(1, (json.dumps(times | used) + "\n").encode())
