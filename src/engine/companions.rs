//! The files of a checkpoint that hold no tensors: configuration, tokenizer, chat template, licence.
//!
//! A client opens a directory by its `config.json`, and reads the rest by fixed names. Which names there are depends on the
//! client and the model class, so every text file of a known ending is carried over, except the files that describe the
//! tensors as they were stored: indexes and quantisation settings. Python files are code, and are only carried over when the
//! caller requests it.

mod config;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, Limits, text_cost, zeroed};
use crate::read::checkpoint::Checkpoint;
use crate::read::json::{JsonReader, Tree};
use crate::read::source::file_system::MapMode;
use crate::read::source::files::Files;
use crate::read::source::read_exact_at;
use crate::read::source::regular::open_regular;

/// Names of models' configurations, which describe the weights: of transformers and diffusers, and of Mistral.
static EDITED: &[&str] = &["config.json", "params.json"];

/// The list of modules of sentence-transformers, some of which have a folder of their own.
const MODULES: &str = "modules.json";

/// Endings of files that are carried over.
static ENDINGS: &[&str] = &[
    ".json",
    // chat templates
    ".jinja",
    // vocabularies: SentencePiece, tiktoken, WordPiece's `vocab.txt` and BPE's `merges.txt`
    ".model",
    ".tiktoken",
    ".txt",
];

/// Beginnings of names that are carried over, whatever their ending: what a copy of the weights must be accompanied by.
static NOTICES: &[&str] = &["LICENSE", "LICENCE", "NOTICE", "USE_POLICY"];

/// Files that describe how the tensors were stored, which is no longer true of the output.
static STORAGE_SETTINGS: &[&str] = &[
    "hf_quant_config.json",
    "quantize_config.json",
    "quant_config.json",
    "quantization_map.json",
    "quanto_qmap.json",
    "quant_log.csv",
    "recipe.yaml",
];

/// Files that describe how weights were altered or stored, and that no scheme reads. They are left out too, and named: the
/// output may need what they say.
static DESCRIPTIONS: &[&str] = &[
    "quant_model_description.json",
    "quantization_config.json",
    "rotation.json",
    "rotation_config.json",
    "hadamard.json",
];

/// The files that are looked for next to a file on a web server, which does not list its files.
static KNOWN: &[&str] = &[
    "added_tokens.json",
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "merges.txt",
    "preprocessor_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];

/// Longest companion file. Tokenizers have up to 40 MB; a longer file is not one.
const MAX_BYTES: u64 = 256 << 20;

const WHAT: &str = "the companion files";

/// A file that is written beside the tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompanionFile {
    /// Its name in the directory.
    pub name: String,
    /// Its content.
    pub content: CompanionContent,
}

/// The content of a [`CompanionFile`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompanionContent {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The bytes of this file, which must be a regular one when it is copied.
    Copy(PathBuf),
}

/// The companion files of a checkpoint, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Companions {
    /// The files, by name.
    pub files: Vec<CompanionFile>,
    /// Names of Python files that were left out, because they are code.
    pub code: Vec<String>,
    /// Names of files that were left out because they are too long, are not regular files, or describe weights as they were
    /// stored, and of folders that `modules.json` names, whose weights and settings clients need too.
    pub left_out: Vec<String>,
}

