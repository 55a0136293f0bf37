//! The digests of a repository's files: a SHA-256 of those in LFS, the id of the git object of the others.
//! <https://huggingface.co/docs/hub/api>: `GET /api/models/{repo}/revision/{revision}?blobs=true`.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::client::Client;
use crate::error::{Error, ErrorKind, Result};
use crate::json_fields::{ObjectFields, ReadObject, ShortText, read_whole};
use crate::options::RemoteOptions;
use crate::resource::Resource;
use crate::runtime::wait_while;

use super::listing::{MOST_FILES, is_commit_name};
use super::{HubPath, HubSettings};

/// The longest answer that is read. An entry has some 300 bytes.
const LONGEST: u64 = 64 << 20;

/// The files of a repository at one commit, with the digests that the hub states; or of a model, as a registry states them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedDigests {
    /// The commit that the revision is; the digest of the manifest.
    pub commit: String,
    /// Paths below the repository, or below the folder that the URL names, each with 64 digits of a SHA-256 or 40 of the id of a git
    /// object.
    pub files: Vec<(String, String)>,
}

/// Asks the hub for the digests of the files that `hf://owner/name[@revision][/folder]` names. The cache of the hub's client on this
/// machine is not looked at. Variables are the environment's, unless the options have others.
///
/// # Errors
/// [`Invalid`](ErrorKind::Invalid) for a URL of another kind; [`Offline`](ErrorKind::Offline) if no request is to be sent; the errors of
/// the request; an answer over [`RemoteOptions::memory`].
pub fn hub_digests(
    url: &str,
    options: RemoteOptions,
    variables: &dyn Fn(&str) -> Option<String>,
) -> Result<StatedDigests> {
    let rest = url
        .split_once("://")
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("hf"));
    let Some((_, rest)) = rest else {
        let what = "only the hub, ModelScope and registries state the digests of their files: write hf://owner/name, ms://owner/name or \
                    oci://registry/repository:tag";
        return Err(Error::new(ErrorKind::Invalid, what));
    };
    let own = options.variables.clone();
    let variables = |name: &str| {
        let own = own.get(name);
        own.map_or_else(|| variables(name), |own| Some(own.to_owned()))
    };
    let settings = HubSettings::from_variables(&variables)?;
    let path = HubPath::parse(rest)?;
    let mut listing = path.listing_url(&settings.endpoint)?;
    listing.set_query(Some("blobs=true"));
    let mut options = options;
    options.offline |= super::is_offline(&variables);
    let client = Arc::new(Client::new(options));
    let resource = Resource::on_hub(listing, settings.token, Arc::default());
    let most = LONGEST.min(client.options.memory / 2);
    let sender = Arc::clone(&client);
    let request = async move { sender.document(&resource, most).await };
    let text = wait_while(request, &mut || client.check_wanted().is_ok())?;
    let room = client.options.memory.saturating_sub(text.len() as u64);
    parse_digests(&text, &path.file, room)
}

/// The commit, and the files below a folder of the repository, of which `room` bytes may be kept.
pub(crate) fn parse_digests(text: &[u8], folder: &str, room: u64) -> Result<StatedDigests> {
    let wrong = |what: &str| Error::refused(format!("the hub's list of digests {what}"));
    let mut found = DigestAnswer {
        folder,
        room,
        fault: None,
        commit: String::new(),
        files: None,
    };
    let parsed = read_whole(text, &mut found);
    if let Some(fault) = found.fault {
        return Err(wrong(fault));
    }
    parsed.map_err(|_| wrong("is not JSON, or no list"))?;
    let (commit, files) = (found.commit, found.files);
    if !is_commit_name(&commit) {
        return Err(wrong("names no commit"));
    }
    let files = files.ok_or_else(|| wrong("has no `siblings`"))?;
    if files.is_empty() {
        return Err(wrong("names no file with a digest in this folder"));
    }
    Ok(StatedDigests { commit, files })
}

struct DigestAnswer<'f> {
    folder: &'f str,
    room: u64,
    fault: Option<&'static str>,
    commit: String,
    files: Option<Vec<(String, String)>>,
}

impl ObjectFields for DigestAnswer<'_> {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "sha" => self.commit = map.next_value::<ShortText>()?.0,
            "siblings" => map.next_value_seed(DigestFiles(self))?,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

