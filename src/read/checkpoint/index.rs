//! An index of a sharded checkpoint (`….index.json`): which file contains each tensor, and whether the files do.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value as Json;

use crate::base::error::{Error, Result};
use crate::base::limits::Budget;
use crate::read::catalog::quote;
use crate::read::json::{JsonReader, Pairs, StringPairs, Text, Tree};

use super::faults::{OpenFault, OpenFaultKind};
use super::{Checkpoint, OpenOptions};

/// `….index.json`: the file that contains each tensor.
pub(super) struct Index {
    pub(super) metadata: serde_json::Map<String, Json>,
    pub(super) weight_map: StringPairs,
}

/// Reads an index. Other keys than `metadata` and `weight_map` are ignored.
pub(super) struct IndexSeed<'r, 'b>(pub(super) &'r JsonReader<'b>);

impl<'de> DeserializeSeed<'de> for IndexSeed<'_, '_> {
    type Value = Index;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Index, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for IndexSeed<'_, '_> {
    type Value = Index;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the key `weight_map`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
        let (mut metadata, mut weight_map) = (None, None);
        while let Some(Text(key)) = map.next_key()? {
            let twice = match &*key {
                "metadata" => match map.next_value_seed(Tree(self.0))? {
                    Json::Object(object) => metadata.replace(object).is_some(),
                    _ => return Err(A::Error::custom("`metadata` is not an object")),
                },
                "weight_map" => {
                    let pairs = map.next_value_seed(Pairs(self.0))?;
                    weight_map.replace(pairs).is_some()
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if twice {
                return Err(A::Error::custom(format!("duplicate field `{key}`")));
            }
        }
        Ok(Index {
            metadata: metadata.unwrap_or_default(),
            weight_map: weight_map.ok_or_else(|| A::Error::missing_field("weight_map"))?,
        })
    }
}

/// Compares the index with the files that were read, which `read` numbers.
pub(super) fn compare(
    index: &Index,
    directory: &Path,
    read: &[&Path],
    checkpoint: &mut Checkpoint,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<()> {
    let catalog = &mut checkpoint.catalog;
    let mut listed = 0;
    let readable: HashSet<&Path> = read.iter().copied().collect();
    for (tensor, file) in &index.weight_map {
        let named = directory.join(&**file);
        let found = catalog.get(tensor).map(|t| read[t.bytes.file as usize]);
        listed += usize::from(found.is_some());
        // a tensor in another file than in the index: readers that follow the index and readers that search all files
        // would differ
        let kind = match found {
            Some(found) if found == named => continue,
            Some(_) => OpenFaultKind::WrongShard,
            // nothing is known of a file that could not be read
            None if !readable.contains(named.as_path()) => continue,
            None => OpenFaultKind::MissingTensor,
        };
        let error = Error::malformed(format!(
            "the index places {} in {}, which does not contain it",
            quote(tensor),
            quote(file)
        ));
        let fault = OpenFault {
            kind,
            file: Some(named),
            tensor: Some(tensor.clone()),
            error,
        };
        options.fault(fault, budget)?;
    }
    let unlisted = catalog.tensors.len() - listed;
    if unlisted == 0 {
        return Ok(());
    }
    let text = format!("{unlisted} tensors of the files are not in the index");
    if options.surveys() {
        let _names =
            budget.temporary(64 * index.weight_map.len() as u64, "the names of the index")?;
        let names: HashSet<&str> = index.weight_map.iter().map(|(name, _)| &**name).collect();
        for tensor in catalog.tensors.iter().filter(|t| !names.contains(&*t.name)) {
            let fault = OpenFault {
                kind: OpenFaultKind::UnlistedTensor,
                file: Some(read[tensor.bytes.file as usize].to_owned()),
                tensor: Some(tensor.name.clone()),
                error: Error::malformed(text.clone()),
            };
            options.fault(fault, budget)?;
        }
    }
    catalog.warnings.push(text.into());
    Ok(())
}

/// Compares `total_size` of an index, which readers do not need, with the sum of the tensors. Only a survey does.
pub(super) fn compare_size(
    index: &Index,
    checkpoint: &Checkpoint,
    options: &OpenOptions,
    budget: &Budget,
) -> Result<()> {
    let Some(announced) = index
        .metadata
        .get("total_size")
        .filter(|_| options.surveys())
    else {
        return Ok(());
    };
    let sum = checkpoint.catalog.nbytes();
    // some writers have it as a float
    let equal = announced.as_u64() == Some(sum) || announced.as_f64() == Some(sum as f64);
    if equal {
        return Ok(());
    }
    let fault = OpenFault {
        kind: OpenFaultKind::TotalSize,
        file: None,
        tensor: None,
        error: Error::malformed(format!(
            "total_size is {announced}, and the tensors have {sum} bytes"
        )),
    };
    options.fault(fault, budget)
}
