//! The number of parameters of a model, and the label that says it.

use crate::base::error::{Error, Result};

/// Elements of the tensors of the output, by kind.
///
/// Source: gguf-py `gguf_writer.py` (`get_total_parameter_count`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParameterCounts {
    /// The elements of all tensors.
    pub(crate) total: u64,
    /// The elements of the tensors that every token uses.
    pub(crate) shared: u64,
    /// The elements of one expert, over all layers.
    pub(crate) expert: u64,
    /// Experts of a layer; where layers differ, their mean.
    pub(crate) experts: u64,
}

impl ParameterCounts {
    /// The counts of tensors under their names in the output, with their sizes, outermost first. A tensor that the output has in a
    /// quantised type counts its elements, not its blocks.
    ///
    /// # Errors
    /// If the elements do not fit a number of 64 bits, or a tensor of experts has none.
    pub(crate) fn of<'t>(tensors: impl Iterator<Item = (&'t str, &'t [u64])>) -> Result<Self> {
        let mut counts = Self::default();
        let (mut experts, mut with_experts) = (0, 0);
        for (name, sizes) in tensors {
            counts
                .add(name, sizes, &mut experts, &mut with_experts)
                .ok_or_else(|| {
                    let what = "the number of its elements or experts is 0 or above 64 bits";
                    Error::malformed(what).context(name)
                })?;
        }
        counts.experts = experts.checked_div(with_experts).unwrap_or(0);
        Ok(counts)
    }

    fn add(
        &mut self,
        name: &str,
        sizes: &[u64],
        experts: &mut u64,
        with_experts: &mut u64,
    ) -> Option<()> {
        let mut all = sizes.iter();
        let elements = all.try_fold(1_u64, |product, size| product.checked_mul(*size))?;
        self.total = self.total.checked_add(elements)?;
        // a bias has a row for each expert, a weight a matrix
        let axis = if name.contains(".bias") { 2 } else { 3 };
        if !name.contains("_exps.") || sizes.len() < 3 {
            self.shared = self.shared.checked_add(elements)?;
            return Some(());
        }
        let count = sizes[sizes.len() - axis];
        self.expert = self.expert.checked_add(elements.checked_div(count)?)?;
        *experts = experts.checked_add(count)?;
        *with_experts += 1;
        Some(())
    }

    /// The label of a size, such as `7.2B` or `8x1.3B`; `None` without parameters.
    ///
    /// Source: gguf-py `utility.py` (`size_label`, `model_weight_count_rounded_notation`).
    pub(super) fn size_label(&self) -> Option<String> {
        match (self.total, self.experts) {
            (0, _) => None,
            (total, 0) => Some(rounded(total)),
            (_, experts) => {
                let one = rounded(self.shared.saturating_add(self.expert));
                Some(format!("{experts}x{one}"))
            }
        }
    }
}

/// A number in thousands, millions, billions or trillions, with two digits at least.
fn rounded(count: u64) -> String {
    // the factors are the reference's: a division would round some numbers to other digits
    let (factor, suffix) = match count {
        1_000_000_000_001.. => (1e-12, 'T'),
        1_000_000_001.. => (1e-9, 'B'),
        1_000_001.. => (1e-6, 'M'),
        _ => (1e-3, 'K'),
    };
    let scaled = count as f64 * factor;
    let whole = format!("{scaled:.0}");
    let digits = whole.trim_start_matches('0').len();
    format!("{scaled:.*}{suffix}", 2_usize.saturating_sub(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_digits_at_least() {
        // each from `model_weight_count_rounded_notation`
        for (count, expected) in [
            (1, "0.00K"),
            (9, "0.01K"),
            (500, "0.50K"),
            (501, "0.5K"),
            (1500, "1.5K"),
            (9_499, "9.5K"),
            (9_500, "10K"),
            (10_500, "10K"),
            (999_999, "1000K"),
            (1_000_000, "1000K"),
            (1_000_001, "1.0M"),
            (1_300_000_000, "1.3B"),
            (7_248_023_552, "7.2B"),
            (12_500_000_000, "12B"),
            (70_553_706_496, "71B"),
            (1_026_470_731_056, "1.0T"),
        ] {
            assert_eq!(rounded(count), expected, "{count}");
        }
    }

    #[test]
    fn experts_are_counted_once_a_layer() {
        let tensors: [(&str, &[u64]); 4] = [
            ("token_embd.weight", &[100, 10]),
            ("blk.0.ffn_up_exps.weight", &[8, 20, 10]),
            ("blk.0.ffn_up_exps.bias", &[8, 20]),
            ("blk.1.ffn_up_exps.weight", &[8, 20, 10]),
        ];
        let counts = ParameterCounts::of(tensors.into_iter()).unwrap();
        let expected = ParameterCounts {
            total: 1000 + 1600 + 160 + 1600,
            shared: 1000 + 160,
            expert: 400,
            experts: 8,
        };
        assert_eq!(counts, expected);
        assert_eq!(counts.size_label().unwrap(), "8x1.6K");
        assert_eq!(ParameterCounts::default().size_label(), None);
        let empty: (&str, &[u64]) = ("blk.0.ffn_up_exps.weight", &[0, 20, 10]);
        assert!(ParameterCounts::of([empty].into_iter()).is_err());
        let large: (&str, &[u64]) = ("a", &[u64::MAX, 2]);
        assert!(ParameterCounts::of([large].into_iter()).is_err());
    }
}