/// The array of a repository's files.
struct DigestFiles<'a, 'f>(&'a mut DigestAnswer<'f>);

impl<'de> DeserializeSeed<'de> for DigestFiles<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for DigestFiles<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of files")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<(), S::Error> {
        let fail = |fault, found: &mut DigestAnswer<'_>| {
            found.fault = Some(fault);
            serde::de::Error::custom(fault)
        };
        let (mut files, mut count) = (Vec::new(), 0usize);
        while let Some(HubFile { name, blob, lfs }) = seq.next_element()? {
            count += 1;
            if count > MOST_FILES {
                return Err(fail("has more than a million files", self.0));
            }
            // the object of a file in LFS is the pointer to it
            let digest = if lfs.is_empty() { blob } else { lfs };
            let name = match self.0.folder {
                "" => Some(&*name),
                folder => name
                    .strip_prefix(folder)
                    .and_then(|name| name.strip_prefix('/')),
            };
            let Some(name) = name.filter(|name| !name.is_empty() && !digest.is_empty()) else {
                continue;
            };
            let cost = 4 * size_of::<String>() + name.len() + digest.len();
            match self.0.room.checked_sub(cost as u64) {
                Some(left) => self.0.room = left,
                None => return Err(fail("is longer than the memory for it", self.0)),
            }
            files.push((name.to_owned(), digest));
        }
        self.0.files = Some(files);
        Ok(())
    }
}

/// One file of the array: empty texts for what it does not have.
#[derive(Default)]
struct HubFile {
    name: String,
    blob: String,
    lfs: String,
}

impl ObjectFields for HubFile {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "rfilename" => self.name = map.next_value::<ShortText>()?.0,
            "blobId" => self.blob = map.next_value::<ShortText>()?.0,
            "lfs" => self.lfs = map.next_value::<Option<LfsObject>>()?.unwrap_or_default().0,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> serde::Deserialize<'de> for HubFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut file = Self::default();
        ReadObject(&mut file).deserialize(deserializer)?;
        Ok(file)
    }
}

/// The SHA-256 of a file in LFS; `lfs` is null for others.
#[derive(Default)]
struct LfsObject(String);

impl ObjectFields for LfsObject {
    fn field<'de, M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            // `oid` in the trees of the API
            "sha256" | "oid" => self.0 = map.next_value::<ShortText>()?.0,
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }
}

impl<'de> serde::Deserialize<'de> for LfsObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Self::default();
        ReadObject(&mut object).deserialize(deserializer)?;
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"x": [[1]], "sha": "abc", "siblings": [
        {"rfilename": "a.json", "blobId": "b1", "size": 2},
        {"rfilename": "m.gguf", "size": 9, "lfs": {"size": 9, "sha256": "s1", "pointerSize": 1}, "blobId": "b2"},
        {"rfilename": "sub/c.json", "blobId": "b3", "lfs": null}, {"rfilename": "none"}]}"#;

    #[test]
    fn files_in_lfs_have_a_sha256_and_others_a_git_object() {
        let named = |folder: &str| {
            let found = parse_digests(TEXT.as_bytes(), folder, 10_000).unwrap();
            let files = found.files.into_iter();
            files
                .map(|(name, digest)| format!("{name} {digest}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(named(""), ["a.json b1", "m.gguf s1", "sub/c.json b3"]);
        assert_eq!(named("sub"), ["c.json b3"]);
    }

    #[test]
    fn wrong_answers_are_refused() {
        assert!(parse_digests(TEXT.as_bytes(), "", 100).is_err());
        assert!(parse_digests(TEXT.as_bytes(), "other", 10_000).is_err());
        for end in 0..TEXT.len() {
            assert!(
                parse_digests(&TEXT.as_bytes()[..end], "", 10_000).is_err(),
                "{end}"
            );
        }
        for text in [
            "[".repeat(1 << 20),
            r#"{"sha": "abc", "siblings": [{"rfilename": "a", "lfs": 3}]}"#.to_owned(),
            r#"{"sha": "a/b", "siblings": [{"rfilename": "a", "blobId": "b"}]}"#.to_owned(),
            r#"{"sha": "abc", "siblings": []}"#.to_owned(),
        ] {
            assert!(parse_digests(text.as_bytes(), "", 10_000).is_err());
        }
    }
}
