//! The files of a directory that are no part of the checkpoint that was opened of it, and why.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anamnesis_os::files::is_left_unlocked;
use serde::Serialize;

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::base::note::Note;
use crate::base::quote::path_text;
use crate::base::template::is_weight_file;
use crate::read::catalog::Catalog;
use crate::read::source::files::Files;

use super::edit_journal::JOURNAL;
use super::model_names::{ModelNames, models_among};
use super::named_files::{INDEX, file_name, split_name};
use super::replaced::{is_hidden_name, is_left, is_part_name};

/// A file of a directory that was not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UnreadFile {
    /// Its path below the directory.
    pub path: String,
    /// Why it was not looked at.
    pub why: &'static str,
    /// The first 16 names of files of models directly in a folder, which were not looked at either.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
}

/// Names of models in a folder that are remembered.
const MODELS: usize = 16;

impl UnreadFile {
    pub(crate) fn new(path: String, why: &'static str) -> Self {
        let models = Vec::new();
        Self { path, why, models }
    }
}

/// Endings of models in formats that are not read.
const OTHER_FORMATS: [&str; 8] = [
    "h5", "msgpack", "onnx", "tflite", "ot", "mlmodel", "pb", "keras",
];

/// Beginnings of files that trainers write beside a model to resume from. They are no models, and most of them name
/// functions that are not plain data.
const TRAINING_STATE: [&str; 6] = [
    "training_args.",
    "optimizer.",
    "scheduler.",
    "scaler.",
    "rng_state",
    "random_states_",
];

/// Endings of downloads and copies that were not finished.
const UNFINISHED_ENDINGS: [&str; 9] = [
    "incomplete",
    "part",
    "partial",
    "tmp",
    "temp",
    "crdownload",
    "download",
    "aria2",
    "filepart",
];

/// Endings of earlier versions of files.
const BACKUP_ENDINGS: [&str; 5] = ["bak", "backup", "old", "orig", "save"];

/// Endings of files that hold text, pictures or code.
const OTHER_ENDINGS: [&str; 44] = [
    "asc", "avif", "bpe", "c", "cfg", "codes", "cpp", "csv", "cu", "docx", "gif", "h", "html",
    "ini", "ipynb", "jinja", "jpeg", "jpg", "json", "jsonl", "log", "lock", "md", "minisig", "mp4",
    "pdf", "png", "py", "rst", "sh", "sig", "sigstore", "spm", "svg", "tex", "tiktoken", "toml",
    "tsv", "txt", "vocab", "webp", "xml", "yaml", "yml",
];

/// Names without an ending, and names whose ending says nothing, of files without tensors.
const OTHER_NAMES: [&str; 12] = [
    "authors",
    "changelog",
    "citation.cff",
    "dockerfile",
    "licence",
    "license",
    "makefile",
    "notice",
    "readme",
    "spiece.model",
    "tokenizer.model",
    "use_policy",
];

/// Endings of lists of digests.
const DIGEST_ENDINGS: [&str; 13] = [
    "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "b2", "b3", "blake2", "blake3", "crc32",
    "sfv", "xxh64",
];

/// The ending of a name, in small letters: programs write `.GGUF` as well.
fn ending(name: &str) -> String {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    ending.to_ascii_lowercase()
}

/// Why a file was not looked at that looks like the beginning of a model's file.
pub(crate) const UNFINISHED: &str = "an unfinished download or copy";

/// Why a hidden file was not looked at that a killed run was writing. No model is complete by it.
pub(crate) const LEFT_PART: &str = "of a run that was writing it and was killed";

/// The same beside the journal of an edit, which may name the file.
pub(crate) const LEFT_EDIT: &str = "of an edit that was interrupted";

/// The same of one that a killed run has hidden. A model may be complete by it alone.
pub(crate) const LEFT_HIDDEN: &str = "of a run that was replacing the checkpoint and was killed";

/// Whether a name without its last ending names a file with tensors or an index.
fn is_of_model(name: &str) -> bool {
    let stem = name.rsplit_once('.').map_or("", |(stem, _)| stem);
    is_model_file(stem) || (stem.contains('.') && is_of_model(stem))
}

