//! Lists of digests: read in the forms that other programs write, and written.

use std::collections::HashSet;
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, Limits, text_cost};
#[cfg(feature = "remote")]
use crate::read::catalog::quote;
use crate::read::checkpoint::OpenOptions;
use crate::read::source::file_system::NamedPath;

use super::digest_json::{self, RowsOf};
use super::digest_lines::{self, LineForm, parse_line};
use super::evidence::uncomputed_algorithm;
use super::file_digest::FileDigest;
use super::report::CheckReport;

/// Digests of files, and of tensors in them.
///
/// ```
/// use anamnesis::check::DigestList;
///
/// let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty.bin\n";
/// let list = DigestList::from_text(text.as_bytes())?;
/// assert_eq!(list.files().count(), 1);
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigestList {
    /// Where it is from, for the report.
    pub(super) origin: String,
    pub(super) entries: Vec<DigestEntry>,
    /// Lines that are not used.
    pub(super) odd: OddLines,
    /// Whether it is signed, which is not verified.
    pub(super) is_signed: bool,
    /// Whether it is of a whole repository, of which people download a part.
    pub(super) of_repository: bool,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DigestEntry {
    /// As it is written; empty for the only file of the model.
    pub(super) file: String,
    pub(super) tensor: Option<String>,
    pub(super) digest: FileDigest,
}

/// Lines of a list that say something which is not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OddLines {
    pub(super) count: u64,
    /// The first one.
    pub(super) first: String,
}

impl OddLines {
    pub(super) fn add(&mut self, text: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = text();
        }
        self.count += 1;
    }

    /// The first of the lines, and how many there are.
    pub(super) fn text(&self) -> String {
        match self.count {
            0 | 1 => self.first.clone(),
            n => format!("{}, and {} more lines", self.first, n - 1),
        }
    }
}

const WHAT: &str = "the list of digests";

