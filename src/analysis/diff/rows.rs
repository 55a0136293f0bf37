//! From outcomes to what is listed.

use crate::base::error::Result;
use crate::base::limits::{Budget, text_cost};
use crate::read::catalog::elements;

use super::CheckpointDiff;
use super::alike::is_squeezed;
use super::differences::{
    ConfigDifferences, DifferenceCounts, DifferenceKind, Differences, MetadataDifferences,
    TensorDifference, TotalDistance,
};
use super::moments::Moments;
use super::numbers::is_number;
use super::outcome::PairOutcome;
use super::pairing::{PairedBy, Pairing, TensorPair};
use super::sides::{ComparedTensor, Side, WHAT};
use super::tied::HeadNotes;

/// All that was found.
pub(super) struct Listing<'l, 'c> {
    pub(super) diff: &'l CheckpointDiff<'l>,
    pub(super) a: &'l Side<'c>,
    pub(super) b: &'l Side<'c>,
    pub(super) pairing: &'l Pairing,
    /// One per pair; none if no tensor was read.
    pub(super) outcomes: &'l [PairOutcome],
    pub(super) heads: &'l HeadNotes,
    pub(super) notes: Vec<String>,
    /// Entries of both sides that are listed and cannot be read.
    pub(super) unread: usize,
    /// Names of files beside the tensors that were compared.
    pub(super) sidecars: Vec<&'static str>,
    /// Whether no tensor was read.
    pub(super) headers_only: bool,
    pub(super) unused_renames: Vec<String>,
    pub(super) config: Option<ConfigDifferences>,
    pub(super) metadata: MetadataDifferences,
}

pub(super) fn listed(listing: Listing<'_, '_>, budget: &Budget) -> Result<Differences> {
    let (mut counts, mut tensors) = (DifferenceCounts::default(), Vec::new());
    let (mut total, mut decided) = (Moments::default(), false);
    let mut add = |row: TensorDifference| -> Result<()> {
        counts.add(row.kind);
        decided |= row.decides;
        if row.kind != DifferenceKind::Equal || listing.diff.list_equal {
            let names = [&row.a, &row.b, &row.a_dtype, &row.b_dtype, &row.note];
            let names = names
                .into_iter()
                .flatten()
                .map(|name| text_cost(name.len()));
            let ranks = [&row.a_shape, &row.b_shape, &row.first];
            let ranks = ranks
                .into_iter()
                .flatten()
                .map(|sizes| 8 * sizes.len() as u64 + 16);
            budget.memory(names.chain(ranks).sum(), WHAT)?;
            budget.push(&mut tensors, row, WHAT)?;
        }
        Ok(())
    };
    // A's tensors in file order: pairs and what A alone has are sorted by their index
    let mut removed = listing.pairing.only_a.iter().peekable();
    for (item, pair) in listing.pairing.pairs.iter().enumerate() {
        while let Some(alone) = removed.next_if(|alone| **alone < pair.a) {
            add(listing.removed(*alone))?;
        }
        let outcome = listing.outcomes.get(item).copied();
        if let Some(sums) = outcome.and_then(|outcome| outcome.sums) {
            total.append(&sums);
        }
        add(listing.paired(*pair, outcome))?;
    }
    removed.try_for_each(|alone| add(listing.removed(*alone)))?;
    listing
        .pairing
        .only_b
        .iter()
        .try_for_each(|alone| add(listing.added(*alone)))?;
    let config_differs = listing
        .config
        .as_ref()
        .is_some_and(|config| !config.is_empty());
    let metadata_differs = listing.diff.metadata && !listing.metadata.is_empty();
    let Pairing {
        pairs,
        only_a,
        only_b,
    } = listing.pairing;
    let compared = |alone: &[usize]| (pairs.len() + alone.len()) as u64;
    let all = compared(only_a) + only_b.len() as u64;
    let unread = listing.unread;
    let differs = decided || config_differs || metadata_differs;
    let same = !differs && all > 0 && unread == 0;
    let headers = listing.headers_only;
    Ok(Differences {
        a: listing
            .a
            .describe(compared(only_a), &listing.sidecars, budget)?,
        b: listing
            .b
            .describe(compared(only_b), &listing.sidecars, budget)?,
        same,
        headers,
        verdict: match (same, all) {
            (true, _) if headers => "same headers; values not compared",
            (true, _) => "same",
            (false, 0) => "no tensor was compared",
            (false, _) if !differs => {
                "equal tensors; entries that cannot be read were not compared"
            }
            (false, _) => "different",
        },
        compared: all,
        counts,
        tensors,
        total: TotalDistance {
            nmse: total.nmse(),
            max_abs: total.max_abs(),
        },
        config: listing.config,
        metadata: listing.metadata,
        notes: listing.notes,
        unused_renames: listing.unused_renames,
    })
}

