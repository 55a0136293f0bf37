# One Python variant: loads a file some times, touches every page, prints nanoseconds and faults of each and a sum.
import os, resource, sys, time
name, path, cold = sys.argv[1], sys.argv[2], sys.argv[3] == "cold"

def touched(arrays):
    return sum(int(a[::4096].astype("uint64").sum()) for a in arrays) & (2**64 - 1)

if name.startswith("torch.load"):
    import torch
    kw = {"mmap": True} if "mmap" in name else {}
    def flat(tree):
        if isinstance(tree, torch.Tensor):
            yield tree.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        elif isinstance(tree, dict):
            for value in tree.values():
                yield from flat(value)
    load = lambda: torch.load(path, weights_only=True, map_location="cpu", **kw)
elif name.startswith("safetensors.torch"):
    import torch
    from safetensors.torch import load_file
    flat = lambda tree: (t.reshape(-1).view(torch.uint8).numpy() for t in tree.values())
    load = lambda: load_file(path)
elif name.startswith("safetensors.safe_open"):
    from safetensors import safe_open
    def load():
        with safe_open(path, "numpy") as file:
            return [file.get_tensor(key) for key in file.keys()]
    flat = lambda arrays: (a.reshape(-1).view("uint8") for a in arrays)
elif name.startswith("numpy"):
    import numpy as np
    def load():
        with np.load(path) as z:
            return [z[key] for key in z.files]
    flat = lambda tree: (np.ascontiguousarray(a).reshape(-1).view("uint8") for a in tree)
elif name.startswith("gguf.dequantize"):
    from gguf import GGUFReader, dequantize
    load = lambda: GGUFReader(path)
    def flat(reader):
        for tensor in reader.tensors:  # each is dropped before the next
            dequantize(tensor.data, tensor.tensor_type)
        return ()
elif name.startswith("gguf"):
    from gguf import GGUFReader
    load = lambda: GGUFReader(path)
    flat = lambda reader: (t.data.reshape(-1).view("uint8") for t in reader.tensors)

for _ in range(2 if cold else 3):
    if cold:  # as our variants do
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    faults, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter_ns()
    held = load()
    total = touched(flat(held))
    took, after = time.perf_counter_ns() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - faults.ru_utime - faults.ru_stime
    # what was dequantised is not compared: it is another dtype than most
    print(took, after.ru_minflt - faults.ru_minflt, int(cpu * 1e9), *[] if "one by one" in name else [total])
    del held
