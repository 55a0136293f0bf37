//! `predict`: which worker of an inference service will read which bytes of a checkpoint, before it ever ran.

mod complete;
mod config;
mod files;
mod order;
mod packed;
mod share;
mod stack;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use anamnesis_template::parallel::{Experts, Rules};
use anamnesis_template::{Builder, ByteRange, Runs, Template, service_id};

use crate::catalog::TensorInfo;
use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::limits::Budget;

pub use complete::complete;
use config::Config;
pub(crate) use files::Files;
pub use order::Order;
use share::{Degrees, Sizes, Worker, share};
use stack::{Place, Stages, place};

type Filter<'c> = Arc<dyn Fn(&str) -> bool + Send + Sync + 'c>;

/// Predicts what a service reads of a checkpoint. Made by [`predict`].
#[derive(Clone)]
pub struct Predict<'c> {
    checkpoint: &'c Checkpoint,
    rules: Rules,
    degrees: Degrees,
    heads: Option<u64>,
    kv_heads: Option<u64>,
    experts: Option<u64>,
    order: Order,
    whole: bool,
    gap: u64,
    filter: Option<Filter<'c>>,
    parameters: BTreeMap<String, String>,
}

/// Predicts which worker of an inference service reads which bytes of a checkpoint, and in which order: from the
/// catalog and the rules by which tensors are split over workers, without a run of the service.
///
/// Each worker reads the headers of all files, then its share of each tensor. What cannot be read in part (deflated,
/// strided, in an archive, quantised by PyTorch) is read whole by every worker of its stage, and so are what no rule
/// splits and vectors of up to a page.
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
pub fn predict(checkpoint: &Checkpoint) -> Predict<'_> {
    Predict {
        checkpoint,
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
        order: Order::default(),
        whole: false,
        gap: 0,
        filter: None,
        parameters: BTreeMap::new(),
    }
}

impl<'c> Predict<'c> {
    /// Tensor parallelism: so many workers share each matrix. Default 1.
    #[must_use]
    pub fn tp(mut self, workers: u32) -> Self {
        self.degrees.tp = workers;
        self
    }

    /// Pipeline parallelism: so many stages share the layers, each with its own workers. Default 1.
    #[must_use]
    pub fn pp(mut self, stages: u32) -> Self {
        self.degrees.pp = stages;
        self
    }

    /// Data parallelism: so many copies of the workers, which share nothing but experts. Default 1.
    #[must_use]
    pub fn dp(mut self, copies: u32) -> Self {
        self.degrees.dp = copies;
        self
    }

    /// Expert parallelism: whole experts are dealt out among so many of the workers of a stage (tp × dp, which it must
    /// divide). Default 1: every worker has its part of every expert.
    #[must_use]
    pub fn ep(mut self, workers: u32) -> Self {
        self.degrees.ep = workers;
        self
    }

    /// Attention heads, by which fused queries, keys and values are split. What the model's configuration says
    /// (`config.json`, a GGUF's metadata) if not given.
    #[must_use]
    pub fn heads(mut self, heads: u64) -> Self {
        self.heads = Some(heads);
        self
    }

    /// Heads of keys and values, by which those are split: workers share one where there are fewer. What the model's
    /// configuration says if not given.
    #[must_use]
    pub fn kv_heads(mut self, heads: u64) -> Self {
        self.kv_heads = Some(heads);
        self
    }

    /// Experts of a layer. As many as the names and shapes of tensors tell if not given.
    #[must_use]
    pub fn experts(mut self, experts: u64) -> Self {
        self.experts = Some(experts);
        self
    }

    /// By which rules tensors are split, instead of the default table.
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// In which order tensors are read. Default [`Order::File`].
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Whether a worker reads all of each tensor that it has a part of, as frameworks do that cut what they have read.
    /// Default off: it reads its part.
    #[must_use]
    pub fn whole(mut self, whole: bool) -> Self {
        self.whole = whole;
        self
    }

    /// Unwanted bytes between two reads that become part of them. Default 0. With 4095 the page cache is asked for the
    /// same pages, in far fewer and longer accesses where rows are short.
    #[must_use]
    pub fn gap(mut self, bytes: u64) -> Self {
        self.gap = bytes;
        self
    }

    /// Only tensors whose name this accepts.
    #[must_use]
    pub fn filter(mut self, keep: impl Fn(&str) -> bool + Send + Sync + 'c) -> Self {
        self.filter = Some(Arc::new(keep));
        self
    }

