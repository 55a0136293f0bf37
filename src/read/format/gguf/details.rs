//! The details that a listing shows first, collected from the metadata keys.

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::metadata::{Metadata, Value};
use crate::read::catalog::{Catalog, Endian};

/// `llama_ftype` of llama.cpp, the value of `general.file_type`: the quantisation of most of the weights.
static FILE_TYPES: &[(u64, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    // 4 (Q4_1 with some F16), 5 and 6 (Q4_2, Q4_3) are commented out in llama.h as removed
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    // 33 to 35 were the repacked Q4_0_4_4, Q4_0_4_8 and Q4_0_8_8, which llama.cpp now makes when it loads Q4_0
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4_MOE"),
];

pub(super) fn describe(
    catalog: &mut Catalog,
    version: u32,
    endian: Endian,
    alignment: u32,
    budget: &Budget,
) -> Result<()> {
    let Catalog {
        metadata, details, ..
    } = catalog;
    let number = |details: &mut Metadata, name: &str, key: &str| {
        metadata
            .integer(key)
            .into_iter()
            .for_each(|n| details.push(name, Value::U64(n)));
    };
    details.push("version", Value::U64(u64::from(version)));
    details.push(
        "endian",
        Value::text(if endian == Endian::Big {
            "big"
        } else {
            "little"
        }),
    );
    details.push("alignment", Value::U64(u64::from(alignment)));
    for (name, key) in [
        ("architecture", "general.architecture"),
        // a model, or an adapter, a projector or an importance matrix for one
        ("type", "general.type"),
        ("adapter", "adapter.type"),
        ("name", "general.name"),
        ("size_label", "general.size_label"),
        ("tokenizer", "tokenizer.ggml.model"),
        ("pre_tokenizer", "tokenizer.ggml.pre"),
    ] {
        if let Some(value) = metadata.text(key) {
            budget.text(value.len(), "the details")?;
            details.push(name, Value::text(value));
        }
    }
    // the length of the array is known without reading it
    if let Some(Value::Array(tokens)) = metadata.get("tokenizer.ggml.tokens") {
        details.push("vocabulary", Value::U64(tokens.len));
    }
    if let Some(architecture) = metadata.text("general.architecture") {
        let _key = budget.temporary(2 * text_cost(architecture.len()) + 64, "the details")?;
        number(
            details,
            "context_length",
            &format!("{architecture}.context_length"),
        );
        number(details, "blocks", &format!("{architecture}.block_count"));
        number(
            details,
            "embedding",
            &format!("{architecture}.embedding_length"),
        );
    }
    if let Some(id) = metadata.integer(super::FILE_TYPE) {
        let known = FILE_TYPES.iter().find(|f| f.0 == id);
        details.push(
            "file_type",
            // an id that is newer than this table is shown as a number
            known.map_or(Value::U64(id), |f| Value::text(f.1)),
        );
    }
    number(details, "split_no", "split.no");
    number(details, "split_count", "split.count");
    Ok(())
}