impl Companions {
    /// The companion files in the directory of a checkpoint whose weights become `dtype`. Files of a URL are read now. Empty
    /// for a checkpoint that was not opened by path, and for a GGUF, NPY or NPZ file, whose neighbours are other models.
    ///
    /// `config.json` loses what it says about quantisation, and names `dtype`. Everything else is copied unchanged. Descriptions
    /// of quantisation stay if the weights are `quantised` no less than before: no scheme has consumed them.
    ///
    /// # Errors
    /// I/O; a `config.json` that is not a JSON object, or is over a limit.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        dtype: Dtype,
        quantised: bool,
        with_code: bool,
    ) -> Result<Self> {
        match directory_of(checkpoint) {
            Some(directory) => {
                let files = checkpoint.files();
                let edit = CompanionEdit { dtype, quantised };
                Self::collect(files, directory, edit, with_code, &checkpoint.budget())
            }
            None => Ok(Self::default()),
        }
    }

    /// The companion files in a directory without tensors, such as the tokenizer or the scheduler of a pipeline of diffusers.
    /// `config.json` is edited as for weights of `dtype`.
    ///
    /// # Errors
    /// I/O; a `config.json` that is not a JSON object, or is over a limit.
    pub fn in_directory(
        directory: impl AsRef<Path>,
        dtype: Dtype,
        with_code: bool,
        limits: Limits,
    ) -> Result<Self> {
        let (files, directory) = Files::of(directory.as_ref())?;
        let edit = CompanionEdit {
            dtype,
            quantised: false,
        };
        Self::collect(&files, &directory, edit, with_code, &Budget::new(limits))
    }

    fn collect(
        files: &Files,
        directory: &Path,
        edit: CompanionEdit,
        with_code: bool,
        budget: &Budget,
    ) -> Result<Self> {
        let mut found = Self::default();
        let names = names(files, directory, edit.quantised, budget)?;
        if names.iter().any(|name| name == MODULES) {
            found.left_out = module_folders(files, directory, budget)?;
        }
        let is_read = |name: &&String| with_code || !name.ends_with(".py");
        // at a URL, requests for them run side by side
        files.begin(
            &mut names
                .iter()
                .filter(is_read)
                .map(|name| directory.join(name)),
        );
        for name in names {
            let path = directory.join(&name);
            if name.ends_with(".py") && !with_code {
                found.code.push(name);
                continue;
            }
            if DESCRIPTIONS.contains(&&*name) && !edit.quantised {
                found.left_out.push(name);
                continue;
            }
            let content = content(files, &path, &name, edit, budget);
            match content.map_err(|e| e.in_file(&path))? {
                FoundContent::Carried(content) => found.files.push(CompanionFile { name, content }),
                FoundContent::LeftOut => found.left_out.push(name),
                FoundContent::Missing => {}
            }
        }
        Ok(found)
    }
}

/// How configurations change: they name the dtype of the weights, and whether these are quantised.
#[derive(Clone, Copy)]
struct CompanionEdit {
    dtype: Dtype,
    quantised: bool,
}

/// The folders that `modules.json` names, which are not carried over.
fn module_folders(files: &Files, directory: &Path, budget: &Budget) -> Result<Vec<String>> {
    let path = directory.join(MODULES);
    let (text, _charge) = files.read_whole(&path, budget, WHAT)?;
    let reader = JsonReader::new(budget, WHAT);
    // a file of another tool under this name has no folders
    let Some(Json::Array(modules)) = std::str::from_utf8(&text).ok().and_then(|text| {
        let parsed = reader.parse(text, Tree(&reader), |e| Error::unsupported(e.to_string()));
        parsed.ok()
    }) else {
        return Ok(Vec::new());
    };
    let folders = modules
        .iter()
        .filter_map(|module| module.get("path")?.as_str());
    let folders = folders.filter(|folder| !folder.is_empty());
    Ok(folders.map(|folder| format!("{folder}/")).collect())
}

/// The content under the name of a companion file.
enum FoundContent {
    Carried(CompanionContent),
    /// It is too long, or not a regular file.
    LeftOut,
    /// There is no such file: at a URL whose server lists nothing, names are tried.
    Missing,
}

fn content(
    files: &Files,
    path: &Path,
    name: &str,
    edit: CompanionEdit,
    budget: &Budget,
) -> Result<FoundContent> {
    let is_edited = EDITED.contains(&name);
    if files.is_local() {
        match open_regular(path) {
            Ok((_, len)) if len <= MAX_BYTES => {}
            Ok(_) => return Ok(FoundContent::LeftOut),
            // not a regular file
            Err(e) if matches!(e.kind(), ErrorKind::Unsupported(_)) => {
                return Ok(FoundContent::LeftOut);
            }
            Err(e) => return Err(e),
        }
        // only the configuration changes; the others are copied when they are written
        return Ok(FoundContent::Carried(if is_edited {
            CompanionContent::Bytes(edited_config(files, path, edit, budget)?)
        } else {
            CompanionContent::Copy(path.to_owned())
        }));
    }
    // read once, which a map would not make faster
    let mapping = MapMode {
        mmap: false,
        private: false,
    };
    let source = files.open_named(path, mapping, budget)?;
    match source.ready() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(FoundContent::Missing),
        ready => ready?,
    }
    let len = source.len().unwrap_or(u64::MAX);
    if len > MAX_BYTES {
        return Ok(FoundContent::LeftOut);
    }
    // charged for as long as the checkpoint is open, since the files are kept until they are written
    budget.memory(len, WHAT)?;
    let bytes = usize::try_from(len).ok().and_then(zeroed);
    let mut bytes = bytes.ok_or_else(|| Error::unsupported("the file does not fit in memory"))?;
    read_exact_at(&*source, 0, &mut bytes)?;
    if is_edited {
        bytes = edited_text(&bytes, edit, budget)?;
    }
    Ok(FoundContent::Carried(CompanionContent::Bytes(bytes)))
}

