//! Reading a configuration: a JSON object of a file next to the weights.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::Budget;
use crate::read::json::edit::{python_numbers_cost, without_python_numbers};
use crate::read::json::{JsonReader, Tree};
use crate::read::source::file_system::NamedPath;
use crate::read::source::files::Files;

/// Reads and parses a configuration file, whose memory stays charged.
pub(crate) fn read(
    files: &Files,
    path: NamedPath<'_>,
    budget: &Budget,
) -> Result<Map<String, Value>> {
    let (text, _charge) = files.read_whole(path, budget, "the configuration")?;
    parse(&text, budget)
}

/// Whether there is no configuration file. One that cannot be read, and a link that leads to nothing or is not followed, may decide how
/// weights are read.
pub(crate) fn is_absent(files: &Files, path: &Path, error: &Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    let ErrorKind::Io(e) = error.kind() else {
        return false;
    };
    match e.kind() {
        NotFound | NotADirectory => !(files.is_local() && path.is_symlink()),
        // buckets refuse a name that they do not have where listing is not allowed
        PermissionDenied => !files.is_local(),
        _ => false,
    }
}

/// The error of a configuration file that is there and cannot be read.
pub(crate) fn unreadable(files: &Files, path: &Path, error: Error) -> Error {
    let is_missing =
        matches!(error.kind(), ErrorKind::Io(e) if e.kind() == io::ErrorKind::NotFound);
    match is_missing && files.is_local() {
        true => error.with_note("it is a link to a file that does not exist".to_owned()),
        false => error,
    }
    .in_file(path)
}

/// Parses a configuration, whose memory stays charged. The last of two equal names counts, as in Python.
pub(crate) fn parse(text: &[u8], budget: &Budget) -> Result<Map<String, Value>> {
    parse_with_repeats(text, budget).map(|(map, _)| map)
}

/// Like [`parse`], with the names that have two values, each behind the names of the objects around it.
pub(crate) fn parse_with_repeats(
    text: &[u8],
    budget: &Budget,
) -> Result<(Map<String, Value>, Vec<String>)> {
    // files that were edited on Windows begin with a byte order mark, which serde_json refuses
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let malformed = |what: String| Error::malformed(what).in_format("config");
    let text = std::str::from_utf8(text)
        .map_err(|_| malformed("the configuration is not UTF-8".to_owned()))?;
    // transformers writes infinite limits as `Infinity`, which JSON does not have
    let _replaced = match python_numbers_cost(text) {
        0 => budget.nothing(),
        bytes => budget.temporary(bytes, "the configuration")?,
    };
    let text = &*without_python_numbers(text);
    let reader = JsonReader::new(budget, "the configuration");
    let tree = reader.parse_last(text, Tree(&reader), |e| {
        malformed(format!("the configuration is not JSON: {e}"))
    });
    match tree? {
        Value::Object(map) => Ok((map, reader.repeats())),
        _ => Err(malformed(
            "the configuration is not a JSON object".to_owned(),
        )),
    }
}