/// Whether a name says that a file is something else than a model.
fn is_other_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_list = |sums: &str| lower.ends_with(sums) || lower.ends_with(&sums[..sums.len() - 1]);
    OTHER_NAMES.contains(&&*lower)
        || OTHER_ENDINGS.contains(&&*ending(name))
        || lower.starts_with("tokenizer.model.v")
        || (lower.ends_with(".model") && (lower.contains("sentencepiece") || lower.contains("spm")))
        // lists of digests: `SHA256SUMS`, `model.gguf.sha256`
        || is_list("sums")
        || DIGEST_ENDINGS.contains(&&*ending(name))
        || ["checksum", "checksums", "digests", "hashes"].contains(&&*lower)
}

/// Whether a file is an index of shards by its name.
pub(super) fn is_index_name(name: &str) -> bool {
    name.ends_with(INDEX) && (name.contains(".safetensors") || name.contains(".bin"))
}

/// Whether a file is a state to resume training from by its name.
pub(crate) fn is_training_state(name: &str) -> bool {
    TRAINING_STATE.iter().any(|start| name.starts_with(start))
}

/// Whether a file is a model or a part of one by its name: a file of tensors or an index.
pub(crate) fn is_model_file(name: &str) -> bool {
    let is_tensors = is_weight_file(name) || is_index_name(name);
    // hidden files are other programs' own
    is_tensors && !name.starts_with('.') && !is_training_state(name)
}

/// Why a file of this name was not looked at.
pub(super) fn reason(name: &str, is_regular: bool) -> &'static str {
    match name {
        _ if !is_regular => "no regular file",
        _ if name.starts_with('.') => "hidden",
        _ if is_training_state(name) => "a state of training",
        _ if is_model_file(name) => "another model",
        _ if OTHER_FORMATS.contains(&&*ending(name)) => "a format that is not read",
        _ if UNFINISHED_ENDINGS.contains(&&*ending(name)) && is_of_model(name) => UNFINISHED,
        _ if (BACKUP_ENDINGS.contains(&&*ending(name)) || name.ends_with('~'))
            && is_of_model(name) =>
        {
            "an earlier version of a file"
        }
        _ if is_other_name(name) => "no tensors",
        _ => "unknown",
    }
}

/// The names of files directly in a directory.
#[derive(Default)]
pub(super) struct FileNames {
    /// Sorted.
    pub(super) names: Vec<String>,
    /// Names of models that are not UTF-8, escaped: no file of a model names them, and no template.
    pub(super) odd: Vec<String>,
}

/// The names of the files directly in a directory.
pub(super) fn names_in(files: &Files, directory: &Path, budget: &Budget) -> Result<FileNames> {
    let mut found = FileNames::default();
    files.list(directory, &|_| true, &mut |name| {
        let (list, name) = match name.to_str() {
            Some(name) => (&mut found.names, name.to_owned()),
            None if is_model_file(&name.to_string_lossy()) => {
                (&mut found.odd, path_text(name.as_ref()))
            }
            None => return Ok(()),
        };
        budget.memory(text_cost(name.capacity()), WHAT)?;
        budget.push(list, name, WHAT)
    })?;
    // the order of a listing is unspecified
    found.names.sort();
    found.odd.sort();
    Ok(found)
}

/// The reason for which a file is not opened by its directory.
pub(crate) const NOT_UTF8: &str = "its name is not UTF-8: open it by its path, or rename it";

/// The names directly in a directory, sorted: listed once, and passed on to all that need it.
#[derive(Debug, Default)]
pub(crate) struct DirectoryListing {
    files: Vec<String>,
    /// Empty at a URL, where a name with a `/` is all that there is of a folder.
    folders: Vec<String>,
    /// Names of files that are not UTF-8.
    odd: Vec<OsString>,
}

impl DirectoryListing {
    /// Lists a directory.
    ///
    /// # Errors
    /// I/O, or more names than the limit on memory allows.
    pub(crate) fn of(files: &Files, directory: &Path, budget: &Budget) -> Result<Self> {
        let mut listing = Self::default();
        files.list_with_folders(directory, &mut |name, is_folder| {
            if name.to_str().is_none() && !is_folder {
                budget.memory(text_cost(name.len()), WHAT)?;
                return budget.push(&mut listing.odd, name.to_owned(), WHAT);
            }
            let name = path_text(name.as_ref());
            budget.memory(text_cost(name.capacity()), WHAT)?;
            let list = match is_folder {
                true => &mut listing.folders,
                false => &mut listing.files,
            };
            budget.push(list, name, WHAT)
        })?;
        // the order of a listing is unspecified
        listing.files.sort();
        listing.folders.sort();
        listing.odd.sort();
        Ok(listing)
    }

