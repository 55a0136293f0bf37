//! The changes of keys, over the headers of all files.

use crate::base::error::{Error, Remedy, Result};
use crate::base::quote::quote;
use crate::engine::sink::container::HeaderValue;
use crate::plan::PLAN_ID_KEY;
use crate::read::format::gguf::{SPLIT_KEYS, set_by_writers};

use super::header::EditedHeader;

/// Changes of the metadata: keys that get other names, are removed, and are set, in this order.
#[derive(Clone, Debug, Default)]
pub(super) struct MetadataEdits {
    pub(super) rename_key: Vec<(String, String)>,
    pub(super) unset: Vec<String>,
    pub(super) set: Vec<(String, HeaderValue)>,
}

impl MetadataEdits {
    pub(super) fn is_empty(&self) -> bool {
        self.rename_key.is_empty() && self.unset.is_empty() && self.set.is_empty()
    }

    /// The keys that are changed, removed or set, or that keys become.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        let renamed = self.rename_key.iter().flat_map(|(from, to)| [from, to]);
        let set = self.set.iter().map(|(key, _)| key);
        renamed.chain(&self.unset).chain(set).map(String::as_str)
    }

    /// Refuses keys that only a writer sets.
    pub(super) fn check(&self) -> Result<()> {
        let renamed = self.rename_key.iter().flat_map(|(from, to)| [from, to]);
        let set = self.set.iter().map(|(key, _)| key);
        let given = renamed.clone().chain(set.clone());
        for key in given {
            if key == PLAN_ID_KEY {
                let what = format!(
                    "the key {PLAN_ID_KEY} names the plan that made a file, and is removed by an edit"
                );
                return Err(Error::invalid_argument(what));
            }
        }
        for key in renamed.chain(&self.unset).chain(set) {
            let what = match set_by_writers(key) {
                None if key.is_empty() => "a key has no name".to_owned(),
                None => continue,
                Some(why) => format!("the key {} {why}", quote(key)),
            };
            let error = Error::invalid_argument(what);
            // a conversion joins the files of a split, and sets no such key either
            let is_removed = self.unset.contains(key) && SPLIT_KEYS.contains(&&**key);
            return Err(match is_removed {
                true => error.with_remedy(Remedy::ConvertInstead),
                false => error,
            });
        }
        Ok(())
    }

    /// Changes the keys of all files. The id of a plan is removed: the plan makes
    /// other bytes.
    pub(super) fn apply(&self, headers: &mut [EditedHeader]) -> Result<()> {
        for (from, to) in &self.rename_key {
            if !headers.iter().any(|header| header.has_key(from)) {
                return Err(Error::not_found("metadata key", from));
            }
            if headers.iter().any(|header| header.has_key(to)) {
                let what = format!(
                    "the key {} cannot be called {}, a key that exists: remove that one first",
                    quote(from),
                    quote(to)
                );
                return Err(Error::invalid_argument(what));
            }
            headers
                .iter_mut()
                .for_each(|header| header.rename_key(from, to));
        }
        for key in &self.unset {
            if !headers.iter().any(|header| header.has_key(key)) {
                return Err(Error::not_found("metadata key", key));
            }
            headers.iter_mut().for_each(|header| header.unset(key));
        }
        for (key, value) in &self.set {
            for (number, header) in headers.iter_mut().enumerate() {
                if number == 0 || header.is_complete_alone() || header.has_key(key) {
                    header.set(key, value)?;
                }
            }
        }
        headers
            .iter_mut()
            .for_each(|header| header.unset(PLAN_ID_KEY));
        Ok(())
    }
}
