"""Makes a model of a given size with the shapes of a Qwen2-like checkpoint: shards of safetensors, and the same as .pth.

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

hidden, inner, kv = 2048, 5632, 512
layer = {
    "self_attn.q_proj.weight": (hidden, hidden), "self_attn.k_proj.weight": (kv, hidden),
    "self_attn.v_proj.weight": (kv, hidden), "self_attn.o_proj.weight": (hidden, hidden),
    "mlp.gate_proj.weight": (inner, hidden), "mlp.up_proj.weight": (inner, hidden),
    "mlp.down_proj.weight": (hidden, inner), "input_layernorm.weight": (hidden,),
    "post_attention_layernorm.weight": (hidden,),
}
each = sum(torch.Size(shape).numel() * 2 for shape in layer.values())
layers = max(args.shards, round(args.gb * 1e9 / each))
torch.manual_seed(0)
noise = torch.randint(-(2**15), 2**15 - 1, (inner * hidden + 4096,), dtype=torch.int16)
weights = {}
for shard in range(args.shards):
    tensors = {}
    for number in range(shard * layers // args.shards, (shard + 1) * layers // args.shards):
        for at, (name, shape) in enumerate(layer.items()):
            start = (number * 9 + at) % 4096
            part = noise[start : start + torch.Size(shape).numel()].view(torch.bfloat16)
            tensors[f"model.layers.{number}.{name}"] = part.reshape(shape)
    entries, at = {}, 0
    for name, tensor in tensors.items():
        entries[name] = dict(dtype="BF16", shape=list(tensor.shape), data_offsets=[at, at + tensor.numel() * 2])
        at += tensor.numel() * 2
    head = json.dumps(entries).encode()
    head += b" " * (-len(head) % 8)
    name = f"model-{shard + 1:05}-of-{args.shards:05}"
    with open(f"{args.dir}/safetensors/{name}.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for tensor in tensors.values():
            file.write(tensor.flatten().view(torch.uint8).numpy().data)
        os.fsync(file.fileno())
    weights |= {tensor: f"{name}.safetensors" for tensor in tensors}
    # cloned, or all would be views of one storage
    torch.save({name: tensor.clone() for name, tensor in tensors.items()}, f"{args.dir}/torch/{name}.pth")
with open(f"{args.dir}/safetensors/model.safetensors.index.json", "w") as file:
    json.dump(dict(metadata={}, weight_map=weights), file)
os.sync()
