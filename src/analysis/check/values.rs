//! The pass over the values: the plan of `remember`, executed into a sink that counts.

use std::sync::Arc;

use anamnesis_kernel::BlockFormat;

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{Budget, TemporaryCharge};
use crate::base::progress::RunControl;
use crate::base::threads::thread_count_for;
use crate::engine::execute::Executor;
use crate::plan::{Job, JobWork, Plan};
use crate::read::catalog::{Encoding, Endian};
use crate::read::checkpoint::Checkpoint;

use super::blocks::{BlockCounts, WatchedBlocks};
use super::check_rules;
use super::checked_weight::ScannedWeight;
use super::duplicates;
use super::level::FindingLevel;
use super::percentile_memory::PercentileMemory;
use super::places::position;
use super::report::Finding;
use super::rule_subject::{LookedAtSubjects, RuleSubject};
use super::scales::{self, ScaleCounts, ScaleTensor};
use super::value_rules::{Explained, LookedAt};
use super::value_sink::{OutputValues, ValuePass, ValueSink};

/// The input of the pass.
pub(super) struct ValueCheck<'r, 'c> {
    pub(super) checkpoint: &'r Checkpoint,
    pub(super) budget: &'r Budget,
    pub(super) threads: usize,
    pub(super) control: &'r RunControl<'c>,
    pub(super) statistics: bool,
}

