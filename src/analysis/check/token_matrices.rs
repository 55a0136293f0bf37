//! Names of embeddings and output layers.

/// The ends of their names. They have a row per token of the vocabulary, of which the last are padding; models tie them.
pub(super) static TOKEN_MATRICES: &[&str] = &[
    "embed_tokens.weight",
    "lm_head.weight",
    "token_embd.weight",
    "output.weight",
    "wte.weight",
    "embed_in.weight",
    "embed_out.weight",
    "word_embeddings.weight",
    "shared.weight",
];
