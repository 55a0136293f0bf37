//! Several checkpoints as one: the tensors of all of them.

use std::path::{Path, PathBuf};

use crate::base::error::{Error, Result};
use crate::read::catalog::quote;
use crate::read::source::files::Files;

use super::Checkpoint;

/// A further checkpoint of a union.
#[derive(Clone)]
pub(super) struct JoinedSource {
    path: PathBuf,
    /// Where the path is.
    files: Files,
}

impl Checkpoint {
    /// One checkpoint of the tensors of several, which are of one format. Metadata, and the configuration beside the files, are
    /// the first one's; keys that only others have are added.
    ///
    /// ```
    /// use anamnesis::Checkpoint;
    ///
    /// let parts = ["fixtures/safetensors/sharded", "fixtures/model/scribe.safetensors"];
    /// let parts = parts.map(Checkpoint::open).into_iter().collect::<Result<Vec<_>, _>>()?;
    /// let count: usize = parts.iter().map(|part| part.tensors().len()).sum();
    /// match Checkpoint::union(parts) {
    ///     Ok(whole) => assert_eq!(whole.tensors().len(), count),
    ///     // both have a tensor of one name
    ///     Err(error) => println!("{error}"),
    /// }
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// No checkpoint; different formats; a tensor name that two of them have.
    pub fn union(checkpoints: impl IntoIterator<Item = Self>) -> Result<Self> {
        let mut all = checkpoints.into_iter();
        let mut whole = all
            .next()
            .ok_or_else(|| Error::invalid_argument("a union of no checkpoints"))?;
        for mut next in all {
            let formats = (whole.catalog.format, next.catalog.format);
            if formats.0 != formats.1 {
                let what = format!("a union of the formats {} and {}", formats.0, formats.1);
                return Err(Error::unsupported(what));
            }
            let budget = whole.budget();
            budget.keep_too(next.kept, "the merged catalog")?;
            let twice = next.catalog.tensors.iter();
            let mut twice = twice.filter(|info| whole.catalog.get(&info.name).is_some());
            if let Some(info) = twice.next() {
                let what = format!(
                    "this source and another one both have a tensor {}; leave one of the sources out",
                    quote(&info.name)
                );
                // each of them may be whole
                let error = Error::invalid_argument(what);
                return Err(match next.path() {
                    Some(path) => error.in_file(path),
                    None => error,
                });
            }
            let first = |before: usize, added: usize| {
                let fits = u32::try_from(before.saturating_add(added)).is_ok();
                let before = u32::try_from(before).ok().filter(|_| fits);
                before.ok_or_else(|| Error::unsupported("2³² files or storages"))
            };
            let files = first(whole.sources.len(), next.sources.len())?;
            let members = first(whole.catalog.members.len(), next.catalog.members.len())?;
            next.catalog.move_behind(files, members);
            if let Some(path) = next.path.take() {
                let files = next.files.clone();
                whole.joined.push(JoinedSource { path, files });
            }
            whole.joined.append(&mut next.joined);
            whole.sources.append(&mut next.sources);
            whole.states.append(&mut next.states);
            let (into, from) = (&mut whole.catalog, next.catalog);
            budget.reserve(&mut into.tensors, from.tensors.len(), "the merged catalog")?;
            into.tensors.extend(from.tensors);
            into.files.extend(from.files);
            into.members.extend(from.members);
            into.refused.extend(from.refused);
            into.extra_fields.extend(from.extra_fields);
            for (key, value) in from.metadata {
                match into.metadata.get(&key) {
                    None => into.metadata.push_charged(&key, value, &budget)?,
                    Some(known) if *known == value => {}
                    Some(_) => {
                        let values = &mut into.differing_values;
                        budget.push(values, (key, value), "the merged catalog")?;
                    }
                }
            }
            into.differing_values.extend(from.differing_values);
            into.warnings.extend(from.warnings);
            into.index_names(&budget)?;
            whole.kept = budget.kept();
        }
        Ok(whole)
    }

    /// The paths of the further checkpoints of a [`union`](Self::union), and the places where they are.
    pub(crate) fn joined(&self) -> impl Iterator<Item = (&Path, &Files)> {
        let joined = self.joined.iter();
        joined.map(|source| (&*source.path, &source.files))
    }
}
