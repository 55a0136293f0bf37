"""A stand-in for the function of ComfyUI that is replaced; it notes its calls."""

MMAP_TORCH_FILES = False
DISABLE_MMAP = False
CALLS = []


def load_torch_file(ckpt, safe_load=False, device=None, return_metadata=False):
    CALLS.append(ckpt)
    return {}