    /// Memory of the names.
    pub(crate) fn memory(&self) -> u64 {
        let names = self.files.iter().chain(&self.folders);
        names.map(|name| text_cost(name.capacity())).sum()
    }

    /// The number of files and folders.
    pub(crate) fn count(&self) -> u64 {
        (self.files.len() + self.folders.len() + self.odd.len()) as u64
    }

    /// The names of models that are not UTF-8.
    pub(crate) fn odd_models(&self) -> impl Iterator<Item = &OsStr> {
        let odd = self.odd.iter().map(OsString::as_os_str);
        odd.filter(|name| is_model_file(&name.to_string_lossy()))
    }

    /// The names of the files that are UTF-8.
    pub(crate) fn files(&self) -> &[String] {
        &self.files
    }

    /// The files that `is_read` does not accept by their names, with the reasons, and all folders, whose names end with `/`.
    pub(crate) fn unread(
        &self,
        files: &Files,
        directory: &Path,
        is_read: &dyn Fn(&str) -> bool,
        budget: &Budget,
    ) -> Result<Vec<UnreadFile>> {
        let (mut unread, mut has_waited) = (Vec::new(), false);
        let mut push = |path: String, why, models: Vec<String>| {
            let texts = models.iter().chain([&path]);
            budget.memory(texts.map(|text| text_cost(text.capacity())).sum(), WHAT)?;
            budget.push(&mut unread, UnreadFile { path, why, models }, WHAT)
        };
        let has_journal = self.files.iter().any(|name| name.starts_with(JOURNAL));
        for name in self.files.iter().filter(|name| !is_read(name)) {
            // at a URL this is not known without a request, and listings have files only
            let is_regular = !files.is_local() || files.is_file(&directory.join(name));
            let is_part = is_regular && files.is_local() && is_part_name(name);
            let why = match is_hidden_name(name) {
                true if is_left(files, directory, name) => LEFT_HIDDEN,
                true => "of a run that is replacing the checkpoint",
                false if is_part && is_left_unlocked(&directory.join(name), &mut has_waited) => {
                    if has_journal {
                        LEFT_EDIT
                    } else {
                        LEFT_PART
                    }
                }
                false if is_part => "of a run that is writing it",
                false => reason(name, is_regular),
            };
            push(name.clone(), why, Vec::new())?;
        }
        for name in &self.odd {
            push(path_text(name.as_ref()), NOT_UTF8, Vec::new())?;
        }
        for name in &self.folders {
            let why = self.reason_of_folder(name);
            let models = models_in(files, directory, name);
            push(format!("{name}/"), why, models)?;
        }
        Ok(unread)
    }

    /// Why a folder was not looked at.
    fn reason_of_folder(&self, name: &str) -> &'static str {
        let has = |file: &str| self.files.iter().any(|name| name == file);
        match name {
            _ if name.starts_with('.') => "hidden",
            // Llama's repositories, with the same weights under the names of Meta's own program
            "original" => "a folder with the weights as they were before conversion",
            _ if has("model_index.json") => "a component of the pipeline: check it by its path",
            _ if has("modules.json") && is_module_folder(name) => {
                "a module of sentence-transformers: check it by its path"
            }
            _ => "a folder: check it by its path",
        }
    }
}

/// The names of models directly in a folder of a local directory; none in a hidden folder, and in one that cannot be listed or
/// is another user's link to elsewhere. Shards are left out where there is an index.
fn models_in(files: &Files, directory: &Path, folder: &str) -> Vec<String> {
    let path = directory.join(folder);
    if folder.starts_with('.')
        || !files.is_local()
        || files.check_directory(directory, &path).is_err()
    {
        return Vec::new();
    }
    let (mut found, mut indexes) = (Vec::new(), Vec::new());
    let is_model = |name: &OsStr| name.to_str().is_some_and(is_model_file);
    // a folder that cannot be listed was not looked at, as the others were not
    let _ = files.list(&path, &is_model, &mut |name| {
        let name = name.to_string_lossy().into_owned();
        let list = match is_index_name(&name) {
            true => &mut indexes,
            false => &mut found,
        };
        // the order of a listing is unspecified: the first ones by name
        let at = list.partition_point(|known| *known < name);
        list.insert(at, name);
        list.truncate(MODELS);
        Ok(())
    });
    if !indexes.is_empty() {
        found.retain(|name| split_name(name).is_none());
    }
    indexes.append(&mut found);
    indexes.truncate(MODELS);
    indexes
}

