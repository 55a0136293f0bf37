//! Values: statistics against sums over the values one by one, and planted faults.

use anamnesis::check::{Finding, ValueStatistics};
use anamnesis::{Checkpoint, check};
use half::{bf16, f16};
use proptest::prelude::*;

/// A safetensors file with one matrix.
fn matrix(dtype: &str, rows: usize, bytes: &[u8], item: usize) -> Checkpoint {
    named("model.layers.0.w.weight", dtype, rows, bytes, item)
}

/// The same, under a name.
fn named(name: &str, dtype: &str, rows: usize, bytes: &[u8], item: usize) -> Checkpoint {
    let columns = bytes.len() / item / rows;
    let header = format!(
        r#"{{"{name}":{{"dtype":"{dtype}","shape":[{rows},{columns}],"data_offsets":[0,{}]}}}}"#,
        bytes.len()
    );
    let file = [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        bytes,
    ]
    .concat();
    Checkpoint::from_bytes(file).unwrap()
}

fn statistics(checkpoint: &Checkpoint, threads: usize) -> ValueStatistics {
    let mut report = check(checkpoint)
        .statistics()
        .threads(threads)
        .run()
        .unwrap();
    report.tensors.pop().unwrap().values.unwrap()
}

/// Percentile by sorting.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // ranks of a list
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() - 1) as f64 * share / 100.0;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// Compares with sums over all values in f64.
fn compare(found: &ValueStatistics, values: &[f64]) {
    let mut finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    finite.sort_by(f64::total_cmp);
    assert_eq!(found.elements, values.len() as u64);
    assert_eq!(
        found.nan,
        values.iter().filter(|v| v.is_nan()).count() as u64
    );
    assert_eq!(
        found.inf,
        values.iter().filter(|v| v.is_infinite()).count() as u64
    );
    assert_eq!(
        found.zeros,
        values.iter().filter(|v| **v == 0.0).count() as u64
    );
    let Some((&least, &most)) = finite.first().zip(finite.last()) else {
        assert_eq!((found.min, found.percentiles), (None, None));
        return;
    };
    assert_eq!((found.min.unwrap(), found.max.unwrap()), (least, most));
    let scale = least.abs().max(most.abs());
    assert_eq!(found.abs_max.unwrap(), scale);
    let n = finite.len() as f64;
    let mean = finite.iter().sum::<f64>() / n;
    let std = (finite.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n).sqrt();
    let close = |what: &str, found: f64, expected: f64, allowed: f64| {
        assert!(
            (found - expected).abs() <= allowed,
            "{what}: {found}, expected {expected}"
        );
    };
    close("mean", found.mean.unwrap(), mean, 1e-12 * scale);
    close("std", found.std.unwrap(), std, 1e-9 * std + 1e-12 * scale);
    let percentiles = found.percentiles.as_ref().unwrap();
    for (value, share) in [
        (percentiles.p0_1, 0.1),
        (percentiles.p1, 1.0),
        (percentiles.p50, 50.0),
        (percentiles.p99, 99.0),
        (percentiles.p99_9, 99.9),
    ] {
        let expected = percentile(&finite, share);
        // the neighbours of a bin may be on both sides of zero
        let allowed =
            1e-9 * scale + found.bin_width * scale.min(2.0 * expected.abs() + 1e-3 * scale);
        close(&format!("{share} %"), value, expected, allowed);
    }
}

/// Values that a simple generator makes, mostly small, some special.
fn bits(seed: u64, len: usize) -> Vec<u32> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len)
        .map(|_| {
            let random = next();
            let value = (random >> 40) as f32 / (1 << 24) as f32 - 0.5;
            match random & 0x3ff {
                0 => f32::NAN.to_bits(),
                1 => f32::NEG_INFINITY.to_bits(),
                2 | 3 => 0,
                4 => (-0.0f32).to_bits(),
                5 => 3,
                _ => (value * value * value).to_bits(),
            }
        })
        .collect()
}

#[test]
fn statistics_of_large_tensors_are_those_of_their_values_for_any_threads() {
    // several tiles, and more than what is kept
    let values: Vec<f32> = bits(9, 600_000).into_iter().map(f32::from_bits).collect();
    let rows = 600;
    let narrow: Vec<bf16> = values.iter().map(|v| bf16::from_f32(*v)).collect();
    let half: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
    let bytes = |of: &dyn Fn(usize) -> Vec<u8>| (0..values.len()).flat_map(of).collect::<Vec<u8>>();
    for (dtype, item, bytes, exact) in [
        (
            "F32",
            4,
            bytes(&|i| values[i].to_le_bytes().to_vec()),
            values.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(),
        ),
        (
            "BF16",
            2,
            bytes(&|i| narrow[i].to_le_bytes().to_vec()),
            narrow.iter().map(|v| f64::from(*v)).collect(),
        ),
        (
            "F16",
            2,
            bytes(&|i| half[i].to_le_bytes().to_vec()),
            half.iter().map(|v| f64::from(*v)).collect(),
        ),
        (
            "F64",
            8,
            bytes(&|i| f64::from(values[i]).to_le_bytes().to_vec()),
            values.iter().map(|v| f64::from(*v)).collect(),
        ),
    ] {
        let checkpoint = matrix(dtype, rows, &bytes, item);
        let one = statistics(&checkpoint, 1);
        compare(&one, &exact);
        assert_eq!(one.bin_width == 0.0, dtype != "F64", "{dtype}");
        assert_eq!(one.sampled, one.elements - one.nan - one.inf, "{dtype}");
        for threads in [2, 3, 7] {
            assert_eq!(
                statistics(&checkpoint, threads),
                one,
                "{dtype}, {threads} threads"
            );
        }
    }
}

