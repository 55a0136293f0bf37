//! Statistics of values as columns of floats of 24 bits, which are floats of 32 bits without the last eight: five digits are
//! as many as a page shows, and twelve numbers of 20 000 tensors are less than a megabyte as text.

use std::collections::BTreeMap;

use anamnesis::check::{CheckReport, Percentiles, ValueStatistics};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::shown_names::ShownNames;

/// A column: its name in the page, and its value of a weight.
type Statistic = (&'static str, fn(&ValueStatistics) -> Option<f64>);

const STATISTICS: [Statistic; 12] = [
    ("elements", |values| Some(values.elements as f64)),
    ("min", |values| values.min),
    ("max", |values| values.max),
    ("mean", |values| values.mean),
    ("std", |values| values.std),
    ("zeros", |values| Some(values.zeros as f64)),
    ("nonfinite", |values| {
        Some(values.nan as f64 + values.inf as f64)
    }),
    ("p0_1", |values| percentile(values, |p| p.p0_1)),
    ("p1", |values| percentile(values, |p| p.p1)),
    ("p50", |values| percentile(values, |p| p.p50)),
    ("p99", |values| percentile(values, |p| p.p99)),
    ("p99_9", |values| percentile(values, |p| p.p99_9)),
];

/// The statistics of the tensors that are shown. A weight's statistics are in the row of the tensor that holds its codes.
#[derive(Debug, Serialize)]
pub(super) struct StatisticsColumns {
    /// By row of the columns, the number of tensors from the one of the row before.
    tensors: Vec<u32>,
    /// By name, the first three bytes of each number, big endian, in base64.
    columns: BTreeMap<&'static str, String>,
}

impl StatisticsColumns {
    pub(super) fn new(report: &CheckReport, names: &ShownNames<'_>) -> Self {
        let weights = report.tensors.iter();
        let mut rows: Vec<(u32, &ValueStatistics)> = weights
            .filter_map(|weight| Some((names.tensor(&weight.name)?, weight.values.as_ref()?)))
            .collect();
        rows.sort_by_key(|(tensor, _)| *tensor);
        // two weights may have their codes in one tensor, which has one row
        rows.dedup_by_key(|(tensor, _)| *tensor);
        let mut last = 0;
        let tensors = rows.iter().map(|(tensor, _)| {
            let step = tensor - last;
            last = *tensor;
            step
        });
        let tensors = tensors.collect();
        let column = |value: fn(&ValueStatistics) -> Option<f64>| {
            let bytes: Vec<u8> = rows
                .iter()
                .flat_map(|(_, row)| float24(value(row)))
                .collect();
            STANDARD.encode(bytes)
        };
        let columns = STATISTICS
            .iter()
            .map(|(name, value)| (*name, column(*value)));
        Self {
            tensors,
            columns: columns.collect(),
        }
    }
}

fn percentile(values: &ValueStatistics, of: impl Fn(&Percentiles) -> f64) -> Option<f64> {
    values.percentiles.as_ref().map(of)
}

/// The first three bytes of the nearest float; not a number, if there is none. Numbers beyond the range are the largest one.
#[allow(clippy::cast_possible_truncation)] // rounded, and clamped below
fn float24(value: Option<f64>) -> [u8; 3] {
    const SIGN: u32 = 1 << 31;
    const LARGEST: u32 = 0x7f7f_ffff;
    let Some(value) = value.filter(|value| !value.is_nan()) else {
        return [0x7f, 0xc0, 0];
    };
    let bits = (value as f32).to_bits();
    // half of the last kept bit is added before the cut, which rounds; the least upper bound keeps it from becoming
    // infinite
    let rounded = ((bits & !SIGN) + 0x80).min(LARGEST);
    let [a, b, c, _] = (bits & SIGN | rounded).to_be_bytes();
    [a, b, c]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the page reads it.
    fn read([a, b, c]: [u8; 3]) -> f32 {
        f32::from_be_bytes([a, b, c, 0])
    }

    #[test]
    fn numbers_keep_sixteen_bits_and_stay_finite() {
        let exact = [0.0, 1.0, -1.0, 65_535.0, 65_536.0, -0.5, 448.0];
        for value in [&exact[..], &[1.25 * f32::MIN_POSITIVE]].concat() {
            assert_eq!(read(float24(Some(value.into()))), value);
        }
        for value in [0.1, -1.0 / 3.0, 1e30, -7.7e-20, 123_456_789.0] {
            let found = f64::from(read(float24(Some(value))));
            assert!(
                ((found - value) / value).abs() <= 1.0 / 65_536.0,
                "{value}: {found}"
            );
        }
        for value in [f64::from(f32::MAX), 1e300, f64::INFINITY] {
            let found = read(float24(Some(value)));
            assert!(found.is_finite() && found > 3.4e38, "{value}: {found}");
            assert_eq!(read(float24(Some(-value))), -found);
        }
        assert!(read(float24(None)).is_nan() && read(float24(Some(f64::NAN))).is_nan());
    }
}