impl DigestList {
    /// Reads a list: lines of `sha256sum` and `sha512sum` (also with `--binary`, `--tag` and escaped names), digests with the
    /// prefix `sha256:`, lines of OpenSSL and of `llama-gguf-hash`, or the JSON that a check writes; in UTF-8 or UTF-16, also
    /// inside of a signature of OpenPGP, which is not verified. A check reports lines in other forms.
    ///
    /// # Errors
    /// I/O; no line in one of these forms; a list over [`Limits::memory`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        Self::read_with(path, &OpenOptions::new())
    }

    /// Like [`read`](Self::read), with the limits and the settings for URLs of these options.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let (files, path) = options.files(path.as_ref())?;
        let budget = Budget::new(options.limits_of());
        let name = path.file_name().and_then(|name| name.to_str());
        let read = || {
            if let Some(algorithm) = name.and_then(uncomputed_algorithm) {
                let what = format!("digests of {algorithm} are not computed");
                return Err(Error::unsupported(what));
            }
            let (bytes, _charge) = files.read_whole(NamedPath::Given(&path), &budget, WHAT)?;
            Self::parse(&bytes, &budget)
        };
        let mut list = read().map_err(|e| e.in_file(&path))?;
        list.origin = path.display().to_string();
        Ok(list)
    }

    /// The digests that the Hugging Face hub states of the files of `hf://owner/name[@revision][/folder]`, by one request, or ModelScope's
    /// list (`ms://owner/name[@revision][/folder]`), or a registry's manifest (`oci://registry/repository:tag`). A check reports files of the model that the repository does not have, and names its files that are not there.
    ///
    /// ```no_run
    /// use anamnesis::OpenOptions;
    /// use anamnesis::check::{DigestList, check_path};
    ///
    /// let options = OpenOptions::new();
    /// let list = DigestList::of_hub("hf://Qwen/Qwen3-8B", &options)?;
    /// let report = check_path("qwen3-8b", &options).manifest(list).run()?;
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of requests; a URL of another kind; a list over [`Limits::memory`].
    #[cfg(feature = "remote")]
    pub fn of_hub(url: &str, options: &OpenOptions) -> Result<Self> {
        let budget = Budget::new(options.limits_of());
        let listed = || {
            let found = crate::read::source::remote::stated_digests(url, options.remote_of())?;
            let mut list = Self {
                of_repository: true,
                ..Self::default()
            };
            for (file, text) in found.files {
                budget.memory(text_cost(file.len()), WHAT)?;
                match FileDigest::from_manifest(&text).or_else(|| FileDigest::from_etag(&text)) {
                    Some(digest) => {
                        let tensor = None;
                        let entry = DigestEntry {
                            file,
                            tensor,
                            digest,
                        };
                        budget.push(&mut list.entries, entry, WHAT)?;
                    }
                    None => list.odd.add(|| {
                        let file = quote(&file);
                        format!("the digest of {file} is of a kind that is not computed")
                    }),
                }
            }
            Ok((list, found.commit))
        };
        let (mut list, commit) = listed().map_err(|e: Error| e.in_file(Path::new(url)))?;
        let place = url.split('@').next().unwrap_or(url);
        list.origin = format!("{place}@{commit}");
        Ok(list)
    }

    /// Like [`read`](Self::read), for text in memory.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn from_text(text: &[u8]) -> Result<Self> {
        Self::parse(text, &Budget::new(Limits::default()))
    }

    /// The names of the files in the list.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let files = self.entries.iter().filter(|entry| entry.tensor.is_none());
        files.map(|entry| &*entry.file)
    }

    /// The number of lines, or of entries of JSON, that are in no known form or have a digest of a kind that is not computed.
    /// A check reports them as a finding.
    pub fn unused_lines(&self) -> u64 {
        self.odd.count
    }

    pub(super) fn parse(bytes: &[u8], budget: &Budget) -> Result<Self> {
        // a text of UTF-16 is made anew, with up to three bytes for two
        let made = match digest_lines::is_utf16(bytes) {
            true => 2 * bytes.len() as u64,
            false => 0,
        };
        let _text = budget.temporary(made, WHAT)?;
        let text = digest_lines::text_of(bytes)
            .ok_or_else(|| Error::malformed("the list of digests is neither UTF-8 nor UTF-16"))?;
        // no line of the other forms begins so
        if text.trim_start().starts_with('{') {
            return Self::parse_json(&text, budget);
        }
        // each line has a byte or more, and an entry in the list of lines
        let count = text.lines().count() as u64;
        // and perhaps one in the table of names
        let _lines = budget.temporary(200 * count + bytes.len() as u64, WHAT)?;
        let (lines, is_signed) = digest_lines::lines(&text);
        let mut list = Self {
            is_signed,
            ..Self::default()
        };
        let mut others = Vec::new();
        for (number, line) in lines {
            match parse_line(line) {
                LineForm::Entry {
                    file,
                    tensor,
                    digest,
                } => {
                    let nbytes = text_cost(file.len()) + text_cost(tensor.map_or(0, str::len));
                    budget.memory(nbytes, WHAT)?;
                    let entry = DigestEntry {
                        file: file.into_owned(),
                        tensor: tensor.map(str::to_owned),
                        digest,
                    };
                    budget.push(&mut list.entries, entry, WHAT)?;
                }
                LineForm::OtherDigest(name) => others.push((number, name)),
                // not its text: what lies under the name of a list may be no list, and private
                LineForm::Unknown => list
                    .odd
                    .add(|| format!("line {number} is in no known form")),
            }
        }
        // programs write several digests of each file, of which one is enough
        let named: HashSet<String> = list.entries.iter().map(DigestEntry::name).collect();
        for (number, name) in others {
            if !named.contains(name) {
                list.odd
                    .add(|| format!("line {number} has a digest of a kind that is not computed"));
            }
        }
        if list.entries.is_empty() {
            // an empty list would compare nothing and look like success
            return Err(Error::malformed(match list.odd.count {
                0 => "the list has no SHA-256 and no SHA-512".to_owned(),
                _ => format!("the list of digests: {}", list.odd.text()),
            }));
        }
        Ok(list)
    }
}

impl DigestList {
    fn parse_json(text: &str, budget: &Budget) -> Result<Self> {
        let mut list = Self::default();
        let has_files = digest_json::read(text, budget, WHAT, &mut |of, name, digest| {
            let (Some(name), Some(digest)) = (name, digest) else {
                let key = of.name_key();
                list.odd
                    .add(|| format!("an entry lacks `{key}`, or a valid `sha256`"));
                return Ok(());
            };
            budget.listed_digest();
            budget.memory(text_cost(name.len()), WHAT)?;
            let (file, tensor) = match of {
                RowsOf::Files => (name, None),
                RowsOf::Tensors => (String::new(), Some(name)),
            };
            let entry = DigestEntry {
                file,
                tensor,
                digest,
            };
            budget.push(&mut list.entries, entry, WHAT)
        })?;
        if !has_files {
            return Err(Error::malformed("the list of digests has no `files`"));
        }
        if list.entries.is_empty() {
            return Err(Error::malformed("the list of digests has no entry"));
        }
        Ok(list)
    }
}

impl DigestEntry {
    /// The name as lines with other digests of the same thing have it.
    fn name(&self) -> String {
        match &self.tensor {
            Some(tensor) => format!("{}:{tensor}", self.file),
            None => self.file.clone(),
        }
    }
}

/// The list of a report's files in the form of `sha256sum`.
pub fn sha256_lines(report: &CheckReport) -> String {
    let mut text = String::new();
    for file in &report.files {
        let Some(digest) = file.sha256 else { continue };
        // as GNU coreutils escape such names, so that `sha256sum -c` reads the list
        let special = file.path.contains(['\\', '\n', '\r']);
        if special {
            let name = file.path.replace('\\', "\\\\");
            let name = name.replace('\n', "\\n").replace('\r', "\\r");
            text.push_str(&format!("\\{digest}  {name}\n"));
        } else {
            text.push_str(&format!("{digest}  {}\n", file.path));
        }
    }
    text
}

