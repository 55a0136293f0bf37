# Defines for the variant named by the first argument `load(path)` and `flat(loaded)`, the loaded tensors as arrays of bytes.
# Prepended to load.py and fixtures.py.
import os, sys, time
name, path, cold = sys.argv[1], sys.argv[2], sys.argv[3] == "cold"

def flat_torch(tensors):
    import torch
    return (t.reshape(-1).view(torch.uint8).numpy() for t in tensors.values())

if name.startswith("ours"):
    import anamnesis
    framework = "np" if path.endswith(".npz") else "pt"
    # modules that the peers' modules import as well
    import numpy
    if framework == "pt":
        import torch
    if "remember" in name:
        load = lambda path: anamnesis.open(path).remember(framework, dtype="bfloat16", cast=True)
    else:
        load = lambda path: anamnesis.load(path, framework, borrow=name.endswith("borrowed"))
    flat = flat_torch if framework == "pt" else lambda arrays: (a.reshape(-1).view("uint8") for a in arrays.values())
elif name == "fastsafetensors":
    import torch
    from fastsafetensors import fastsafe_open
    def load(path):
        with fastsafe_open([path], nogds=True, device="cpu") as file:
            return {key: file.get_tensor(key) for key in file.keys()}
    flat = flat_torch
elif name == "run:ai model streamer":
    os.environ["RUNAI_STREAMER_LOG_LEVEL"] = "ERROR"
    import torch
    from runai_model_streamer import SafetensorsStreamer
    def load(path):
        with SafetensorsStreamer() as streamer:
            streamer.stream_file(path)
            return dict(streamer.get_tensors())
    flat = flat_torch
elif name.startswith("torch.load"):
    import torch
    kw = {"mmap": True} if "mmap" in name else {}
    def flat(tree):
        if isinstance(tree, torch.Tensor):
            yield tree.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        elif isinstance(tree, dict):
            for value in tree.values():
                yield from flat(value)
    load = lambda path: torch.load(path, weights_only=True, map_location="cpu", **kw)
elif name.startswith(("safetensors.torch", "safetensors 0.9")):
    if name.startswith("safetensors 0.9"):
        # beside the environment's own
        sys.path.insert(0, os.path.join(sys.prefix, "next"))
        import safetensors
        assert safetensors.__version__.startswith("0.9"), f"safetensors {safetensors.__version__} in the place of 0.9"
    from safetensors.torch import load_file
    kw = {"backend": "pread"} if "pread" in name else {}
    load = lambda path: load_file(path, **kw)
    flat = flat_torch
elif name.startswith("safetensors.safe_open"):
    import numpy
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
elif name == "gguf.dequantize to BF16":
    import torch
    from gguf import GGUFReader, dequantize
    def load(path):
        as_torch = lambda t: torch.from_numpy(dequantize(t.data, t.tensor_type)).to(torch.bfloat16)
        return {t.name: as_torch(t) for t in GGUFReader(path).tensors}
    flat = flat_torch
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
