// Models for the pages that `.ci/report` opens: headers with names and shapes, in files whose tensors are holes or, for
// statistics, have values.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

const WIDTHS = { F32: 4, BF16: 2, F8_E4M3: 1 };

/** Writes a safetensors file; tensors are [name, dtype, shape], `bytesOf` their bytes. Returns how many they have. */
function writeSafetensors(file, tensors, metadata, bytesOf) {
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
  if (bytesOf) for (const tensor of tensors) fs.writeSync(out, bytesOf(...tensor));
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

/** A mixture of experts in FP8 with these sizes, in shards. Attention has heads of `head`, an eighth of them for keys. */
function writeMixture(directory, { layers, experts, hidden, inner, heads, head, vocabulary, shards }, bytesOf) {
  const kv = heads / 8;
  const tensors = [["model.embed_tokens.weight", "BF16", [vocabulary, hidden]]];
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
  tensors.push(["model.norm.weight", "BF16", [hidden]], ["lm_head.weight", "BF16", [vocabulary, hidden]]);
  const map = {};
  let total = 0;
  for (let shard = 0; shard < shards; shard++) {
    const part = tensors.slice(Math.floor((shard * tensors.length) / shards), Math.floor(((shard + 1) * tensors.length) / shards));
    const name = `model-${String(shard + 1).padStart(5, "0")}-of-${String(shards).padStart(5, "0")}.safetensors`;
    total += writeSafetensors(path.join(directory, name), part, { format: "pt" }, bytesOf);
    for (const [tensor] of part) map[tensor] = name;
  }
  fs.writeFileSync(path.join(directory, "model.safetensors.index.json"), JSON.stringify({ metadata: { total_size: total }, weight_map: map }));
  fs.writeFileSync(path.join(directory, "config.json"), JSON.stringify({
    architectures: ["Qwen3MoeForCausalLM"], model_type: "qwen3_moe", hidden_size: hidden, num_hidden_layers: layers,
    num_attention_heads: heads, num_key_value_heads: kv, head_dim: head, intermediate_size: 8 * inner, moe_intermediate_size: inner,
    num_experts: experts, num_experts_per_tok: 8, decoder_sparse_step: 1, norm_topk_prob: true, mlp_only_layers: [],
    max_position_embeddings: 262144, vocab_size: vocabulary, tie_word_embeddings: false, torch_dtype: "bfloat16",
    quantization_config: { quant_method: "fp8", activation_scheme: "dynamic", fmt: "e4m3", weight_block_size: [128, 128] },
  }));
  return directory;
}

/** Qwen3-30B-A3B in FP8, in seven shards: 48 layers of 128 experts. */
function mixture(directory) {
  return writeMixture(directory, {
    layers: 48, experts: 128, hidden: 2048, inner: 768, heads: 32, head: 128, vocabulary: 151936, shards: 7,
  });
}

/** Numbers between 0 and 1, the same in every run (mulberry32). */
function randomNumbers(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Normally distributed numbers. */
function normalNumbers(seed) {
  const random = randomNumbers(seed);
  return () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

/** The code of the nearest number of E4M3. */
function e4m3(x) {
  const size = Math.min(448, Math.abs(x));
  const exponent = Math.max(-6, Math.floor(Math.log2(size || 2 ** -10)));
  // 8 to 16 eighths, of which 16 are the next exponent; below 8 the number is subnormal
  const code = Math.round(size / 2 ** (exponent - 3)) + 8 * (exponent + 6);
  return Math.min(0x7e, code) | (x < 0 ? 0x80 : 0);
}

const bf16Bytes = (values) => Buffer.from(Uint16Array.from(new Uint32Array(Float32Array.from(values).buffer), (bits) => (bits + 0x8000) >>> 16).buffer);

/** The standard deviation of the weights of a tensor: by kind, and rising with the layer. */
function deviation(name) {
  const layer = Number((/layers\.(\d+)\./.exec(name) || [0, 0])[1]);
  const kind = /attn/.test(name) ? 0.03 : /down_proj/.test(name) ? 0.012 : 0.02;
  return kind * (1 + layer / 16);
}

// What is wrong with the values of a mixture.
const FAULTS = {
  nan: "model.layers.3.mlp.experts.5.down_proj.weight",
  zeroRows: "model.layers.4.mlp.experts.2.up_proj.weight",
  constant: "model.layers.1.self_attn.q_proj.weight",
};

/** Values of a mixture: those of linear layers are normally distributed, norms are close to 1, and some are wrong. */
function mixtureValues() {
  const normal = normalNumbers(25);
  return (name, dtype, shape) => {
    const count = shape.reduce((n, size) => n * size, 1);
    const std = deviation(name);
    const scale = (6 * std) / 448;
    if (dtype === "F32") return Buffer.from(new Float32Array(count).fill(scale).buffer);
    if (dtype === "BF16") {
      const [middle, width] = /norm/.test(name) ? [1, 0.1] : [0, std];
      return bf16Bytes(Array.from({ length: count }, () => middle + width * normal()));
    }
    if (name === FAULTS.constant) return Buffer.alloc(count, 0x30);
    const codes = Buffer.from(Uint8Array.from({ length: count }, () => e4m3((std * normal()) / scale)));
    if (name === FAULTS.nan) codes[12] = 0x7f;
    if (name === FAULTS.zeroRows) codes.fill(0, 8 * shape[1], 24 * shape[1]);
    return codes;
  };
}

/** A small mixture in FP8 with values, in three shards. */
function valued(directory, sizes) {
  const small = { layers: 8, experts: 12, hidden: 256, inner: 64, heads: 8, head: 32, vocabulary: 512, shards: 3 };
  return writeMixture(directory, { ...small, ...sizes }, mixtureValues());
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

/** 20 000 tensors with values: 40 layers of 166 experts. */
function dense(file) {
  const tensors = [];
  for (let layer = 0; layer < 40; layer++) {
    const p = `model.layers.${layer}`;
    tensors.push([`${p}.input_layernorm.weight`, "BF16", [64]], [`${p}.post_attention_layernorm.weight`, "BF16", [64]]);
    for (let expert = 0; expert < 166; expert++) {
      for (const name of ["gate_proj", "up_proj", "down_proj"]) tensors.push([`${p}.mlp.experts.${expert}.${name}.weight`, "BF16", [8, 8]]);
    }
  }
  if (tensors.length !== 20000) throw new Error(`${tensors.length} tensors`);
  writeSafetensors(file, tensors, { format: "pt" }, mixtureValues());
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

module.exports = { mixture, valued, many, dense, hostile };
