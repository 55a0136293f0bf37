//! Rules about the values of a weight, applied to what was counted in them.

use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::models::names::{is_of_stacked_experts, is_router, is_token_matrix};
use crate::plan::{Job, PLAIN};
use crate::read::catalog::{Encoding, TensorInfo};

use super::check_rules;
use super::level::FindingLevel;
use super::numbers::number_values;
use super::places::position;
use super::report::Finding;
use super::scan::{ScanForm, TileScan};

/// Bytes of zeros in one run that a hole in a download leaves: pages of the file system and blocks of a transfer have as many.
const HOLE: u64 = 4 << 10;

/// The facts about a weight that the rules know.
pub(super) struct LookedAt<'p> {
    pub(super) job: &'p Job,
    /// The stored tensor with its codes.
    pub(super) stored: &'p TensorInfo,
    pub(super) scan: &'p TileScan,
    pub(super) explained: Explained,
}

/// The values that the scales of a weight, which have findings of their own, explain.
#[derive(Clone, Copy, Default)]
pub(super) struct Explained {
    /// Values that are not finite.
    pub(super) not_finite: bool,
    /// Zeros.
    pub(super) zero: bool,
}

/// Whether this is the biases of all experts of a layer, one row for each.
fn is_of_biases(name: &str) -> bool {
    name.ends_with("bias") && is_of_stacked_experts(name)
}

