# One type in gguf-py: decodes a file of blocks again and again, prints the least time of a call; or the elements.
import sys, time
import numpy as np
from gguf import GGMLQuantizationType, dequantize
name, path, elements = sys.argv[1], sys.argv[2], int(sys.argv[3])
kind = getattr(GGMLQuantizationType, name, None)
if kind is None:
    sys.exit(f"it does not know {name}")
blocks = np.fromfile(path, np.uint8)
try:
    decoded = dequantize(blocks, kind)
except NotImplementedError as error:
    sys.exit(f"it has no decoder of this: {error}")
if sys.argv[4:] == ["bytes"]:
    sys.stdout.buffer.write(decoded.astype("<f4").tobytes())
    sys.exit()
best, started = float("inf"), time.perf_counter()
while time.perf_counter() - started < 0.05:
    began = time.perf_counter_ns()
    dequantize(blocks, kind)
    best = min(best, time.perf_counter_ns() - began)
print("F32", best, elements)
