"""Writes a model of a given size with the shapes of a Qwen2 checkpoint: as safetensors shards, and as .pth shards.

    model.py DIR --gb N [--shards N]

Writes DIR/safetensors and DIR/torch.
"""

import argparse, json, os, struct

import torch

args = argparse.ArgumentParser()
args.add_argument("dir")
args.add_argument("--gb", type=float, default=3)
args.add_argument("--shards", type=int, default=4)
args = args.parse_args()
for format in ["safetensors", "torch"]:
    os.makedirs(f"{args.dir}/{format}", exist_ok=True)

hidden, intermediate, kv = 2048, 5632, 512
layer_shapes = {
    "self_attn.q_proj.weight": (hidden, hidden), "self_attn.k_proj.weight": (kv, hidden),
    "self_attn.v_proj.weight": (kv, hidden), "self_attn.o_proj.weight": (hidden, hidden),
    "mlp.gate_proj.weight": (intermediate, hidden), "mlp.up_proj.weight": (intermediate, hidden),
    "mlp.down_proj.weight": (hidden, intermediate), "input_layernorm.weight": (hidden,),
    "post_attention_layernorm.weight": (hidden,),
}
layer_size = sum(torch.Size(shape).numel() * 2 for shape in layer_shapes.values())
layer_count = max(args.shards, round(args.gb * 1e9 / layer_size))
torch.manual_seed(0)
# every tensor is a part of this noise with another start, which is faster than new random numbers for each
noise = torch.randint(-(2**15), 2**15 - 1, (intermediate * hidden + 4096,), dtype=torch.int16)
weight_map = {}
for shard in range(args.shards):
    tensors = {}
    for layer in range(shard * layer_count // args.shards, (shard + 1) * layer_count // args.shards):
        for index, (name, shape) in enumerate(layer_shapes.items()):
            start = (layer * 9 + index) % 4096
            part = noise[start : start + torch.Size(shape).numel()].view(torch.bfloat16)
            tensors[f"model.layers.{layer}.{name}"] = part.reshape(shape)
    entries, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * 2
        entries[name] = dict(dtype="BF16", shape=list(tensor.shape), data_offsets=[offset, end])
        offset = end
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    name = f"model-{shard + 1:05}-of-{args.shards:05}"
    with open(f"{args.dir}/safetensors/{name}.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for tensor in tensors.values():
            file.write(tensor.flatten().view(torch.uint8).numpy().data)
        os.fsync(file.fileno())
    weight_map |= {tensor: f"{name}.safetensors" for tensor in tensors}
    # cloned, because torch.save stores the whole storage of a view
    torch.save({name: tensor.clone() for name, tensor in tensors.items()}, f"{args.dir}/torch/{name}.pth")
with open(f"{args.dir}/safetensors/model.safetensors.index.json", "w") as file:
    json.dump(dict(metadata={}, weight_map=weight_map), file)
os.sync()
