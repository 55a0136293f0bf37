//! Merging the catalogs of several files into one.

use std::collections::HashSet;
use std::sync::Arc;

use crate::base::error::{Error, Remedy, Result};
use crate::base::note::Note;
use crate::read::catalog::{Catalog, Encoding, TensorInfo, quote};

use super::faults::{OpenFault, OpenFaultKind};
use super::read_state::ReadState;
use super::{Checkpoint, OpenOptions};
use crate::base::limits::{Budget, text_cost};
use crate::read::source::Source;
use crate::read::source::files::Files;

/// An opened file and the catalog of its header.
pub(super) struct ParsedFile {
    pub(super) source: Arc<dyn Source>,
    pub(super) state: ReadState,
    pub(super) catalog: Catalog,
}

/// Merges the files in order. Container details come from the first file; if a metadata key occurs twice, the first value is
/// kept.
pub(super) fn merge(
    parts: Vec<ParsedFile>,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<Checkpoint> {
    let several = parts.len() > 1;
    let mut whole: Option<Catalog> = None;
    let mut sources = Vec::with_capacity(parts.len());
    let mut states = Vec::with_capacity(parts.len());
    let mut keys: HashSet<Box<str>> = HashSet::new();
    for (
        file,
        ParsedFile {
            source,
            state,
            mut catalog,
        },
    ) in parts.into_iter().enumerate()
    {
        sources.push(source);
        states.push(state);
        let Some(whole) = &mut whole else {
            // one file needs no set of keys: its own keys were checked by its format
            if several {
                for (key, _) in catalog.metadata.iter() {
                    budget.memory(KEY + text_cost(key.len()), "the metadata")?;
                    keys.insert(key.into());
                }
            }
            whole = Some(catalog);
            continue;
        };
        let first_member =
            u32::try_from(whole.members.len()).map_err(|_| Error::unsupported("2³² storages"))?;
        // each catalog describes its file as number 0
        catalog.move_to_file(u32::try_from(file).expect("files are few"), first_member);
        whole.files.append(&mut catalog.files);
        append(&mut whole.tensors, catalog.tensors, budget)?;
        append(&mut whole.members, catalog.members, budget)?;
        append(&mut whole.refused, catalog.refused, budget)?;
        append(&mut whole.extra_fields, catalog.extra_fields, budget)?;
        // split GGUF files repeat `general.*` in each file, and number themselves
        let is_safetensors = catalog.format == "safetensors";
        for (key, value) in catalog.metadata {
            budget.memory(KEY + text_cost(key.len()), "the metadata")?;
            if keys.insert(key.clone()) {
                whole.metadata.push_charged(&key, value, budget)?;
            } else if is_safetensors {
                let listed = whole.metadata.len() + whole.differing_values.len();
                budget.steps(1 + listed as u64 / 4, "the metadata")?;
                let mut further = whole.differing_values.iter();
                let is_known = further.any(|(known, other)| *known == key && *other == value);
                if !is_known && whole.metadata.get(&key) != Some(&value) {
                    budget.push(&mut whole.differing_values, (key, value), "the metadata")?;
                }
            }
        }
        for warning in catalog.warnings {
            if !whole.warnings.contains(&warning) {
                // shards of one checkpoint usually have the same warnings
                whole.warnings.push(warning);
            }
        }
    }
    let mut catalog = whole.ok_or_else(|| Error::unsupported("a checkpoint without files"))?;
    if several && options.surveys() {
        leave_out_duplicates(&mut catalog, options, budget)?;
    }
    if several {
        catalog
            .index_names(budget)
            .map_err(|e| e.in_format(catalog.format))?;
    }
    reinterpret_voids(&mut catalog, options);
    Ok(Checkpoint {
        sources,
        states,
        catalog,
        limits: options.limits,
        usage: options.usage.clone(),
        kept: budget.kept(),
        private: options.private,
        opaque: options.opaque,
        assume_plain: options.assume_plain,
        path: None,
        other_models: None,
        described_by: None,
        joined: Vec::new(),
        is_half_replaced: false,
        index: None,
        files: Files::default(),
    })
}

/// Leaves out tensors of a name that an earlier file has; each is a fault.
fn leave_out_duplicates(
    catalog: &mut Catalog,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<()> {
    let count = catalog.tensors.len();
    let _names = budget.temporary(KEY * count as u64, "the names of the tensors")?;
    let mut names: HashSet<&str> = HashSet::new();
    let is_first: Vec<bool> = catalog
        .tensors
        .iter()
        .map(|t| names.insert(&t.name))
        .collect();
    if names.len() == count {
        return Ok(());
    }
    let mut is_first = is_first.into_iter();
    let is_further = |_: &mut TensorInfo| !is_first.next().unwrap_or(true);
    // in place: a second list of the tensors would have to be charged
    for tensor in catalog.tensors.extract_if(.., is_further) {
        let file = &catalog.files[tensor.bytes.file as usize];
        let fault = OpenFault {
            kind: OpenFaultKind::DuplicateName,
            file: file.path.clone(),
            error: Error::malformed(format!("two files have a tensor {}", quote(&tensor.name))),
            tensor: Some(tensor.name),
        };
        options.fault(fault, budget)?;
    }
    Ok(())
}

/// Memory of an entry of a set of texts, beyond the text.
const KEY: u64 = 64;

/// Moves the rows of a file's list to the end of another, and frees the file's list.
fn append<T>(whole: &mut Vec<T>, mut rows: Vec<T>, budget: &Budget) -> Result<()> {
    budget.reserve(whole, rows.len(), "the merged catalog")?;
    whole.append(&mut rows);
    budget.release((rows.capacity() * size_of::<T>()) as u64);
    Ok(())
}

/// Applies [`OpenOptions::void_as`], and warns of raw items that remain.
fn reinterpret_voids(catalog: &mut Catalog, options: &OpenOptions) {
    let mut raw = Vec::new();
    for tensor in &mut catalog.tensors {
        let Encoding::Opaque(opaque) = &tensor.encoding else {
            continue;
        };
        if !(opaque.name.starts_with('V') && opaque.fields.is_empty()) {
            continue;
        }
        match options
            .void_as
            .iter()
            .rev()
            // by width alone, as the array states nothing else; the last call of `void_as` for a width decides
            .find(|d| d.item_bytes() == Some(opaque.item_bytes))
        {
            Some(&dtype) => tensor.encoding = Encoding::Plain(dtype),
            // wider void items are structured data; ml_dtypes writes those with one and two bytes
            None if opaque.item_bytes <= 2 => raw.push((quote(&tensor.name), opaque.item_bytes)),
            None => {}
        }
    }
    if let Some((name, bytes)) = raw.first() {
        let more = if raw.len() > 1 {
            format!(" and {} more", raw.len() - 1)
        } else {
            String::new()
        };
        let example = if *bytes == 2 { "BF16" } else { "F8_E4M3" };
        let text = format!(
            "{name}{more}: raw {bytes}-byte items; numpy does not store the names of ml_dtypes"
        );
        let remedy = Remedy::ReadItems { dtype: example };
        catalog.warnings.push(Note::with_remedy(text, remedy));
    }
}
