//! Every build against the definition, number by number.

use super::singles::CountAndSum;
use super::sums::SumF32;
use super::*;
use crate::isa::compute_each;

/// Bits of all kinds, from a linear congruential generator.
fn words(n: u64) -> Vec<u8> {
    let mut state = 7u64;
    let mut bytes = Vec::new();
    for number in 0..n {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let word = match number % 11 {
            0 => 0,
            1 => 0x8000_0000_8000_8000,
            2 => 0x7f80_0000_7c00_7f80,
            3 => 0x7ff0_0000_0000_0000,
            _ => state,
        };
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// The same by the definition of each dtype, number by number.
fn oracle(dtype: Dtype, bytes: &[u8]) -> NumberCounts {
    let width = dtype.width();
    let mut counts = NumberCounts::default();
    let quarter = match dtype {
        Dtype::F16 => 2f64.powi(14),
        Dtype::F64 => 2f64.powi(1022),
        _ => 2f64.powi(126),
    };
    let normal = match dtype {
        Dtype::F16 => 2f64.powi(-14),
        Dtype::F64 => f64::MIN_POSITIVE,
        _ => 2f64.powi(-126),
    };
    for word in bytes.chunks_exact(width) {
        let mut bits = [0; 8];
        bits[..width].copy_from_slice(word);
        counts.sum = counts.sum.wrapping_add(u64::from_le_bytes(bits));
        counts.varies |= word != &bytes[..width];
        let value = match dtype {
            Dtype::F16 => half::f16::from_le_bytes([word[0], word[1]]).to_f64(),
            Dtype::BF16 => half::bf16::from_le_bytes([word[0], word[1]]).to_f64(),
            Dtype::F32 => f32::from_le_bytes(word.try_into().unwrap()).into(),
            _ => f64::from_le_bytes(word.try_into().unwrap()),
        };
        counts.nan += u64::from(value.is_nan());
        counts.inf += u64::from(value.is_infinite());
        counts.zeros += u64::from(value == 0.0);
        counts.subnormal += u64::from(value != 0.0 && value.abs() < normal);
        counts.huge += u64::from(value.is_finite() && value.abs() >= quarter);
    }
    counts
}

#[test]
fn every_build_counts_what_the_definition_counts() {
    let n = if cfg!(miri) { 60 } else { 10_000 };
    let bytes = words(n);
    for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64] {
        let bits = FloatBits::of(dtype).unwrap();
        for len in [0, dtype.width(), bytes.len() - 3, bytes.len()] {
            let bytes = &bytes[..len];
            let expected = oracle(dtype, bytes);
            for (isa, counts) in compute_each(CountFloats { bits, bytes }) {
                assert_eq!(counts, expected, "{dtype} of {len} bytes, {isa}");
            }
            let width = dtype.width();
            let zero = |word: &&[u8]| word.iter().all(|&byte| byte == 0);
            let zeros = bytes.chunks_exact(width).filter(zero).count() as u64;
            for (isa, counts) in compute_each(CountIntegers { width, bytes }) {
                let expected = (zeros, expected.varies, expected.sum);
                let found = (counts.zeros, counts.varies, counts.sum);
                assert_eq!(found, expected, "{width} bytes, {isa}");
            }
        }
    }
    assert_eq!(count_integers(3, &[0; 9]), NumberCounts::default());
}

#[test]
fn every_build_sums_the_same_values() {
    let n = if cfg!(miri) { 40 } else { 40_000 };
    let bytes = words(n);
    for limit in [f32::INFINITY, 2f32.powi(126), 1.0] {
        for len in [0, 4, 28, 4 * 13, bytes.len()] {
            let bytes = &bytes[..len];
            let values = bytes.chunks_exact(4);
            let values = values.map(|word| f32::from_le_bytes(word.try_into().unwrap()));
            let values: Vec<f32> = values.filter(|value| value.abs() < limit).collect();
            let sums = sum_f32(bytes, limit);
            assert_eq!(sums.n, values.len() as u64);
            for (isa, found) in compute_each(SumF32 { bytes, limit }) {
                assert_eq!(found, sums, "{len} bytes below {limit}, {isa}");
            }
            let Some(first) = values.first() else {
                continue;
            };
            assert_eq!(sums.shift, *first);
            let least = values.iter().copied().fold(*first, f32::min);
            let most = values.iter().copied().fold(*first, f32::max);
            assert_eq!((sums.min, sums.max), (least, most));
            let deviations = values
                .iter()
                .map(|value| f64::from(*value) - f64::from(*first));
            let sum: f64 = deviations.clone().sum();
            let squares: f64 = deviations.map(|deviation| deviation * deviation).sum();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * squares.max(1.0).max(b.abs());
            assert!(near(sums.sum, sum), "{sums:?} {sum}");
            assert!(
                (sums.squares - squares).abs() <= 1e-9 * squares,
                "{sums:?} {squares}"
            );
        }
    }
}

/// Counts and sums in one pass against counts and sums in a pass each.
fn assert_both(values: &[f32], what: &str) {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let (counts, sums) = count_and_sum_f32(&bytes);
    assert_eq!(counts, oracle(Dtype::F32, &bytes), "{what}");
    for (isa, (other_counts, other)) in compute_each(CountAndSum { bytes: &bytes }) {
        assert_eq!(other_counts, counts, "{what}, {isa}");
        // a mean that is large is found behind the computation
        assert!(other == sums || sums.shift != 0.0, "{what}, {isa}");
    }
    let each = compute_each(CountAndSum { bytes: &bytes });
    assert!(each.windows(2).all(|pair| pair[0].1 == pair[1].1), "{what}");
    let expected = sum_f32(&bytes, f32::INFINITY);
    assert_eq!(
        (sums.n, sums.min, sums.max),
        (expected.n, expected.min, expected.max),
        "{what}"
    );
    if sums.n == 0 {
        return;
    }
    let n = sums.n as f64;
    let mean = sums.sum / n;
    let std = (sums.squares / n - mean * mean).max(0.0).sqrt();
    let mean = f64::from(sums.shift) + mean;
    // by two passes
    let finite = values.iter().filter(|value| value.is_finite());
    let finite: Vec<f64> = finite.map(|value| f64::from(*value)).collect();
    let expected_mean = finite.iter().sum::<f64>() / n;
    let squares = finite.iter().map(|value| (value - expected_mean).powi(2));
    let expected_std = (squares.sum::<f64>() / n).sqrt();
    let near = |a: f64, b: f64, scale: f64| (a - b).abs() <= 1e-11 * scale;
    assert!(
        near(mean, expected_mean, expected_std + expected_mean.abs()),
        "{what}: {mean} {expected_mean}"
    );
    assert!(
        near(std, expected_std, expected_std),
        "{what}: {std} {expected_std}"
    );
}

#[test]
fn one_pass_counts_and_sums_what_two_passes_do() {
    let n = if cfg!(miri) { 40 } else { 30_000 };
    let random: Vec<f32> = words(n)
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let small: Vec<f32> = random
        .iter()
        .map(|value| (value.to_bits() >> 8) as f32 / 2f32.powi(23) - 1.0)
        .collect();
    let mapped = |of: &dyn Fn(f32) -> f32| small.iter().map(|value| of(*value)).collect::<Vec<_>>();
    for len in [0, 1, 15, 16, 4095, 4096, 4097, small.len()] {
        let len = len.min(small.len());
        for (what, values) in [
            ("any bits", &random),
            ("both signs", &small),
            ("positive", &mapped(&|value| value.abs() + 1e-3)),
            ("negative", &mapped(&|value| -value.abs() - 1e-3)),
            ("not negative", &mapped(&|value| value.max(0.0))),
            ("far from zero", &mapped(&|value| 1000.0 + value)),
            ("subnormal", &mapped(&|value| value * 1e-38)),
            ("huge", &mapped(&|value| value * 3e38)),
            ("not a number", &mapped(&|_| f32::NAN)),
            ("equal", &mapped(&|_| -0.25)),
            ("zeros", &mapped(&|_| 0.0)),
            ("zeros with a sign", &mapped(&|_| -0.0)),
        ] {
            assert_both(&values[..len], &format!("{what}, {len}"));
        }
        // one that differs, in each batch
        for at in [0, len / 2, len.saturating_sub(1)] {
            for odd in [
                f32::NAN,
                f32::INFINITY,
                -f32::INFINITY,
                1e-40,
                -3e38,
                0.0,
                -0.0,
                1.0,
            ] {
                let mut values = vec![0.5f32; len];
                if let Some(value) = values.get_mut(at) {
                    *value = odd;
                }
                assert_both(&values, &format!("{odd} at {at} of {len}"));
            }
        }
    }
}
