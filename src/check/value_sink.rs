//! The sink that looks at values: each tile is counted in the buffer that it was decoded into, and dropped.
//!
//! Memory is what one tile needs per thread: a histogram for each tile that is being counted and for each output that is begun
//! and not complete. Tiles of an output are folded in their order, so that no sum depends on the number of threads.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use crate::Dtype;
use crate::error::{Error, Result};
use crate::kernel::sum_f32;
use crate::plan::TensorSpec;
use crate::sink::Sink;
use crate::sync::PoisonMutex;

use super::histogram::{BinForm, Distribution, Histogram};
use super::numbers::{Numbers, number_values};
use super::scan::{ScanForm, TileScan};
use super::statistics::{Percentiles, ValueMoments, ValueStatistics, fill_counted};

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValuePass {
    /// What cannot be right.
    Rules,
    /// That, and statistics.
    Statistics,
    /// The deviation of the values that are not close to the end of the dtype's range.
    Rest,
}

/// Outputs of up to this many elements are kept until they are complete: their percentiles are exact in every dtype.
pub(super) const KEPT: u64 = 32 << 10;

/// What was found out about one output.
#[derive(Debug, Default)]
pub(super) struct OutputValues {
    pub(super) scan: TileScan,
    pub(super) statistics: Option<ValueStatistics>,
    /// Of the values that [`ValuePass::Rest`] counts.
    pub(super) rest: ValueMoments,
    pub(super) complete: bool,
}

/// A tile that was counted.
#[derive(Debug)]
struct TileValues {
    nbytes: u64,
    scan: TileScan,
    moments: ValueMoments,
}

/// An output of which tiles have arrived.
#[derive(Debug, Default)]
struct OutputState {
    /// Bytes that are folded into `found`, from the first on.
    folded: u64,
    /// Tiles behind one that has not arrived, by their first byte.
    waiting: BTreeMap<u64, TileValues>,
    moments: ValueMoments,
    /// Values of a small output.
    kept: Vec<f64>,
    /// Counts of a large one that would not fit 32 bits.
    totals: Option<Distribution>,
    found: OutputValues,
}

/// What is fixed about an output.
#[derive(Debug)]
struct OutputForm {
    dtype: Dtype,
    form: Option<(ScanForm, u64)>,
    nbytes: u64,
    elements: u64,
    /// Numbers of a row.
    row: u64,
}

/// Counts values. See the [module](self).
#[derive(Debug)]
pub(super) struct ValueSink {
    pass: ValuePass,
    threads: usize,
    forms: Vec<OutputForm>,
    states: Vec<PoisonMutex<OutputState>>,
    /// Histograms that no thread uses, each with the output that it counts.
    idle: PoisonMutex<Vec<(Option<usize>, Histogram)>>,
}

impl ValueSink {
    pub(super) fn new(pass: ValuePass, threads: usize) -> Self {
        Self {
            pass,
            threads,
            forms: Vec::new(),
            states: Vec::new(),
            idle: PoisonMutex::new(Vec::new()),
        }
    }

    /// Memory that each output takes.
    pub(super) const PER_OUTPUT: u64 =
        (size_of::<OutputForm>() + size_of::<PoisonMutex<OutputState>>()) as u64;

    /// Bytes of the histograms that `threads` threads need for outputs like this one.
    pub(super) fn histograms(output: &TensorSpec, threads: usize) -> u64 {
        let elements = crate::catalog::elements(&output.shape).unwrap_or(u64::MAX);
        if elements <= KEPT {
            return KEPT * size_of::<f64>() as u64 * threads as u64;
        }
        // while they are put together: one of 64-bit counts
        let form = BinForm::of(output.dtype);
        form.nbytes()
            .saturating_mul(Self::most_histograms(threads) + 2)
    }

    /// One per thread, and one per output that is begun; two idle ones of one output are put together before there are more.
    fn most_histograms(threads: usize) -> u64 {
        match threads {
            0 | 1 => 1,
            many => 2 * many as u64 + 2,
        }
    }

    /// What was found, by output.
    pub(super) fn into_found(self) -> Vec<OutputValues> {
        let states = self.states.into_iter();
        states
            .map(|state| {
                state
                    .into_inner()
                    .unwrap_or_else(PoisonError::into_inner)
                    .found
            })
            .collect()
    }