    /// A run-time parameter of the service, beside the degrees of parallelism (`tp`, and the others where they are not
    /// 1). The service's id follows from them and the files.
    #[must_use]
    pub fn parameter(mut self, key: &str, value: &str) -> Self {
        self.parameters.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The template.
    ///
    /// # Errors
    /// A checkpoint that was not opened from a path; files that changed since; degrees that make no workers; a
    /// configuration that is not JSON; more accesses than [`Limits::memory`](crate::Limits::memory) holds.
    pub fn template(&self) -> Result<Template> {
        let catalog = self.checkpoint.catalog();
        let files = Files::of(self.checkpoint)?;
        let workers: Vec<Worker> = self.degrees.workers()?.collect();
        let mut builder = Builder::new().gap(self.gap);
        let known = files.add_to(&mut builder)?;
        let budget = Budget::new(*self.checkpoint.limits());
        let charge = |accesses: usize| {
            budget.memory(
                (accesses as u64).saturating_mul(size_of::<anamnesis_template::Access>() as u64),
                "accesses",
            )
        };
        for worker in &workers {
            builder.group(worker.rank, &self.degrees.name(*worker));
            charge(files.headers().len())?;
            files
                .headers()
                .iter()
                .try_for_each(|header| builder.access(worker.rank, *header, None))?;
        }
        let config = Config::of(self.checkpoint)?;
        let sizes = self.sizes(&config);
        let wanted = catalog
            .tensors()
            .iter()
            .filter(|info| self.filter.as_ref().is_none_or(|keep| keep(&info.name)));
        let mut tensors: Vec<(&TensorInfo, Place<'_>)> = wanted
            .map(|info| (info, place(&self.rules, info).1))
            .collect();
        self.order.sort(&mut tensors);
        let stages = Stages::new(self.degrees.pp, config.layers, &tensors);
        let mut seen: HashSet<(u32, u32)> = HashSet::new();
        for (info, place) in &tensors {
            let rule = self.rules.rule(&info.name);
            for worker in workers
                .iter()
                .filter(|worker| stages.has(worker.pp, place, rule))
            {
                let mut reads: Vec<Runs> = Vec::new();
                match share(
                    catalog,
                    &self.rules,
                    info,
                    rule,
                    *worker,
                    self.degrees,
                    sizes,
                )? {
                    Some(runs) if runs.is_empty() => {}
                    Some(_) if self.whole => reads.push(info.bytes.into()),
                    Some(runs) => {
                        let ByteRange { file, start, .. } = info.bytes;
                        reads.extend(runs.into_iter().filter_map(|runs| runs.placed(file, start)));
                    }
                    // storages that tensors share are read for the first of them
                    None => catalog.stored(info, &mut |bytes, member| {
                        reads.extend(
                            member
                                .is_none_or(|member| seen.insert((worker.rank, member)))
                                .then_some(Runs::from(bytes)),
                        );
                    }),
                }
                charge(reads.len())?;
                reads
                    .into_iter()
                    .try_for_each(|runs| builder.access(worker.rank, runs, None))?;
            }
        }
        let parameters = self.parameters();
        for (key, value) in &parameters {
            builder.parameter(key, value);
        }
        builder.service(service_id(
            &known,
            parameters.iter().map(|(key, value)| (&**key, &**value)),
        ));
        Ok(builder.finish())
    }

    /// The degrees of parallelism, and what was given beside them.
    fn parameters(&self) -> BTreeMap<String, String> {
        let Degrees { tp, pp, dp, ep } = self.degrees;
        let named = [("tp", tp), ("pp", pp), ("dp", dp), ("ep", ep)];
        let named = named
            .into_iter()
            .filter(|(key, degree)| *key == "tp" || *degree > 1);
        let own = named.map(|(key, degree)| (key.to_owned(), degree.to_string()));
        own.chain(self.parameters.clone()).collect()
    }

    /// What was given, else what the configuration says; of experts no fewer than the tensors tell.
    fn sizes(&self, config: &Config) -> Sizes {
        let heads = self.heads.or(config.heads).unwrap_or(0);
        let kv_heads = self.kv_heads.or(config.kv_heads).unwrap_or(0);
        let told = |info: &TensorInfo| match Experts::of(&info.name)? {
            Experts::One(number) => number.checked_add(1),
            Experts::All => info.shape.first().copied(),
        };
        let experts = || {
            self.checkpoint
                .catalog()
                .tensors()
                .iter()
                .filter_map(told)
                .max()
                .unwrap_or(0)
        };
        Sizes {
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
