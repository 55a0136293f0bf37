//! Which names of a directory are one model: a file alone, or the files of a numbered set; and which files a set lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, text_cost};

use super::named_files::split_name;
use super::ranks::{rank_in, underscored_shard};
use super::set_key::{SetKey, SetKind};

/// Memory of a model among names, beyond its key and the references to its names.
const MODEL: u64 = 160;

/// The names of one model.
pub(super) struct ModelNames<'n> {
    /// `None` for a file that is no part of a set.
    key: Option<SetKey>,
    /// One or more, sorted.
    names: Vec<&'n str>,
}

/// The models that sorted names are, in the order of their first names.
pub(super) fn models_among<'n>(
    names: impl Iterator<Item = &'n str>,
    budget: &Budget,
) -> Result<Vec<ModelNames<'n>>> {
    let mut models: Vec<ModelNames<'n>> = Vec::new();
    let mut sets: BTreeMap<SetKey, usize> = BTreeMap::new();
    for name in names {
        let key = SetKey::of(name);
        let known = key.as_ref().and_then(|key| sets.get(key)).copied();
        if let Some(set) = known {
            models[set].names.push(name);
            continue;
        }
        budget.memory(MODEL + 2 * text_cost(name.len()), "the directory")?;
        if let Some(key) = key.clone() {
            sets.insert(key, models.len());
        }
        let names = vec![name];
        models.push(ModelNames { key, names });
    }
    for model in &mut models {
        let names = &model.names;
        let key = &mut model.key;
        key.take_if(|key| !key.is_set_of(names.len()) && !key.lacks_ranks(names));
    }
    Ok(models)
}

impl<'n> ModelNames<'n> {
    /// The first name.
    pub(super) fn first(&self) -> &'n str {
        self.names[0]
    }

    /// Whether it is one checkpoint, by its only file, by a file that finds the others, or by its directory.
    fn is_opened_as_one(&self) -> bool {
        let by_number = |key: &SetKey| matches!(key.kind, SetKind::Shards { .. } | SetKind::Pieces);
        self.key.as_ref().is_none_or(by_number)
    }

    /// Whether no file of the set opens the others.
    pub(super) fn opens_by_directory(&self) -> bool {
        self.key.as_ref().is_some_and(SetKey::opens_by_directory)
    }

    /// The files that the set lacks; `None` of a file alone, and where nothing is known to be missing.
    pub(super) fn missing(&self) -> Option<MissingFiles> {
        self.key.as_ref()?.missing(&self.names)
    }

    /// The model, in words.
    pub(super) fn shown(&self) -> String {
        let first = self.first();
        match (self.missing(), self.names.len()) {
            (Some(missing), _) => format!("{first} of a set that lacks {}", missing.text),
            (None, 1) => first.to_owned(),
            (None, count) => format!("{first} and {} more of its set", count - 1),
        }
    }
}

impl SetKey {
    /// Whether this many names with the key are one model, and not models of their own.
    pub(super) fn is_set_of(&self, count: usize) -> bool {
        match self.kind {
            SetKind::Pieces => count > 1,
            SetKind::Shards { of } => of > 1 || count > 1,
            SetKind::Underscored { of } => of > 1,
            SetKind::Ranks { of } => of.is_some_and(|of| of > 1),
        }
    }

    /// Whether the numbers of these names, which say nothing of a total, are ranks with a gap.
    fn lacks_ranks(&self, names: &[&str]) -> bool {
        self.kind == (SetKind::Ranks { of: None }) && self.missing(names).is_some()
    }

    /// Whether its files are one checkpoint by their directory, and a checkpoint each by their own paths.
    pub(super) fn opens_by_directory(&self) -> bool {
        let is_by_number = matches!(self.kind, SetKind::Shards { .. } | SetKind::Pieces);
        // any file of a split finds the others
        is_by_number && self.ending != "gguf"
    }

