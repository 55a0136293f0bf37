//! Memory from which percentiles are found, for the threads of a pass: of 16-bit values a histogram for each tile that is being
//! counted and for each output that is begun and not complete, of others a sample for each such output.

use std::sync::PoisonError;

use crate::base::error::{Error, Result};
use crate::base::kernel::Dtype;
use crate::base::sync::PoisonMutex;
use crate::plan::TensorSpec;

use super::histogram::{BinForm, Distribution, Histogram};
use super::sample::{SampleRanks, Sampling};

/// Outputs of up to this many elements are kept until they are complete: their percentiles are exact in every dtype.
const KEPT: u64 = 32 << 10;

/// The basis of an output's percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PercentileBasis {
    /// All values, of a small one.
    Kept,
    /// Counts of all values.
    Counts(BinForm),
    /// Values as F32: all of them, or a sample.
    Sample(Sampling),
}

impl PercentileBasis {
    pub(super) fn of(dtype: Dtype, elements: u64) -> Self {
        match BinForm::of(dtype) {
            _ if elements <= KEPT => Self::Kept,
            Some(bins) => Self::Counts(bins),
            None => Self::Sample(Sampling::of(elements)),
        }
    }
}

/// Histograms and samples. See the [module](self).
#[derive(Debug)]
pub(super) struct PercentileMemory {
    threads: usize,
    /// Histograms that no thread uses, each with the output that it counts.
    histograms: PoisonMutex<Vec<(Option<usize>, Histogram)>>,
    /// Memory of samples that no output uses.
    samples: PoisonMutex<Vec<Vec<u32>>>,
}

impl PercentileMemory {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads,
            histograms: PoisonMutex::new(Vec::new()),
            samples: PoisonMutex::new(Vec::new()),
        }
    }

    /// Bytes of the histograms and samples that `threads` threads need for outputs like this one.
    pub(super) fn nbytes(output: &TensorSpec, threads: usize) -> u64 {
        let elements = crate::read::catalog::elements(&output.shape).unwrap_or(u64::MAX);
        let many = threads as u64;
        match PercentileBasis::of(output.dtype, elements) {
            PercentileBasis::Kept => KEPT * size_of::<f64>() as u64 * many,
            // while they are put together: one of 64-bit counts
            PercentileBasis::Counts(_) => {
                BinForm::NBYTES.saturating_mul(Self::most_histograms(threads) + 2)
            }
            PercentileBasis::Sample(sampling) => {
                let sample = sampling.most(elements) * size_of::<u32>() as u64;
                let converted = if output.dtype == Dtype::F32 { 0 } else { many };
                (sample + SampleRanks::NBYTES).saturating_mul(many + 1 + converted)
            }
        }
    }

    /// One per thread, and one per output that is begun; two idle ones of one output are put together before there are more.
    fn most_histograms(threads: usize) -> u64 {
        match threads {
            0 | 1 => 1,
            many => 2 * many as u64 + 2,
        }
    }

    /// A histogram of this output, for one thread.
    pub(super) fn histogram(&self, output: usize, form: BinForm) -> Result<Histogram> {
        let mut idle = self
            .histograms
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let of = |wanted: Option<usize>, idle: &[(Option<usize>, Histogram)]| {
            idle.iter()
                .position(|(of, histogram)| *of == wanted && histogram.form == form)
        };
        // one of the same output first: its counts are joined without work
        if let Some(at) = of(Some(output), &idle).or_else(|| of(None, &idle)) {
            return Ok(idle.swap_remove(at).1);
        }
        if idle.len() as u64 >= Self::most_histograms(self.threads) / 2
            // under the lock: rare, and cheaper than another 256 KiB
            && let Some(freed) = put_two_together(&mut idle, form)
        {
            return Ok(freed);
        }
        // before the allocation, for which no other thread has to wait
        drop(idle);
        Histogram::new(form).ok_or_else(out_of_memory)
    }

    pub(super) fn put_back(&self, output: usize, histogram: Histogram) {
        let mut idle = self
            .histograms
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        idle.push((Some(output), histogram));
    }

    /// Memory for a sample of an output.
    pub(super) fn sample(&self, sampling: Sampling, elements: u64) -> Result<Vec<u32>> {
        let idle = &self.samples;
        let idle = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut sample = idle.unwrap_or_default();
        let most = usize::try_from(sampling.most(elements));
        // fallible: memory that is not there must not end the process
        match sample.try_reserve_exact(most.unwrap_or(usize::MAX)) {
            Ok(()) => Ok(sample),
            Err(_) => Err(out_of_memory()),
        }
    }

    /// All histograms of a complete output, as one distribution. They are empty afterwards.
    pub(super) fn distribution(
        &self,
        output: usize,
        form: BinForm,
        totals: Option<Distribution>,
    ) -> Option<Distribution> {
        let mut distribution = match totals {
            Some(totals) => totals,
            None => Distribution::new(form)?,
        };
        let mut idle = self
            .histograms
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (of, histogram) in idle.iter_mut().filter(|(of, _)| *of == Some(output)) {
            histogram.add_to(distribution.totals());
            histogram.clear();
            *of = None;
        }
        Some(distribution)
    }

    /// Takes the memory of a sample that is not needed any more.
    pub(super) fn put_back_sample(&self, mut sample: Vec<u32>) {
        sample.clear();
        let mut idle = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(sample);
    }
}

#[cold]
pub(super) fn out_of_memory() -> Error {
    Error::from(std::io::Error::from(std::io::ErrorKind::OutOfMemory))
}

/// Adds one idle histogram to another of the same output, and returns it empty.
fn put_two_together(
    idle: &mut Vec<(Option<usize>, Histogram)>,
    form: BinForm,
) -> Option<Histogram> {
    let of_form = |row: usize| idle[row].1.form == form;
    let pair = (0..idle.len())
        .filter(|row| of_form(*row))
        .find_map(|first| {
            let second = (first + 1..idle.len())
                .find(|second| of_form(*second) && idle[*second].0 == idle[first].0)?;
            Some((first, second))
        });
    let (first, second) = pair?;
    // `first` is in front of `second`, and keeps its place
    let (_, mut freed) = idle.swap_remove(second);
    idle[first].1.join(&freed);
    freed.clear();
    Some(freed)
}
