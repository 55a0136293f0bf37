//! HQQ against reference outputs, the formula written down again, and damaged descriptions.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    StoredPart, assert_same_bits, compare_with_oracles, dequantised, f16_bytes, f32_bytes,
    i32_bytes, i64_bytes, output_names, random_scales, refusal, safetensors,
};

const CODES: &str = "a.fc.W_q";

#[test]
fn reference_outputs_are_met_in_both_roundings() {
    assert_eq!(compare_with_oracles("hqq"), 23);
}

/// A weight, and what may be wrong about it.
#[derive(Clone)]
struct Case {
    shape: [usize; 2],
    bits: usize,
    group: usize,
    axis: usize,
}

impl Case {
    /// Rows and columns of the matrix that is packed, rows in a word, bytes of a word.
    fn matrix(&self) -> (usize, usize, usize, usize) {
        let groups = self.shape[0] * self.shape[1] / self.group;
        let (rows, cols) = if self.axis == 1 {
            (groups, self.group)
        } else {
            (self.group, groups)
        };
        let (planes, word) = if self.bits == 3 {
            (10, 4)
        } else {
            (8 / self.bits, 1)
        };
        (rows, cols, planes, word)
    }

    fn packed(&self) -> Vec<u8> {
        let (rows, cols, planes, word) = self.matrix();
        random_bytes(1, rows.div_ceil(planes) * cols * word)
    }

    fn tensors(&self) -> Vec<(String, &'static str, Vec<u64>, Vec<u8>)> {
        let (rows, cols, planes, word) = self.matrix();
        let (dtype, packing) = match self.bits {
            3 => ("I32", "3bit_32".to_owned()),
            bits => ("U8", format!("{bits}bit_u8")),
        };
        let groups = if self.axis == 1 { rows } else { cols };
        let per_group = if self.axis == 1 {
            vec![rows as u64, 1]
        } else {
            vec![1, cols as u64]
        };
        let number = |n: usize| ("I32", vec![], i32_bytes(&[i32::try_from(n).unwrap()]));
        let shape = self.shape.map(|n| i64::try_from(n).unwrap());
        let stored = (rows.div_ceil(planes) * word * cols / word / cols) as u64;
        let parts = [
            ("W_q", (dtype, vec![stored, cols as u64], self.packed())),
            (
                "scale",
                (
                    "F32",
                    per_group.clone(),
                    f32_bytes(&random_scales(2, groups)),
                ),
            ),
            (
                "zero",
                ("F16", per_group, f16_bytes(&random_scales(3, groups))),
            ),
            ("nbits", number(self.bits)),
            ("group_size", number(self.group)),
            ("axis", number(self.axis)),
            ("shape", ("I64", vec![2], i64_bytes(&shape))),
            (
                "packing",
                ("U8", vec![packing.len() as u64], packing.into_bytes()),
            ),
            ("view_as_float", ("U8", vec![], vec![0])),
        ];
        parts
            .map(|(key, (dtype, shape, bytes))| (format!("a.fc.{key}"), dtype, shape, bytes))
            .into()
    }

    fn file(&self) -> Vec<u8> {
        file(&self.tensors())
    }

