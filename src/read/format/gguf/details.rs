//! The details that a listing shows first, collected from the metadata keys.

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::metadata::{Metadata, Value};
use crate::read::catalog::{Catalog, Endian};

use super::FileType;

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
        let known = FileType::from_number(id);
        details.push(
            "file_type",
            // an id that is newer than this table is shown as a number
            known.map_or(Value::U64(id), |known| Value::text(known.name)),
        );
    }
    number(details, "split_no", "split.no");
    number(details, "split_count", "split.count");
    Ok(())
}
