//! Generators of GGUF files that cost much memory or work per byte when they are made into a Hugging Face checkpoint.

use std::iter::repeat_n;

/// Layers of the model with numbers per layer, and the longest name of a tensor that is accepted.
const LAYERS: usize = 10_000;
const LONGEST_NAME: usize = 65_535;

const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// A GGUF, key by key and tensor by tensor.
#[derive(Default)]
struct GgufModel {
    keys: u64,
    metadata: Vec<u8>,
    tensors: u64,
    directory: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

impl GgufModel {
    /// The keys that every model of the architecture has.
    fn of_llama(tokenizer: &str) -> Self {
        let mut model = Self::default();
        model.text("general.architecture", "llama");
        for (key, value) in [
            ("llama.block_count", 1),
            ("llama.context_length", 64),
            ("llama.embedding_length", 32),
            ("llama.feed_forward_length", 64),
            ("llama.attention.head_count", 4),
            ("llama.vocab_size", 64),
        ] {
            model.value(key, 4, &u32::to_le_bytes(value));
        }
        let epsilon = 1e-5f32.to_le_bytes();
        model.value("llama.attention.layer_norm_rms_epsilon", 6, &epsilon);
        model.text("tokenizer.ggml.model", tokenizer);
        model.text("tokenizer.ggml.pre", "gpt-2");
        model
    }

    fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        self.keys += 1;
        self.metadata.extend(text(key));
        self.metadata.extend(kind.to_le_bytes());
        self.metadata.extend(bytes);
    }

    fn text(&mut self, key: &str, value: &str) {
        self.value(key, TEXT, &text(value));
    }

    fn array(&mut self, key: &str, kind: u32, count: usize, items: &[u8]) {
        let header = [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes()].concat();
        self.value(key, ARRAY, &[&header, items].concat());
    }

    fn texts<'t>(&mut self, key: &str, texts: impl Iterator<Item = &'t str> + Clone) {
        let items: Vec<u8> = texts.clone().flat_map(text).collect();
        self.array(key, TEXT, texts.count(), &items);
    }

    fn tokens<'t>(&mut self, tokens: impl Iterator<Item = &'t str> + Clone) {
        self.texts("tokenizer.ggml.tokens", tokens);
    }

    /// `kind` is llama.cpp's number for every token.
    fn kinds(&mut self, kind: u32, count: usize) {
        let items: Vec<u8> = repeat_n(kind.to_le_bytes(), count).flatten().collect();
        self.array("tokenizer.ggml.token_type", 5, count, &items);
    }

    fn special(&mut self, role: &str, id: u32) {
        let key = format!("tokenizer.ggml.{role}_token_id");
        self.value(&key, 4, &id.to_le_bytes());
    }

    /// An F32 tensor without elements.
    fn tensor(&mut self, name: &str) {
        self.tensors += 1;
        self.directory.extend(text(name));
        self.directory.extend(2u32.to_le_bytes());
        self.directory.extend([0u64.to_le_bytes(); 2].concat());
        // the type F32 and the offset 0
        self.directory.extend([0; 12]);
    }

    fn file(self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(self.tensors.to_le_bytes());
        file.extend(self.keys.to_le_bytes());
        file.extend(self.metadata);
        file.extend(self.directory);
        file.resize(file.len().next_multiple_of(32), 0);
        file
    }
}

/// All files, each of about `nbytes` bytes, with what they have much of.
pub fn all(nbytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |what, model: GgufModel| all.push((what, model.file()));
    let long = "x".repeat(nbytes);
    for tokenizer in ["llama", "gpt2", "t5", "bert"] {
        let mut model = GgufModel::of_llama(tokenizer);
        model.tokens(repeat_n("", nbytes / 12));
        model.kinds(3, nbytes / 12);
        add("special tokens", model);

        let mut model = GgufModel::of_llama(tokenizer);
        model.tokens(repeat_n("y", nbytes / 9));
        add("short tokens", model);

        let mut model = GgufModel::of_llama(tokenizer);
        model.tokens([&*long].into_iter());
        for role in ["bos", "eos", "unknown", "seperator", "padding", "cls"] {
            model.special(role, 0);
        }
        add("one long token", model);
    }

    // every part of every token is a token
    let mut model = GgufModel::of_llama("llama");
    let lengths = 1..(2 * nbytes).isqrt();
    model.tokens(lengths.map(|len| &long[..len]));
    add("tokens of which each begins the next", model);

    let mut model = GgufModel::of_llama("gpt2");
    model.tokens(["x", "xx"].into_iter());
    model.texts("tokenizer.ggml.merges", repeat_n("x x", nbytes / 11));
    add("merges", model);

    let mut model = GgufModel::of_llama("gpt2");
    let half = &long[..nbytes / 4];
    model.tokens([half].into_iter());
    model.texts(
        "tokenizer.ggml.merges",
        [&*format!("{half} {half}")].into_iter(),
    );
    add("one long merge", model);

    let mut model = GgufModel::of_llama("t5");
    model.tokens(["x"].into_iter());
    model.array(
        "tokenizer.ggml.precompiled_charsmap",
        0,
        nbytes,
        long.as_bytes(),
    );
    add("a table of characters", model);

    let mut model = GgufModel::of_llama("llama");
    model.tokens(["x"].into_iter());
    model.text("tokenizer.chat_template", &long);
    add("one long template", model);

    let mut model = GgufModel::of_llama("llama");
    model.tokens(["x"].into_iter());
    for n in 0..nbytes / 48 {
        model.text(&format!("tokenizer.chat_template.{n:x}"), "");
    }
    model.text("tokenizer.chat_template", "");
    add("named templates", model);

    let mut model = GgufModel::of_llama("llama");
    model.text("general.name", &long);
    model.tokens(["x"].into_iter());
    add("a long name", model);

    let mut model = GgufModel::of_llama("none");
    let heads: Vec<u8> = repeat_n(4u32.to_le_bytes(), LAYERS).flatten().collect();
    model.array("llama.attention.head_count_kv", 4, LAYERS, &heads);
    for n in 0..nbytes / 64 {
        model.tensor(&format!("blk.{n}.attn_k.weight"));
    }
    add("tensors with a number of heads per layer", model);

    let mut model = GgufModel::of_llama("none");
    for n in 0..nbytes / 64 {
        model.tensor(&format!("blk.{n}.ffn_gate_exps.weight"));
    }
    add("stacks of experts", model);

    let mut model = GgufModel::of_llama("none");
    model.tensor(&".".repeat(nbytes.min(LONGEST_NAME)));
    add("a name of many parts", model);

    let mut model = GgufModel::of_llama("none");
    model.tensor(&format!(
        "blk.{}.attn_q.weight",
        "7".repeat(nbytes.min(LONGEST_NAME) - 32)
    ));
    add("a long number of a layer", model);
    all
}
