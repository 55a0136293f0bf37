# One Python variant of `inspect`: opens a file for half a second, prints median and minimum in nanoseconds and the tensors.
import sys, time
name, path = sys.argv[1:3]
if name.startswith("torch.load"):
    import torch
    kw = {"mmap": True} if "mmap" in name else {}
    run = lambda: len(torch.load(path, weights_only=True, map_location="cpu", **kw))
elif name.startswith("numpy"):
    import numpy as np
    from numpy.lib import format as f
    def run():
        n = 0
        with np.load(path) as z:
            for member in z.zip.namelist():  # headers only, no data
                with z.zip.open(member) as m:
                    version = f.read_magic(m)
                    f._read_array_header(m, version) if hasattr(f, "_read_array_header") else f.read_array_header_1_0(m)
                    n += 1
        return n
elif name.startswith("safetensors.torch"):
    from safetensors.torch import load_file
    run = lambda: len(load_file(path))
elif name.startswith("safetensors"):
    from safetensors import safe_open
    def run():
        with safe_open(path, "numpy") as s:
            return len(s.keys())
elif name.startswith("gguf"):
    from gguf import GGUFReader
    run = lambda: len(GGUFReader(path).tensors)

def timed():
    began = time.perf_counter_ns()
    return run(), time.perf_counter_ns() - began

tensors, first = timed()
times = [first]
if first < 2e9:  # a slower variant is timed once
    times, began = [], time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - began < 0.5 and len(times) < 5000):
        seen, took = timed()
        assert seen == tensors
        times.append(took)
times.sort()
print(times[len(times) // 2], times[0], tensors)
