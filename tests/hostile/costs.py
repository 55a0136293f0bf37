#!/usr/bin/env python3
"""The cost of hostile inputs to the command: status, processor time, peak memory and size of the output of each.

    cargo build --release -p anamnesis-tensors-cli
    python3 tests/hostile/costs.py target/release/anamnesis [FILTER]

Makes each input in a temporary directory, runs the command on it and prints one row per run. Exits with 1 if a run ends by a
signal, takes more than 2 s of processor time or 256 MiB, writes more than 8 bytes per byte of the input, or has another
status than expected. Needs Python 3.11 and nothing else. Runs that need root or a kernel feature are skipped aloud.
"""

import io
import json
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

MOST_SECONDS = 2.0
MOST_BYTES = 256 << 20
MOST_RATIO = 8
# headings, totals, warnings
FIXED_OUTPUT = 16 << 10

CASES = []


def case(*runs, code=0):
    """A function that makes an input; `runs` are the arguments, with {} for its path, and `code` the expected status."""

    def add(make):
        CASES.append((make.__name__, make, runs or (("inspect", "{}"),), code))
        return make

    return add


def safetensors(path, entries):
    header = "{" + ",".join(entries) + "}"
    data = header.encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(data)) + data)


def empty(name, shape="0", dtype="F32"):
    return f'{json.dumps(name)}:{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[0,0]}}'


def checkpoint(directory, names, config=None):
    path = os.path.join(directory, "model")
    os.mkdir(path)
    safetensors(os.path.join(path, "model.safetensors"), [empty(n) for n in names])
    if config is not None:
        with open(os.path.join(path, "config.json"), "w") as f:
            f.write(config)
    return path


INSPECT = ("inspect", "{}")
PLAN = ("plan", "{}")
VIEWS = (INSPECT, ("inspect", "--tree", "{}"), ("inspect", "--json", "{}"), PLAN, ("plan", "--json", "{}"))


def weights(n):
    return [f"model.layers.{i}.mlp.up_proj.weight" for i in range(n)]


@case(PLAN, INSPECT)
def config_lists_of_modules(d):
    lists = {k: [f"model.layers.{i}.mlp.gate" for i in range(22_000)] for k in ("modules_to_not_convert", "ignore")}
    return checkpoint(d, weights(6_000), json.dumps({"quantization_config": {"quant_method": "gptq", **lists}}))


@case(PLAN)
def config_one_long_module(d):
    config = {"quantization_config": {"quant_method": "gptq", "ignore": ["a." * 500_000, "re:" + "a*" * 300_000]}}
    return checkpoint(d, weights(6_000), json.dumps(config))


@case(PLAN)
def config_patterns_that_begin_alike(d):
    ignored = [f"model.layers.*{'a' * (i % 40)}*{i}" for i in range(22_000)]
    return checkpoint(d, weights(6_000), json.dumps({"quantization_config": {"quant_method": "gptq", "ignore": ignored}}))


@case(PLAN, ("remember", "{}", "-o", "{out}/"), code=1)
def config_of_16_mb(d):
    return checkpoint(d, weights(3), '{"quantization_config":{"a":[' + "[0]," * (4 << 20) + "0]}}")


def index(directory, text):
    path = os.path.join(directory, "model.safetensors.index.json")
    with open(path, "w") as f:
        f.write(text)
    return path


@case(INSPECT, code=1)
def index_with_nested_metadata_38_mb(d):
    return index(d, '{"metadata":{"a":[' + "[0]," * 9_500_000 + '0]},"weight_map":{}}')


@case(INSPECT, code=1)
def index_with_a_million_short_pairs(d):
    pairs = ",".join(f'"{i:x}":"a"' for i in range(1_500_000))
    return index(d, '{"weight_map":{' + pairs + "}}")


def link_as_index(directory, to):
    path = os.path.join(directory, "model.safetensors.index.json")
    os.symlink(to, path)
    return path


@case(INSPECT, code=1)
def index_linked_to_dev_zero(d):
    return link_as_index(d, "/dev/zero")


@case(INSPECT, code=1)
def index_linked_to_proc(d):
    return link_as_index(d, "/proc/self/maps")


@case(INSPECT, code=1)
def index_that_is_a_fifo(d):
    path = os.path.join(d, "model.safetensors.index.json")
    os.mkfifo(path)
    return path