/// The directory whose other files belong to this checkpoint.
fn directory_of(checkpoint: &Checkpoint) -> Option<&Path> {
    let path = checkpoint.path()?;
    if !matches!(checkpoint.catalog().format, "safetensors" | "pth" | "dcp") {
        return None;
    }
    if checkpoint.files().is_directory(path) {
        return Some(path);
    }
    let parent = path.parent()?;
    Some(if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    })
}

/// The names of the files in a directory, sorted.
fn names(files: &Files, directory: &Path, quantised: bool, budget: &Budget) -> Result<Vec<String>> {
    let mut names = Vec::new();
    // no client opens a name that is not UTF-8
    let wanted = |name: &OsStr| {
        name.to_str()
            .is_some_and(|name| is_carried(name, quantised) || name.ends_with(".py"))
    };
    let listed = files.list(directory, &wanted, &mut |name| {
        let Ok(name) = name.into_string() else {
            return Ok(());
        };
        budget.memory(4 * text_cost(name.len()), WHAT)?;
        budget.push(&mut names, name, WHAT)
    });
    match listed {
        // a web server lists nothing
        Err(e) if !files.is_local() && is_unsupported(&e) => {
            names = KNOWN.iter().map(|name| (*name).to_owned()).collect();
        }
        listed => listed?,
    }
    names.sort();
    Ok(names)
}

fn is_unsupported(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Unsupported(_) => true,
        ErrorKind::Io(e) => e.kind() == std::io::ErrorKind::Unsupported,
        _ => false,
    }
}

/// Whether a file of this name is carried over to a checkpoint of other tensors.
fn is_carried(name: &str, quantised: bool) -> bool {
    if name.starts_with('.')
        // also the index of a variant of diffusers, `….index.fp16.json`
        || (name.contains(".index.") && name.ends_with(".json"))
        || (STORAGE_SETTINGS.contains(&name) && !quantised)
        // the state of a training run: steps and losses of weights that were stored otherwise
        || name == "trainer_state.json"
    {
        return false;
    }
    ENDINGS.iter().any(|ending| name.ends_with(ending))
        || NOTICES.iter().any(|notice| name.starts_with(notice))
}

fn edited_config(
    files: &Files,
    path: &Path,
    edit: CompanionEdit,
    budget: &Budget,
) -> Result<Vec<u8>> {
    let (text, _charge) = files.read_whole(path, budget, "the configuration")?;
    edited_text(&text, edit, budget)
}

fn edited_text(text: &[u8], edit: CompanionEdit, budget: &Budget) -> Result<Vec<u8>> {
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::malformed("the configuration is not UTF-8").in_format("config"))?;
    config::edited(text, edit.dtype, edit.quantised, budget)
}

#[cfg(test)]
mod tests {
    use super::is_carried;

    #[test]
    fn names_of_companion_files() {
        for carried in [
            "config.json",
            "generation_config.json",
            "tokenizer.json",
            "tokenizer.model",
            "vocab.txt",
            "merges.txt",
            "qwen.tiktoken",
            "chat_template.jinja",
            "preprocessor_config.json",
            "adapter_config.json",
            "LICENSE",
            "LICENSE.md",
            "NOTICE.txt",
        ] {
            assert!(is_carried(carried, false), "{carried}");
        }
        // settings that no scheme has consumed still describe the weights
        assert!(is_carried("quantize_config.json", true));
        for left in [
            "model.safetensors.index.json",
            "pytorch_model.bin.index.json",
            "diffusion_pytorch_model.safetensors.index.fp16.json",
            "quantize_config.json",
            "hf_quant_config.json",
            "model.safetensors",
            "pytorch_model.bin",
            "trainer_state.json",
            "README.md",
            ".gitattributes",
            ".hidden.json",
            "modeling_x.py",
            "training_args.bin",
        ] {
            assert!(!is_carried(left, false), "{left}");
        }
    }
}