/// The share of sorted values that are below this one, and the share of those that are not above it.
fn shares(sorted: &[f32], value: f64) -> (f64, f64) {
    let below = sorted.partition_point(|other| f64::from(*other) < value);
    let up_to = sorted.partition_point(|other| f64::from(*other) <= value);
    let n = sorted.len() as f64;
    (below as f64 / n, up_to as f64 / n)
}

#[test]
fn percentiles_of_large_tensors_rest_on_a_sample_of_all_columns() {
    // columns of outliers; rows that are a multiple of the sample's spans, and rows that are not
    for columns in [4096, 1999] {
        let mut values: Vec<f32> = bits(5, 700 * columns)
            .into_iter()
            .map(f32::from_bits)
            .collect();
        for row in values.chunks_mut(columns) {
            row.iter_mut().step_by(16).for_each(|value| *value *= 100.0);
        }
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let checkpoint = matrix("F32", 700, &bytes, 4);
        let found = statistics(&checkpoint, 1);
        assert_eq!(statistics(&checkpoint, 3), found);
        // less what is not finite, about two in a thousand
        assert!((260_000..1 << 19).contains(&found.sampled), "{found:?}");
        let mut finite: Vec<f32> = values.into_iter().filter(|v| v.is_finite()).collect();
        finite.sort_by(f32::total_cmp);
        assert_eq!(found.min, Some(finite[0].into()));
        assert_eq!(found.max, finite.last().map(|value| f64::from(*value)));
        let percentiles = found.percentiles.as_ref().unwrap();
        for (value, share) in [
            (percentiles.p0_1, 0.001),
            (percentiles.p1, 0.01),
            (percentiles.p50, 0.5),
            (percentiles.p99, 0.99),
            (percentiles.p99_9, 0.999),
        ] {
            let error = (share * (1.0 - share) / found.sampled as f64).sqrt();
            let (below, up_to) = shares(&finite, value);
            assert!(
                below <= share + 5.0 * error && up_to >= share - 5.0 * error,
                "{columns} columns: {value} for {share} has {below} to {up_to}, {error}"
            );
        }
        assert_eq!(found.bin_width, 0.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn statistics_of_small_tensors_are_exact(seed in 1u64.., len in 1usize..3000) {
        let values: Vec<f32> = bits(seed, len).into_iter().map(f32::from_bits).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let exact: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
        let found = statistics(&matrix("F32", 1, &bytes, 4), 1);
        prop_assert_eq!(found.bin_width, 0.0);
        compare(&found, &exact);
    }

    #[test]
    fn any_bits_are_counted(words in prop::collection::vec(any::<u16>(), 1..2000)) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let exact: Vec<f64> = words.iter().map(|w| f64::from(bf16::from_bits(*w))).collect();
        compare(&statistics(&matrix("BF16", 1, &bytes, 2), 1), &exact);
    }
}

fn found(values: &[f32], rows: usize) -> Vec<Finding> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let report = check(&matrix("F32", rows, &bytes, 4)).run().unwrap();
    report.findings
}

#[test]
fn an_outlier_is_found_and_a_wide_distribution_is_none() {
    let mut values: Vec<f32> = (0..60_000u16).map(|i| f32::from(i % 251) * 1e-3).collect();
    assert!(found(&values, 100).is_empty());
    values[1234] = -2.5e38;
    let findings = found(&values, 100);
    let [outlier] = &findings[..] else {
        panic!("{findings:?}")
    };
    assert_eq!((outlier.rule, outlier.count), ("outlier", Some(1)));
    assert_eq!(outlier.first.as_deref(), Some(&[2, 34][..]));
    // half of the values are as large: that is the distribution
    for value in values.iter_mut().step_by(2) {
        *value = 2.5e38;
    }
    assert!(found(&values, 100).is_empty());
}

#[test]
fn biases_of_experts_may_be_zero() {
    use anamnesis::check::FindingLevel::{Note, Warning};
    let of = |name: &str, bytes: &[u8]| {
        let report = check(&named(name, "F32", 8, bytes, 4)).run().unwrap();
        let rows = report.findings.iter();
        rows.map(|found| (found.rule, found.level))
            .collect::<Vec<_>>()
    };
    let (zeros, mut few) = ([0; 8 * 64 * 4], [0; 8 * 64 * 4]);
    few[..64 * 4].fill(1);
    for (name, level) in [
        ("model.layers.0.mlp.experts.down_proj_bias", Note),
        ("model.layers.0.mlp.experts.down_proj", Warning),
        ("model.layers.0.mlp.experts.0.down_proj.bias", Warning),
    ] {
        assert_eq!(of(name, &zeros), [("zero", level)], "{name}");
        assert_eq!(of(name, &few), [("zero-rows", level)], "{name}");
    }
}

#[test]
fn holes_are_found_over_the_ends_of_tiles() {
    // a tile has 512 KiB: 128 rows of 4 KiB
    let mut values: Vec<f32> = (0..300 * 1024u32)
        .map(|i| (i % 509) as f32 * 1e-3 + 1e-3)
        .collect();
    values[127 * 1024..130 * 1024].fill(0.0);
    values[200 * 1024 + 5] = 0.0;
    let findings = found(&values, 300);
    let [hole] = &findings[..] else {
        panic!("{findings:?}")
    };
    assert_eq!((hole.rule, hole.rows), ("zero-rows", Some([127, 130])));
}
