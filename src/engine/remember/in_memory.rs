//! Outputs in memory: one, all, or the outputs of a plan, in a `Vec` each or in a pool's buffers.

use std::ops::ControlFlow;

use zeropool::{Buffer, BufferPool};

use super::Remember;
use crate::base::error::{Error, Result};
use crate::base::limits::{over, zeroed};
use crate::base::progress::RunProgress;
use crate::engine::load::get_buffer;
use crate::engine::sink::MemorySink;
use crate::plan::{Plan, TensorSpec};
use crate::read::catalog::quote;

/// One weight in memory: in a `Vec`, or in a pool's buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered<B = Vec<u8>> {
    /// Its name, shape and dtype.
    pub spec: TensorSpec,
    /// Its elements in C order, little endian.
    pub bytes: B,
}

impl Remember<'_> {
    /// One weight, or one plain tensor.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run), and one if there is no output of this name.
    pub fn tensor(&self, name: &str) -> Result<Remembered> {
        let wanted = name.to_owned();
        // the filter replaces the caller's: a name that was given explicitly is made even if a filter excludes it
        let mut all = self.clone().filter(move |found| *found == *wanted).all()?;
        all.pop().ok_or_else(|| Error::not_found("weight", name))
    }

    /// One weight, or one plain tensor, decoded straight into a buffer of exactly its length in bytes.
    ///
    /// # Errors
    /// The errors of [`tensor`](Self::tensor), and one if the buffer has another length.
    pub fn tensor_into(&self, name: &str, out: &mut [u8]) -> Result<()> {
        let wanted = name.to_owned();
        let one = self.clone().filter(move |found| *found == *wanted);
        let plan = one.plan()?;
        // a refused weight exists, and its refusal is the better error
        if plan.jobs.is_empty() && plan.refused.is_empty() {
            return Err(Error::not_found("weight", name));
        }
        one.run(&plan, &mut MemorySink::new(vec![out]))
    }

    /// All weights and plain tensors, in memory.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run), and one if an output is longer than
    /// [`Limits::tensor_bytes`](crate::Limits::tensor_bytes).
    pub fn all(&self) -> Result<Vec<Remembered>> {
        self.run_into_memory(&self.plan()?, |output, _| {
            zeroed(self.bounded_len(output)?).ok_or_else(|| self.over(output))
        })
    }

    /// All weights and plain tensors, in buffers of a pool. Memory that the pool reuses needs no page faults, which take
    /// most of the time of filling a new `Vec`.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, remember};
    ///
    /// let pool = anamnesis::pool::BufferPool::new();
    /// let checkpoint = Checkpoint::open("fixtures/gguf/types/q4_k.gguf")?;
    /// for weight in remember(&checkpoint).all_in(&pool)? {
    ///     println!("{}: {} bytes", weight.spec, weight.bytes.len());
    /// }
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`all`](Self::all), and one if the pool's budget does not hold them: buffers that are in use elsewhere
    /// are waited for, up to 5 seconds for each output.
    pub fn all_in(&self, pool: &BufferPool) -> Result<Vec<Remembered<Buffer>>> {
        self.planned_in(&self.plan()?, pool)
    }

    /// The outputs of a plan of [`plan`](Self::plan), of which jobs may have been left out, in buffers of a pool. For callers that
    /// make outputs one by one: planning costs as much for one of them as for all.
    ///
    /// ```
    /// use anamnesis::plan::Plan;
    /// use anamnesis::{Checkpoint, remember};
    ///
    /// let pool = anamnesis::pool::BufferPool::new();
    /// let checkpoint = Checkpoint::open("fixtures/gguf/types/q4_k.gguf")?;
    /// let remember = remember(&checkpoint);
    /// let plan = remember.plan()?;
    /// plan.check()?;
    /// for job in plan.jobs {
    ///     let one = Plan { jobs: vec![job], ..Plan::default() };
    ///     for weight in remember.planned_in(&one, &pool)? {
    ///         println!("{}: {} bytes", weight.spec, weight.bytes.len());
    ///     }
    /// }
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`all_in`](Self::all_in).
    pub fn planned_in(&self, plan: &Plan, pool: &BufferPool) -> Result<Vec<Remembered<Buffer>>> {
        self.run_into_memory(plan, |output, flow| {
            get_buffer(pool, self.bounded_len(output)? as u64, flow)
        })
    }

    /// The outputs of a plan, in memory that `allocate` returns for each. Its second argument checks for cancellation.
    fn run_into_memory<B: AsMut<[u8]>>(
        &self,
        plan: &Plan,
        allocate: impl Fn(&TensorSpec, &mut dyn FnMut() -> ControlFlow<()>) -> Result<B>,
    ) -> Result<Vec<Remembered<B>>> {
        plan.check()?;
        // only for cancellation while buffers are waited for; the run below has its own progress
        let waiting = RunProgress::new(plan.nbytes(), &self.options.control);
        let output = |spec: TensorSpec| {
            Ok(Remembered {
                bytes: allocate(&spec, &mut || waiting.flow())?,
                spec,
            })
        };
        let mut all = plan
            .jobs
            .iter()
            .map(|job| output(job.output.clone()))
            .collect::<Result<Vec<_>>>()?;
        // all outputs exist before the run: workers decode into them in any order
        let buffers = all.iter_mut().map(|one| one.bytes.as_mut()).collect();
        self.run(plan, &mut MemorySink::new(buffers))?;
        Ok(all)
    }

    /// The length of an output, within the limits.
    fn bounded_len(&self, output: &TensorSpec) -> Result<usize> {
        let allowed = self.checkpoint.limits().tensor_bytes;
        let len = output
            .nbytes()
            // per output: the limit holds for one tensor, not for their sum
            .filter(|len| *len <= allowed)
            .and_then(|len| usize::try_from(len).ok());
        len.ok_or_else(|| self.over(output))
    }

    #[cold]
    fn over(&self, output: &TensorSpec) -> Error {
        let (needed, allowed) = (
            output.nbytes().unwrap_or(u64::MAX),
            self.checkpoint.limits().tensor_bytes,
        );
        let what = format!("weight {}", quote(&output.name));
        over(needed, allowed, what, "tensor_bytes")
    }
}
