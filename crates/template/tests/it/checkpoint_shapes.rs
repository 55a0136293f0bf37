//! Published checkpoints without their weights, rebuilt from their configurations: names, shapes, shards and offsets. Also
//! compiled into the tests of the library (`tests/it/predict.rs`).
#![allow(dead_code)] // each of the two uses a part of it

use std::fmt::Write as _;

use anamnesis_template::parallel::{Rules, Split, slice};
use anamnesis_template::{ContentKey, File, StridedFileRange, Template, TemplateBuilder};

/// Element types, in the order in which safetensors files sort them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dtype {
    F32,
    BF16,
    F8,
}

impl Dtype {
    fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::BF16 => 2,
            Self::F8 => 1,
        }
    }

    /// The name in a header.
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::BF16 => "BF16",
            Self::F8 => "F8_E4M3",
        }
    }
}

#[derive(Clone, Debug)]
struct Tensor {
    name: String,
    shape: Vec<u64>,
    dtype: Dtype,
}

impl Tensor {
    fn nbytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.bytes()
    }
}

/// The files of a model, with each tensor's offset.
pub(crate) struct Model {
    files: Vec<(File, Vec<(Tensor, u64)>)>,
    /// The first bytes of each file.
    headers: Vec<Vec<u8>>,
    pub(crate) split: Split,
}

/// The tensors, in the order of the model.
#[derive(Default)]
struct TensorList(Vec<Tensor>);

impl TensorList {
    fn bf16(&mut self, name: impl Into<String>, shape: &[u64]) {
        self.0.push(Tensor {
            name: name.into(),
            shape: shape.into(),
            dtype: Dtype::BF16,
        });
    }

    /// An FP8 tensor with a scale per 128 × 128 elements.
    fn fp8(&mut self, name: &str, shape: [u64; 2]) {
        self.0.push(Tensor {
            name: format!("{name}.weight"),
            shape: shape.into(),
            dtype: Dtype::F8,
        });
        let scales = shape.map(|n| n.div_ceil(128)).into();
        self.0.push(Tensor {
            name: format!("{name}.weight_scale_inv"),
            shape: scales,
            dtype: Dtype::F32,
        });
    }

    /// Fills shards of at most `max_bytes` in order; in each, wide dtypes come first, then names
    /// ascending.
    fn shard(self, max_bytes: u64, split: Split) -> Model {
        let mut shards: Vec<(u64, Vec<Tensor>)> = vec![(0, Vec::new())];
        for tensor in self.0 {
            let nbytes = tensor.nbytes();
            if shards
                .last()
                .is_some_and(|(full, list)| full + nbytes > max_bytes && !list.is_empty())
            {
                shards.push((0, Vec::new()));
            }
            let shard = shards.last_mut().unwrap();
            shard.0 += nbytes;
            shard.1.push(tensor);
        }
        let count = shards.len();
        let mut headers = Vec::new();
        let file = |(i, (nbytes, mut tensors)): (usize, (u64, Vec<Tensor>))| {
            tensors.sort_by(|a, b| (a.dtype, &a.name).cmp(&(b.dtype, &b.name)));
            let mut header = String::from("{\"__metadata__\":{\"format\":\"pt\"}");
            let mut at = 0;
            for t in &tensors {
                let Tensor { name, shape, dtype } = t;
                let dtype = dtype.name();
                let end = at + t.nbytes();
                write!(
                    header,
                    ",\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{at},{end}]}}"
                )
                .unwrap();
                at = end;
            }
            header.push('}');
            header.extend(std::iter::repeat_n(
                ' ',
                header.len().next_multiple_of(8) - header.len(),
            ));
            let header = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
            let mut start = header.len() as u64;
            let mut file = File::new(
                format!("model-{:05}-of-{count:05}.safetensors", i + 1),
                start + nbytes,
            )
            .unwrap();
            file.key = Some(ContentKey::of(&header));
            file.mtime = (i as u64 * 30_123_456_789)
                .checked_add_signed(1_730_000_000_000_000_000)
                .map(u64::cast_signed);
            headers.push(header);
            let with_offset = |tensor: Tensor| {
                let offset = start;
                start += tensor.nbytes();
                (tensor, offset)
            };
            (file, tensors.into_iter().map(with_offset).collect())
        };
        let files = shards.into_iter().enumerate().map(file).collect();
        Model {
            files,
            headers,
            split,
        }
    }
}

/// Qwen2.5-72B: 80 layers of width 8192, 64 heads, 8 heads of keys and values, inner width 29568,
/// vocabulary of 152064, BF16.
pub(crate) fn qwen_72b() -> Model {
    let (hidden, inner, words, kv) = (8192, 29568, 152_064, 8 * 128);
    let mut list = TensorList::default();
    list.bf16("model.embed_tokens.weight", &[words, hidden]);
    for layer in 0..80 {
        let in_layer = |name: &str| format!("model.layers.{layer}.{name}");
        for (name, n) in [("q", hidden), ("k", kv), ("v", kv)] {
            list.bf16(
                in_layer(&format!("self_attn.{name}_proj.weight")),
                &[n, hidden],
            );
            list.bf16(in_layer(&format!("self_attn.{name}_proj.bias")), &[n]);
        }
        list.bf16(in_layer("self_attn.o_proj.weight"), &[hidden, hidden]);
        list.bf16(in_layer("mlp.gate_proj.weight"), &[inner, hidden]);
        list.bf16(in_layer("mlp.up_proj.weight"), &[inner, hidden]);
        list.bf16(in_layer("mlp.down_proj.weight"), &[hidden, inner]);
        list.bf16(in_layer("input_layernorm.weight"), &[hidden]);
        list.bf16(in_layer("post_attention_layernorm.weight"), &[hidden]);
    }
    list.bf16("model.norm.weight", &[hidden]);
    list.bf16("lm_head.weight", &[words, hidden]);
    list.shard(
        4_000_000_000,
        Split {
            world: 4,
            heads: 64,
            kv_heads: 8,
            ..Split::default()
        },
    )
}

