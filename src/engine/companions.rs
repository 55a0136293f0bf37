//! The files of a checkpoint that hold no tensors: configuration, tokenizer, chat template, licence.
//!
//! A client opens a directory by its `config.json`, and reads the rest by fixed names. These are carried over, and
//! everything else in the directory is named as left out. Files that describe the tensors as they were stored, indexes and
//! quantisation settings, have counterparts in the output or need none. Python files are code, and are only carried over when
//! the caller requests it.
//!
//! A single safetensors or PyTorch file has the same companions if a `config.json` beside it says that its directory is a
//! model's. Without one it lies in a folder of downloads, and has none.

mod adapter;
mod config;
mod content;
mod names;
mod renamed;

use std::fmt;
use std::path::{Path, PathBuf};

use anamnesis_os::files::directory_of;
use serde_json::Value as Json;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, Limits, text_cost};
use crate::base::template::is_weight_file;
use crate::read::checkpoint::{Checkpoint, NamedFiles, read_of_checkpoint};
use crate::read::json::{JsonReader, Tree};
use crate::read::rename::RenamedTensors;
use crate::read::source::file_system::NamedPath;
use crate::read::source::files::Files;

pub(crate) use adapter::adapter_entries_that_stay;
pub(crate) use content::open_companion;
use content::{FoundContent, content};
use names::{CONFIGURATIONS, MODULES, NameClass, TRIED, class_of};
pub(crate) use renamed::{renamed_configuration, renamed_index, renamed_metadata};

/// Names of files left out that are listed; further ones are counted.
const MOST_NAMED: usize = 1000;

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
    /// The bytes of this file, which must be a regular one when it is copied, and no link of another user to elsewhere.
    Copy(PathBuf),
}

/// A file, or folder, of the source that is not in the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name in the directory.
    pub name: String,
    /// Why it was left out.
    pub reason: LeftOutReason,
}

/// Why a file is not carried over. Displayed as in "not copied: NAME (REASON)".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LeftOutReason {
    /// A Python file, without [`Remember::code`](crate::Remember::code).
    Code,
    /// No client opens a file of this name.
    Unknown,
    /// It lies beside a single file, and no `config.json` says that this is a model's directory.
    NoConfig,
    /// It describes weights as they were stored, and no scheme reads it.
    Description,
    /// A folder that `modules.json` names.
    Folder,
    /// Another folder of the directory.
    Subfolder,
    /// Its name begins with a dot: it is another tool's, or private.
    Hidden,
    /// Longer than 256 MiB.
    TooLong,
    /// A directory, a pipe, a socket or a device.
    NotRegular,
    /// A link that leads nowhere.
    BrokenLink,
    /// It has an ending of tensor files, and is none of the checkpoint's: the state of an optimizer, the same model in another
    /// format.
    OtherTensors,
    /// A link of another user that leads out of the directory, to a file that is not that user's.
    ForeignLink,
}

impl LeftOutReason {
    /// The name of the reason in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Unknown => "unknown",
            Self::NoConfig => "no_config",
            Self::Description => "description",
            Self::Folder => "folder",
            Self::Subfolder => "subfolder",
            Self::Hidden => "hidden",
            Self::TooLong => "too_long",
            Self::NotRegular => "not_regular",
            Self::BrokenLink => "broken_link",
            Self::OtherTensors => "other_tensors",
            Self::ForeignLink => "foreign_link",
        }
    }
}

impl fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Code => "code",
            Self::Unknown => "no client opens files of this name",
            Self::NoConfig => "no config.json beside the file says that they are of one model",
            Self::Description => "a description of the stored weights",
            Self::Folder => "a folder of modules.json, which is a checkpoint of its own",
            Self::Subfolder => "a folder",
            Self::Hidden => "hidden",
            Self::TooLong => "longer than 256 MiB",
            Self::NotRegular => "no regular file",
            Self::BrokenLink => "a link to nothing",
            Self::OtherTensors => "a file of tensors that are not of this checkpoint",
            Self::ForeignLink => "a link of another user to a file elsewhere",
        })
    }
}

