//! One side of a comparison: its dequantised weights and plain tensors, and the stored tensors that are neither.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::Path;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::kernel::Dtype;
use crate::base::limits::{Budget, text_cost};
use crate::base::progress::CancelToken;
use crate::engine::remember::remember;
use crate::models::architectures::gguf_model;
use crate::models::conversion::Names;
use crate::plan::{Job, PLAIN, Plan};
use crate::read::catalog::{Catalog, Encoding, TensorInfo, quote};
use crate::read::checkpoint::{Checkpoint, DirectoryListing, UnreadFile};

use super::config::TOKENIZER;
use super::differences::DiffSide;
use super::rename::RenameRules;

pub(super) const WHAT: &str = "the comparison";

/// A thing that is compared as one: a weight, whatever number of tensors store it, or a stored tensor.
#[derive(Debug)]
pub(super) struct ComparedTensor {
    /// The name by which it is shown: that in the file.
    pub(super) name: Box<str>,
    /// The name by which it is paired, if it is another one.
    pub(super) key: Option<Box<str>>,
    /// Index of the job that makes its values; `None` if it cannot be decoded.
    pub(super) job: Option<usize>,
    /// The stored tensors that it is made of; the first has its type.
    pub(super) parts: Vec<usize>,
}

impl ComparedTensor {
    pub(super) fn key(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.name)
    }
}

/// One side.
pub(super) struct Side<'c> {
    pub(super) checkpoint: &'c Checkpoint,
    pub(super) jobs: Vec<Job>,
    pub(super) tensors: Vec<ComparedTensor>,
    /// Why weights and stored tensors are not decoded, by name.
    refused: HashMap<Box<str>, Error>,
    /// Whether its weights were planned: what no plan has is then needed by quantised arithmetic alone.
    planned: bool,
    /// Whether its tensors are paired by the names of its class in transformers.
    pub(super) converted: bool,
}

impl<'c> Side<'c> {
    /// All tensors of a checkpoint. `rename` is for the names of this side.
    pub(super) fn new(
        checkpoint: &'c Checkpoint,
        rename: &RenameRules<'_>,
        cancel: Option<&CancelToken>,
        budget: &Budget,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let mut side = Self {
            checkpoint,
            jobs: Vec::new(),
            tensors: Vec::new(),
            refused: HashMap::new(),
            planned: false,
            converted: false,
        };
        match plan(checkpoint, Names::Stored, cancel, budget) {
            Ok(plan) => {
                side.jobs = plan.jobs;
                side.planned = true;
                const ROW: u64 = 3 * size_of::<(Box<str>, Error)>() as u64;
                budget.memory(ROW * plan.refused.len() as u64, WHAT)?;
                let refused = plan.refused.into_iter();
                side.refused = refused.map(|weight| (weight.name, weight.error)).collect();
            }
            // neither is a fact about the weights: going on would compare less than was asked for
            Err(e) if matches!(e.kind(), ErrorKind::Cancelled | ErrorKind::Limit { .. }) => {
                return Err(e);
            }
            // stored bytes can still be compared
            Err(e) => notes.push(format!("quantised weights are not decoded: {e}")),
        }
        let count = side.catalog().tensors().len();
        let _taken = budget.temporary(count as u64, WHAT)?;
        let mut taken = vec![false; count];
        for job in 0..side.jobs.len() {
            let tensor = side.compared_job(job);
            tensor.parts.iter().for_each(|part| taken[*part] = true);
            side.add(tensor, rename, budget)?;
        }
        for (number, _) in taken.iter().enumerate().filter(|(_, taken)| !**taken) {
            let tensor = ComparedTensor {
                name: side.catalog().tensors()[number].name.clone(),
                key: None,
                job: None,
                parts: vec![number],
            };
            side.add(tensor, rename, budget)?;
        }
        // in file order; weights that were planned precede what is left
        side.tensors
            .sort_by_key(|tensor| tensor.parts.first().copied());
        Ok(side)
    }

    fn compared_job(&self, job: usize) -> ComparedTensor {
        let made = &self.jobs[job];
        ComparedTensor {
            name: made.output.name.clone(),
            key: None,
            job: Some(job),
            parts: made.parts.iter().map(|part| part.tensor).collect(),
        }
    }

    fn add(
        &mut self,
        mut tensor: ComparedTensor,
        rename: &RenameRules<'_>,
        budget: &Budget,
    ) -> Result<()> {
        tensor.key = rename.renamed(tensor.key()).map(Into::into).or(tensor.key);
        let names = text_cost(tensor.name.len()) + text_cost(tensor.key().len());
        budget.memory(names + 8 * tensor.parts.len() as u64 + 16, WHAT)?;
        budget.push(&mut self.tensors, tensor, WHAT)
    }

