//! The sink that looks at values: each tile is counted in the buffer that it was decoded into, and dropped.
//!
//! Memory is needed for the percentiles. Tiles of an output are folded in their order, so that no sum depends on the number
//! of threads.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::base::kernel::{count_and_sum_f32, sum_f32};
use crate::base::sync::PoisonMutex;
use crate::engine::sink::Sink;
use crate::plan::TensorSpec;

use super::histogram::{BinForm, Distribution};
use super::numbers::{Numbers, number_values};
use super::percentile_memory::{PercentileBasis, PercentileMemory, out_of_memory};
use super::sample::{SampleRanks, Sampling};
use super::scan::{ScanForm, TileScan};
use super::statistics::{Percentiles, ValueMoments, ValueStatistics};

/// The aim of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValuePass {
    /// Values that cannot be right.
    Rules,
    /// That, and statistics.
    Statistics,
    /// The deviation of the values that are not close to the end of the dtype's range.
    Rest,
}

/// The findings about one output.
#[derive(Debug, Default)]
pub(super) struct OutputValues {
    pub(super) scan: TileScan,
    pub(super) statistics: Option<ValueStatistics>,
    /// Moments of the values that [`ValuePass::Rest`] counts.
    pub(super) rest: ValueMoments,
    pub(super) complete: bool,
}

/// A tile that was counted.
#[derive(Debug)]
struct TileValues {
    nbytes: u64,
    scan: TileScan,
    moments: ValueMoments,
    /// The sample's part of it, where values had to be converted.
    converted: Vec<u32>,
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
    /// The words of a large one, as F32, that its percentiles rest on.
    sample: Vec<u32>,
    /// Counts of a large one that would not fit 32 bits.
    totals: Option<Distribution>,
    found: OutputValues,
}

/// The fixed properties of an output.
#[derive(Debug)]
struct OutputForm {
    dtype: Dtype,
    form: Option<(ScanForm, u64)>,
    /// With [`ValuePass::Statistics`], of an output whose elements can be scanned.
    percentiles: Option<PercentileBasis>,
    nbytes: u64,
    elements: u64,
    /// Numbers of a row.
    row: u64,
}

/// Counts values. See the [module](self).
#[derive(Debug)]
pub(super) struct ValueSink {
    pass: ValuePass,
    forms: Vec<OutputForm>,
    states: Vec<PoisonMutex<OutputState>>,
    memory: PercentileMemory,
}

impl ValueSink {
    pub(super) fn new(pass: ValuePass, threads: usize) -> Self {
        Self {
            pass,
            forms: Vec::new(),
            states: Vec::new(),
            memory: PercentileMemory::new(threads),
        }
    }

    /// Memory that each output takes.
    pub(super) const PER_OUTPUT: u64 =
        (size_of::<OutputForm>() + size_of::<PoisonMutex<OutputState>>()) as u64;

    /// The findings, by output.
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

