//! Row decoding: every build against the formula, applied code by code with bits read one at a time.

use super::*;
use crate::dtype::Dtype;

/// Covers the packings, values, formulas and group sizes that take different paths, with moderate scales and with scales of
/// any bits.
#[test]
fn every_build_equals_the_formula_per_code() {
    let mut state = 1u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let table = CodeValue::Table(Box::new(crate::E2M1_VALUES));
    let codes = [
        (CodePacking::Bytes, CodeValue::E4m3),
        (CodePacking::Bytes, CodeValue::E5m2),
        (CodePacking::Bytes, CodeValue::E4m3Fnuz),
        (CodePacking::Bytes, CodeValue::Signed),
        (CodePacking::Bytes, CodeValue::Unsigned),
        (CodePacking::LowNibbles, table.clone()),
        (CodePacking::HighNibbles, table),
        (CodePacking::Stream(4), CodeValue::Unsigned),
        (CodePacking::Stream(3), CodeValue::Unsigned),
        (CodePacking::Stream(6), CodeValue::E2m3),
    ];
    let formulas = [
        Formula::Scale,
        Formula::ZeroScale,
        Formula::ScaleOffset,
        Formula::Scale127,
        Formula::Divide,
        Formula::ScaleOffsetF16,
    ];
    for (packing, value_) in codes {
        for (formula_, group) in formulas
            .into_iter()
            .flat_map(|f| [1, 7, 16, 32, 48, 64, 600].map(|g| (f, g)))
        {
            for any_scale_bits in [false, true] {
                let (cols, count) = (600usize, 3);
                let stride = packing.row_bytes(cols as u64).unwrap() as usize;
                let bytes: Vec<u8> = (0..stride * count).map(|_| random() as u8).collect();
                let rows = RowGeometry {
                    cols,
                    stride,
                    packing,
                    value: value_.clone(),
                    formula: formula_,
                    group,
                    rows_per_factor: 1,
                    rows_per_matrix: count,
                    first: 0,
                };
                let mut factors = || -> Vec<f32> {
                    let bits = |x: u32| {
                        if any_scale_bits {
                            x << 1
                        } else {
                            0x3c00_0000 | x >> 9
                        }
                    };
                    (0..rows.groups() * count)
                        .map(|_| f32::from_bits(bits(random())))
                        .collect()
                };
                let (scales, zeros) = (factors(), factors());
                let mut expected = Vec::new();
                for r in 0..count {
                    for c in 0..cols {
                        let at = |bits: usize| (0..bits).map(move |b| (c * bits + b, b));
                        let bit = |i: usize| bytes[r * stride + i / 8] >> (i % 8) & 1;
                        let code = match packing {
                            CodePacking::Bytes => bytes[r * stride + c],
                            CodePacking::HighNibbles => {
                                bytes[r * stride + c / 2] >> (4 - c % 2 * 4) & 15
                            }
                            CodePacking::LowNibbles => at(4).map(|(i, b)| bit(i) << b).sum(),
                            CodePacking::Stream(bits) => {
                                at(bits as usize).map(|(i, b)| bit(i) << b).sum()
                            }
                            _ => unreachable!("no such packing among the cases"),
                        };
                        let mut v = [0.0];
                        value(&value_, &[code], &mut v);
                        let g = r * rows.groups() + c / group;
                        expected.push(apply_to_one(formula_, v[0], scales[g], zeros[g]));
                    }
                }
                let parts = [
                    &bytes[..],
                    bytemuck::cast_slice(&scales),
                    bytemuck::cast_slice(&zeros),
                ];
                for build in KERNEL.supported() {
                    let case = format!(
                        "{packing:?} {value_:?} {formula_:?} {group} {any_scale_bits} {}",
                        build.isa.name()
                    );
                    let mut out = vec![0; cols * count * 4];
                    build.run(Dtype::F32, &rows, &parts, &mut out).unwrap();
                    for (found, x) in out.as_chunks().0.iter().zip(&expected) {
                        let found = f32::from_le_bytes(*found);
                        assert!(
                            found.to_bits() == x.to_bits() || found.is_nan() && x.is_nan(),
                            "{case}: {found} {x}"
                        );
                    }
                    for (dtype, round) in [
                        (Dtype::BF16, crate::half::bf16 as fn(f32) -> u16),
                        (Dtype::F16, crate::half::f16),
                    ] {
                        let mut out = vec![0; cols * count * 2];
                        build.run(dtype, &rows, &parts, &mut out).unwrap();
                        for (found, x) in out.as_chunks().0.iter().zip(&expected) {
                            let nan = if dtype == Dtype::F16 {
                                u16::from_le_bytes(*found) & 0x7fff == 0x7e00
                            } else {
                                true
                            };
                            let same = u16::from_le_bytes(*found) == round(*x) || x.is_nan() && nan;
                            assert!(same, "{case} {dtype}: {found:02x?} {x}");
                        }
                    }
                }
            }
        }
    }
}
