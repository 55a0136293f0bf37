//! `predict`: the bytes that each worker of an inference service will read of a checkpoint, before its first run.

mod complete;
mod held;
mod order;
mod share;
mod stack;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use anamnesis_template::parallel::{Experts, Rules};
use anamnesis_template::{ByteRange, StridedFileRange, Template, TemplateBuilder, service_id};

use crate::base::error::Result;
use crate::base::progress::RunProgress;
use crate::models::parallel::HeadCounts;
use crate::read::catalog::TensorInfo;
use crate::read::checkpoint::{CheckpointHandle, NamedFiles, TemplateFiles};
use crate::read::run_options::{RunOptions, run_options};
pub use complete::complete;
pub(crate) use held::WorkerHolding;
pub use order::ReadOrder;
use share::{Degrees, ModelSizes, WorkerCoordinates, share};
pub(crate) use stack::pipeline_stage;
use stack::{ModelPosition, Stages, position};

/// Predicts what a service reads of a checkpoint. Made by [`predict`].
#[derive(Clone)]
pub struct Predict<'c> {
    checkpoint: CheckpointHandle<'c>,
    rules: Rules,
    degrees: Degrees,
    heads: Option<u64>,
    kv_heads: Option<u64>,
    experts: Option<u64>,
    order: ReadOrder,
    whole: bool,
    max_gap: u64,
    parameters: BTreeMap<String, String>,
    options: RunOptions<'c>,
}

/// Predicts which worker of an inference service reads which bytes of a checkpoint, and in which order: from the
/// catalog and the rules by which tensors are split over workers, without a run of the service.
///
/// Each worker reads the headers of all files, then its part of each tensor. Tensors that cannot be read in part (deflated,
/// strided, in an archive, quantised by PyTorch) are read whole by every worker of their stage, and so are tensors that
/// no rule splits and vectors of up to a page.
///
/// A checkpoint at a URL has the template of its downloaded copy, without times of modification. The first 64 KiB of each
/// file are read for it, side by side.
///
/// ```
/// use anamnesis::{Checkpoint, predict};
///
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// let template = predict(&checkpoint).tp(2).template()?;
/// assert_eq!((template.groups().len(), template.files().len()), (2, 2));
/// // the second worker: two headers, then the lower half of a matrix of 32 × 16 and of all that is split like it
/// let worker = template.group(1).expect("two workers");
/// assert!(worker.nbytes() < checkpoint.catalog().nbytes());
/// println!("{template}");
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// With an `Arc<Checkpoint>` the builder has no lifetime: see [`CheckpointHandle`].
pub fn predict<'c>(checkpoint: impl Into<CheckpointHandle<'c>>) -> Predict<'c> {
    Predict {
        checkpoint: checkpoint.into(),
        rules: Rules::default(),
        degrees: Degrees {
            tp: 1,
            pp: 1,
            dp: 1,
            ep: 1,
        },
        heads: None,
        kv_heads: None,
        experts: None,
        order: ReadOrder::default(),
        whole: false,
        max_gap: 0,
        parameters: BTreeMap::new(),
        options: RunOptions::default(),
    }
}

run_options!(Predict {
    /// Reads of these tensors are predicted.
    filter,
    /// In bytes of tensors, although none are read: the work is proportional to them.
    progress,
    cancel,
});

