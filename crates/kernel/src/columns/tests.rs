//! Column decoding: every build gives the baseline's bits; unpacked nibbles equal the nibbles of `column_code`.

use super::*;
use crate::dtype::Dtype;

/// Covers every packing, both kinds of groups, and scales that are normal or of any bits.
#[test]
fn every_build_equals_the_baseline() {
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let widths = (2..=8).flat_map(|bits| [CodeWidth::Stream(bits), CodeWidth::Planar(bits)]);
    let mut layouts = vec![
        ColumnCodes::Awq4,
        ColumnCodes::Bytes,
        ColumnCodes::Across(CodeWidth::Stream(3)),
        ColumnCodes::AwqStream(CodeWidth::Stream(5)),
    ];
    layouts.extend(widths.map(ColumnCodes::Down));
    for codes in layouts {
        for (count, depth) in [(8usize, 40usize), (72, 1100)] {
            let (groups, size) = (5, depth / 5);
            let bytes: Vec<u8> = (0..count * 4 * depth.next_multiple_of(32))
                .map(|_| random() as u8)
                .collect();
            let group_of_each = (0..depth).map(|_| random() % 5).collect();
            for column_groups in [
                ColumnGroups::Runs((1..=groups).map(|g| (g * size, g - 1)).collect()),
                ColumnGroups::Each(group_of_each),
            ] {
                for normal in [true, false] {
                    let mut scale = || match normal {
                        true => f32::from_bits(0x3c00_0000 | random() >> 9),
                        false => f32::from_bits(random() << 1),
                    };
                    let geometry = ColumnGeometry {
                        count,
                        depth,
                        stride: count * 4,
                        codes,
                        groups: column_groups.clone(),
                        scales: (0..count * groups).map(|_| scale()).collect(),
                        zeros: vec![7.0; count * groups],
                    };
                    for (dtype, item) in [(Dtype::F32, 4), (Dtype::F16, 2), (Dtype::BF16, 2)] {
                        let outputs = KERNEL.supported().map(|build| {
                            let mut out = vec![0; count * depth * item];
                            build.run(dtype, &geometry, &[&bytes], &mut out).unwrap();
                            (build.isa.name(), with_canonical_nan(&out, dtype))
                        });
                        let outputs: Vec<_> = outputs.collect();
                        for (name, out) in &outputs {
                            assert!(
                                *out == outputs[outputs.len() - 1].1,
                                "{codes:?} {dtype} {name}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn unpack_8_nibbles_equals_column_code() {
    let mut word = 0x7654_3210_u32;
    for _ in 0..1000 {
        word = word.wrapping_mul(0x9e37_79b1).wrapping_add(1);
        let word = word.to_le_bytes();
        let code = |i| column_code(&[word], CodeWidth::Stream(4), i);
        assert_eq!(unpack_8_nibbles(word, false), std::array::from_fn(code));
        assert_eq!(unpack_8_nibbles(word, true), AWQ_ORDER.map(code));
    }
}

/// Replaces every F32 NaN by the same one, since their payloads are unspecified.
fn with_canonical_nan(out: &[u8], dtype: Dtype) -> Vec<u8> {
    let mut out = out.to_vec();
    if dtype == Dtype::F32 {
        for element in out.as_chunks_mut::<4>().0 {
            if f32::from_le_bytes(*element).is_nan() {
                *element = f32::NAN.to_le_bytes();
            }
        }
    }
    out
}
