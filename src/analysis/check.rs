//! `check`: whether the files of a model are whole, and its values sane.
//!
//! One pass over the bytes of what is looked at: the digests of files where there is something to compare them with, the
//! checksums of archives, and the values of all weights, through the plan of [`remember`](crate::remember()). A rule fires
//! on what cannot be right; statistics are shown, and judged by people. Rules are rows of a table ([`rules`]), one family a file.
//! Nothing is repaired or deleted.

mod archives;
mod blocks;
mod builder;
mod check_rules;
mod checked_model;
mod checked_weight;
mod digest_json;
mod digest_lines;
mod digest_list;
mod duplicates;
mod evidence;
mod expected;
mod file_digest;
mod files;
mod hashing;
mod histogram;
mod layers;
mod level;
mod listed_names;
mod numbers;
mod opened;
mod opening;
mod percentile_memory;
mod places;
mod report;
mod rule_subject;
mod run;
mod sample;
mod scales;
mod scan;
mod statistics;
mod tensor_digests;
mod token_ids;
mod value_rules;
mod value_sink;
mod values;
mod zero_runs;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::base::error::{Error, ErrorKind, Result};
use crate::read::checkpoint::{
    Checkpoint, CheckpointHandle, NameWatch, OpenOptions, again_if_replaced, is_model_file,
};
use crate::read::run_options::RunOptions;
use crate::read::source::files::Files;
use crate::read::source::snapshot::snapshot_of;

pub use check_rules::{CheckRule, rules};
pub use digest_list::{DigestList, json_list, sha256_lines};
pub use evidence::{Evidence, EvidenceKind};
pub use level::FindingLevel;
pub use report::{
    CheckCoverage, CheckReport, CheckedFile, CheckedModelFiles, CheckedTensor, Finding,
    FindingCounts, StoredTensor,
};
pub use statistics::{Percentiles, ValueStatistics};

use opened::{OpenedModels, around_globals};
use run::CheckRun;

/// Checks a model. Made by [`check`] or [`check_path`].
#[derive(Clone)]
pub struct Check<'c> {
    subject: Subject<'c>,
    list: Option<DigestList>,
    file_digests: bool,
    tensor_digests: bool,
    statistics: bool,
    headers: bool,
    allowed: Vec<String>,
    only: Vec<String>,
    options: RunOptions<'c>,
}

/// The subject of a check.
#[derive(Clone)]
enum Subject<'c> {
    Opened(CheckpointHandle<'c>),
    Path(PathBuf, Box<OpenOptions>),
}

/// Checks an open checkpoint: the digests of its files, the checksums of archives, and its values.
///
/// A checkpoint that opens has no missing file and no malformed header; [`check_path`] opens what it can, and reports the rest.
///
/// ```
/// use anamnesis::check::FindingLevel;
/// use anamnesis::{Checkpoint, check};
///
/// let checkpoint = Checkpoint::open("fixtures/ask/check/nan.safetensors")?;
/// let report = check(&checkpoint).statistics().run()?;
/// let [finding] = &report.findings[..] else { panic!() };
/// assert_eq!((finding.rule, finding.level), ("nan", FindingLevel::Error));
/// assert_eq!(finding.first.as_deref(), Some(&[2, 7][..]));
/// for tensor in &report.tensors {
///     let values = tensor.values.as_ref().unwrap();
///     println!("{}: {:?} to {:?}", tensor.name, values.min, values.max);
/// }
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub fn check<'c>(checkpoint: impl Into<CheckpointHandle<'c>>) -> Check<'c> {
    Check::of(Subject::Opened(checkpoint.into()))
}

/// Like [`check`], for a path that is opened as far as it can be: missing files, headers that cannot be read and an index
/// that contradicts its files are findings.
///
/// ```
/// use anamnesis::OpenOptions;
/// use anamnesis::check::check_path;
///
/// let report = check_path("fixtures/ask/check/shard-missing", &OpenOptions::new()).run()?;
/// let finding = &report.findings[0];
/// assert_eq!(finding.rule, "index-missing-file");
/// assert_eq!(finding.file.as_deref(), Some("model-00002-of-00003.safetensors"));
/// # Ok::<(), anamnesis::Error>(())
/// ```
pub fn check_path<'c>(path: impl AsRef<Path>, options: &OpenOptions) -> Check<'c> {
    Check::of(Subject::Path(
        path.as_ref().to_owned(),
        Box::new(options.clone()),
    ))
}