/// DeepSeek-V3 and R1: 61 layers of width 7168 and one for multi-token prediction; 3 layers are
/// dense, the others have 256 experts and a shared one; FP8.
pub(crate) fn deepseek_671b() -> Model {
    deepseek(61, 3, 256, 128, 129_280, true)
}

/// Kimi K2: 61 layers, of which one is dense and the others have 384 experts; FP8.
pub(crate) fn kimi_k2() -> Model {
    deepseek(61, 1, 384, 64, 163_840, false)
}

/// A model of twice the layers of Kimi K2.
pub(crate) fn twice_kimi_k2() -> Model {
    deepseek(122, 2, 384, 64, 163_840, false)
}

/// A model of DeepSeek's third architecture, with a layer for multi-token prediction where `predicts` is set.
fn deepseek(
    layers: u64,
    dense: u64,
    experts: u64,
    heads: u64,
    words: u64,
    predicts: bool,
) -> Model {
    let hidden = 7168;
    let mut list = TensorList::default();
    list.bf16("model.embed_tokens.weight", &[words, hidden]);
    for layer in 0..layers + u64::from(predicts) {
        let in_layer = |name: &str| format!("model.layers.{layer}.{name}");
        if layer == layers {
            list.bf16(in_layer("embed_tokens.weight"), &[words, hidden]);
            list.bf16(in_layer("enorm.weight"), &[hidden]);
            list.bf16(in_layer("hnorm.weight"), &[hidden]);
            list.bf16(in_layer("eh_proj.weight"), &[hidden, 2 * hidden]);
        }
        list.fp8(&in_layer("self_attn.q_a_proj"), [1536, hidden]);
        list.bf16(in_layer("self_attn.q_a_layernorm.weight"), &[1536]);
        list.fp8(&in_layer("self_attn.q_b_proj"), [heads * 192, 1536]);
        list.fp8(&in_layer("self_attn.kv_a_proj_with_mqa"), [576, hidden]);
        list.bf16(in_layer("self_attn.kv_a_layernorm.weight"), &[512]);
        list.fp8(&in_layer("self_attn.kv_b_proj"), [heads * 256, 512]);
        list.fp8(&in_layer("self_attn.o_proj"), [hidden, heads * 128]);
        let mut mlp = |name: &str, inner: u64| {
            list.fp8(&in_layer(&format!("{name}.gate_proj")), [inner, hidden]);
            list.fp8(&in_layer(&format!("{name}.up_proj")), [inner, hidden]);
            list.fp8(&in_layer(&format!("{name}.down_proj")), [hidden, inner]);
        };
        if layer < dense {
            mlp("mlp", 18432);
        } else {
            (0..experts).for_each(|expert| mlp(&format!("mlp.experts.{expert}"), 2048));
            mlp("mlp.shared_experts", 2048);
            list.bf16(in_layer("mlp.gate.weight"), &[experts, hidden]);
            list.0.push(Tensor {
                name: in_layer("mlp.gate.e_score_correction_bias"),
                shape: vec![experts],
                dtype: Dtype::F32,
            });
        }
        list.bf16(in_layer("input_layernorm.weight"), &[hidden]);
        list.bf16(in_layer("post_attention_layernorm.weight"), &[hidden]);
        if layer == layers {
            list.bf16(in_layer("shared_head.norm.weight"), &[hidden]);
            list.bf16(in_layer("shared_head.head.weight"), &[words, hidden]);
        }
    }
    list.bf16("model.norm.weight", &[hidden]);
    list.bf16("lm_head.weight", &[words, hidden]);
    list.shard(
        4_250_000_000,
        Split {
            world: 16,
            heads,
            kv_heads: heads,
            ..Split::default()
        },
    )
}

impl Model {
    pub(crate) fn nbytes(&self) -> u64 {
        self.files.iter().map(|(file, _)| file.nbytes).sum()
    }

    /// Each file's name, first bytes and length.
    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = (&str, &[u8], u64)> {
        self.files
            .iter()
            .zip(&self.headers)
            .map(|((file, _), header)| (&*file.path, &header[..], file.nbytes))
    }

    pub(crate) fn tensors(&self) -> usize {
        self.files.iter().map(|(_, tensors)| tensors.len()).sum()
    }

    /// Returns the template of all workers, which read file by file and tensor by tensor in file
    /// order.
    pub(crate) fn template(&self, rules: &Rules, split: &Split, gap: u64) -> Template {
        let mut builder = TemplateBuilder::new().gap(gap);
        for (file, tensors) in &self.files {
            let file = builder.file(file.clone()).unwrap();
            for (tensor, offset) in tensors {
                let (shape, item) = (&tensor.shape, tensor.dtype.bytes());
                let rule = rules.rule(&tensor.name); // found once for all workers
                for rank in 0..split.world {
                    let split = Split { rank, ..*split };
                    let slices = match split.experts {
                        0 => slice(rule, shape, item, &split),
                        _ => rules.slices(&tensor.name, shape, item, &split),
                    };
                    for runs in slices.unwrap() {
                        builder
                            .access(
                                rank,
                                StridedFileRange {
                                    file,
                                    bytes: runs.shifted(*offset).unwrap(),
                                },
                                None,
                            )
                            .unwrap();
                    }
                }
            }
        }
        builder.finish()
    }
}
