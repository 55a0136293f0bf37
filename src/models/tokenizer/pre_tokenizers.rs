//! The steps of byte-level BPE before the merges, by the name that llama.cpp gives them.
//!
//! Names and their groups: llama.cpp, `llama-vocab.cpp` (`tokenizer_pre`, `llm_tokenizer_bpe`). Steps: the `tokenizer.json`
//! of the models that the names stand for; llama.cpp's comments hold those that it has rewritten for its own expressions.

use serde_json::{Value as Json, json};

/// The steps that a name stands for.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    pub(super) names: &'static [&'static str],
    pub(super) steps: &'static [Step],
    /// Whether texts are normalised to NFC first.
    pub(super) nfc: bool,
    /// Whether a word that is a token is not divided by merges.
    pub(super) ignore_merges: bool,
    /// Whether the first token is added to texts where the metadata does not say.
    pub(super) first: bool,
}

/// A step of a pre-tokenizer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Divides at the matches of this expression, which are words of their own.
    Split(&'static str),
    /// Divides at digits, each of which is a word of its own, or each run of them.
    Digits { individual: bool },
    /// Divides at runs of punctuation.
    Punctuation,
    /// Writes bytes as characters, after division by GPT-2's expression or without it.
    Bytes { gpt2: bool },
}

use Step::{Bytes, Digits, Punctuation, Split};

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const DEEPSEEK_LETTERS: &str = "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1F7D}ᾀ-ᾴᾶ-ᾼ\u{1FBE}ῂ-ῄῆ-ῌῐ-\u{1FD3}ῖ-\u{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const MINICPM: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BLOOM: &str = " ?[^(\\s|[.,!?…。，、।۔،])]+";
const CJK: &str = "[一-龥ࠀ-一가-\u{D7FF}]+";

/// Byte-level steps without anything else.
const NONE: PreTokenizer = PreTokenizer {
    names: &[],
    steps: &[],
    nfc: false,
    ignore_merges: false,
    first: false,
};

/// All pre-tokenizers.
pub(super) static PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "pixtral",
            "midm-2.0",
        ],
        steps: &[Split(LLAMA3), Bytes { gpt2: false }],
        ignore_merges: true,
        first: true,
        ..NONE
    },
    PreTokenizer {
        names: &["smaug-bpe", "dbrx", "chatglm-bpe"],
        steps: &[Split(LLAMA3), Bytes { gpt2: false }],
        ..NONE
    },
    PreTokenizer {
        names: &["glm4", "glm5"],
        steps: &[Split(LLAMA3), Bytes { gpt2: false }],
        ignore_merges: true,
        ..NONE
    },
    PreTokenizer {
        names: &["qwen2", "deepseek-r1-qwen", "megrez"],
        steps: &[Split(QWEN2), Bytes { gpt2: false }],
        nfc: true,
        ..NONE
    },
    PreTokenizer {
        names: &["stablelm2", "hunyuan"],
        steps: &[Split(QWEN2), Bytes { gpt2: false }],
        ..NONE
    },
    PreTokenizer {
        names: &["qwen35"],
        steps: &[Split(QWEN35), Bytes { gpt2: false }],
        ..NONE
    },
    PreTokenizer {
        names: &["gpt-4o", "llama4", "kanana2"],
        steps: &[Split(GPT4O), Bytes { gpt2: false }],
        ..NONE
    },
    PreTokenizer {
        names: &["tekken"],
        steps: &[Split(TEKKEN), Bytes { gpt2: false }],
        ignore_merges: true,
        first: true,
        ..NONE
    },
    PreTokenizer {
        names: &["deepseek-v3", "joyai-llm", "hunyuan-dense"],
        steps: &[
            Split(r"\p{N}{1,3}"),
            Split("[一-龥\u{3040}-ゟ゠-ヿ]+"),
            Split(DEEPSEEK3),
            Bytes { gpt2: false },
        ],
        ..NONE
    },
    PreTokenizer {
        names: &["deepseek-llm"],
        steps: &[
            Split(r"[\r\n]"),
            Split(DEEPSEEK_LETTERS),
            Split("\\s?[!-/:-~！-／：-～‘-‟\u{3000}-。]+"),
            Split(r"\s+$"),
            Split(CJK),
            Digits { individual: true },
            Bytes { gpt2: false },
        ],
        ..NONE
    },
    PreTokenizer {
        names: &["deepseek-coder"],
        steps: &[
            Split(r"[\r\n]"),
            Split(r"\s?\p{L}+"),
            Split(r"\s?\p{P}+"),
            Split(CJK),
            Digits { individual: true },
            Bytes { gpt2: false },
        ],
        ..NONE
    },
    PreTokenizer {
        names: &["falcon"],
        steps: &[
            Punctuation,
            Bytes { gpt2: true },
            Digits { individual: false },
            Split("[0-9][0-9][0-9]"),
        ],
        ..NONE
    },
    PreTokenizer {
        names: &["command-r"],
        steps: &[Digits { individual: true }, Bytes { gpt2: true }],
        nfc: true,
        first: true,
        ..NONE
    },
    PreTokenizer {
        names: &[
            "starcoder",
            "refact",
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        steps: &[Digits { individual: true }, Bytes { gpt2: true }],
        ..NONE
    },
    PreTokenizer {
        names: &["mpt", "olmo"],
        steps: &[Bytes { gpt2: true }],
        nfc: true,
        ..NONE
    },
    PreTokenizer {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "mellum",
            "exaone4",
            "a.x-4.0",
            "trillion",
            "granite-docling",
        ],
        steps: &[Bytes { gpt2: true }],
        ..NONE
    },
    PreTokenizer {
        names: &["bloom", "poro-chat", "gpt3-finnish"],
        steps: &[Split(BLOOM), Bytes { gpt2: false }],
        ..NONE
    },
    PreTokenizer {
        names: &["viking"],
        steps: &[
            Split(BLOOM),
            Digits { individual: true },
            Bytes { gpt2: false },
        ],
        ..NONE
    },
    PreTokenizer {
        names: &["minicpm5"],
        steps: &[Split(r"\p{N}{1,3}"), Split(MINICPM), Bytes { gpt2: false }],
        ignore_merges: true,
        ..NONE
    },
    PreTokenizer {
        names: &["seed-coder"],
        steps: &[Split(SEED), Bytes { gpt2: false }],
        ..NONE
    },
];

