//! The list that `warm` reads: the accesses of a template or of a prediction, of one model or of several.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis::source::local_path;
use anamnesis::template::{self, Template, TemplateLimits, page_spans};
use anamnesis::{Checkpoint, Error, ErrorKind, checkpoints_below};
use anamnesis_os::files::directory_of;
use anamnesis_ppc::{FileRange, Inode, Namespace};

use crate::args::WarmArgs;
use crate::checkpoint_warnings::{found_path, show_about_place};
use crate::exit::again;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::model_argument::model_among;
use crate::runtime_failure::failure;
use crate::template::{filter_of, prediction};

/// A model that a policy prefetches.
#[derive(Debug, PartialEq)]
pub(crate) struct PolicyModel {
    pub(crate) dir: PathBuf,
    /// Otherwise it is predicted.
    pub(crate) template: Option<PathBuf>,
}

/// Ranges of files, in the order in which they are read.
#[derive(Debug)]
pub(crate) struct WarmList {
    /// Number of models.
    pub(super) models: usize,
    pub(super) namespace: Namespace,
    /// One list per worker.
    pub(super) lists: Vec<Vec<FileRange>>,
    /// Why models are missing, of which there were several.
    pub(super) failures: Vec<Failure>,
}

/// A template, and the directory that its files are in.
struct RootedTemplate {
    root: PathBuf,
    template: Template,
}

impl WarmList {
    /// The list that the arguments name.
    pub(super) fn of(args: &WarmArgs, interrupt: &Interrupt) -> Result<Self, Failure> {
        if is_template(&args.source) {
            let template = Template::load(&args.source, &TemplateLimits::default())?;
            let root = template_root(args, &template)?;
            return Self::new(
                root.clone(),
                vec![RootedTemplate { root, template }],
                &args.rank,
            );
        }
        let source = found_path(&args.source)?;
        let options = args.opening.options().cancel(interrupt.token());
        // the caller has named a directory, and not the models in it
        let options = options.found_in(&source);
        let filter = filter_of(&args.prediction);
        let is_listed = source.is_dir();
        let predicted = |path: &Path| -> Result<RootedTemplate, Failure> {
            let checkpoint = options.open(path).map_err(|error| match error.kind() {
                // the listing has the names of files that a set lacks
                ErrorKind::Io(e) if is_listed && e.kind() == io::ErrorKind::NotFound => {
                    let what = "this file of a set, whose others are there".to_owned();
                    Error::new(ErrorKind::MissingPart(what)).in_file(path)
                }
                _ => error,
            })?;
            show_about_place(&checkpoint);
            let predict = prediction(&args.prediction, &filter, &checkpoint);
            let template = predict.cancel(interrupt.token()).template();
            let template = template.map_err(|e| Failure::from(e).in_file(path))?;
            Ok(RootedTemplate {
                root: root_of(path),
                template,
            })
        };
        let paths = if source.is_dir() {
            checkpoints_below(&source)?
        } else {
            vec![source.clone()]
        };
        // the error of a single model is the error of the run; of several, each is reported and the rest is read
        if let [only] = &paths[..] {
            return again(|| {
                let one = predicted(only)?;
                let required = filter.require_matches();
                required.map_err(|failure| failure.in_file(only))?;
                // only another run can have removed a file since it was opened
                let list = Self::new(one.root.clone(), vec![one], &args.rank);
                list.map_err(Failure::replaced_if_gone)
            });
        }
        let (mut found, mut failures) = (Vec::new(), Vec::new());
        for path in &paths {
            match again(|| predicted(path)) {
                Ok(one) => found.push(one),
                Err(_) if interrupt.requested() => break,
                Err(failure) => failures.push(failure.in_file(path)),
            }
        }
        if found.is_empty() && failures.is_empty() {
            return Err(Failure::new(
                "unknown_format",
                "no checkpoint is in this directory",
                "name a model or a directory of models",
            )
            .in_file(&source));
        }
        // a model that could not be read might have had the name
        if failures.is_empty() {
            filter.require_matches()?;
        }
        let list = Self::new(source, found, &args.rank)?;
        Ok(Self { failures, ..list })
    }

    /// Its files, as they were when it was made.
    pub(super) fn files(&self) -> Vec<(Arc<Path>, Inode)> {
        let names = self.namespace.names();
        names
            .map(|(path, entry)| (Arc::clone(path), entry.inode))
            .collect()
    }

