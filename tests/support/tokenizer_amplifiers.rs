//! Generators of GGUF files whose tokenizer costs much memory or work per byte when it is written for transformers.

use std::iter::repeat_n;

const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// Metadata of a GGUF, key by key.
#[derive(Default)]
struct Metadata {
    keys: u64,
    body: Vec<u8>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

impl Metadata {
    /// The keys that every model of the architecture has.
    fn of_llama(tokenizer: &str) -> Self {
        let mut metadata = Self::default();
        metadata.text("general.architecture", "llama");
        for (key, value) in [
            ("llama.block_count", 1),
            ("llama.context_length", 64),
            ("llama.embedding_length", 32),
            ("llama.feed_forward_length", 64),
            ("llama.attention.head_count", 4),
            ("llama.vocab_size", 64),
        ] {
            metadata.value(key, 4, &u32::to_le_bytes(value));
        }
        let epsilon = 1e-5f32.to_le_bytes();
        metadata.value("llama.attention.layer_norm_rms_epsilon", 6, &epsilon);
        metadata.text("tokenizer.ggml.model", tokenizer);
        metadata.text("tokenizer.ggml.pre", "gpt-2");
        metadata
    }

    fn value(&mut self, key: &str, kind: u32, bytes: &[u8]) {
        self.keys += 1;
        self.body.extend(text(key));
        self.body.extend(kind.to_le_bytes());
        self.body.extend(bytes);
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

    /// `kind` is llama.cpp's number, that of every token.
    fn kinds(&mut self, kind: u32, count: usize) {
        let items: Vec<u8> = repeat_n(kind.to_le_bytes(), count).flatten().collect();
        self.array("tokenizer.ggml.token_type", 5, count, &items);
    }

    fn special(&mut self, role: &str, id: u32) {
        let key = format!("tokenizer.ggml.{role}_token_id");
        self.value(&key, 4, &id.to_le_bytes());
    }

    fn file(self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(0u64.to_le_bytes());
        file.extend(self.keys.to_le_bytes());
        file.extend(self.body);
        file.resize(file.len().next_multiple_of(32), 0);
        file
    }
}

/// All files, each of about `nbytes` bytes, with what they have much of.
pub fn all(nbytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |what, metadata: Metadata| all.push((what, metadata.file()));
    let long = "x".repeat(nbytes);
    for model in ["llama", "gpt2", "t5", "bert"] {
        let mut metadata = Metadata::of_llama(model);
        metadata.tokens(repeat_n("", nbytes / 12));
        metadata.kinds(3, nbytes / 12);
        add("special tokens", metadata);

        let mut metadata = Metadata::of_llama(model);
        metadata.tokens(repeat_n("y", nbytes / 9));
        add("short tokens", metadata);

        let mut metadata = Metadata::of_llama(model);
        metadata.tokens([&*long].into_iter());
        for role in ["bos", "eos", "unknown", "seperator", "padding", "cls"] {
            metadata.special(role, 0);
        }
        add("one long token", metadata);
    }

    // every part of every token is a token
    let mut metadata = Metadata::of_llama("llama");
    let lengths = 1..(2 * nbytes).isqrt();
    metadata.tokens(lengths.map(|len| &long[..len]));
    add("tokens of which each begins the next", metadata);

    let mut metadata = Metadata::of_llama("gpt2");
    metadata.tokens(["x", "xx"].into_iter());
    metadata.texts("tokenizer.ggml.merges", repeat_n("x x", nbytes / 11));
    add("merges", metadata);

    let mut metadata = Metadata::of_llama("gpt2");
    let half = &long[..nbytes / 4];
    metadata.tokens([half].into_iter());
    metadata.texts(
        "tokenizer.ggml.merges",
        [&*format!("{half} {half}")].into_iter(),
    );
    add("one long merge", metadata);

    let mut metadata = Metadata::of_llama("t5");
    metadata.tokens(["x"].into_iter());
    metadata.array(
        "tokenizer.ggml.precompiled_charsmap",
        0,
        nbytes,
        long.as_bytes(),
    );
    add("a table of characters", metadata);

    let mut metadata = Metadata::of_llama("llama");
    metadata.tokens(["x"].into_iter());
    metadata.text("tokenizer.chat_template", &long);
    add("one long template", metadata);

    let mut metadata = Metadata::of_llama("llama");
    metadata.tokens(["x"].into_iter());
    for n in 0..nbytes / 48 {
        metadata.text(&format!("tokenizer.chat_template.{n:x}"), "");
    }
    metadata.text("tokenizer.chat_template", "");
    add("named templates", metadata);

    let mut metadata = Metadata::of_llama("llama");
    metadata.text("general.name", &long);
    metadata.tokens(["x"].into_iter());
    add("a long name", metadata);
    all
}
