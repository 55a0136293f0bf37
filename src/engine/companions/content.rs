//! The content of one companion file: found, read or left out.

use std::fs::File;
use std::io;
use std::path::Path;

use anamnesis_os::files::directory_of;

use super::names::CONFIGURATIONS;
use super::{CompanionContent, CompanionEdit, LeftOutReason, config, renamed_configuration};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, zeroed};
use crate::quant::scheme::is_configuration;
use crate::read::checkpoint::read_beside_runs;
use crate::read::source::file_system::{MapMode, NamedPath};
use crate::read::source::files::Files;
use crate::read::source::read_exact_at;
use crate::read::source::regular::{open_named, read_opened};

/// Longest companion file. Tokenizers have up to 40 MB; a longer file is not one.
const MAX_BYTES: u64 = 256 << 20;

/// The thing under the name of a companion file.
pub(super) enum FoundContent {
    Carried(CompanionContent),
    LeftOut(LeftOutReason),
    /// There is no such file: at a URL whose server lists nothing, names are tried.
    Missing,
}

/// Opens a file of a model's directory, whose links lead to files of that directory, of its hub cache or of their owner. Its
/// length is the second value.
///
/// # Errors
/// I/O; what is not a regular file; a link of another user to a file of a third one.
pub(crate) fn open_companion(path: &Path) -> Result<(File, u64)> {
    read_beside_runs(&Files::default(), directory_of(path), || open(path))
}

/// Like [`open_companion`], where the caller reads the directory again if a run replaces the model meanwhile.
fn open(path: &Path) -> Result<(File, u64)> {
    open_named(NamedPath::in_its_directory(path))
}

/// Finds the content under a name. Configurations are read and edited, and files at a URL are read.
pub(super) fn content(
    files: &Files,
    path: &Path,
    name: &str,
    edit: CompanionEdit<'_>,
    budget: &Budget,
) -> Result<FoundContent> {
    let is_edited = match edit.dtype {
        Some(_) => CONFIGURATIONS.contains(&name),
        None => is_configuration(name),
    };
    if files.is_local() {
        let (file, len) = match open(path) {
            Ok(opened) => opened,
            Err(error) => return left_out(path, error),
        };
        return Ok(match is_edited {
            _ if len > MAX_BYTES => FoundContent::LeftOut(LeftOutReason::TooLong),
            // only the configuration changes
            true => {
                let (text, _charge) = read_opened(&file, len, budget, "the configuration")?;
                let edited = edited_text(name, &text, edit, budget)?;
                FoundContent::Carried(CompanionContent::Bytes(edited))
            }
            // copied when it is written
            false => FoundContent::Carried(CompanionContent::Copy(path.to_owned())),
        });
    }
    // read once, which a map would not make faster
    let mapping = MapMode {
        mmap: false,
        private: false,
    };
    let source = files.open_named(NamedPath::in_its_directory(path), mapping, budget)?;
    match source.ready() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(FoundContent::Missing),
        ready => ready?,
    }
    let len = source.len().unwrap_or(u64::MAX);
    if len > MAX_BYTES {
        return Ok(FoundContent::LeftOut(LeftOutReason::TooLong));
    }
    // charged for as long as the checkpoint is open, since the files are kept until they are written
    budget.memory(len, super::WHAT)?;
    let bytes = usize::try_from(len).ok().and_then(zeroed);
    let mut bytes = bytes.ok_or_else(|| Error::unsupported("the file does not fit in memory"))?;
    read_exact_at(&*source, 0, &mut bytes)?;
    if is_edited {
        bytes = edited_text(name, &bytes, edit, budget)?;
    }
    Ok(FoundContent::Carried(CompanionContent::Bytes(bytes)))
}

/// The reason for which a file is left out, or the error.
fn left_out(path: &Path, error: Error) -> Result<FoundContent> {
    let reason = match error.kind() {
        ErrorKind::Io(e) if e.kind() == io::ErrorKind::NotFound => match path.is_symlink() {
            true => LeftOutReason::BrokenLink,
            // removed since the directory was listed
            false => return Ok(FoundContent::Missing),
        },
        ErrorKind::Unsupported(_) => LeftOutReason::NotRegular,
        ErrorKind::Io(e) if anamnesis_os::links::is_refused(e) => LeftOutReason::ForeignLink,
        _ => return Err(error),
    };
    Ok(FoundContent::LeftOut(reason))
}

fn edited_text(
    name: &str,
    text: &[u8],
    edit: CompanionEdit<'_>,
    budget: &Budget,
) -> Result<Vec<u8>> {
    if let Some(renamed) = edit.renamed {
        return renamed_configuration(name, text, renamed, budget);
    }
    let Some(dtype) = edit.dtype else {
        return Ok(text.to_vec());
    };
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::malformed("the configuration is not UTF-8").in_format("config"))?;
    config::edited(text, dtype, edit.quantised, budget)
}