/// The steps of files without a name, or with `default`, by the architecture whose models had one tokenizer.
pub(super) static DEFAULTS: &[(&str, &str)] = &[
    ("gpt2", "gpt-2"),
    ("bloom", "bloom"),
    ("falcon", "falcon"),
    ("starcoder2", "starcoder"),
    ("starcoder", "starcoder"),
    ("qwen2", "qwen2"),
    ("qwen2moe", "qwen2"),
    ("qwen3", "qwen2"),
    ("qwen3moe", "qwen2"),
    ("stablelm", "olmo"),
    ("mamba", "olmo"),
    ("command-r", "command-r"),
];

/// The steps that a name stands for; `architecture` decides where the name does not.
pub(super) fn find(name: &str, architecture: Option<&str>) -> Option<&'static PreTokenizer> {
    let name = if name == "default" {
        let found = DEFAULTS.iter().find(|(row, _)| Some(*row) == architecture);
        found.map_or(name, |(_, name)| name)
    } else {
        name
    };
    PRE_TOKENIZERS.iter().find(|row| row.names.contains(&name))
}

impl PreTokenizer {
    /// The steps as the `tokenizers` crate reads them.
    pub(super) fn document(&self, prefix: bool) -> Json {
        let steps: Vec<Json> = self
            .steps
            .iter()
            .map(|step| step.document(prefix))
            .collect();
        match <[Json; 1]>::try_from(steps) {
            Ok([step]) => step,
            Err(steps) => json!({"type": "Sequence", "pretokenizers": steps}),
        }
    }
}

impl Step {
    fn document(self, prefix: bool) -> Json {
        match self {
            Split(pattern) => {
                json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
            }
            Digits { individual } => json!({"type": "Digits", "individual_digits": individual}),
            Punctuation => json!({"type": "Punctuation", "behavior": "Contiguous"}),
            Bytes { gpt2 } => {
                json!({"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": gpt2})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULTS, PRE_TOKENIZERS, find};

    #[test]
    fn a_name_has_one_row_and_defaults_have_rows() {
        let names: Vec<&str> = PRE_TOKENIZERS
            .iter()
            .flat_map(|row| row.names.iter().copied())
            .collect();
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{name} has two rows");
        }
        for (architecture, name) in DEFAULTS {
            assert!(names.contains(name), "{name}");
            assert!(find("default", Some(architecture)).is_some());
        }
        assert!(find("default", Some("llama")).is_none());
    }
}