impl Listing<'_, '_> {
    fn removed(&self, i: usize) -> TensorDifference {
        let tensor = &self.a.tensors[i];
        TensorDifference {
            a: Some(tensor.name.to_string()),
            a_dtype: Some(self.a.dtype(tensor).to_owned()),
            a_shape: Some(self.a.shape(tensor).to_vec()),
            ..self.alone(
                DifferenceKind::Removed,
                self.a,
                tensor,
                self.heads.a.get(&i),
            )
        }
    }

    fn added(&self, j: usize) -> TensorDifference {
        let tensor = &self.b.tensors[j];
        TensorDifference {
            b: Some(tensor.name.to_string()),
            b_dtype: Some(self.b.dtype(tensor).to_owned()),
            b_shape: Some(self.b.shape(tensor).to_vec()),
            ..self.alone(DifferenceKind::Added, self.b, tensor, self.heads.b.get(&j))
        }
    }

    /// The row of a tensor that one side alone has, on either side.
    fn alone(
        &self,
        kind: DifferenceKind,
        side: &Side<'_>,
        tensor: &ComparedTensor,
        of_head: Option<&String>,
    ) -> TensorDifference {
        TensorDifference {
            note: of_head.cloned().or_else(|| dropped(side, tensor)),
            decides: !(self.diff.values && side.is_dropped(tensor)),
            nbytes: side.nbytes(tensor),
            ..row(kind)
        }
    }

    fn paired(&self, pair: TensorPair, outcome: Option<PairOutcome>) -> TensorDifference {
        let (x, y) = (&self.a.tensors[pair.a], &self.b.tensors[pair.b]);
        let (x_shape, y_shape) = (self.a.shape(x), self.b.shape(y));
        let (x_dtype, y_dtype) = (self.a.dtype(x), self.b.dtype(y));
        let kind = if pair.by != PairedBy::Name {
            DifferenceKind::Renamed
        } else if x_shape != y_shape {
            DifferenceKind::Reshaped
        } else if x_dtype != y_dtype || self.a.scheme(x) != self.b.scheme(y) {
            DifferenceKind::Retyped
        } else if outcome.is_none_or(|outcome| outcome.is_equal()) {
            // without outcomes the headers alone were compared, and they agree
            DifferenceKind::Equal
        } else {
            DifferenceKind::Changed
        };
        let mut row = TensorDifference {
            a: Some(x.name.to_string()),
            b: Some(y.name.to_string()),
            a_dtype: Some(x_dtype.to_owned()),
            b_dtype: Some(y_dtype.to_owned()),
            a_shape: Some(x_shape.to_vec()),
            b_shape: Some(y_shape.to_vec()),
            nbytes: self.a.nbytes(x),
            by_scheme: pair.by == PairedBy::Scheme,
            ..row(kind)
        };
        let in_order = is_squeezed(x_shape, y_shape);
        if let Some(outcome) = outcome {
            self.measure(&mut row, outcome, in_order, (x, y));
        }
        row.decides = if self.diff.values {
            let within = |outcome: PairOutcome| outcome.is_within(self.diff.tolerance);
            // without a look at the values, dtypes do not say whether they differ
            !in_order || !outcome.is_none_or(within)
        } else {
            kind != DifferenceKind::Equal
        };
        row
    }

