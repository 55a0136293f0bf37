"""GPTQ's and AWQ's formulas written out in torch, for libraries whose own kernels do not run here."""
import torch
from safetensors.torch import load_file


def unpacked(words, bits, along):
    """Codes of whole 32-bit words, the lowest bits first."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    if along == 0:
        return ((words[:, None, :] >> shifts[None, :, None]) & (2**bits - 1)).flatten(0, 1)
    return ((words[:, :, None] >> shifts) & (2**bits - 1)).flatten(1, 2)


def gptq(tensors, module, bits, version=1):
    """`scale * (code - zero)`; version 1 stores zero points less one."""
    codes = unpacked(tensors[module + ".qweight"], bits, 0)
    zeros = unpacked(tensors[module + ".qzeros"], bits, 1)
    zeros = (zeros + 1) & (2**bits - 1) if version == 1 else zeros
    scales = tensors[module + ".scales"]
    groups = tensors.get(module + ".g_idx")
    if groups is None:
        groups = torch.arange(len(codes)) // (len(codes) // len(scales))
    groups = groups.long()
    return (scales[groups].float() * (codes - zeros[groups]).float()).t()


# the order of the codes of a word
AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]


def awq(tensors, module):
    """`(code - zero) * scale` of 4 bits, packed along the outputs."""
    ordered = [
        unpacked(tensors[module + part], 4, 1).unflatten(1, (-1, 8))[..., AWQ_ORDER].flatten(1)
        for part in (".qweight", ".qzeros")
    ]
    codes, zeros = ordered
    scales = tensors[module + ".scales"]
    groups = torch.arange(len(codes)) // (len(codes) // len(scales))
    return ((codes - zeros[groups]).float() * scales[groups].float()).t()


def stored(folder):
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def modules(tensors):
    return [name.removesuffix(".qweight") for name in tensors if name.endswith(".qweight")]
