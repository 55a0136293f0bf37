# Decodes a file of blocks with gguf-py for 50 ms and prints the fastest call, or with `bytes` prints the elements.
import sys, time
import numpy as np
from gguf import GGMLQuantizationType, dequantize
name, path, elements = sys.argv[1], sys.argv[2], int(sys.argv[3])
kind = getattr(GGMLQuantizationType, name, None)
if kind is None:
    sys.exit(f"unknown type {name}")
blocks = np.fromfile(path, np.uint8)
try:
    decoded = dequantize(blocks, kind)
except NotImplementedError as error:
    sys.exit(f"no decoder for this type: {error}")
if sys.argv[4:] == ["bytes"]:
    sys.stdout.buffer.write(decoded.astype("<f4").tobytes())
    sys.exit()
fastest, started = float("inf"), time.perf_counter()
while time.perf_counter() - started < 0.05:
    began = time.perf_counter_ns()
    dequantize(blocks, kind)
    fastest = min(fastest, time.perf_counter_ns() - began)
print("F32", fastest, elements)