    /// Adds what was measured to a row.
    fn measure(
        &self,
        row: &mut TensorDifference,
        outcome: PairOutcome,
        in_order: bool,
        (x, y): (&ComparedTensor, &ComparedTensor),
    ) {
        let shape = self.a.shape(x);
        if let Some(sums) = outcome.sums {
            row.equal_values = Some(sums.differing == 0);
            row.differing = Some(sums.differing);
            // differing bits are the stored elements' own: they are known only if the bytes of one tensor were compared
            let stored_alike = outcome.bytes_equal.is_some() && x.parts.len() == 1;
            row.differing_bits = stored_alike.then_some(sums.differing_bits);
            let first = sums.first.or(sums.first_bits.filter(|_| stored_alike));
            row.first = first.map(|first| indices(first, shape));
            row.nmse = sums.nmse();
            row.max_abs = sums.max_abs();
            row.rmse = sums.rmse();
            row.cosine = sums.cosine();
            row.note = (sums.not_finite > 0).then(|| {
                let count = sums.not_finite;
                format!("{count} elements are NaN or infinite, and others on the other side")
            });
            return;
        }
        if outcome.transposed {
            row.note = Some("transposed".to_owned());
            return;
        }
        if outcome.bytes_equal == Some(true) {
            if !in_order {
                row.note = Some("the same bytes in order".to_owned());
                return;
            }
            row.equal_values = Some(true);
            (row.differing, row.differing_bits) = (Some(0), Some(0));
            let numbers = self.a.job(x).is_some_and(|job| is_number(job.output.dtype));
            if numbers && elements(shape).is_some_and(|count| count > 0) {
                (row.nmse, row.max_abs, row.rmse, row.cosine) =
                    (Some(0.0), Some(0.0), Some(0.0), Some(1.0));
            }
            return;
        }
        if in_order {
            let refusal = self.a.refusal(x).or_else(|| self.b.refusal(y));
            let reason = refusal.unwrap_or_else(|| "elements that are not numbers".to_owned());
            row.note = Some(format!("values are not compared: {reason}"));
        }
    }
}

/// A note about a tensor that dequantised weights do not need.
fn dropped(side: &Side<'_>, tensor: &ComparedTensor) -> Option<String> {
    let note = || "quantised arithmetic alone needs it".to_owned();
    side.is_dropped(tensor).then(note)
}

fn row(kind: DifferenceKind) -> TensorDifference {
    TensorDifference {
        a: None,
        b: None,
        kind,
        a_dtype: None,
        b_dtype: None,
        a_shape: None,
        b_shape: None,
        equal_values: None,
        differing: None,
        differing_bits: None,
        first: None,
        nmse: None,
        max_abs: None,
        rmse: None,
        cosine: None,
        note: None,
        decides: true,
        nbytes: 0,
        by_scheme: false,
    }
}

/// The index of an element in each dimension.
fn indices(element: u64, shape: &[u64]) -> Vec<u64> {
    let (mut rest, mut found) = (element, vec![0; shape.len()]);
    for (index, size) in found.iter_mut().zip(shape).rev() {
        // a dimension of 0 has no elements, and must not be a divisor
        *index = rest % (*size).max(1);
        rest /= (*size).max(1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::indices;

    #[test]
    fn elements_have_an_index_per_dimension() {
        assert_eq!(indices(0, &[]), Vec::<u64>::new());
        assert_eq!(indices(7, &[10]), [7]);
        assert_eq!(indices(3 * 64 + 5, &[32, 64]), [3, 5]);
        assert_eq!(indices(23, &[2, 3, 4]), [1, 2, 3]);
    }
}