/// Whether a folder is one of a module as sentence-transformers names them: `1_Pooling`.
fn is_module_folder(name: &str) -> bool {
    name.split_once('_')
        .is_some_and(|(number, _)| number.parse::<u8>().is_ok())
}

/// A note about the models of a directory that were not opened; `None` if there are none. `names` are the directory's,
/// `selected` are the paths that opening chose.
pub(super) fn other_models(
    directory: &Path,
    names: &[String],
    selected: &[PathBuf],
    catalog: &Catalog,
    budget: &Budget,
) -> Result<Option<Note>> {
    /// Names in the note.
    const SHOWN: usize = 16;
    let opened = catalog.files.iter().filter_map(|file| file.path.as_deref());
    let paths = selected.iter().map(PathBuf::as_path).chain(opened);
    let read: BTreeSet<&OsStr> = paths
        .filter(|path| path.parent() == Some(directory))
        .filter_map(Path::file_name)
        .collect();
    let others = || {
        let names = names.iter().map(String::as_str);
        names.filter(|name| is_model_file(name) && !read.contains(OsStr::new(name)))
    };
    let models = models_among(others(), budget)?;
    let Some(first) = models.first() else {
        return Ok(None);
    };
    let endings: BTreeSet<String> = read
        .iter()
        .filter_map(|name| name.to_str())
        .map(ending)
        .collect();
    let has_other_format = |name: &&str| !endings.contains(&ending(name));
    let shown: Vec<String> = models.iter().take(SHOWN).map(ModelNames::shown).collect();
    let more = match models.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = format!("{}{more}", shown.join(", "));
    let chosen = selected
        .first()
        .map(|path| file_name(path))
        .unwrap_or_default();
    Ok(Some(Note::from(
        if others().any(|name| has_other_format(&name)) {
            format!(
                "the directory holds models of several formats: {chosen} was read; not read: {shown}"
            )
        } else if is_index_name(&chosen) && !is_index_name(first.first()) {
            format!("not read, as the index does not name them: {shown}")
        } else {
            format!("the directory holds several models: {chosen} was read; not read: {shown}")
        },
    )))
}

const WHAT: &str = "the directory";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_file_is() {
        for (name, why) in [
            ("model.gguf", "another model"),
            ("pytorch_model.bin.index.json", "another model"),
            ("training_args.bin", "a state of training"),
            ("rng_state_3.pth", "a state of training"),
            ("tf_model.h5", "a format that is not read"),
            (".model.safetensors", "hidden"),
            ("config.json", "no tensors"),
            ("tokenizer.index.json", "no tensors"),
            ("model.GGUF", "another model"),
            ("MODEL.SAFETENSORS", "another model"),
            ("model.safetensors.incomplete", UNFINISHED),
            ("model.gguf.part", UNFINISHED),
            ("pytorch_model.bin.index.json.tmp", UNFINISHED),
            ("notes.tmp", "unknown"),
            ("model.safetensors.bak", "an earlier version of a file"),
            ("weights.dat", "unknown"),
            ("pytorch_model", "unknown"),
            ("tokenizer.model", "no tensors"),
            ("SHA256SUMS", "no tensors"),
            ("README", "no tensors"),
            ("LICENSE.txt", "no tensors"),
        ] {
            assert_eq!(reason(name, true), why, "{name}");
            assert_eq!(is_model_file(name), why == "another model", "{name}");
        }
        assert_eq!(reason("model.gguf", false), "no regular file");
    }

    #[test]
    fn folders_have_the_reason_that_the_files_beside_them_give() {
        let listing = |files: &[&str]| DirectoryListing {
            files: files.iter().map(|&name| name.to_owned()).collect(),
            folders: Vec::new(),
            odd: Vec::new(),
        };
        for (files, folder, why) in [
            (&[][..], ".cache", "hidden"),
            (&["model_index.json"], ".git", "hidden"),
            (&["model_index.json"], "unet", "a component of the pipeline"),
            (&["modules.json"], "1_Pooling", "a module of"),
            (&["modules.json"], "onnx", "a folder: check"),
            (&[], "1_Pooling", "a folder: check"),
            (&[], "original", "a folder with the weights"),
        ] {
            let found = listing(files).reason_of_folder(folder);
            assert!(found.starts_with(why), "{files:?} {folder}: {found}");
        }
    }
}
