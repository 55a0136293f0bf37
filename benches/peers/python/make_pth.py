"""`make_pth.py IN.safetensors OUT.pth`: saves the same tensors with torch.save."""
import os
import sys

import torch
from safetensors.torch import load_file

partial = sys.argv[2] + ".partial"
torch.save(load_file(sys.argv[1]), partial)
os.rename(partial, sys.argv[2])