impl Predict<'_> {
    /// Tensor parallelism: the number of workers that share each matrix. Default 1.
    #[must_use]
    pub fn tp(mut self, workers: u32) -> Self {
        self.degrees.tp = workers;
        self
    }

    /// Pipeline parallelism: the number of stages that the layers are distributed over, each with its own workers.
    /// Default 1.
    #[must_use]
    pub fn pp(mut self, stages: u32) -> Self {
        self.degrees.pp = stages;
        self
    }

    /// Data parallelism: the number of replicas, which share only experts. Default 1.
    #[must_use]
    pub fn dp(mut self, copies: u32) -> Self {
        self.degrees.dp = copies;
        self
    }

    /// Expert parallelism: the number of workers of a stage that whole experts are distributed over. It must divide
    /// tp × dp. Default 1: every worker reads its part of every expert.
    #[must_use]
    pub fn ep(mut self, workers: u32) -> Self {
        self.degrees.ep = workers;
        self
    }

    /// The number of attention heads, by which fused queries, keys and values are split. Default: from the model's
    /// configuration (`config.json`, or a GGUF's metadata).
    #[must_use]
    pub fn heads(mut self, heads: u64) -> Self {
        self.heads = Some(heads);
        self
    }

    /// The number of heads of keys and values, by which those are split; with fewer heads than workers, several workers
    /// read the same head. Default: from the model's configuration.
    #[must_use]
    pub fn kv_heads(mut self, heads: u64) -> Self {
        self.kv_heads = Some(heads);
        self
    }

    /// The number of experts of a layer. Default: from the names and shapes of the tensors.
    #[must_use]
    pub fn experts(mut self, experts: u64) -> Self {
        self.experts = Some(experts);
        self
    }

    /// The rules by which tensors are split, instead of the default table.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// The order in which tensors are read. Default [`ReadOrder::File`].
    #[must_use]
    pub fn order(mut self, order: ReadOrder) -> Self {
        self.order = order;
        self
    }

    /// Whether a worker reads the whole of each tensor that it needs a part of, as frameworks do that slice after
    /// reading. Default off: it reads its part.
    #[must_use]
    pub fn whole(mut self, whole: bool) -> Self {
        self.whole = whole;
        self
    }

    /// Unneeded bytes between two reads that are merged into one access. Default 0. With 4095 the template covers the same
    /// pages, in far fewer and longer accesses where rows are short.
    #[must_use]
    pub fn max_gap(mut self, bytes: u64) -> Self {
        self.max_gap = bytes;
        self
    }

    /// A run-time parameter of the service, besides the degrees of parallelism (`tp`, and the others where they are not
    /// 1). The service's id is a hash of all parameters and the files.
    #[must_use]
    pub fn parameter(mut self, key: &str, value: &str) -> Self {
        self.parameters.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The template.
    ///
    /// # Errors
    /// The checkpoint was not opened from a path, or a file has changed since; invalid degrees of parallelism; a
    /// configuration that is not JSON; more accesses than [`Limits::memory`](crate::Limits::memory) allows; cancellation.
    pub fn template(&self) -> Result<Template> {
        let catalog = self.checkpoint.catalog();
        let files = TemplateFiles::of(&self.checkpoint)?;
        // by rank: groups of a template are in this order
        let workers: Vec<WorkerCoordinates> = self.degrees.workers()?.collect();
        let mut builder = TemplateBuilder::new().gap(self.max_gap);
        // reads the first bytes of each file, for the key by which a template recognises the file later
        let known = files.add_to(&mut builder)?;
        // the files of another checkpoint may have the same names and lengths
        let budget = self.checkpoint.budget();
        NamedFiles::of(&self.checkpoint, &budget)?.check()?;
        let charge = |accesses: usize| {
            budget.memory(
                (accesses as u64).saturating_mul(size_of::<anamnesis_template::Access>() as u64),
                "accesses",
            )
        };
        for worker in &workers {
            // every worker reads every header: frameworks open all files before they know which tensors are theirs
            builder.group(worker.rank, &self.degrees.name(*worker));
            charge(files.headers().len())?;
            files
                .headers()
                .iter()
                .try_for_each(|header| builder.access(worker.rank, *header, None))?;
        }
        let config = HeadCounts::of(&self.checkpoint, &budget)?;
        let sizes = self.sizes(&config);
        let wanted = catalog
            .tensors()
            .iter()
            .filter(|info| self.options.selection.contains(&info.name));
        let mut tensors: Vec<(&TensorInfo, ModelPosition<'_>)> = wanted
            .map(|info| (info, position(&self.rules, info).1))
            .collect();
        // once for all workers: each reads a part of the same sequence
        self.order.sort(&mut tensors);
        let stages = Stages::new(self.degrees.pp, config.layers, &tensors);
        // per worker: each process reads a shared storage itself, but only once
        let mut seen: HashSet<(u32, u32)> = HashSet::new();
        // progress in bytes of tensors, although nothing is read: it is proportional to the accesses
        let total = tensors.iter().map(|(info, _)| info.bytes.len);
        let progress = RunProgress::new(total.fold(0, u64::saturating_add), &self.options.control);
        for (info, position) in &tensors {
            let rule = self.rules.rule(&info.name);
            for worker in workers
                .iter()
                .filter(|worker| stages.has(worker.pp, position, rule))
            {
                let mut reads: Vec<StridedFileRange> = Vec::new();
                match share(
                    catalog,
                    &self.rules,
                    info,
                    rule,
                    *worker,
                    self.degrees,
                    sizes,
                )? {
                    // an expert of another worker, or a part without elements
                    Some(runs) if runs.is_empty() => {}
                    Some(_) if self.whole => reads.push(info.bytes.into()),
                    Some(runs) => {
                        let ByteRange { file, start, .. } = info.bytes;
                        let bytes = runs.into_iter().filter_map(|runs| runs.shifted(start));
                        reads.extend(bytes.map(|bytes| StridedFileRange { file, bytes }));
                    }
                    // a storage that several tensors share is read with the first of them
                    None => catalog.stored(info, &mut |bytes, member| {
                        reads.extend(
                            member
                                .is_none_or(|member| seen.insert((worker.rank, member)))
                                .then_some(StridedFileRange::from(bytes)),
                        );
                    }),
                }
                // before they are kept: a tensor that is split by rows of inputs has an access per row and worker
                charge(reads.len())?;
                reads
                    .into_iter()
                    .try_for_each(|read| builder.access(worker.rank, read, None))?;
            }
            progress.add(info.bytes.len)?;
        }
        progress.finish();
        // sorted by key, so that the service's id does not depend on the order of the caller's calls
        let parameters = self.parameters();
        for (key, value) in &parameters {
            builder.parameter(key, value);
        }
        // derived from files and parameters, so that the same service finds its template again
        builder.service(service_id(
            &known,
            parameters.iter().map(|(key, value)| (&**key, &**value)),
        ));
        Ok(builder.finish())
    }

    /// The degrees of parallelism, and the other parameters.
    fn parameters(&self) -> BTreeMap<String, String> {
        let Degrees { tp, pp, dp, ep } = self.degrees;
        let named = [("tp", tp), ("pp", pp), ("dp", dp), ("ep", ep)];
        let named = named
            .into_iter()
            // `tp` is always part of the identity, the others only if they differ from 1
            .filter(|(key, degree)| *key == "tp" || *degree > 1);
        let own = named.map(|(key, degree)| (key.to_owned(), degree.to_string()));
        own.chain(self.parameters.clone()).collect()
    }

    /// The sizes that were set, else the sizes of the configuration and of the tensors.
    fn sizes(&self, config: &HeadCounts) -> ModelSizes {
        let heads = self.heads.or(config.heads).unwrap_or(0);
        let kv_heads = self.kv_heads.or(config.kv_heads).unwrap_or(0);
        let experts_of = |info: &TensorInfo| match Experts::of(&info.name)? {
            Experts::One(number) => number.checked_add(1),
            Experts::All => info.shape.first().copied(),
        };
        let experts = || {
            self.checkpoint
                .catalog()
                .tensors()
                .iter()
                .filter_map(experts_of)
                .max()
                .unwrap_or(0)
        };
        ModelSizes {
            heads,
            kv_heads,
            experts: self.experts.unwrap_or_else(experts),
        }
    }
}

impl fmt::Debug for Predict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predict")
            .field("degrees", &self.degrees)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}