    pub(super) fn catalog(&self) -> &'c Catalog {
        self.checkpoint.catalog()
    }

    pub(super) fn part(&self, tensor: &ComparedTensor, part: usize) -> &'c TensorInfo {
        &self.catalog().tensors()[tensor.parts[part]]
    }

    pub(super) fn job(&self, tensor: &ComparedTensor) -> Option<&Job> {
        tensor.job.map(|job| &self.jobs[job])
    }

    /// Its sizes.
    pub(super) fn shape(&self, tensor: &ComparedTensor) -> &[u64] {
        match self.job(tensor) {
            Some(job) => &job.output.shape,
            None => &self.part(tensor, 0).shape,
        }
    }

    /// The scheme that it is stored by.
    pub(super) fn scheme(&self, tensor: &ComparedTensor) -> &'static str {
        self.job(tensor).map_or(PLAIN, |job| job.scheme)
    }

    /// The name of its type: the stored elements' or blocks', or the scheme of codes that are integers.
    pub(super) fn dtype(&self, tensor: &ComparedTensor) -> &'c str {
        use Dtype::{I8, I16, I32, I64, U8, U16, U32, U64};
        let (stored, scheme) = (&self.part(tensor, 0).encoding, self.scheme(tensor));
        let integers = matches!(
            stored,
            Encoding::Plain(I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64)
        );
        // the words that codes are packed in say nothing about a weight
        if integers && scheme != PLAIN {
            return scheme;
        }
        stored.name()
    }

    /// Bytes of its stored parts.
    pub(super) fn nbytes(&self, tensor: &ComparedTensor) -> u64 {
        let parts = tensor.parts.iter();
        let parts = parts.map(|part| self.catalog().tensors()[*part].nbytes());
        parts.fold(0, u64::saturating_add)
    }

    /// Why it is not decoded, if it is not.
    pub(super) fn refusal(&self, tensor: &ComparedTensor) -> Option<String> {
        let error = self.refused.get(&tensor.name)?;
        tensor.job.is_none().then(|| error.to_string())
    }

    /// Whether it is no weight, and dequantised weights do not need it: scales of activations and caches.
    pub(super) fn is_dropped(&self, tensor: &ComparedTensor) -> bool {
        // the parts of a refused weight are in no plan either
        tensor.job.is_none() && self.planned && self.refused.is_empty()
    }

    /// A remark about entries that are listed and cannot be read.
    pub(super) fn unreadable(&self) -> Option<String> {
        const SHOWN: usize = 3;
        let refused = self.catalog().refused();
        let shown = refused.iter().take(SHOWN).map(|entry| quote(&entry.name));
        let shown = shown.collect::<Vec<_>>().join(", ");
        (!refused.is_empty()).then(|| {
            let more = if refused.len() > SHOWN { ", …" } else { "" };
            let count = refused.len();
            format!("{count} entries cannot be read and are not compared: {shown}{more}")
        })
    }

    /// `compared` is the number of its tensors that were, `sidecars` the names of files beside the tensors.
    pub(super) fn describe(
        &self,
        compared: u64,
        sidecars: &[&str],
        budget: &Budget,
    ) -> Result<DiffSide> {
        let mut bytes = HashMap::<&str, u64>::new();
        for info in self.catalog().tensors() {
            let sum = bytes.entry(info.encoding.name()).or_default();
            *sum = sum.saturating_add(info.nbytes());
        }
        let mut dtypes: Vec<_> = bytes.into_iter().collect();
        // then by name: the order of the map is random
        dtypes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        let dtypes = dtypes.into_iter().map(|(name, _)| name.to_owned());
        let unread = self.unread(sidecars, budget)?;
        let opened = match &unread {
            Some((all, unread)) => all - unread.len() as u64,
            None => self.catalog().files.len() as u64,
        };
        let unread = unread.map_or(Vec::new(), |(_, unread)| unread);
        Ok(DiffSide {
            compared,
            files: opened,
            of_files: opened + unread.len() as u64,
            unread,
            path: self
                .checkpoint
                .path()
                .map(|path| path.display().to_string()),
            format: self.catalog().format(),
            tensors: self.tensors.len() as u64,
            dtypes: dtypes.collect(),
        })
    }

    /// The number of files and folders in the directory of the side, and those that were not opened; `None` if it is no directory.
    fn unread(&self, sidecars: &[&str], budget: &Budget) -> Result<Option<(u64, Vec<UnreadFile>)>> {
        let (checkpoint, files) = (self.checkpoint, self.checkpoint.files());
        let directory = checkpoint.path().filter(|path| files.is_directory(path));
        let Some(directory) = directory else {
            return Ok(None);
        };
        let opened = self
            .catalog()
            .files
            .iter()
            .filter_map(|file| file.path.as_deref());
        let opened: HashSet<&OsStr> = opened
            .chain(checkpoint.described_by())
            .filter(|path| path.parent() == Some(directory))
            .filter_map(Path::file_name)
            .collect();
        let is_read = |name: &str| opened.contains(OsStr::new(name)) || sidecars.contains(&name);
        let listing = DirectoryListing::of(files, directory, budget)?;
        let all = listing.count();
        let mut unread = listing.unread(files, directory, &is_read, budget)?;
        for file in &mut unread {
            if matches!(&*file.path, "config.json" | TOKENIZER) {
                file.why = "not compared with the other side";
            }
        }
        Ok(Some((all, unread)))
    }

    /// Replaces the tensors of a GGUF that are `free` by the tensors of its class in transformers, if one of those is among
    /// the names `wanted`. Tensors that are no parameter of the model are left out; a note names them.
    pub(super) fn convert(
        &mut self,
        free: &mut Vec<bool>,
        wanted: &dyn Fn(&str) -> bool,
        rename: &RenameRules<'_>,
        cancel: Option<&CancelToken>,
        budget: &Budget,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        if gguf_model(self.checkpoint).is_none() {
            return Ok(());
        }
        let converted = plan(self.checkpoint, Names::HuggingFace, cancel, budget)?;
        let count = self.catalog().tensors().len();
        let _flags = budget.temporary(2 * count as u64, WHAT)?;
        let (mut open, mut covered) = (vec![false; count], vec![false; count]);
        for (tensor, _) in self.tensors.iter().zip(&*free).filter(|(_, free)| **free) {
            tensor.parts.iter().for_each(|part| open[*part] = true);
        }
        // an output of tensors of which one is paired already stays as stored
        let is_open = |job: &Job| job.parts.iter().all(|part| open[part.tensor]);
        let own_key = |name: &str| rename.renamed(name).unwrap_or_else(|| name.to_owned());
        let mut jobs = converted.jobs.iter().filter(|job| is_open(job));
        // the other side has names of its own: nothing would be paired
        if !jobs.any(|job| wanted(&own_key(&job.output.name))) {
            return Ok(());
        }
        let kept = std::mem::take(&mut self.tensors).into_iter().zip(&*free);
        self.tensors = kept
            .filter(|(_, free)| !**free)
            .map(|(tensor, _)| tensor)
            .collect();
        let settled = self.tensors.len();
        for job in converted.jobs {
            if !job.parts.iter().all(|part| open[part.tensor]) {
                continue;
            }
            job.parts
                .iter()
                .for_each(|part| covered[part.tensor] = true);
            budget.push(&mut self.jobs, job, WHAT)?;
            let mut tensor = self.compared_job(self.jobs.len() - 1);
            // shown by the name in the file, paired by the name in transformers
            let stored = self.part(&tensor, 0).name.clone();
            tensor.key = Some(std::mem::replace(&mut tensor.name, stored));
            self.add(tensor, rename, budget)?;
        }
        let mut omitted = Vec::new();
        for number in (0..count).filter(|number| open[*number] && !covered[*number]) {
            let name = &self.catalog().tensors()[number].name;
            // otherwise it may be part of a refused weight, which is compared
            if converted.refused.is_empty() && self.refused.is_empty() {
                omitted.push(quote(name));
            } else {
                let tensor = ComparedTensor {
                    name: name.clone(),
                    key: None,
                    job: None,
                    parts: vec![number],
                };
                self.add(tensor, rename, budget)?;
            }
        }
        if !omitted.is_empty() {
            notes.push(format!(
                "not compared, as no parameter of the model: {}",
                omitted.join(", ")
            ));
        }
        free.clear();
        // the paired ones are in front, the converted ones behind them
        free.resize(settled, false);
        free.resize(self.tensors.len(), true);
        self.converted = true;
        Ok(())
    }
}

/// The plan of all weights in F32; plain tensors keep their dtype.
fn plan(
    checkpoint: &Checkpoint,
    names: Names,
    cancel: Option<&CancelToken>,
    budget: &Budget,
) -> Result<Plan> {
    // F32 holds every dequantised value, and tied copies are paired by name
    let all = remember(checkpoint)
        .dtype(Dtype::F32)
        .names(names)
        // two sides with the same unknown part are compared all the same
        .ignore_unexplained()
        .untie(true);
    cancel
        .into_iter()
        .fold(all, |all, token| all.cancel(token))
        .plan_within(budget)
}
