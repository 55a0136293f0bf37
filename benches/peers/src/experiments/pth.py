# One way of torch's: opens every file of a folder five times; a line for each: its family, its median, its tensors.
import os, sys, time
import torch
name, path = sys.argv[1:3]
kw = {"mmap": True} if "mmap" in name else {}
def opened(file):
    state = torch.load(file, weights_only=True, map_location="cpu", **kw)
    return sum(1 for value in state.values() if (tuple(value.shape), value.dtype, value.numel() * value.element_size()))
if os.path.isdir(path):
    names = sorted(n for n in os.listdir(path) if n.endswith(".pth"))
    files = [(n.rsplit("_", 1)[0], os.path.join(path, n)) for n in names]
else:
    files = [("", path)]
for family, file in files:
    tensors, times = opened(file), []
    for _ in range(5):
        began = time.perf_counter_ns()
        assert opened(file) == tensors
        times.append(time.perf_counter_ns() - began)
    print(f"{family}\t{sorted(times)[2]}\t{tensors}")
