//! Which jobs of a plan run, and in which order: outputs that are stored in a file as they are may be copied from there, and a sink
//! may need the others in an order of its own.

use crate::base::error::{Error, Result};
use crate::base::progress::RunProgress;
use crate::base::threads::thread_count_for;
use crate::engine::sink::{ReorderedSink, Sink, StoredOutput};
use crate::plan::{Job, Plan};
use crate::read::run_options::RunOptions;

use super::Executor;

impl Executor<'_> {
    /// Makes every output.
    pub(super) fn run_all(&self, sink: &mut dyn Sink, progress: &RunProgress<'_>) -> Result<()> {
        let jobs = self.plan.jobs.len();
        if let Some(order) = sink.order() {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..jobs) {
                return Err(Error::invalid_argument(
                    "the order of the sink does not have each output once",
                ));
            }
            // memory takes outputs in any order
            if order.is_sorted() || sink.output_memory().is_some() {
                return self.run_jobs(sink, progress);
            }
            return self.run_some(&order, sink, progress);
        }
        let copied = self.copy_stored(sink, progress)?;
        if copied.is_empty() {
            return self.run_jobs(sink, progress);
        }
        let mut copied = copied.into_iter().peekable();
        let rest: Vec<usize> = (0..jobs)
            .filter(|job| copied.next_if_eq(job).is_none())
            .collect();
        match rest.is_empty() {
            true => Ok(()),
            false => self.run_some(&rest, sink, progress),
        }
    }

    /// Runs these jobs, in this order.
    fn run_some(
        &self,
        order: &[usize],
        sink: &mut dyn Sink,
        progress: &RunProgress<'_>,
    ) -> Result<()> {
        // a second list of jobs; their decoders are shared
        let jobs = order.iter().map(|job| self.plan.jobs[*job].clone());
        let plan = Plan {
            jobs: jobs.collect(),
            ..Plan::default()
        };
        let some = Executor {
            plan: &plan,
            checkpoint: self.checkpoint,
            loader: self.loader.clone(),
            // `progress` reports and cancels for both
            options: RunOptions {
                threads: self.options.threads,
                ..RunOptions::default()
            },
        };
        some.run_jobs(&mut ReorderedSink { sink, order }, progress)
    }

    /// Lets the sink copy what it can copy, and returns the numbers of these outputs, ascending. A loader that was set reads
    /// everything itself.
    fn copy_stored(&self, sink: &dyn Sink, progress: &RunProgress<'_>) -> Result<Vec<usize>> {
        let Some(copies) = sink.copies().filter(|_| self.loader.is_none()) else {
            return Ok(Vec::new());
        };
        let jobs = self.plan.jobs.iter().enumerate();
        let stored: Vec<_> = jobs
            .filter_map(|(output, job)| self.stored(output, job))
            .collect();
        if !stored.is_empty() {
            let bytes = stored.iter().map(|output| output.len).sum();
            let threads = thread_count_for(self.options.threads, bytes);
            copies.copy(&stored, threads, &|bytes| progress.add(bytes))?;
        }
        Ok(stored.iter().map(|output| output.output).collect())
    }

    /// An output that is a range of a file. Memory that a source holds is stored from there, and a source without a file is read as its own
    /// kind of reads allows.
    #[cfg(unix)]
    fn stored(&self, output: usize, job: &Job) -> Option<StoredOutput<'_>> {
        let range = job.copied(self.checkpoint.catalog())?;
        let source = self.checkpoint.source(range.file);
        let is_file = source.in_memory().is_none() && source.as_fd().is_some();
        is_file.then(|| StoredOutput {
            output,
            source,
            path: self.checkpoint.catalog().files[range.file as usize]
                .path
                .as_deref(),
            start: range.start,
            len: range.len,
        })
    }

    #[cfg(not(unix))]
    #[expect(clippy::unused_self, reason = "as on Unix")]
    fn stored(&self, _: usize, _: &Job) -> Option<StoredOutput<'_>> {
        None
    }
}