/// The companion files of a checkpoint, and what was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Companions {
    /// The files, by name.
    pub files: Vec<CompanionFile>,
    /// Files and folders of the directory that were left out: by name, folders with a `/` behind. The checkpoint's files of
    /// tensors, indexes and settings that a scheme has read are not among them.
    pub left_out: Vec<LeftOut>,
    /// Further files that were left out, beyond the 1000 that are named.
    pub left_out_more: u64,
    /// The checkpoint's own files, whose names lead to them, unchanged, for as long as these files are the checkpoint's.
    pub(crate) of: NamedFiles,
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
        let edit = CompanionEdit {
            dtype: Some(dtype),
            quantised,
            renamed: None,
        };
        Self::edited(checkpoint, edit, with_code, &checkpoint.budget())
    }

    /// The companion files of a checkpoint whose tensors are copied as they are stored, under these names.
    ///
    /// # Errors
    /// The errors of [`of`](Self::of).
    pub(crate) fn of_stored(
        checkpoint: &Checkpoint,
        renamed: &RenamedTensors<'_>,
        with_code: bool,
    ) -> Result<Self> {
        let edit = CompanionEdit {
            dtype: None,
            quantised: true,
            renamed: Some(renamed),
        };
        Self::edited(checkpoint, edit, with_code, &checkpoint.budget())
    }

    fn edited(
        checkpoint: &Checkpoint,
        edit: CompanionEdit<'_>,
        with_code: bool,
        budget: &Budget,
    ) -> Result<Self> {
        match place_of(checkpoint) {
            Some((directory, place)) => {
                let mut own: Vec<&str> = checkpoint
                    .catalog()
                    .files()
                    .iter()
                    .filter_map(|file| file.path.as_deref()?.file_name()?.to_str())
                    .collect();
                own.sort_unstable();
                let files = checkpoint.files();
                let collect = || Self::collect(files, directory, &own, edit, with_code, budget);
                let is_found = |found: &Self| !found.files.is_empty();
                let mut found = read_of_checkpoint(checkpoint, directory, is_found, collect)?;
                found.of = NamedFiles::of(checkpoint, budget)?;
                Ok(match place {
                    CompanionPlace::Directory => found,
                    CompanionPlace::Beside => found.beside_a_file(),
                })
            }
            None => Ok(Self::default()),
        }
    }

    /// Fails if the files may be of another checkpoint by now, which has replaced the one that they belong to.
    pub(crate) fn check_source(&self) -> Result<()> {
        match self.files.is_empty() {
            true => Ok(()),
            false => self.of.check(),
        }
    }

    /// The files of models in a local directory that are not among these: a run that writes them there leaves those beside the
    /// weights of another model. Sorted.
    pub fn others_in(&self, directory: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let is_other = |name: &std::ffi::OsStr| {
            let is_ours = |name: &str| self.files.iter().any(|file| file.name == name);
            name.to_str()
                .is_some_and(|name| names::is_of_a_model(name) && !is_ours(name))
        };
        // a directory that cannot be listed is reported when it is written to
        let _ = Files::default().list(directory, &is_other, &mut |name| {
            found.extend(name.into_string().ok());
            Ok(())
        });
        found.sort();
        found.truncate(MOST_NAMED);
        found
    }

    /// Whether clients open a file of this name beside the tensors of a model, or it describes them.
    ///
    /// ```
    /// use anamnesis::companions::Companions;
    ///
    /// assert!(Companions::is_known_name("tokenizer.json"));
    /// assert!(!Companions::is_known_name("notes.txt"));
    /// ```
    pub fn is_known_name(name: &str) -> bool {
        names::is_of_a_model(name)
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
            dtype: Some(dtype),
            quantised: false,
            renamed: None,
        };
        let budget = Budget::new(limits);
        Self::collect(&files, &directory, &[], edit, with_code, &budget)
    }

    /// `own`: the sorted names of the checkpoint's files of tensors.
    fn collect(
        files: &Files,
        directory: &Path,
        own: &[&str],
        edit: CompanionEdit<'_>,
        with_code: bool,
        budget: &Budget,
    ) -> Result<Self> {
        let mut found = Self::default();
        let names = found.names(files, directory, own, edit.quantised, with_code, budget)?;
        found.leave_subfolders(files, directory);
        if names.iter().any(|name| name == MODULES) {
            found.leave_folders(files, directory, budget)?;
        }
        // at a URL, requests for them run side by side
        files.begin(&mut names.iter().map(|name| directory.join(name)));
        for name in names {
            let path = directory.join(&name);
            let content = content(files, &path, &name, edit, budget);
            match content.map_err(|e| e.in_file(&path))? {
                FoundContent::Carried(content) => found.files.push(CompanionFile { name, content }),
                FoundContent::LeftOut(reason) => found.leave(name, reason),
                FoundContent::Missing => {}
            }
        }
        found
            .left_out
            .sort_by(|a, b| (a.reason, &a.name).cmp(&(b.reason, &b.name)));
        Ok(found)
    }

    /// The names in a directory that are carried over, sorted. Others are left out.
    fn names(
        &mut self,
        files: &Files,
        directory: &Path,
        own: &[&str],
        quantised: bool,
        with_code: bool,
        budget: &Budget,
    ) -> Result<Vec<String>> {
        let mut names = Vec::new();
        // no client opens a name that is not UTF-8
        let class = |name: &str| match class_of(name, quantised) {
            NameClass::Code if with_code => NameClass::Known,
            NameClass::OfStorage if is_weight_file(name) && own.binary_search(&name).is_err() => {
                NameClass::OtherTensors
            }
            class => class,
        };
        let wanted = |name: &std::ffi::OsStr| {
            name.to_str()
                .is_some_and(|name| class(name) != NameClass::OfStorage)
        };
        let listed = files.list(directory, &wanted, &mut |name| {
            let Ok(name) = name.into_string() else {
                return Ok(());
            };
            let reason = match class(&name) {
                NameClass::Known => {
                    budget.memory(4 * text_cost(name.len()), WHAT)?;
                    return budget.push(&mut names, name, WHAT);
                }
                NameClass::OfStorage => return Ok(()),
                NameClass::Code => LeftOutReason::Code,
                NameClass::OtherTensors => LeftOutReason::OtherTensors,
                NameClass::Hidden => LeftOutReason::Hidden,
                NameClass::Description => LeftOutReason::Description,
                NameClass::Unknown => LeftOutReason::Unknown,
            };
            self.leave(name, reason);
            Ok(())
        });
        match listed {
            // a web server lists nothing
            Err(e) if !files.is_local() && is_unsupported(&e) => {
                names = TRIED.iter().map(|name| (*name).to_owned()).collect();
            }
            listed => listed?,
        }
        names.sort();
        Ok(names)
    }

    /// Leaves a file out: by name, for as long as the list is a list that people read.
    fn leave(&mut self, name: String, reason: LeftOutReason) {
        match self.left_out.len() < MOST_NAMED {
            true => self.left_out.push(LeftOut { name, reason }),
            false => self.left_out_more += 1,
        }
    }

    /// Leaves out the folders of a local directory: a place at a URL has names only.
    fn leave_subfolders(&mut self, files: &Files, directory: &Path) {
        if !files.is_local() {
            return;
        }
        // files could be listed; folders are named for people alone
        let _ = files.list_with_folders(directory, &mut |name, is_folder| {
            let name = name.to_string_lossy();
            let reason = match name.starts_with('.') {
                true => LeftOutReason::Hidden,
                false => LeftOutReason::Subfolder,
            };
            if is_folder {
                self.leave(format!("{name}/"), reason);
            }
            Ok(())
        });
    }

    /// Leaves out the folders that `modules.json` names.
    fn leave_folders(&mut self, files: &Files, directory: &Path, budget: &Budget) -> Result<()> {
        let path = directory.join(MODULES);
        let (text, _charge) = files.read_whole(NamedPath::below(directory, &path), budget, WHAT)?;
        let reader = JsonReader::new(budget, WHAT);
        // a file of another tool under this name has no folders
        let Some(Json::Array(modules)) = std::str::from_utf8(&text).ok().and_then(|text| {
            let parsed = reader.parse(text, Tree(&reader), |e| Error::unsupported(e.to_string()));
            parsed.ok()
        }) else {
            return Ok(());
        };
        let folders = modules
            .iter()
            .filter_map(|module| module.get("path")?.as_str());
        for folder in folders.filter(|folder| !folder.is_empty()) {
            // listed as an entry of the directory, and named with the reason that counts
            self.left_out
                .retain(|left| left.name.trim_end_matches('/') != folder.trim_end_matches('/'));
            self.leave(format!("{folder}/"), LeftOutReason::Folder);
        }
        Ok(())
    }

    /// The companions of a single file: all of its directory's beside a configuration, none without. Other files there are not
    /// the model's, and not named.
    fn beside_a_file(mut self) -> Self {
        let is_model = |file: &CompanionFile| CONFIGURATIONS.contains(&&*file.name);
        use LeftOutReason::{Hidden, OtherTensors, Subfolder, Unknown};
        let is_of_others = |reason| matches!(reason, Unknown | Hidden | OtherTensors | Subfolder);
        self.left_out.retain(|left| !is_of_others(left.reason));
        self.left_out_more = 0;
        if !self.files.iter().any(is_model) {
            self.left_out.clear();
            for file in std::mem::take(&mut self.files) {
                self.leave(file.name, LeftOutReason::NoConfig);
            }
        }
        self
    }
}

/// How configurations change: they name the dtype of the weights, and whether these are quantised.
#[derive(Clone, Copy)]
struct CompanionEdit<'r> {
    /// `None` where tensors keep theirs.
    dtype: Option<Dtype>,
    quantised: bool,
    /// The new names of tensors, which configurations list.
    renamed: Option<&'r RenamedTensors<'r>>,
}

/// Where the companions of a checkpoint are.
enum CompanionPlace {
    /// In the directory that was opened.
    Directory,
    /// Beside the file that was opened.
    Beside,
}

/// The directory whose other files may belong to this checkpoint.
fn place_of(checkpoint: &Checkpoint) -> Option<(&Path, CompanionPlace)> {
    let path = checkpoint.path()?;
    if !matches!(checkpoint.catalog().format, "safetensors" | "pth" | "dcp") {
        return None;
    }
    if checkpoint.files().is_directory(path) {
        return Some((path, CompanionPlace::Directory));
    }
    Some((directory_of(path), CompanionPlace::Beside))
}

fn is_unsupported(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Unsupported(_) => true,
        ErrorKind::Io(e) => e.kind() == std::io::ErrorKind::Unsupported,
        _ => false,
    }
}
