# One Python variant over the files of a list: a line for each that it loads: its number, nanoseconds, the sum of its bytes.
import os, sys, time
name, path, cold = sys.argv[1], sys.argv[2], sys.argv[3] == "cold"

if name.startswith("torch.load"):
    import torch
    kw = {"mmap": True} if "mmap" in name else {}
    def flat(tree):
        if isinstance(tree, torch.Tensor):
            yield tree.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        elif isinstance(tree, dict):
            for value in tree.values():
                yield from flat(value)
    load = lambda file: torch.load(file, weights_only=True, map_location="cpu", **kw)
elif name.startswith("safetensors.torch"):
    import torch
    from safetensors.torch import load_file as load
    flat = lambda tree: (t.reshape(-1).view(torch.uint8).numpy() for t in tree.values())
elif name.startswith("safetensors.safe_open"):
    from safetensors import safe_open
    def load(path):
        with safe_open(path, "numpy") as file:
            return [file.get_tensor(key) for key in file.keys()]
    flat = lambda arrays: (a.reshape(-1).view("uint8") for a in arrays)
elif name.startswith("numpy"):
    import numpy as np
    def load(path):
        loaded = np.load(path)
        if isinstance(loaded, np.ndarray):
            return [loaded]
        with loaded:
            return [loaded[key] for key in loaded.files]
    flat = lambda arrays: (np.ascontiguousarray(a).reshape(-1).view("uint8") for a in arrays)
elif name.startswith("gguf"):
    from gguf import GGUFReader
    load = GGUFReader
    flat = lambda reader: (t.data.reshape(-1).view("uint8") for t in reader.tensors)

for number, file in enumerate(open(path).read().split("\n")):
    try:
        total = sum(int(a.astype("uint64").sum()) for a in flat(load(file)))
    except BaseException:
        continue
    times = []
    for _ in range(5):
        if cold:  # as our variants do
            with open(file, "rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter_ns()
        held = load(file)
        times.append(time.perf_counter_ns() - began)
        del held
    print(f"{number}\t{sorted(times)[2]}\t{total}")
