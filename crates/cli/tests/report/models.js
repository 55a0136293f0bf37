// Models for the pages that `.ci/report` opens: headers with names and shapes, in files whose tensors are holes.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

const WIDTHS = { F32: 4, BF16: 2, F8_E4M3: 1 };

/** Writes a safetensors file; tensors are [name, dtype, shape]. Returns the bytes of its tensors. */
function writeSafetensors(file, tensors, metadata) {
  const entries = metadata ? [`"__metadata__":${JSON.stringify(metadata)}`] : [];
  let end = 0;
  for (const [name, dtype, shape] of tensors) {
    const start = end;
    end += WIDTHS[dtype] * shape.reduce((n, size) => n * size, 1);
    entries.push(`${JSON.stringify(name)}:{"dtype":"${dtype}","shape":${JSON.stringify(shape)},"data_offsets":[${start},${end}]}`);
  }
  let header = Buffer.from(`{${entries.join(",")}}`);
  header = Buffer.concat([header, Buffer.alloc((8 - (header.length % 8)) % 8, " ")]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  const out = fs.openSync(file, "w");
  fs.writeSync(out, Buffer.concat([length, header]));
  fs.ftruncateSync(out, 8 + header.length + end);
  fs.closeSync(out);
  return end;
}

/** A linear layer in FP8 with a scale per block of 128 × 128. */
function fp8(name, rows, columns) {
  return [
    [`${name}.weight`, "F8_E4M3", [rows, columns]],
    [`${name}.weight_scale_inv`, "F32", [Math.ceil(rows / 128), Math.ceil(columns / 128)]],
  ];
}

/** Qwen3-30B-A3B in FP8, in seven shards: 48 layers of 128 experts. */
function mixture(directory) {
  const layers = 48;
  const experts = 128;
  const [hidden, inner, heads, kv, head] = [2048, 768, 32, 4, 128];
  const tensors = [["model.embed_tokens.weight", "BF16", [151936, hidden]]];
  for (let layer = 0; layer < layers; layer++) {
    const p = `model.layers.${layer}`;
    tensors.push(
      [`${p}.input_layernorm.weight`, "BF16", [hidden]],
      [`${p}.post_attention_layernorm.weight`, "BF16", [hidden]],
      [`${p}.self_attn.q_norm.weight`, "BF16", [head]],
      [`${p}.self_attn.k_norm.weight`, "BF16", [head]],
      ...fp8(`${p}.self_attn.q_proj`, heads * head, hidden),
      ...fp8(`${p}.self_attn.k_proj`, kv * head, hidden),
      ...fp8(`${p}.self_attn.v_proj`, kv * head, hidden),
      ...fp8(`${p}.self_attn.o_proj`, hidden, heads * head),
      [`${p}.mlp.gate.weight`, "BF16", [experts, hidden]],
    );
    for (let expert = 0; expert < experts; expert++) {
      const e = `${p}.mlp.experts.${expert}`;
      tensors.push(...fp8(`${e}.gate_proj`, inner, hidden), ...fp8(`${e}.up_proj`, inner, hidden), ...fp8(`${e}.down_proj`, hidden, inner));
    }
  }
  tensors.push(["model.norm.weight", "BF16", [hidden]], ["lm_head.weight", "BF16", [151936, hidden]]);
  const shards = 7;
  const map = {};
  let total = 0;
  for (let shard = 0; shard < shards; shard++) {
    const part = tensors.slice(Math.floor((shard * tensors.length) / shards), Math.floor(((shard + 1) * tensors.length) / shards));
    const name = `model-${String(shard + 1).padStart(5, "0")}-of-${String(shards).padStart(5, "0")}.safetensors`;
    total += writeSafetensors(path.join(directory, name), part, { format: "pt" });
    for (const [tensor] of part) map[tensor] = name;
  }
  fs.writeFileSync(path.join(directory, "model.safetensors.index.json"), JSON.stringify({ metadata: { total_size: total }, weight_map: map }));
  fs.writeFileSync(path.join(directory, "config.json"), JSON.stringify({
    architectures: ["Qwen3MoeForCausalLM"], model_type: "qwen3_moe", hidden_size: hidden, num_hidden_layers: layers,
    num_attention_heads: heads, num_key_value_heads: kv, head_dim: head, intermediate_size: 6144, moe_intermediate_size: inner,
    num_experts: experts, num_experts_per_tok: 8, decoder_sparse_step: 1, norm_topk_prob: true, mlp_only_layers: [],
    max_position_embeddings: 262144, vocab_size: 151936, tie_word_embeddings: false, torch_dtype: "bfloat16",
    quantization_config: { quant_method: "fp8", activation_scheme: "dynamic", fmt: "e4m3", weight_block_size: [128, 128] },
  }));
  return directory;
}

/** 20 000 tensors: 40 layers of 83 experts. */
function many(file) {
  const tensors = [];
  for (let layer = 0; layer < 40; layer++) {
    const p = `model.layers.${layer}`;
    tensors.push([`${p}.input_layernorm.weight`, "BF16", [1024]], [`${p}.post_attention_layernorm.weight`, "BF16", [1024]]);
    for (let expert = 0; expert < 83; expert++) {
      for (const name of ["gate_proj", "up_proj", "down_proj"]) tensors.push(...fp8(`${p}.mlp.experts.${expert}.${name}`, 512, 1024));
    }
  }
  if (tensors.length !== 20000) throw new Error(`${tensors.length} tensors`);
  writeSafetensors(file, tensors, { format: "pt" });
  return file;
}

/** Names, metadata and a path that would run, if any part of the page took them for markup, script or a link. */
function hostile(directory) {
  const marks = [
    "</script><script>window.ran=1</script>",
    "<img src=x onerror=\"window.ran=2\">",
    "</style><style>body{display:none}</style>",
    "<!--<script>",
    "]]><svg onload=window.ran=3>",
    "javascript:window.ran=4",
    "${window.ran=5}",
    "';window.ran=6;//",
    "\u202e\u2066reversed\u2069\u202c",
    "line\u2028separator\u2029\u0085",
    "nul\u0000\u001b[31m",
    "__proto__", "constructor", "toString", "model.layers.__proto__.0.constructor",
    "עברית.שכבה.0.משקל",
    "..", "...", ".a", "a.", "",
    "@@data@@", "@@script@@",
  ];
  const tensors = [];
  marks.forEach((mark, i) => {
    tensors.push([mark, "F32", [4 + i]]);
    tensors.push([`model.layers.${i}.${mark}.weight`, "BF16", [64, 8 + i]]);
    tensors.push([`model.layers.${i}.attn.weight`, "BF16", [64, 64]]);
  });
  tensors.push(["x".repeat(1 << 20), "F32", [5]]);
  tensors.push([`deep.${"a.".repeat(5000)}b`, "F32", [6]]);
  tensors.push([`model.layers.3.${"<b>".repeat(100000)}`, "F32", [7]]);
  for (let i = 0; i < 300; i++) tensors.push([`${"<u>".repeat(40)}${i}`, "F32", [1]]);
  const metadata = {};
  for (const mark of marks) metadata[mark] = mark;
  metadata.long = "<i>long</i> ".repeat(50000);
  const file = path.join(directory, "<img src=x onerror=window.ran=7>.safetensors");
  writeSafetensors(file, tensors, metadata);
  fs.writeFileSync(path.join(directory, "config.json"), JSON.stringify({
    model_type: "<script>window.ran=8</script>", num_hidden_layers: 23, hidden_size: 64, num_attention_heads: 4,
  }));
  return file;
}

module.exports = { mixture, many, hostile };