    /// Counts a tile. The state that all tiles of an output share is not touched.
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
            converted: Vec::new(),
        };
        let Some((scan_form, numbers)) = form.form else {
            return Ok(tile);
        };
        let element = start / form.dtype.width().max(1) as u64;
        let first = element * numbers;
        let numbers = (form.dtype, bytes);
        if self.pass == ValuePass::Rest {
            let limit = Numbers::huge(form.dtype);
            Numbers::each(numbers, &mut |values| {
                tile.moments.append(&sum_f32(values, limit).into());
            });
            return Ok(tile);
        }
        // F32 needs no conversion: values and sums are counted in one pass over the tile's own bytes
        if form.dtype == Dtype::F32 && matches!(form.percentiles, Some(PercentileBasis::Sample(_)))
        {
            let (counts, sums) = count_and_sum_f32(bytes);
            tile.moments = sums.into();
            tile.scan = TileScan::of_counted(scan_form, counts, bytes, first, form.row);
            return Ok(tile);
        }
        tile.scan = TileScan::of(scan_form, bytes, first, form.row);
        match form.percentiles {
            None | Some(PercentileBasis::Kept) => {}
            // moments follow from the counts
            Some(PercentileBasis::Counts(bins)) => self.count_in_bins(output, bins, bytes)?,
            Some(PercentileBasis::Sample(sampling)) => {
                let mut at = element;
                Numbers::each(numbers, &mut |values| {
                    let words = values.as_chunks::<4>().0;
                    tile.moments.append(&count_and_sum_f32(values).1.into());
                    sampling.append(at, words, &mut tile.converted);
                    at += words.len() as u64;
                });
            }
        }
        Ok(tile)
    }

    /// Counts a tile of 16-bit values.
    fn count_in_bins(&self, output: usize, bins: BinForm, bytes: &[u8]) -> Result<()> {
        let mut histogram = self.memory.histogram(output, bins)?;
        histogram.count_16(bytes);
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
        self.memory.put_back(output, histogram);
        Ok(())
    }

    /// Adds what the sample of a large output has of a tile.
    fn add_to_sample(
        &self,
        (form, sampling): (&OutputForm, Sampling),
        start: u64,
        (bytes, converted): (&[u8], &[u32]),
        sample: &mut Vec<u32>,
    ) -> Result<()> {
        // with the first tile, so that outputs which are not begun take no memory
        if sample.capacity() == 0 {
            *sample = self.memory.sample(sampling, form.elements)?;
        }
        // words of F32 have the sample's form; others were converted before the lock was taken
        if form.dtype == Dtype::F32 {
            let words = bytes.as_chunks::<4>().0;
            sampling.append(start / 4, words, sample);
        } else {
            sample.extend_from_slice(converted);
        }
        Ok(())
    }

    /// Statistics of an output that is complete.
    fn finish(&self, output: usize, form: &OutputForm, state: &mut OutputState) -> Result<()> {
        state.found.scan.finish(form.row);
        state.found.complete = true;
        state.found.rest = state.moments;
        let Some(basis) = form.percentiles else {
            return Ok(());
        };
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
            sampled: 0,
            bin_width: 0.0,
        };
        match basis {
            PercentileBasis::Kept => {
                let mut kept = std::mem::take(&mut state.kept);
                // they are counted apart, and have no rank
                kept.retain(|value| value.is_finite());
                ValueMoments::of_counts(kept.iter().map(|value| (*value, 1))).fill(&mut statistics);
                kept.sort_unstable_by(f64::total_cmp);
                statistics.sampled = kept.len() as u64;
                statistics.percentiles = Percentiles::of_sorted(&kept);
            }
            PercentileBasis::Counts(bins) => {
                let totals = state.totals.take();
                let distribution = self
                    .memory
                    .distribution(output, bins, totals)
                    .ok_or_else(out_of_memory)?;
                let moments = ValueMoments::of_counts(distribution.values());
                moments.fill(&mut statistics);
                statistics.sampled = moments.n;
                statistics.percentiles = Percentiles::of_counts(&distribution, moments.n);
            }
            PercentileBasis::Sample(_) => {
                let mut sample = std::mem::take(&mut state.sample);
                let ranks = SampleRanks::of(&sample).ok_or_else(out_of_memory)?;
                state.moments.fill(&mut statistics);
                statistics.sampled = ranks.finite();
                statistics.percentiles = Percentiles::of_sample(ranks, &mut sample);
                statistics.bin_width = Numbers::rounding(form.dtype);
                self.memory.put_back_sample(sample);
            }
        }
        state.found.statistics = Some(statistics);
        Ok(())
    }
}

impl Sink for ValueSink {
    fn begin(&mut self, outputs: &[TensorSpec]) -> Result<()> {
        self.forms = outputs
            .iter()
            .map(|output| {
                let elements = crate::read::catalog::elements(&output.shape).unwrap_or(u64::MAX);
                let form = ScanForm::of(output.dtype);
                let numbers = form.map_or(1, |(_, numbers)| numbers);
                OutputForm {
                    dtype: output.dtype,
                    form,
                    percentiles: (self.pass == ValuePass::Statistics && form.is_some())
                        .then(|| PercentileBasis::of(output.dtype, elements)),
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
        let mut tile = self.count(output, form, start, bytes)?;
        let mut state = self.states[output]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        // in the order of arrival: percentiles do not depend on it, only sums do
        match form.percentiles {
            None | Some(PercentileBasis::Counts(_)) => {}
            Some(PercentileBasis::Kept) => {
                let len = usize::try_from(form.elements).unwrap_or(0);
                state.kept.resize(len, f64::NAN);
                let first = start / form.dtype.width().max(1) as u64;
                let first = usize::try_from(first).unwrap_or(len).min(len);
                number_values(form.dtype, bytes, &mut state.kept[first..]);
            }
            Some(PercentileBasis::Sample(sampling)) => {
                let converted = std::mem::take(&mut tile.converted);
                let parts = (bytes, &converted[..]);
                self.add_to_sample((form, sampling), start, parts, &mut state.sample)?;
            }
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