    /// The file with one tensor changed, or without it.
    fn but(&self, key: &str, change: Option<(&'static str, &[u64], Vec<u8>)>) -> Vec<u8> {
        let mut tensors = self.tensors();
        let name = format!("a.fc.{key}");
        tensors.retain(|tensor| tensor.0 != name);
        tensors.extend(change.map(|(dtype, shape, bytes)| (name, dtype, shape.to_vec(), bytes)));
        file(&tensors)
    }

    fn expected(&self) -> Vec<f32> {
        let (rows, cols, planes, word) = self.matrix();
        let (packed, stored) = (self.packed(), rows.div_ceil(planes));
        let groups = if self.axis == 1 { rows } else { cols };
        let zeros: Vec<f32> = random_scales(3, groups)
            .iter()
            .map(|x| half::f16::from_f32(*x).to_f32())
            .collect();
        let scales = random_scales(2, groups);
        let mut out = Vec::new();
        for row in 0..rows {
            for col in 0..cols {
                let at = (row % stored * cols + col) * word;
                let mut wide = [0; 4];
                wide[..word].copy_from_slice(&packed[at..at + word]);
                let shift = (planes - 1 - row / stored) * self.bits;
                let code = u32::from_le_bytes(wide) >> shift & ((1 << self.bits) - 1);
                let group = if self.axis == 1 { row } else { col };
                out.push((code as f32 - zeros[group]) * scales[group]);
            }
        }
        out
    }
}

fn file(tensors: &[(String, &'static str, Vec<u64>, Vec<u8>)]) -> Vec<u8> {
    let tensors: Vec<StoredPart<'_>> = tensors
        .iter()
        .map(|(n, d, s, b)| (&**n, *d, &**s, b.clone()))
        .collect();
    safetensors(&tensors)
}

#[test]
fn every_size_and_axis_is_that_of_the_formula() {
    for axis in [0, 1] {
        for bits in [1, 2, 3, 4, 8] {
            // small and ragged; groups that are no multiple of 16; more than a tile
            for (shape, group) in [
                ([8, 24], 24),
                ([16, 40], 8),
                ([500, 640], 32),
                ([640, 500], 400),
            ] {
                let case = Case {
                    shape,
                    bits,
                    group,
                    axis,
                };
                let (found, values) = dequantised(case.file(), "{}", "a.fc.weight");
                assert_eq!(found, case.shape.map(|n| n as u64));
                assert_same_bits(&values, &case.expected());
            }
        }
    }
}

#[test]
fn descriptions_do_not_come_out() {
    let case = Case {
        shape: [8, 24],
        bits: 4,
        group: 8,
        axis: 1,
    };
    assert_eq!(output_names(case.file(), "{}"), ["a.fc.weight"]);
}

#[test]
fn damaged_descriptions_are_refused() {
    let case = Case {
        shape: [16, 24],
        bits: 4,
        group: 8,
        axis: 1,
    };
    for key in ["scale", "zero", "axis", "shape"] {
        let text = refusal_of(case.but(key, None), "missing");
        assert!(text.contains(key), "{text}");
    }
    let number = |n: i32| Some(("I32", &[][..], i32_bytes(&[n])));
    for n in [0, -8, 7, 1 << 30, 16] {
        refusal_of(case.but("group_size", number(n)), "");
    }
    for n in [-1, 0, 2] {
        refusal_of(case.but("axis", number(n)), "");
    }
    for n in [0, 3, 8, 7, -4] {
        refusal_of(case.but("nbits", number(n)), "packing");
    }
    for shape in [
        vec![16, 25],
        vec![-1, 24],
        vec![0, 24],
        vec![i64::MAX, i64::MAX],
        vec![],
        vec![1; 9],
    ] {
        let len = [shape.len() as u64];
        refusal_of(
            case.but("shape", Some(("I64", &len, i64_bytes(&shape)))),
            "",
        );
    }
    refusal_of(
        case.but("shape", Some(("F32", &[2], f32_bytes(&[16.0, 24.0])))),
        "instead of an integer",
    );
    refusal_of(
        case.but("packing", Some(("U8", &[7], b"5bit_u8".to_vec()))),
        "packing",
    );
    refusal_of(
        case.but("packing", Some(("U8", &[7], b"2bit_u8".to_vec()))),
        "packing",
    );
    refusal_of(
        case.but("scale", Some(("F32", &[1, 48], f32_bytes(&[1.0; 48])))),
        "instead of",
    );
    refusal_of(
        case.but("scale", Some(("F32", &[47, 1], f32_bytes(&[1.0; 47])))),
        "instead of",
    );
    refusal_of(
        case.but("zero", Some(("U8", &[48, 1], vec![0; 48]))),
        "instead of F32, F16 or BF16",
    );
    refusal_of(
        case.but("W_q", Some(("U8", &[24, 7], vec![0; 168]))),
        "do not hold",
    );
    refusal_of(
        case.but("W_q", Some(("F16", &[24, 4], vec![0; 192]))),
        "packed",
    );
    for flag in ["quant_scale", "quant_zero"] {
        refusal_of(case.but(flag, Some(("U8", &[], vec![1]))), "quantised");
    }
    refusal_of(
        case.but("channel_wise", Some(("U8", &[], vec![0]))),
        "instead of",
    );
    refusal_of(
        case.but("axis", Some(("I32", &[2], i32_bytes(&[1, 1])))),
        "single number",
    );
}

#[track_caller]
fn refusal_of(file: Vec<u8>, why: &str) -> String {
    let text = refusal(file, "{}", "a.fc.");
    assert!(text.contains(why), "{text}");
    assert!(text.contains(CODES) || text.contains("a.fc."), "{text}");
    text
}