impl LookedAt<'_> {
    /// All findings except `outlier`, which needs the deviation of the other values.
    pub(super) fn findings(&self, add: &mut dyn FnMut(Finding) -> Result<()>) -> Result<()> {
        let Some((form, numbers)) = ScanForm::of(self.job.output.dtype) else {
            return Ok(());
        };
        let ScanForm::Float(_) = form else {
            return Ok(());
        };
        let scan = self.scan;
        let name = &*self.job.output.name;
        let is_scale = name
            .rsplit('.')
            .next()
            .is_some_and(|last| last.contains("scale"));
        for (count, first, rule, scale) in [
            (
                scan.nan,
                scan.first_nan,
                &check_rules::NAN,
                &check_rules::SCALE_NAN,
            ),
            (
                scan.inf,
                scan.first_inf,
                &check_rules::INF,
                &check_rules::SCALE_INF,
            ),
        ] {
            // a scale that is no number makes all of its weights so, and has the finding
            if count == 0 || self.explained.not_finite {
                continue;
            }
            let rule = if is_scale { scale } else { rule };
            let text = format!("{count} of {} values", scan.numbers);
            let found = Finding::new(rule, text).of_tensor(name).count(count);
            let shape = &self.job.output.shape;
            add(found.first(position(shape, first.unwrap_or(0) / numbers)))?;
        }
        // one value is always constant
        if scan.numbers < 2 {
            return Ok(());
        }
        if !scan.varies || scan.zeros == scan.numbers {
            return self.equal(is_scale, add);
        }
        // small numbers are usual in F16 and in scaled codes
        if scan.denormal > 0
            && matches!(
                self.stored.encoding,
                Encoding::Plain(Dtype::BF16 | Dtype::F32)
            )
        {
            let text = format!("{} of {} values", scan.denormal, scan.numbers);
            let found = Finding::new(&check_rules::DENORMAL, text).of_tensor(name);
            add(found.count(scan.denormal))?;
        }
        self.zero_rows(add)
    }

    /// All values are equal.
    fn equal(&self, is_scale: bool, add: &mut dyn FnMut(Finding) -> Result<()>) -> Result<()> {
        let (scan, output) = (self.scan, &self.job.output);
        // values that are no numbers have findings of their own, and equal scales are usual
        if scan.nan > 0 || scan.inf > 0 || is_scale {
            return Ok(());
        }
        // norms of ones, biases of zeros
        let sides = output.shape.iter().filter(|size| **size > 1).count();
        let usual = sides < 2 || (sides == 2 && is_of_biases(&output.name));
        let level = if usual {
            FindingLevel::Note
        } else {
            FindingLevel::Warning
        };
        let value = first_value(output.dtype, scan.first_bits);
        let found = if scan.zeros == scan.numbers {
            if self.explained.zero {
                return Ok(());
            }
            Finding::new(
                &check_rules::ZERO,
                format!("all {} values are zero", scan.numbers),
            )
        } else {
            let text = format!("all {} values are {value}", scan.numbers);
            let mut found = Finding::new(&check_rules::CONSTANT, text);
            found.value = Some(value);
            found
        };
        add(found.of_tensor(&output.name).level(level))
    }

    /// A run of rows that is long, or a large part of a small tensor.
    fn zero_rows(&self, add: &mut dyn FnMut(Finding) -> Result<()>) -> Result<()> {
        let zeros = &self.scan.rows;
        let (Some([first, behind]), [leading @ .., columns]) =
            (zeros.longest, &self.job.output.shape[..])
        else {
            return Ok(());
        };
        let rows = leading
            .iter()
            .fold(1u64, |all, size| all.saturating_mul(*size));
        let run = behind - first;
        // stored bytes: a hole is one of the file
        let nbytes = self.stored.nbytes() / rows.max(1) * run;
        // a small tensor has fewer bytes than a hole
        let large_part = run >= 4 && run.saturating_mul(16) >= rows;
        if self.explained.zero || (nbytes < HOLE && !large_part) {
            return Ok(());
        }
        let name = &*self.job.output.name;
        // vocabularies are filled up with rows of zeros behind the last token
        let padding = behind == rows && is_token_matrix(name);
        let level = if padding || is_router(name) || is_of_biases(name) {
            FindingLevel::Note
        } else {
            FindingLevel::Warning
        };
        let more = if zeros.rows > run {
            format!(", and {} other rows", zeros.rows - run)
        } else {
            String::new()
        };
        let text = format!("rows {first}..{behind} of {rows}, {nbytes} bytes{more}");
        let mut found = Finding::new(&check_rules::ZERO_ROWS, text).of_tensor(name);
        found.rows = Some([first, behind]);
        // the rows of a dequantised weight are not rows of its stored bytes
        if self.job.scheme == PLAIN {
            let item = self.stored.encoding.item_bytes().unwrap_or(0);
            let start = first.saturating_mul(*columns).saturating_mul(item);
            found.offset = self.stored.bytes.start.checked_add(start);
        }
        add(found.count(zeros.rows).level(level))
    }

    /// A magnitude beyond 10 000 standard deviations of the values that are not close to the end of the range.
    pub(super) fn outlier(&self, std: Option<f64>) -> Option<Finding> {
        let scan = self.scan;
        let (_, numbers) = ScanForm::of(self.job.output.dtype)?;
        let (first, std) = (scan.first_huge?, std?);
        // where `huge` begins: a quarter of the range
        let range = match self.job.output.dtype {
            Dtype::F16 | Dtype::C32 => 16_384.0,
            _ => 2f64.powi(126),
        };
        // if half of the values are as large, none of them stands out
        if range <= 1e4 * std || scan.huge >= scan.numbers / 2 {
            return None;
        }
        let text = format!(
            "{} of {} values are above a quarter of the range of {}; the deviation of the others is {std:.3e}",
            scan.huge, scan.numbers, self.job.output.dtype
        );
        let found = Finding::new(&check_rules::OUTLIER, text).of_tensor(&self.job.output.name);
        Some(
            found
                .count(scan.huge)
                .first(position(&self.job.output.shape, first / numbers)),
        )
    }
}

/// The number with these bits.
fn first_value(dtype: Dtype, bits: u64) -> f64 {
    let mut value = [f64::NAN];
    let bytes = bits.to_le_bytes();
    number_values(dtype, &bytes[..dtype.width().clamp(1, 8)], &mut value);
    value[0]
}