    /// The files that a set with these names lacks; `None` where nothing is known to be missing.
    pub(super) fn missing(&self, names: &[&str]) -> Option<MissingFiles> {
        match self.kind {
            SetKind::Pieces => None,
            SetKind::Shards { .. } | SetKind::Underscored { .. } => {
                NumberedSet::of(names.iter().copied())?.missing()
            }
            SetKind::Ranks { of } => {
                let (first, ranks) = (names.first()?, names.iter());
                let ranks = ranks.filter_map(|name| Some(rank_in(name)?.rank));
                let mut ranks: BTreeSet<u64> = ranks.collect();
                let of = match of {
                    Some(of) => of,
                    None => ranks_with_gap(&ranks)?,
                };
                ranks.retain(|rank| *rank < of);
                let place = rank_in(first)?;
                let absent = (0..of).filter(|rank| !ranks.contains(rank));
                let absent = absent.map(|rank| place.name_of(first, rank));
                MissingFiles::of(absent, of - ranks.len() as u64, of)
            }
        }
    }
}

/// How many ranks there are by their numbers, which count from 0: at least to the highest. `None` where more would be missing than are
/// there: other numbers are called ranks too, such as the sizes of factors.
fn ranks_with_gap(ranks: &BTreeSet<u64>) -> Option<u64> {
    let (first, last) = (ranks.first()?, ranks.last()?);
    let of = last.checked_add(1)?;
    let missing = of - ranks.len() as u64;
    (*first == 0 && missing < ranks.len() as u64).then_some(of)
}

/// The files that a set lacks.
pub(super) struct MissingFiles {
    /// The first one, if its name is known.
    first: Option<String>,
    text: String,
}

impl MissingFiles {
    /// The missing files by their names: `missing` of `count` files. `None` if there are none. As many names are made as
    /// are shown.
    fn of(names: impl Iterator<Item = String>, missing: u64, count: u64) -> Option<Self> {
        const SHOWN: usize = 3;
        if missing == 0 {
            return None;
        }
        let shown: Vec<String> = names.take(SHOWN).collect();
        let more = match missing - shown.len() as u64 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{}{more} ({missing} of {count} files)", shown.join(", "));
        let first = shown.into_iter().next();
        Some(Self { first, text })
    }

    /// Their names and number.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The error of opening the set in this directory: of the first missing file, if its name is known.
    pub(super) fn error(self, directory: &Path) -> Error {
        let error = Error::new(ErrorKind::MissingPart(self.text));
        match self.first {
            Some(first) => error.in_file(&directory.join(first)),
            None => error,
        }
    }
}

/// The numbered names of a set, whose files are known without an index.
pub(super) struct NumberedSet<'n> {
    /// The text before the number, and the text behind it.
    before: &'n str,
    behind: &'n str,
    width: usize,
    first: u64,
    last: u64,
    numbered: BTreeMap<u64, &'n str>,
}

impl<'n> NumberedSet<'n> {
    /// The set of names that differ in their numbers alone. `None` without a name that has a number.
    pub(super) fn of(names: impl Iterator<Item = &'n str>) -> Option<Self> {
        let mut of = 0;
        let mut numbered = BTreeMap::new();
        for name in names {
            let parsed = split_name(name).map(|(_, number, of)| (number, of));
            let (number, all) = parsed.or_else(|| underscored_shard(name))?;
            of = all;
            numbered.insert(number, name);
        }
        let (_, &name) = numbered.first_key_value()?;
        let (sign, word) = match split_name(name) {
            Some(_) => ('-', "-of-"),
            None => ('_', "_of_"),
        };
        let (rest, _) = name.rsplit_once(word)?;
        let start = rest.rfind(sign)? + 1;
        // writers count from 1, from 0 to one less, or from 0 to the number in the name
        let first = u64::from(!numbered.contains_key(&0));
        let last = match numbered.contains_key(&of) {
            true => of,
            false if first == 1 => of,
            false => of.saturating_sub(1),
        };
        Some(Self {
            before: &name[..start],
            behind: &name[rest.len()..],
            width: rest.len() - start,
            first,
            last,
            numbered,
        })
    }

    /// The number of its files, with those that are missing.
    pub(super) fn count(&self) -> u64 {
        self.last.saturating_sub(self.first).saturating_add(1)
    }