/// The scales inside the blocks of a job.
type Watched = Option<(Arc<BlockCounts>, &'static BlockFormat)>;

const WHAT: &str = "the check of values";

/// The role of the group index.
const GROUP_INDEX: &str = "group_index";

impl ValueCheck<'_, '_> {
    /// Looks at the values of all jobs of a plan, and at the scales of all weights. `see` receives the stored tensors of
    /// those whose values could be looked at, and `looked_at` counts scales and group indices. Scales that no job has are looked at where
    /// their names are `wanted`.
    ///
    /// # Errors
    /// Cancellation; memory over the limits.
    pub(super) fn run(
        &self,
        mut plan: Plan,
        wanted: &dyn Fn(&str) -> bool,
        see: &mut dyn FnMut(usize),
        looked_at: &mut LookedAtSubjects,
        add: &mut dyn FnMut(Finding) -> Result<()>,
    ) -> Result<Vec<ScannedWeight>> {
        let catalog = self.checkpoint.catalog();
        let scale_tensors = ScaleTensor::list(self.checkpoint, &plan, wanted);
        let counted =
            scales::count_all(self.checkpoint, &scale_tensors, self.threads, self.control)?;
        looked_at.add(RuleSubject::Scales, scale_tensors.len() as u64);
        let mut explained = vec![Explained::default(); catalog.tensors().len()];
        for (scale, counts) in scale_tensors.iter().zip(counted) {
            let Some(counts) = counts else { continue };
            // scales first, so that one finding stands for all weights that a scale spoils
            explained[scale.tensor] = Explained {
                not_finite: counts.nan.0 + counts.inf.0 > 0,
                zero: counts.zero.0 > 0,
            };
            scales::findings(scale, &counts, &catalog.tensors()[scale.tensor], add)?;
        }
        self.budget.memory(
            plan.jobs.len() as u64 * (ValueSink::PER_OUTPUT + size_of::<ScannedWeight>() as u64),
            WHAT,
        )?;
        let (threads, _charge) = self.affordable_threads(&plan)?;
        let indexed = plan.jobs.iter().filter(|job| has_group_index(job)).count();
        looked_at.add(RuleSubject::Indices, indexed as u64);
        // kept until `retain` ends, whose closure returns no error
        let mut refused = Vec::new();
        // before the pass: a decoder refuses the whole weight at the first of them
        plan.jobs.retain(|job| match self.indices_in_range(job) {
            Ok(None) => true,
            Ok(Some(finding)) => {
                // an index that is out of range was looked at
                job.parts.iter().for_each(|part| see(part.tensor));
                refused.push(Ok(finding));
                false
            }
            Err(error) => {
                refused.push(Err(error));
                false
            }
        });
        for finding in refused {
            add(finding?)?;
        }
        let watched: Vec<Watched> = plan.jobs.iter_mut().map(|job| self.watch(job)).collect();
        let with_scales = watched.iter().flatten().count();
        looked_at.add(RuleSubject::Scales, with_scales as u64);
        let pass = if self.statistics {
            ValuePass::Statistics
        } else {
            ValuePass::Rules
        };
        let outcomes = self.pass(plan.jobs, pass, threads)?;
        let mut looked = Vec::with_capacity(outcomes.len());
        for ((job, outcome), watched) in outcomes.into_iter().zip(watched) {
            let values = match outcome {
                Ok(values) => values,
                Err(error) => {
                    add(undecodable(&job, &error))?;
                    continue;
                }
            };
            job.parts.iter().for_each(|part| see(part.tensor));
            let counts = watched.map(|(counts, format)| (counts.counts(format), format));
            self.judge(&job, &values, counts, &explained, add)?;
            looked.push(ScannedWeight { job, values });
        }
        self.outliers(&looked, &explained, threads, add)?;
        duplicates::compare(self.checkpoint, &looked, self.control, self.budget, add)?;
        Ok(looked)
    }

    /// Applies the rules to what was counted.
    fn judge(
        &self,
        job: &Job,
        values: &OutputValues,
        blocks: Option<(ScaleCounts, &'static BlockFormat)>,
        explained: &[Explained],
        add: &mut dyn FnMut(Finding) -> Result<()>,
    ) -> Result<()> {
        let mut by_scales = self.explained(job, explained);
        if let Some((counts, format)) = blocks {
            by_scales.not_finite |= counts.nan.0 + counts.inf.0 > 0;
            let (name, shape) = (&job.output.name, &job.output.shape);
            scales::block_findings(&counts, name, shape, format.block_len.into(), add)?;
        }
        self.looked_at(job, values, by_scales).findings(add)
    }

    /// The values that the scales of a weight explain.
    fn explained(&self, job: &Job, explained: &[Explained]) -> Explained {
        let mut all = Explained::default();
        for part in &job.parts {
            all.not_finite |= explained[part.tensor].not_finite;
            all.zero |= explained[part.tensor].zero;
        }
        all
    }

    fn looked_at<'p>(
        &'p self,
        job: &'p Job,
        values: &'p OutputValues,
        explained: Explained,
    ) -> LookedAt<'p> {
        LookedAt {
            job,
            stored: &self.checkpoint.catalog().tensors()[job.parts[0].tensor],
            scan: &values.scan,
            explained,
        }
    }

    /// A second look at weights with values close to the end of the range: there are few.
    fn outliers(
        &self,
        looked: &[ScannedWeight],
        explained: &[Explained],
        threads: usize,
        add: &mut dyn FnMut(Finding) -> Result<()>,
    ) -> Result<()> {
        let with_huge: Vec<&ScannedWeight> = looked
            .iter()
            .filter(|weight| weight.values.scan.huge > 0)
            // values that the scales explain have a finding already
            .filter(|weight| !self.explained(&weight.job, explained).not_finite)
            .collect();
        // the usual case: nothing is read twice
        if with_huge.is_empty() {
            return Ok(());
        }
        let jobs = with_huge.iter().map(|weight| weight.job.clone()).collect();
        let rest = self.pass(jobs, ValuePass::Rest, threads)?;
        for (weight, (_, values)) in with_huge.iter().zip(rest) {
            // it was decoded before: an error now is of a file that changes meanwhile, and not of the weight
            let Ok(values) = values else { continue };
            let found = self.looked_at(&weight.job, &weight.values, Explained::default());
            found.outlier(values.rest.std()).map_or(Ok(()), &mut *add)?;
        }
        Ok(())
    }

    /// Executes jobs; after a failure each of the incomplete ones alone, so that one that fails does not end the others.
    fn pass(
        &self,
        jobs: Vec<Job>,
        pass: ValuePass,
        threads: usize,
    ) -> Result<Vec<(Job, Result<OutputValues>)>> {
        let plan = Plan {
            jobs,
            ..Plan::default()
        };
        let (failed, mut found) = self.execute(&plan, pass, threads)?;
        // a run that failed before its first tile has counted nothing
        found.resize_with(plan.jobs.len(), OutputValues::default);
        let mut outcomes = Vec::with_capacity(plan.jobs.len());
        for (job, values) in plan.jobs.into_iter().zip(found) {
            // no tile completes an output without bytes
            let is_empty = job.output.nbytes() == Some(0);
            if values.complete || is_empty || !failed {
                outcomes.push((job, Ok(values)));
                continue;
            }
            let one = Plan {
                jobs: vec![job.clone()],
                ..Plan::default()
            };
            let mut sink = ValueSink::new(pass, threads);
            let run = self
                .executor(&one, threads)
                .run_with(self.control, &mut sink);
            // a run that was cancelled says nothing about the weight
            self.control.check()?;
            let values = run.and_then(|()| {
                let values = sink.into_found().pop();
                values.ok_or_else(|| Error::unsupported("the weight has no values"))
            });
            outcomes.push((job, values));
        }
        Ok(outcomes)
    }

    fn execute(
        &self,
        plan: &Plan,
        pass: ValuePass,
        threads: usize,
    ) -> Result<(bool, Vec<OutputValues>)> {
        let mut sink = ValueSink::new(pass, threads);
        let run = self
            .executor(plan, threads)
            .run_with(self.control, &mut sink);
        self.control.check()?;
        Ok((run.is_err(), sink.into_found()))
    }

    fn executor<'p>(&'p self, plan: &'p Plan, threads: usize) -> Executor<'p> {
        Executor::new(self.checkpoint, plan).threads(threads)
    }

    /// As many threads as there is memory for, within the limit.
    fn affordable_threads(&self, plan: &Plan) -> Result<(usize, TemporaryCharge<'_>)> {
        let mut threads = thread_count_for(self.threads, plan.nbytes()).max(1);
        loop {
            let of = |job: &Job| PercentileMemory::nbytes(&job.output, threads);
            let most = if self.statistics {
                plan.jobs.iter().map(of).max().unwrap_or(0)
            } else {
                0
            };
            match self.budget.temporary(most, WHAT) {
                Ok(charge) => return Ok((threads, charge)),
                Err(error) if threads == 1 => return Err(error),
                // a slow check is better than none
                Err(_) => threads /= 2,
            }
        }
    }

    /// Replaces the decoder of a tensor of blocks by one that looks at their scales.
    fn watch(&self, job: &mut Job) -> Watched {
        let JobWork::Tiles { decoder, .. } = &mut job.work else {
            return None;
        };
        let info = &self.checkpoint.catalog().tensors()[job.parts[0].tensor];
        let Encoding::Block(format) = info.encoding else {
            return None;
        };
        let counts = Arc::new(BlockCounts::default());
        let blocks = info.elements() / u64::from(format.block_len);
        let big = info.endian == Endian::Big;
        *decoder = Arc::new(WatchedBlocks::of(decoder, format, blocks, big, &counts)?);
        Some((counts, format))
    }

    /// A finding if the group index of a weight names a group that there is not: its decoder would refuse all of it.
    fn indices_in_range(&self, job: &Job) -> Result<Option<Finding>> {
        let tensors = self.checkpoint.catalog().tensors();
        let part = |role: &str| {
            let part = job.parts.iter().find(|part| part.role == role)?;
            Some((&tensors[part.tensor], part.tensor))
        };
        let (Some((index, row)), Some((scale, _))) = (part(GROUP_INDEX), part("scale")) else {
            return Ok(None);
        };
        let Encoding::Plain(dtype) = index.encoding else {
            return Ok(None);
        };
        // the groups are one of the two dimensions, by scheme; the larger bounds both
        let groups = if job.scheme.contains("gptq") || job.scheme.contains("round") {
            scale.shape.first()
        } else {
            scale.shape.iter().max()
        };
        let groups = groups.copied().unwrap_or(0) as f64;
        let (mut at, mut count, mut first) = (0, 0, None);
        let mut values = [0.0; 256];
        let read = self.checkpoint.tensor_at(row).chunks(|chunk| {
            // the width is 0 where elements share bytes
            for batch in chunk.chunks(256 * dtype.width().max(1)) {
                let made = &mut values[..batch.len() / dtype.width().max(1)];
                super::numbers::number_values(dtype, batch, made);
                for value in made {
                    // -1 states that there is no order
                    if *value >= groups || *value < -1.0 {
                        count += 1;
                        first.get_or_insert((at, *value));
                    }
                    at += 1;
                }
            }
            self.control.check()
        });
        if let Err(error) = read {
            self.control.check()?;
            return Ok(Some(undecodable(job, &error)));
        }
        Ok(first.map(|(number, value)| {
            let text = format!("{count} of {at} groups are not among the {groups}");
            let mut found = Finding::new(&check_rules::OUT_OF_RANGE, text).of_tensor(&index.name);
            found.value = Some(value);
            found.count(count).first(position(&index.shape, number))
        }))
    }
}

/// Whether a weight has an order of its groups.
fn has_group_index(job: &Job) -> bool {
    job.parts.iter().any(|part| part.role == GROUP_INDEX)
}

/// The finding for a weight that cannot be decoded.
pub(super) fn undecodable(job: &Job, error: &Error) -> Finding {
    refused(&job.output.name, error)
}

/// Like [`undecodable`], for a weight that has no job.
pub(super) fn refused(name: &str, error: &Error) -> Finding {
    let (rule, level) = match error.kind() {
        ErrorKind::Io(_) => (&check_rules::UNREADABLE, FindingLevel::Error),
        ErrorKind::Unexplained(_) => (&check_rules::UNEXPLAINED, FindingLevel::Error),
        ErrorKind::Malformed(_) => (&check_rules::UNDECODABLE, FindingLevel::Error),
        // valid, and not supported
        _ => (&check_rules::UNDECODABLE, FindingLevel::Note),
    };
    let mut found = Finding::new(rule, error.kind().to_string())
        .of_tensor(name)
        .level(level);
    found.offset = error.offset();
    found
}