/// The list of a report's files and tensors as JSON.
pub fn json_list(report: &CheckReport) -> String {
    let files = report.files.iter().filter_map(|file| {
        let digest = file.sha256?;
        Some(serde_json::json!({"path": file.path, "nbytes": file.nbytes, "sha256": digest}))
    });
    let tensors = report.tensors.iter().filter_map(|tensor| {
        let (stored, digest) = (&tensor.stored, tensor.stored.sha256?);
        Some(serde_json::json!({
            "name": tensor.name, "dtype": stored.dtype, "shape": stored.shape, "sha256": digest,
        }))
    });
    let document = serde_json::json!({
        "version": 1,
        "files": files.collect::<Vec<_>>(),
        "tensors": tensors.collect::<Vec<_>>(),
    });
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn lines_of_other_programs_are_read() {
        for (line, file, tensor) in [
            (format!("{DIGEST}  a b.gguf"), "a b.gguf", None),
            (format!("{DIGEST} *a.gguf"), "a.gguf", None),
            (format!("\\{DIGEST}  a\\nb"), "a\nb", None),
            (format!("sha256:{DIGEST}  a.gguf"), "a.gguf", None),
            (format!("sha256:{DIGEST}"), "", None),
            (format!("SHA256 (a) b) = {DIGEST}"), "a) b", None),
            (format!("SHA2-256(a=b.bin)= {DIGEST}"), "a=b.bin", None),
            (format!("\\{DIGEST}  a\\\\nb"), "a\\nb", None),
            (format!("sha512:{}  a", DIGEST.repeat(2)), "a", None),
            (format!("SHA512 (a) = {}", DIGEST.repeat(2)), "a", None),
            (
                format!("sha256    {DIGEST}  m/a.gguf:blk.0.w"),
                "m/a.gguf",
                Some("blk.0.w"),
            ),
            (format!("sha256    {DIGEST}  a.gguf"), "a.gguf", None),
        ] {
            let list =
                DigestList::from_text(format!("\n# comment\n{line}\r\n").as_bytes()).unwrap();
            let [entry] = &list.entries[..] else {
                panic!("{line}")
            };
            assert_eq!(
                (&*entry.file, entry.tensor.as_deref()),
                (file, tensor),
                "{line}"
            );
            assert!(entry.digest.to_string().ends_with(DIGEST));
        }
        for wrong in [
            "",
            "no list",
            "xxh64  0123456789abcdef  a",
            &format!("{DIGEST}0  a"),
            "{}",
        ] {
            assert!(DigestList::from_text(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn encodings_and_signatures_are_read() {
        let text = format!("{DIGEST}  a.gguf\r\n");
        let utf16 = |mark: &[u8], unit: fn(u16) -> [u8; 2]| {
            let units = text.encode_utf16().flat_map(unit);
            mark.iter().copied().chain(units).collect::<Vec<u8>>()
        };
        let signed = format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n{text}- {DIGEST}  -b\n\
             -----BEGIN PGP SIGNATURE-----\n\niQIzBAEBCgAdFiEE\n=abcd\n-----END PGP SIGNATURE-----\n"
        );
        for (bytes, count) in [
            (text.clone().into_bytes(), 1),
            (format!("\u{feff}{text}").into_bytes(), 1),
            (utf16(&[0xff, 0xfe], u16::to_le_bytes), 1),
            (utf16(&[0xfe, 0xff], u16::to_be_bytes), 1),
            (utf16(&[], u16::to_le_bytes), 1),
            (utf16(&[], u16::to_be_bytes), 1),
            (signed.into_bytes(), 2),
        ] {
            let list = DigestList::from_text(&bytes).unwrap();
            assert_eq!(list.odd.count, 0, "{:?}", list.odd);
            assert_eq!(list.is_signed, count == 2);
            assert_eq!(list.files().count(), count);
            assert_eq!(list.files().next(), Some("a.gguf"));
        }
        let odd = utf16(&[0xff, 0xfe], u16::to_le_bytes);
        assert!(DigestList::from_text(&odd[..odd.len() - 1]).is_err());
    }

    #[test]
    fn an_odd_line_leaves_the_others() {
        let md5 = "900150983cd24fb0d6963f7d28e17f72";
        let text =
            format!("{DIGEST}  a\n???\nMD5 (a) = {md5}\n{md5}  b\nxxh64  0123456789abcdef  c\n");
        let list = DigestList::from_text(text.as_bytes()).unwrap();
        assert_eq!(list.files().collect::<Vec<_>>(), ["a"]);
        assert_eq!(list.odd.count, 3);
        let text = list.odd.text();
        assert!(
            text.starts_with("line 2 is in no known form") && !text.contains('?'),
            "{text}"
        );
    }
}
