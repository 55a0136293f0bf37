# Defines for the variant named by the first argument `load(path)` and `flat(loaded)`, the loaded tensors as arrays of bytes.
# Prepended to load.py and fixtures.py.
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
    load = lambda path: torch.load(path, weights_only=True, map_location="cpu", **kw)
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
elif name.startswith("gguf.dequantize"):
    from gguf import GGUFReader as load, dequantize
    def flat(reader):
        for tensor in reader.tensors:  # each is dropped before the next
            dequantize(tensor.data, tensor.tensor_type)
        return ()
elif name.startswith("gguf"):
    from gguf import GGUFReader as load
    flat = lambda reader: (t.data.reshape(-1).view("uint8") for t in reader.tensors)

def evict(path):  # as the Rust variants do
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
