#!/usr/bin/env python3
"""Prints the table of quantize.rs: checksums of the blocks that llama.cpp's library makes of the same rows.

    quantize_checksums.py libggml-base.so

quantize.rs generates the same rows and the same importance.
"""

import ctypes
import sys

import numpy as np

TYPES = {
    "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "IQ1_S": (19, 256, 50), "IQ1_M": (29, 256, 56),
    "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74), "IQ2_S": (22, 256, 82), "IQ3_XXS": (18, 256, 98),
    "IQ3_S": (21, 256, 110), "IQ4_NL": (20, 32, 18), "IQ4_XS": (23, 256, 136), "TQ1_0": (34, 256, 54),
    "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36),
}
NEEDS = {"IQ1_S", "IQ2_XXS", "IQ2_XS"}
ROWS, WIDTH = 12, 512
F = np.float32


def numbers(seed):
    while True:
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        yield F(F(seed >> 8) / F(16777216))


def rows():
    source, made = numbers(7), np.zeros((ROWS, WIDTH), "f4")
    for row in range(ROWS):
        for column in range(WIDTH):
            x = F(next(source) - F(0.5))
            made[row, column] = {
                1: F(x * F(0.001)), 2: F(x * F(100)), 3: F(0) if x > F(-0.45) else x, 4: F(x + F(0.5)),
                5: F(np.floor(F(x * F(16))) * F(0.25)), 6: F(0.75), 7: F(0), 8: F(1000) if column == 77 else x,
                9: F(F(x * x) * x), 10: -F(x + F(0.5)), 11: F(x * F(1e-39)),
            }.get(row, x)
    return made


def checksum(data):
    total = 0xCBF29CE484222325
    for byte in data.tobytes():
        total = ((total ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return total


def main():
    quantise = ctypes.CDLL(sys.argv[1]).ggml_quantize_chunk
    quantise.restype = ctypes.c_size_t
    quantise.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
    values = rows()
    source = numbers(99)
    importance = np.array([F(next(source) + F(0.01)) for _ in range(WIDTH)], "f4")
    for name, (number, length, nbytes) in TYPES.items():
        sums = []
        for weights in (None, importance):
            if weights is None and name in NEEDS:
                sums.append(0)
                continue
            out = np.zeros(ROWS * WIDTH // length * nbytes, "u1")
            address = None if weights is None else weights.ctypes.data
            quantise(number, values.ctypes.data, out.ctypes.data, 0, ROWS, WIDTH, address)
            sums.append(checksum(out))
        print(f'    ("{name}", {sums[0]:#018x}, {sums[1]:#018x}),'.replace("0x0000000000000000", "0"))


if __name__ == "__main__":
    main()
