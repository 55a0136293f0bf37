//! Names with the numbers of a set: the key by which the files of one model are found among the names of a directory.

use crate::base::template::weight_ending;

use super::named_files::{piece_number, split_name};
use super::ranks::{rank_of, underscored_shard};

/// The parts of a name that all files of a set have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SetKey {
    pub(super) kind: SetKind,
    /// The name without its number.
    name: String,
    pub(super) ending: &'static str,
}

/// How the files of a set are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SetKind {
    Pieces,
    Shards { of: u64 },
    Underscored { of: u64 },
    Ranks { of: Option<u64> },
}

impl SetKey {
    pub(super) fn of(name: &str) -> Option<Self> {
        let ending = weight_ending(name)?;
        let key = |kind, name: &str| {
            Some(Self {
                kind,
                name: name.to_owned(),
                ending,
            })
        };
        if piece_number(name).is_some() {
            return key(SetKind::Pieces, "");
        }
        if let Some((prefix, _, of)) = split_name(name) {
            return key(SetKind::Shards { of }, prefix);
        }
        if let Some((number, of)) = underscored_shard(name) {
            let stem = &name[..name.rfind("_of_").unwrap_or(0)];
            let stem = stem.rsplit_once('_').map_or("", |(stem, _)| stem);
            return (number <= of).then(|| key(SetKind::Underscored { of }, stem))?;
        }
        let (_, of) = rank_of(name)?;
        // the digits of the rank differ, and others that have its value are of no matter
        let without: String = name.split(|c: char| c.is_ascii_digit()).collect();
        key(SetKind::Ranks { of }, &without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_numbers_of_a_set_have_one_key() {
        let same = |a: &str, b: &str| match (SetKey::of(a), SetKey::of(b)) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        };
        for (a, b) in [
            ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf"),
            ("m_1_of_2.safetensors", "m_2_of_2.safetensors"),
            ("consolidated.00.pth", "consolidated.01.pth"),
            ("rank0.safetensors", "rank11.safetensors"),
            (
                "shard-00001-model-00001-of-00001.safetensors",
                "shard-00002-model-00001-of-00001.safetensors",
            ),
        ] {
            assert!(same(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("style-000001.safetensors", "style-000002.safetensors"),
            ("m-00001-of-00002.gguf", "n-00002-of-00002.gguf"),
            ("m-00001-of-00002.gguf", "m-00002-of-00003.gguf"),
            ("m-00001-of-00002.gguf", "m-00002-of-00002.safetensors"),
            ("a.safetensors", "a.safetensors"),
        ] {
            assert!(!same(a, b), "{a} {b}");
        }
    }
}