    /// The names of all files. The caller bounds their [`count`](Self::count), which a name states.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        (self.first..=self.last).map(|number| match self.numbered.get(&number) {
            Some(name) => (*name).to_owned(),
            None => self.name(number),
        })
    }

    fn name(&self, number: u64) -> String {
        let (before, behind, width) = (self.before, self.behind, self.width);
        format!("{before}{number:0width$}{behind}")
    }

    /// The files that are missing.
    pub(super) fn missing(&self) -> Option<MissingFiles> {
        let range = self.first..=self.last;
        let present = self.numbered.keys().filter(|number| range.contains(number));
        let missing = self.count().saturating_sub(present.count() as u64);
        // ends after as many steps as there are names and those that are shown
        let absent = range.filter(|number| !self.numbered.contains_key(number));
        let names = absent.map(|number| self.name(number));
        MissingFiles::of(names, missing, self.count())
    }
}

/// The errors of sets among the sorted names in a directory that lack files, and that no file and no directory opens as one
/// checkpoint, so that opening does not miss the others.
pub(crate) fn incomplete_sets<'n>(
    names: impl Iterator<Item = &'n str>,
    budget: &Budget,
) -> Result<Vec<Error>> {
    let models = models_among(names, budget)?;
    let others = models.iter().filter(|model| !model.is_opened_as_one());
    let errors = others.filter_map(|model| {
        let missing = model.missing()?;
        Some(Error::new(ErrorKind::MissingPart(missing.text)))
    });
    Ok(errors.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::Limits;

    #[test]
    fn the_names_of_a_set_are_one_model_and_its_missing_files_are_named() {
        for (names, wanted) in [
            (&["a.safetensors", "b.safetensors"][..], &[None, None][..]),
            (&["m-1-of-2.bin", "m-2-of-2.bin"], &[None]),
            (&["m-0-of-2.bin", "m-1-of-2.bin"], &[None]),
            (
                &["m-00001-of-00003.gguf", "m-00003-of-00003.gguf", "o.gguf"],
                &[Some("m-00002-of-00003.gguf (1 of 3 files)"), None],
            ),
            (
                &["m_1_of_3.pt", "n_1_of_2.pt", "n_2_of_2.pt"],
                &[Some("m_2_of_3.pt, m_3_of_3.pt (2 of 3 files)"), None],
            ),
            (
                &["m-2-of-18446744073709551615.bin"],
                &[Some(
                    "m-1-of-18446744073709551615.bin, m-3-of-18446744073709551615.bin, \
                     m-4-of-18446744073709551615.bin and 18446744073709551611 more (18446744073709551614 of \
                     18446744073709551615 files)",
                )],
            ),
            (
                &["model0-mp4.safetensors", "model2-mp4.safetensors"],
                &[Some(
                    "model1-mp4.safetensors, model3-mp4.safetensors (2 of 4 files)",
                )],
            ),
            (
                &["rank_0_of_12.pt", "rank_10_of_12.pt"],
                &[Some(
                    "rank_1_of_12.pt, rank_2_of_12.pt, rank_3_of_12.pt and 7 more (10 of 12 files)",
                )],
            ),
            // without a total, a gap is known
            (
                &[
                    "rank0.safetensors",
                    "rank1.safetensors",
                    "rank3.safetensors",
                ],
                &[Some("rank2.safetensors (1 of 4 files)")],
            ),
            (&["rank0.safetensors", "rank1.safetensors"], &[None]),
            (&["rank0.safetensors", "rank16.safetensors"], &[None]),
            (&["rank8.safetensors", "rank9.safetensors"], &[None]),
            (
                &["m_world_size_2_rank_1.pt"],
                &[Some("m_world_size_2_rank_0.pt (1 of 2 files)")],
            ),
            (&["m-00001-of-00001.bin"], &[None]),
        ] {
            let budget = Budget::new(Limits::default());
            let found = models_among(names.iter().copied(), &budget).unwrap();
            let missing = found.iter().map(|model| Some(model.missing()?.text));
            let missing: Vec<Option<String>> = missing.collect();
            let missing: Vec<Option<&str>> = missing.iter().map(Option::as_deref).collect();
            assert_eq!(missing, wanted, "{names:?}");
        }
    }
}
