//! Lists of digests: read in the forms that other programs write, and written.

use std::path::Path;

use serde_json::Value;

use crate::base::error::{Error, Result};
use crate::base::limits::{Budget, Limits, text_cost};
use crate::read::catalog::quote;
use crate::read::checkpoint::OpenOptions;
use crate::read::digest::Sha256Digest;
use crate::read::json::{JsonReader, Tree};

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
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DigestEntry {
    /// As it is written; empty for the only file of the model.
    pub(super) file: String,
    pub(super) tensor: Option<String>,
    pub(super) sha256: Sha256Digest,
}

const WHAT: &str = "the list of digests";

impl DigestList {
    /// Reads a list: lines of `sha256sum` (also with `--binary`, `--tag` and escaped names), digests with the prefix `sha256:`,
    /// lines of `llama-gguf-hash`, or the JSON that a check writes.
    ///
    /// # Errors
    /// I/O; a line in none of these forms; a list over [`Limits::memory`].
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
        let read = || {
            let (bytes, _charge) = files.read_whole(&path, &budget, WHAT)?;
            Self::parse(&bytes, &budget)
        };
        let mut list = read().map_err(|e| e.in_file(&path))?;
        list.origin = path.display().to_string();
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

    pub(super) fn parse(bytes: &[u8], budget: &Budget) -> Result<Self> {
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Error::malformed("the list of digests is not UTF-8"))?;
        // no line of the other forms begins so
        if text.trim_start().starts_with('{') {
            return Self::parse_json(text, budget);
        }
        let mut list = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match parse_line(line) {
                LineForm::Entry(entry) => {
                    let tensor = entry.tensor.as_ref().map_or(0, String::len);
                    budget.memory(text_cost(entry.file.len()) + text_cost(tensor), WHAT)?;
                    budget.push(&mut list.entries, entry, WHAT)?;
                }
                LineForm::OtherDigest => {}
                LineForm::Unknown => {
                    return Err(Error::malformed(format!(
                        "line {number} of the list of digests, {}, is in no known form",
                        quote(line)
                    )));
                }
            }
        }
        if list.entries.is_empty() {
            // an empty list would compare nothing and look like success
            return Err(Error::malformed("the list has no SHA-256"));
        }
        Ok(list)
    }

    fn parse_json(text: &str, budget: &Budget) -> Result<Self> {
        let reader = JsonReader::new(budget, WHAT);
        let document = reader.parse(text, Tree(&reader), |e| {
            Error::malformed(format!("not a list of digests: {e}"))
        })?;
        let mut list = Self::default();
        let rows = |key: &str| document.get(key).and_then(Value::as_array);
        let files =
            rows("files").ok_or_else(|| Error::malformed("the list of digests has no `files`"))?;
        let tensors = rows("tensors").map_or(&[][..], Vec::as_slice);
        let named = files.iter().map(|row| (row, "path"));
        for (row, key) in named.chain(tensors.iter().map(|row| (row, "name"))) {
            let text = |key: &str| row.get(key).and_then(Value::as_str);
            let (Some(name), Some(digest)) = (text(key), text("sha256")) else {
                let what = format!("an entry of the list of digests lacks `{key}` or `sha256`");
                return Err(Error::malformed(what));
            };
            budget.memory(text_cost(name.len()), WHAT)?;
            let (file, tensor) = match key {
                "path" => (name.to_owned(), None),
                _ => (String::new(), Some(name.to_owned())),
            };
            let sha256 = digest.parse()?;
            budget.push(
                &mut list.entries,
                DigestEntry {
                    file,
                    tensor,
                    sha256,
                },
                WHAT,
            )?;
        }
        Ok(list)
    }
}

/// The form of a line.
enum LineForm {
    Entry(DigestEntry),
    /// A digest of another kind.
    OtherDigest,
    Unknown,
}

fn parse_line(line: &str) -> LineForm {
    let entry = |digest: &str, file: String, tensor: Option<&str>| match digest.parse() {
        Ok(sha256) => LineForm::Entry(DigestEntry {
            file,
            tensor: tensor.map(str::to_owned),
            sha256,
        }),
        Err(_) => LineForm::Unknown,
    };
    // `sha256sum --tag`
    if let Some(rest) = line.strip_prefix("SHA256 (") {
        // from the right: a name may contain these characters, a digest does not
        return match rest.rsplit_once(") = ") {
            Some((file, digest)) => entry(digest.trim(), file.to_owned(), None),
            None => LineForm::Unknown,
        };
    }
    let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    // `llama-gguf-hash`: the algorithm, the digest, and `FILE:TENSOR`
    match first {
        "sha256" => {
            let (digest, name) = rest
                .trim_start()
                .split_once("  ")
                .unwrap_or((rest.trim(), ""));
            // names of tensors have no colon, paths may
            return match name.rsplit_once(':') {
                Some((file, tensor)) => entry(digest, file.to_owned(), Some(tensor)),
                None => entry(digest, name.to_owned(), None),
            };
        }
        "xxh64" | "sha1" | "uuid" => return LineForm::OtherDigest,
        _ => {}
    }
    let (escaped, digest) = match first.strip_prefix('\\') {
        Some(digest) => (true, digest),
        None => (false, first),
    };
    let digest = digest.strip_prefix("sha256:").unwrap_or(digest);
    // a second space is text mode, a star binary mode
    let name = rest.strip_prefix([' ', '*']).unwrap_or(rest);
    let name = if escaped {
        name.replace("\\n", "\n")
            .replace("\\r", "\r")
            .replace("\\\\", "\\")
    } else {
        name.to_owned()
    };
    entry(digest, name, None)
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
            assert_eq!(entry.sha256.to_string(), DIGEST);
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
}