    /// The list of what a policy would prefetch for a command: by its template, or as predicted for one worker.
    ///
    /// # Errors
    ///
    /// The directory holds several models, and the command names none of them.
    pub(crate) fn of_policy(model: &PolicyModel, command: &[OsString]) -> Result<Self, Failure> {
        if let Some(path) = &model.template {
            let template = Template::load(path, &TemplateLimits::default())?;
            let root = model.dir.clone();
            return Self::new(root.clone(), vec![RootedTemplate { root, template }], &[]);
        }
        let dir = local_path(&model.dir)?;
        let path = match &checkpoints_below(&dir)?[..] {
            [only] => only.clone(),
            _ => model_among(command).ok_or_else(|| {
                Failure::new(
                    "usage",
                    "the directory holds several models or none, and the command names no model",
                    "name the model with --dir",
                )
                .in_file(&dir)
            })?,
        };
        let predict = || anamnesis::predict(&Checkpoint::open(&path)?).template();
        let template = again(predict)?;
        let root = root_of(&path);
        Self::new(root.clone(), vec![RootedTemplate { root, template }], &[])
    }

    /// The lists of models below `base`, one per worker, each model after the other.
    fn new(base: PathBuf, models: Vec<RootedTemplate>, ranks: &[u32]) -> Result<Self, Failure> {
        let mut lists: BTreeMap<u32, Vec<FileRange>> = BTreeMap::new();
        let mut paths: Vec<Arc<Path>> = Vec::new();
        let count = models.len();
        for RootedTemplate { root, template } in models {
            let below = root.strip_prefix(&base).unwrap_or(Path::new(""));
            let files = template.files().iter();
            let files: Vec<Arc<Path>> = files.map(|file| below.join(&*file.path).into()).collect();
            let lens: Vec<u64> = template.files().iter().map(|file| file.nbytes).collect();
            for rank in ranks {
                if template.group(*rank).is_none() {
                    return Err(Failure::new(
                        "usage",
                        format!("there is no worker with rank {rank}"),
                        "check --rank, and --tp, --pp, --dp and --ep",
                    ));
                }
            }
            let is_wanted = |rank| ranks.is_empty() || ranks.contains(&rank);
            for group in template
                .groups()
                .iter()
                .filter(|group| is_wanted(group.rank()))
            {
                // whole pages, without overlaps: the page cache reads nothing smaller, and two accesses of one page are
                // one read
                let spans = page_spans(group.accesses(), &lens);
                let ranges = spans.iter().filter_map(|span| {
                    Some(FileRange {
                        path: Arc::clone(files.get(usize::try_from(span.file).ok()?)?),
                        start: span.start,
                        len: span.len(),
                        // no worker runs yet whose accelerator could be known
                        device: None,
                    })
                });
                lists.entry(group.rank()).or_default().extend(ranges);
            }
            paths.extend(files);
        }
        let namespace = Namespace::of_files(&base, &paths).map_err(failure)?;
        Ok(Self {
            models: count,
            namespace,
            lists: lists.into_values().collect(),
            failures: Vec::new(),
        })
    }
}

/// Whether a path is a template, by its name: an index of shards is JSON, too.
fn is_template(path: &Path) -> bool {
    let name = path.to_string_lossy();
    name.ends_with(".iot") || (name.ends_with(".json") && !name.ends_with(".index.json"))
}

/// The directory that a template of this checkpoint names files below.
fn root_of(path: &Path) -> PathBuf {
    match path.is_dir() {
        true => path.to_owned(),
        false => directory_of(path).to_owned(),
    }
}

/// The directory of a template's model.
fn template_root(args: &WarmArgs, template: &Template) -> Result<PathBuf, Failure> {
    let candidates = match &args.dir {
        Some(dir) => vec![found_path(dir)?],
        // the command's model first: a template is often stored far from its model, and rarely next to another one
        None => model_among(&args.command)
            .into_iter()
            .chain([root_of(&args.source)])
            .collect(),
    };
    let now = |root: &Path, path: &str| template::File::probe(root, path).ok();
    let mut difference = None;
    for root in candidates {
        match template.stale(|path| now(&root, path)).first() {
            // the first directory whose files are those that were recorded: a stale template would warm other bytes
            None => return Ok(root),
            Some(file) => difference = difference.or(Some(root.join(&*file.path))),
        }
    }
    let path = difference.unwrap_or_else(|| args.source.clone());
    Err(Failure::new(
        "stale",
        "the template describes another model or is stale: this file does not exist or differs",
        "name the directory of its model with --dir",
    )
    .in_file(&path))
}
