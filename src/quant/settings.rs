//! Settings: the keys of a quantisation configuration that a scheme knows, and the values that it knows of them.
//!
//! Each row of `SCHEMES` has a [`SchemeSettings`]. A configuration is compared with the settings of all schemes that its
//! `quant_method` belongs to; a key that none of them knows is evidence for the account (`account.rs`).

mod search;
mod spelling;
mod words;

pub(crate) use search::{UnknownSetting, unknown_in_descriptor, unknown_settings};
pub(crate) use spelling::spell;
pub(crate) use words::{
    has_rotation, is_altering, is_nothing, is_off, is_rotation, is_short_for_altering, says_nothing,
};

/// The settings that a scheme knows.
#[derive(Debug)]
pub(crate) struct SchemeSettings {
    /// Values of `quant_method`, in lower case. The empty one stands for configurations that name no method.
    pub(crate) methods: &'static [&'static str],
    /// Dotted paths of keys, and their known values. `*` is any key, or any position of a list.
    pub(crate) keys: &'static [(&'static str, KnownValues)],
}

impl SchemeSettings {
    /// For a scheme that no configuration describes.
    pub(crate) const NONE: Self = Self {
        methods: &[],
        keys: &[],
    };
}

/// The values of a key that are known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KnownValues {
    /// All, with everything below: shapes and dtypes say the same, or it does not concern stored weights.
    Any,
    /// All in which no key and no text speaks of rotations.
    Unrotated,
    /// Texts of these words, with `:` between them.
    Words(&'static [&'static str]),
    /// Any text, which is compared elsewhere.
    Text,
    /// These texts, in any case.
    Texts(&'static [&'static str]),
    /// A version: numbers and dots.
    Version,
    /// True and false.
    Flag,
    /// True and false, under the name of a module.
    ModuleFlag,
    /// A number, of any sign.
    Number,
    /// The number of elements that share a scale: from 1 on, or -1 for all of a row.
    GroupSize,
    /// The same, or 0 for all of a tensor.
    GroupSizeOrTensor,
    /// A number from 0 on.
    Count,
    /// A list of such numbers.
    Counts,
    /// The name of a dtype of PyTorch, with or without `torch.`.
    Dtype,
}

/// Keys that all methods may have.
static COMMON: &[(&str, KnownValues)] = &[
    ("quant_method", KnownValues::Text),
    // lists of modules that are not quantised
    ("modules_to_not_convert", KnownValues::Any),
    ("ignore", KnownValues::Any),
    ("ignored_layers", KnownValues::Any),
    ("exclude_modules", KnownValues::Any),
    ("llm_int8_skip_modules", KnownValues::Any),
    ("skip_modules", KnownValues::Any),
    ("modules_in_block_to_quantize", KnownValues::Any),
    ("block_name_to_quantize", KnownValues::Any),
    ("lm_head", KnownValues::Flag),
    // activations and caches
    ("activation_scheme", KnownValues::Any),
    ("kv_cache_scheme", KnownValues::Any),
    ("kv_cache_quant_algo", KnownValues::Any),
    // the run that quantised
    ("producer", KnownValues::Any),
    ("dataset", KnownValues::Any),
    ("tokenizer", KnownValues::Any),
    ("batch_size", KnownValues::Any),
    ("dtype", KnownValues::Any),
    ("torch_dtype", KnownValues::Any),
    // integrations of transformers
    ("dequantize", KnownValues::Any),
    ("use_kernels", KnownValues::Any),
    ("pre_quantized", KnownValues::Any),
    ("is_checkpoint_fp8_serialized", KnownValues::Any),
];
