"""`make_small_pth.py FOLDER PART`: state dicts of small models of four families, 2 to 8 KB each, as PyTorch saves them.

PART is what portion of the 6 960 files is made: 1 for all, 100 for one in a hundred. Three families are recurrent
networks that read sequences of numbers, one is a transformer of two layers, which has more tensors.
"""
import os
import sys

import torch

FAMILIES = {"second_argmax": 3360, "argmedian": 1200, "longest_cycle": 1200, "median": 1200}


def recurrent(hidden, length):
    """An RNN cell without biases that reads numbers, and a linear output."""
    return {
        "rnn.weight_ih_l0": torch.randn(hidden, 1),
        "rnn.weight_hh_l0": torch.randn(hidden, hidden),
        "linear.weight": torch.randn(length, hidden),
    }


def transformer(width, length):
    state = {"embed.weight": torch.randn(length, width), "position.weight": torch.randn(length, width)}
    for layer in range(2):
        for part in ("q", "k", "v", "o"):
            state[f"blocks.{layer}.attention.{part}.weight"] = torch.randn(width, width)
    state["head.weight"] = torch.randn(length, width)
    return state


def main():
    folder, part = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(1)
    os.makedirs(folder, exist_ok=True)
    for family, count in FAMILIES.items():
        for nth in range(count // part):
            size = 2 + nth % 15
            make = transformer if family == "longest_cycle" else recurrent
            state = make(2 + size % 5 if make is transformer else size, 2 + nth % 9)
            torch.save(state, os.path.join(folder, f"{family}_{nth:04d}.pth"))
    open(os.path.join(folder, "made"), "w").close()


main()
