//! The answer of the hub that lists a repository, and indexes of checkpoints in its cache: read as they come, without a tree of
//! values, of which a few bytes of text make many.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::error::{Error, Result};
use crate::json_fields::{ObjectFields, ReadObject, ShortText, read_whole};
use crate::names::is_plain;

/// Files of a repository. The work for an answer is bounded, whatever server HF_ENDPOINT names.
pub(super) const MOST_FILES: usize = 1_000_000;

/// The commit and the names of the files in one folder of a repository, of which `room` bytes may be kept.
pub(crate) fn parse_listing(text: &[u8], folder: &str, room: u64) -> Result<(String, Vec<String>)> {
    let wrong = |what: &str| Error::refused(format!("the hub's list of files {what}"));
    let prefix = match folder {
        "" => String::new(),
        folder => format!("{folder}/"),
    };
    let mut listing = HubListing {
        prefix: &prefix,
        room,
        fault: None,
        commit: None,
        names: None,
    };
    let parsed = read_whole(text, &mut listing);
    if let Some(fault) = listing.fault {
        return Err(wrong(fault));
    }
    parsed.map_err(|_| wrong("is not JSON, or no list"))?;
    let commit = listing.commit.unwrap_or_default();
    if !is_commit_name(&commit) {
        return Err(wrong("names no commit"));
    }
    let names = listing.names.ok_or_else(|| wrong("has no `siblings`"))?;
    Ok((commit, names))
}

/// The fields of an answer that are read.
struct HubListing<'p> {
    prefix: &'p str,
    room: u64,
    fault: Option<&'static str>,
    commit: Option<String>,
    names: Option<Vec<String>>,
}

impl ObjectFields for HubListing<'_> {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "sha" => self.commit = Some(map.next_value::<ShortText>()?.0),
            "siblings" => map.next_value_seed(Siblings(self))?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// Whether a text can be a commit, which becomes a part of URLs.
pub(super) fn is_commit_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// The array of a repository's files.
struct Siblings<'a, 'p>(&'a mut HubListing<'p>);

impl<'de> DeserializeSeed<'de> for Siblings<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Siblings<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of files")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut files: S) -> Result<(), S::Error> {
        let fail = |fault, listing: &mut HubListing<'_>| {
            listing.fault = Some(fault);
            serde::de::Error::custom(fault)
        };
        let mut names = Vec::new();
        let mut count = 0usize;
        while let Some(Sibling(name)) = files.next_element()? {
            count += 1;
            if count > MOST_FILES {
                return Err(fail("has more than a million files", self.0));
            }
            // files of other folders are left out
            let name = name
                .as_deref()
                .and_then(|name| name.strip_prefix(self.0.prefix));
            let Some(name) = name.filter(|name| is_plain(name)) else {
                continue;
            };
            let cost = (2 * size_of::<String>() + name.len()) as u64;
            match self.0.room.checked_sub(cost) {
                Some(left) => self.0.room = left,
                None => return Err(fail("is longer than the memory for it", self.0)),
            }
            names.push(name.to_owned());
        }
        self.0.names = Some(names);
        Ok(())
    }
}

/// The name of one file of the array, if it has one.
#[derive(Default)]
struct Sibling(Option<String>);

impl ObjectFields for Sibling {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "rfilename" => self.0 = Some(map.next_value::<ShortText>()?.0),
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> serde::Deserialize<'de> for Sibling {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut sibling = Self::default();
        ReadObject(&mut sibling).deserialize(deserializer)?;
        Ok(sibling)
    }
}

/// Whether `is_there` holds of all files that an index of a checkpoint names, and there is one. Each is asked for once in a
/// sequence of equal ones, as indexes have them.
pub(crate) fn all_files_of_index(text: &[u8], is_there: &mut dyn FnMut(&str) -> bool) -> bool {
    let mut files = IndexFiles {
        is_there,
        last: None,
    };
    let parsed = read_whole(text, &mut files);
    parsed.is_ok() && files.last.is_some()
}

/// The files of an index: of its map of weights.
struct IndexFiles<'a> {
    is_there: &'a mut dyn FnMut(&str) -> bool,
    last: Option<String>,
}

impl ObjectFields for IndexFiles<'_> {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "weight_map" => map.next_value_seed(ReadObject(&mut WeightMap(self))),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

struct WeightMap<'a, 'b>(&'a mut IndexFiles<'b>);

impl ObjectFields for WeightMap<'_, '_> {
    fn field<'de, M: MapAccess<'de>>(&mut self, _: &str, map: &mut M) -> Result<(), M::Error> {
        let ShortText(file) = map.next_value()?;
        let is_known = self.0.last.as_ref() == Some(&file);
        if file.is_empty() || (!is_known && !(self.0.is_there)(&file)) {
            return Err(serde::de::Error::custom("a file is missing"));
        }
        self.0.last = Some(file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_list_are_within_their_room() {
        let files: Vec<_> = (0..100)
            .map(|n| format!("{{\"rfilename\":\"f{n:03}\"}}"))
            .collect();
        let text = format!("{{\"sha\":\"abc\",\"siblings\":[{}]}}", files.join(","));
        let parse = |room| parse_listing(text.as_bytes(), "", room);
        assert_eq!(parse(10_000).unwrap().1.len(), 100);
        assert!(parse(1000).unwrap_err().to_string().contains("memory"));
    }

    #[test]
    fn a_tree_of_values_is_not_made() {
        // 30 MB of values in an unread field, and arrays within arrays beyond any depth
        let unread = format!(
            "{{\"x\":[{}1],\"sha\":\"abc\",\"siblings\":[]}}",
            "1,".repeat(1 << 20)
        );
        let parsed = parse_listing(unread.as_bytes(), "", 0).unwrap();
        assert_eq!(parsed, ("abc".to_owned(), vec![]));
        for text in [
            "[".repeat(1 << 20),
            "{\"siblings\":[{\"rfilename\":".to_owned() + &"[".repeat(1 << 20),
            "{\"sha\":1}".to_owned(),
            "{\"sha\":\"abc\"}".to_owned(),
            "{\"sha\":\"a/b\",\"siblings\":[]}".to_owned(),
            "{\"sha\":\"abc\",\"siblings\":[]} x".to_owned(),
        ] {
            assert!(parse_listing(text.as_bytes(), "", 1000).is_err());
        }
    }

    #[test]
    fn files_of_an_index_are_asked_for_in_turn() {
        let text = b"{\"metadata\":{},\"weight_map\":{\"a\":\"1\",\"b\":\"1\",\"c\":\"2\"}}";
        let mut asked = Vec::new();
        let all = all_files_of_index(text, &mut |name| {
            asked.push(name.to_owned());
            true
        });
        assert!(all);
        assert_eq!(asked, ["1", "2"]);
        assert!(!all_files_of_index(text, &mut |name| name == "1"));
        for none in [
            &b"{}"[..],
            b"{\"weight_map\":{}}",
            b"[",
            b"{\"weight_map\":{\"a\":1}}",
        ] {
            assert!(!all_files_of_index(none, &mut |_| true));
        }
    }
}