/// Opens what [`check_path`] checks of a path: the files that can be read, without the tensors that a fault concerns. This is for
/// showing a model next to what was found about it. The checkpoint may lack tensors of the model and says nothing of
/// them, so it is not for loading.
///
/// ```
/// use anamnesis::check::open_readable;
/// use anamnesis::{Checkpoint, OpenOptions};
///
/// let path = "fixtures/ask/check/shard-missing";
/// assert!(Checkpoint::open(path).is_err());
/// let rest = open_readable(path, &OpenOptions::new())?;
/// assert!(!rest.catalog().tensors().is_empty());
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// # Errors
/// The errors of [`Checkpoint::open`], where nothing can be read, or the directory has several checkpoints.
pub fn open_readable(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Checkpoint> {
    let path = path.as_ref();
    match options.survey(path).checkpoint {
        Err(error) if matches!(error.kind(), ErrorKind::RefusedGlobal { .. }) => {
            // the refusal is the better message if the rest cannot be read either
            around_globals(path, options).ok_or(error)
        }
        opened => opened,
    }
}

impl Check<'_> {
    /// Checks the model.
    ///
    /// # Errors
    /// Cancellation; a path that is not there; a rule that there is not; memory over [`Limits::memory`](crate::Limits::memory).
    /// A fault of a model is no error, but a [`Finding`].
    pub fn run(&self) -> Result<CheckReport> {
        let start = Instant::now();
        let unknown = self.allowed.iter().chain(&self.only);
        for name in unknown {
            // a misspelt rule would silently allow nothing, or report nothing
            if !rules().iter().any(|rule| rule.id == *name) {
                let what = format!("there is no rule {}", crate::base::quote::quote(name));
                return Err(Error::invalid_argument(what));
            }
        }
        let mut report = match &self.subject {
            Subject::Opened(checkpoint) => {
                let run = CheckRun {
                    check: self,
                    checkpoints: vec![checkpoint],
                    path: checkpoint.path(),
                    shown: checkpoint.path(),
                    files: checkpoint.files(),
                    opened: None,
                };
                run.report(&checkpoint.budget())?
            }
            Subject::Path(path, options) => {
                again_if_replaced(Error::is_replaced, || self.run_path(path, options))?
            }
        };
        report.seconds = start.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Whether findings of this rule are reported.
    fn reports(&self, rule: &str) -> bool {
        let is = |name: &String| name == rule;
        (self.only.is_empty() || self.only.iter().any(is)) && !self.allowed.iter().any(is)
    }

    fn run_path(&self, path: &Path, options: &OpenOptions) -> Result<CheckReport> {
        let (files, shown) = options.files(path)?;
        let mut place = shown.clone();
        if files.is_local()
            && let Some(snapshot) = snapshot_of(&shown)?
        {
            // a repository in the hub's cache has its files there
            place = snapshot.into();
        }
        // a model that another program replaces meanwhile would be found incomplete, or with files of both
        for _ in 1..REPORTS {
            let mut watch = match files.is_local() {
                true => NameWatch::begin(&place, is_checked),
                false => None,
            };
            let opened = open_settled(&place, &files, options, &mut watch)?;
            let report = self.report_of(&opened, &place, &shown, &files, options);
            let is_sound = report.as_ref().is_ok_and(|r| r.findings.is_empty());
            let may_differ = |watch: &mut Option<NameWatch>| {
                let may_change = || watch.as_ref().is_some_and(NameWatch::has_just_changed);
                let misses = misses_a_file(&report) && may_change();
                has_changed(watch) || misses
            };
            // a sound model is not looked at again
            if is_sound || !may_differ(&mut watch) {
                return report;
            }
            std::thread::sleep(PAUSE);
        }
        let opened = OpenedModels::open(&place, &files, options)?;
        self.report_of(&opened, &place, &shown, &files, options)
    }

    fn report_of(
        &self,
        opened: &OpenedModels,
        place: &Path,
        shown: &Path,
        files: &Files,
        options: &OpenOptions,
    ) -> Result<CheckReport> {
        let budget = opened.budget(options.limits_of())?;
        let run = CheckRun {
            check: self,
            path: Some(place),
            shown: Some(shown),
            files: opened.checkpoints.first().map_or(files, Checkpoint::files),
            checkpoints: opened.checkpoints.iter().collect(),
            opened: Some(opened),
        };
        run.report(&budget)
    }
}

/// How often a directory is opened at most while its models change.
const OPENINGS: usize = 32;

/// How often a model with findings is checked at most that has changed since.
const REPORTS: usize = 16;

/// The time between two such checks, in which a writer gets on.
const PAUSE: Duration = Duration::from_millis(20);

/// Opens the models of a directory, again while their names change: a failure beside a change is none of the models'.
fn open_settled(
    place: &Path,
    files: &Files,
    options: &OpenOptions,
    watch: &mut Option<NameWatch>,
) -> Result<OpenedModels> {
    for _ in 1..OPENINGS {
        let opened = OpenedModels::open(place, files, options);
        if !has_changed(watch) {
            return opened;
        }
    }
    OpenedModels::open(place, files, options)
}

/// Whether the names have changed since they were last looked at.
fn has_changed(watch: &mut Option<NameWatch>) -> bool {
    watch.as_mut().is_some_and(NameWatch::has_changed)
}

/// Whether a file of a model is not there, as while old ones are removed one by one.
fn misses_a_file(report: &Result<CheckReport>) -> bool {
    let rule = check_rules::INDEX_MISSING_FILE.id;
    let misses = |report: &CheckReport| report.findings.iter().any(|found| found.rule == rule);
    report.as_ref().is_ok_and(misses)
}

/// Whether a file of this name is a part of a model or of its description. Logs and the like come and go.
fn is_checked(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| is_model_file(name) || name.ends_with(".json"))
}