@case(INSPECT, code=1)
def shard_that_is_a_fifo(d):
    os.mkfifo(os.path.join(d, "a.safetensors"))
    return index(d, '{"weight_map":{"w":"a.safetensors"}}')


@case(INSPECT, code=1)
def shard_that_is_a_socket(d):
    s = socket.socket(socket.AF_UNIX)
    s.bind(os.path.join(d, "a.safetensors"))
    s.close()
    return index(d, '{"weight_map":{"w":"a.safetensors"}}')


@case(PLAN, code=1)
def config_that_is_dev_zero(d):
    path = checkpoint(d, weights(3))
    os.symlink("/dev/zero", os.path.join(path, "config.json"))
    return path


@case(*VIEWS[:3], code=1)
def metadata_of_59_mb(d):
    path = os.path.join(d, "a.safetensors")
    pairs = ",".join(f'"{i:x}":""' for i in range(5_400_000))
    safetensors(path, ['"__metadata__":{' + pairs + "}"])
    return path


@case(*VIEWS[:3], code=1)
def shapes_of_80_mb(d):
    path = os.path.join(d, "a.safetensors")
    safetensors(path, [empty("a", ",".join(["0"] * 40_000_000))])
    return path


@case(*VIEWS)
def names_of_one_character(d):
    path = os.path.join(d, "a.safetensors")
    safetensors(path, [empty(f"{i:x}") for i in range(60_000)])
    return path


@case(*VIEWS)
def one_name_of_1_mb_beside_20_000(d):
    path = os.path.join(d, "a.safetensors")
    safetensors(path, [empty(f"{i:x}") for i in range(20_000)] + [empty("x." * (1 << 19))])
    return path


@case(*VIEWS)
def hidden_characters(d):
    path = os.path.join(d, "a.safetensors")
    text = "\x1b\x9b\x7f\u202e\U000e0041" * 100
    meta = '"__metadata__":' + json.dumps({text: text})
    safetensors(path, [meta] + [empty(f"{text}{i}") for i in range(2_000)])
    return path