    /// A histogram of this output, for one thread.
    fn histogram(&self, output: usize, form: BinForm) -> Result<Histogram> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |wanted: Option<usize>, idle: &[(Option<usize>, Histogram)]| {
            idle.iter()
                .position(|(of, histogram)| *of == wanted && histogram.form == form)
        };
        if let Some(at) = of(Some(output), &idle).or_else(|| of(None, &idle)) {
            return Ok(idle.swap_remove(at).1);
        }
        if idle.len() as u64 >= Self::most_histograms(self.threads) / 2
            && let Some(freed) = put_two_together(&mut idle, form)
        {
            return Ok(freed);
        }
        drop(idle);
        Histogram::new(form).ok_or_else(out_of_memory)
    }

    fn put_back(&self, output: usize, histogram: Histogram) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push((Some(output), histogram));
    }

    /// All histograms of a complete output, as one distribution. They are empty afterwards.
    fn distribution(
        &self,
        output: usize,
        form: BinForm,
        totals: Option<Distribution>,
    ) -> Option<Distribution> {
        let mut distribution = match totals {
            Some(totals) => totals,
            None => Distribution::new(form)?,
        };
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        for (of, histogram) in idle.iter_mut().filter(|(of, _)| *of == Some(output)) {
            histogram.add_to(distribution.totals());
            histogram.clear();
            *of = None;
        }
        Some(distribution)
    }

    /// Counts a tile. What is common to all tiles of an output is not touched.
    fn count(
        &self,
        output: usize,
        form: &OutputForm,
        start: u64,
        bytes: &[u8],
    ) -> Result<TileValues> {
        let mut tile = TileValues {
            nbytes: bytes.len() as u64,
            scan: TileScan::default(),
            moments: ValueMoments::default(),
        };
        let Some((scan_form, numbers)) = form.form else {
            return Ok(tile);
        };
        if self.pass != ValuePass::Rest {
            let width = form.dtype.width().max(1) as u64;
            let first = start / width * numbers;
            tile.scan = TileScan::of(scan_form, bytes, first, form.row);
        }
        let numbers = (form.dtype, bytes);
        match self.pass {
            ValuePass::Rules => {}
            // 16-bit values get their moments from the histogram
            ValuePass::Statistics if form.elements <= KEPT => {}
            ValuePass::Statistics => {
                let bins = BinForm::of(form.dtype);
                let mut histogram = self.histogram(output, bins)?;
                if bins.is_exact() {
                    histogram.count_16(bytes);
                } else {
                    Numbers::each(numbers, &mut |values| {
                        histogram.count_32(values);
                        let sums = sum_f32(values, f32::INFINITY);
                        tile.moments.append(&sums.into());
                    });
                }
                if histogram.room() < u64::from(u32::MAX) / 2 {
                    // before a count of 32 bits overflows
                    let mut state = self.states[output]
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    let totals = match state.totals.take() {
                        Some(totals) => Some(totals),
                        None => Distribution::new(bins),
                    };
                    let totals = state.totals.insert(totals.ok_or_else(out_of_memory)?);
                    histogram.add_to(totals.totals());
                    histogram.clear();
                }
                self.put_back(output, histogram);
            }
            ValuePass::Rest => {
                let limit = Numbers::huge(form.dtype);
                Numbers::each(numbers, &mut |values| {
                    tile.moments.append(&sum_f32(values, limit).into());
                });
            }
        }
        Ok(tile)
    }

    /// Statistics of an output that is complete.
    fn finish(&self, output: usize, form: &OutputForm, state: &mut OutputState) -> Result<()> {
        state.found.scan.finish(form.row);
        state.found.complete = true;
        state.found.rest = state.moments;
        if self.pass != ValuePass::Statistics || form.form.is_none() {
            return Ok(());
        }
        let scan = &state.found.scan;
        let mut statistics = ValueStatistics {
            elements: form.elements,
            nan: scan.nan,
            inf: scan.inf,
            denormal: scan.denormal,
            zeros: scan.zeros,
            min: None,
            max: None,
            mean: None,
            std: None,
            abs_max: None,
            percentiles: None,
            bin_width: 0.0,
        };
        if form.elements <= KEPT {
            let mut kept = std::mem::take(&mut state.kept);
            kept.retain(|value| value.is_finite());
            ValueMoments::of_counts(kept.iter().map(|value| (*value, 1))).fill(&mut statistics);
            kept.sort_unstable_by(f64::total_cmp);
            statistics.percentiles = Percentiles::of_sorted(&kept);
        } else {
            let bins = BinForm::of(form.dtype);
            let totals = state.totals.take();
            let distribution = self
                .distribution(output, bins, totals)
                .ok_or_else(out_of_memory)?;
            let moments = if bins.is_exact() {
                ValueMoments::of_counts(distribution.values())
            } else {
                state.moments
            };
            fill_counted(&mut statistics, bins, &distribution, &moments);
        }
        state.found.statistics = Some(statistics);
        Ok(())
    }
}

#[cold]
fn out_of_memory() -> Error {
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
    let (_, mut freed) = idle.swap_remove(second);
    idle[first].1.join(&freed);
    freed.clear();
    Some(freed)
}

impl Sink for ValueSink {
    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()> {
        self.forms = outputs
            .iter()
            .map(|output| {
                let elements = crate::catalog::elements(&output.shape).unwrap_or(u64::MAX);
                let form = ScanForm::of(output.dtype);
                let numbers = form.map_or(1, |(_, numbers)| numbers);
                OutputForm {
                    dtype: output.dtype,
                    form,
                    nbytes: output.nbytes().unwrap_or(u64::MAX),
                    elements,
                    // an output of one dimension has no rows
                    row: match &output.shape[..] {
                        [.., _, row] => row.saturating_mul(numbers).max(1),
                        _ => u64::MAX,
                    },
                }
            })
            .collect();
        self.states = outputs.iter().map(|_| PoisonMutex::default()).collect();
        Ok(())
    }

    fn put(&self, output: usize, start: u64, bytes: &[u8]) -> Result<()> {
        let form = &self.forms[output];
        let tile = self.count(output, form, start, bytes)?;
        let mut state = self.states[output]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        if self.pass == ValuePass::Statistics && form.elements <= KEPT && form.form.is_some() {
            let len = usize::try_from(form.elements).unwrap_or(0);
            state.kept.resize(len, f64::NAN);
            let first = usize::try_from(start / form.dtype.width().max(1) as u64).unwrap_or(len);
            number_values(form.dtype, bytes, &mut state.kept[first.min(len)..]);
        }
        state.waiting.insert(start, tile);
        while let Some(tile) = state.waiting.remove(&state.folded) {
            state.found.scan.fold(&tile.scan, form.row);
            state.moments.append(&tile.moments);
            state.folded += tile.nbytes;
        }
        if state.folded == form.nbytes {
            self.finish(output, form, state)?;
        }
        Ok(())
    }
}