def npy(descr, shape="()", data=b""):
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    version = 2 if len(header) > 60_000 else 1
    length = struct.pack("<I" if version == 2 else "<H", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


@case(*VIEWS[:3])
def structured_dtypes(d):
    path = os.path.join(d, "a.npz")
    with zipfile.ZipFile(path, "w") as z:
        for i in range(20_000):
            z.writestr(f"{i:x}.npy", npy(f"[('{i:x}', '<i4')]", "(0,)"))
    return path


@case(INSPECT, code=1)
def executable_with_an_npz_at_its_end(d):
    path = os.path.join(d, "a.npz")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as z:
        z.writestr("a.npy", npy("'<f4'", "(1,)", bytes(4)))
    with open(path, "wb") as f:
        f.write(b"\x7fELF" + bytes(4096) + data.getvalue())
    return path


@case(INSPECT, code=1)
def two_archives(d):
    path = os.path.join(d, "a.npz")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as z:
        z.writestr("a.npy", npy("'<f4'", "(1,)", bytes(4)))
    with open(path, "wb") as f:
        f.write(data.getvalue() * 2)
    return path


@case(INSPECT)
def one_odd_member_of_an_npz(d):
    path = os.path.join(d, "a.npz")
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("good.npy", npy("'<f4'", "(1,)", bytes(4)))
        z.writestr("odd.npy", npy("'|O'", "(1,)", bytes(8)))
    return path


@case(INSPECT, code=1)
def deflated_headers(d):
    path = os.path.join(d, "a.npz")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for i in range(200):
            z.writestr(f"{i}.npy", npy("[" + "('', '<i4')," * 60_000 + "]", "(0,)"))
    return path


@case(("inspect", "--hash", "{}"), code=1)
def a_view_of_a_petabyte(d):
    """One number, repeated by strides of 0: only this tensor is refused, `b` is hashed."""
    path = os.path.join(d, "a.pth")

    def tensor(shape, strides):
        ints = lambda v: b"(" + b"".join(b"\x8a\x08" + struct.pack("<q", n) for n in v) + b"t"
        storage = b"((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01tQ"
        return b"ctorch._utils\n_rebuild_tensor_v2\n" + storage + b"K\0" + ints(shape) + ints(strides) + b"\x89}tR"

    body = b"\x80\x02}(X\x01\0\0\0a" + tensor([1 << 48], [0]) + b"X\x01\0\0\0b" + tensor([1], [1]) + b"u."
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("a/data.pkl", body)
        z.writestr("a/data/0", bytes(4))
        z.writestr("a/version", b"3\n")
    return path


@case(INSPECT, code=1)
def gguf_of_nested_arrays(d):
    path = os.path.join(d, "a.gguf")
    nested = struct.pack("<IQ", 9, 1) * 1_000_000 + struct.pack("<IQ", 0, 0)
    with open(path, "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"a" + struct.pack("<I", 9) + nested)
    return path


@case(INSPECT, PLAN)
def gguf_of_short_keys(d):
    path = os.path.join(d, "a.gguf")
    count = 600_000
    keys = b"".join(struct.pack("<Q", 5) + f"{i:05x}".encode() + struct.pack("<IB", 0, 1) for i in range(count))
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, count) + keys
    with open(path, "wb") as f:
        f.write(data + bytes(-len(data) % 32))
    return path


@case(("remember", "{}", "-o", "{out}/" + "n" * 255), ("remember", "{}", "-o", "{out}/" + "n" * 244))
def output_names_of_255_bytes(d):
    path = os.path.join(d, "a.safetensors")
    safetensors(path, [empty("a")])
    return path


@case(("remember", "{}", "-o", "{out}/null", "--overwrite"), code=1)
def output_that_links_to_a_device(d):
    path = os.path.join(d, "a.safetensors")
    safetensors(path, [empty("a")])
    os.symlink("/dev/null", os.path.join(d, "out", "null"))
    return path


@case(("remember", "{}", "-o", "{out}/", "--shard-size", "1B"), code=1)
def more_shards_than_descriptors(d):
    path = os.path.join(d, "a.safetensors")
    entries = [f'"{i}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i in range(1_020)]
    safetensors(path, entries)
    with open(path, "ab") as f:
        f.write(bytes(1_020))
    return path


def input_size(path):
    if not os.path.isdir(path):
        status = os.lstat(path)
        return status.st_size
    return sum(os.lstat(os.path.join(path, name)).st_size for name in os.listdir(path))


def limit_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))


def run(command, args):
    """Runs the command; its status, processor seconds, peak bytes and bytes of output."""
    read, write = os.pipe()
    child = subprocess.Popen([command, *args], stdin=subprocess.DEVNULL, stdout=write, stderr=write, preexec_fn=limit_descriptors)
    os.close(write)
    written = 0

    def drain():
        nonlocal written
        while chunk := os.read(read, 1 << 16):
            written += len(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    killer = threading.Timer(60, child.kill)
    killer.start()
    _, status, usage = os.wait4(child.pid, 0)
    killer.cancel()
    reader.join()
    os.close(read)
    child.returncode = 0
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, written


def main():
    command = os.path.abspath(sys.argv[1])
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    failures = []
    print("| input | bytes | run | status | s | peak MiB | output bytes |\n|---|--:|---|--:|--:|--:|--:|")
    for name, make, runs, code in CASES:
        if wanted not in name:
            continue
        directory = tempfile.mkdtemp(prefix="anamnesis-hostile-")
        try:
            out = os.path.join(directory, "out")
            os.mkdir(out)
            path = make(directory)
            size = input_size(path)
            for args in runs:
                args = [a.replace("{out}", out).replace("{}", path) for a in args]
                status, seconds, peak, written = run(command, args)
                shown = " ".join(a for a in args if a != path).replace(out, "OUT").replace("n" * 200, "n…")
                print(f"| {name.replace('_', ' ')} | {size} | {shown} | {status} | {seconds:.2f} | {peak / 2**20:.0f} | {written} |", flush=True)
                faults = [
                    (status != code, f"status {status} instead of {code}"),
                    (seconds > MOST_SECONDS, f"{seconds:.2f} s"),
                    (peak > MOST_BYTES, f"{peak} bytes of memory"),
                    (written > MOST_RATIO * size + FIXED_OUTPUT, f"{written} bytes of output"),
                ]
                failures += [f"{name}: {shown}: {what}" for wrong, what in faults if wrong]
        finally:
            shutil.rmtree(directory)
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
