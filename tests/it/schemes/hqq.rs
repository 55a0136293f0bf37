//! HQQ: against reference outputs of hqq, against the formula, and inconsistent metadata tensors.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    StoredPart, assert_same_bits, compare_with_oracles, dequantised, f16_bytes, f32_bytes,
    i32_bytes, i64_bytes, output_names, random_scales, refusal, safetensors,
};

#[test]
fn weights_equal_reference_outputs_of_hqq_in_both_roundings() {
    assert_eq!(compare_with_oracles("hqq"), 23);
}

/// A weight to be stored as HQQ stores it.
#[derive(Clone)]
struct HqqWeight {
    shape: [usize; 2],
    bits: usize,
    group_size: usize,
    axis: usize,
}

impl HqqWeight {
    /// Rows and columns of the matrix of codes, rows that share a word, bytes of a word.
    fn matrix(&self) -> (usize, usize, usize, usize) {
        let groups = self.shape[0] * self.shape[1] / self.group_size;
        let (rows, cols) = if self.axis == 1 {
            (groups, self.group_size)
        } else {
            (self.group_size, groups)
        };
        let (rows_per_word, word_bytes) = if self.bits == 3 {
            (10, 4)
        } else {
            (8 / self.bits, 1)
        };
        (rows, cols, rows_per_word, word_bytes)
    }

    fn packed(&self) -> Vec<u8> {
        let (rows, cols, rows_per_word, word_bytes) = self.matrix();
        random_bytes(1, rows.div_ceil(rows_per_word) * cols * word_bytes)
    }

    fn tensors(&self) -> Vec<(String, &'static str, Vec<u64>, Vec<u8>)> {
        let (rows, cols, rows_per_word, _) = self.matrix();
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
        let packed_rows = rows.div_ceil(rows_per_word) as u64;
        let parts = [
            (
                "W_q",
                (dtype, vec![packed_rows, cols as u64], self.packed()),
            ),
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
            ("group_size", number(self.group_size)),
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

    /// The file with one tensor replaced, or without it.
    fn file_with(&self, key: &str, change: Option<(&'static str, &[u64], Vec<u8>)>) -> Vec<u8> {
        let mut tensors = self.tensors();
        let name = format!("a.fc.{key}");
        tensors.retain(|tensor| tensor.0 != name);
        tensors.extend(change.map(|(dtype, shape, bytes)| (name, dtype, shape.to_vec(), bytes)));
        file(&tensors)
    }

    fn expected(&self) -> Vec<f32> {
        let (rows, cols, rows_per_word, word_bytes) = self.matrix();
        let (packed, packed_rows) = (self.packed(), rows.div_ceil(rows_per_word));
        let groups = if self.axis == 1 { rows } else { cols };
        let zeros: Vec<f32> = random_scales(3, groups)
            .iter()
            .map(|x| half::f16::from_f32(*x).to_f32())
            .collect();
        let scales = random_scales(2, groups);
        let mut out = Vec::new();
        for row in 0..rows {
            for col in 0..cols {
                let at = (row % packed_rows * cols + col) * word_bytes;
                let mut packed_word = [0; 4];
                packed_word[..word_bytes].copy_from_slice(&packed[at..at + word_bytes]);
                let shift = (rows_per_word - 1 - row / packed_rows) * self.bits;
                let code = u32::from_le_bytes(packed_word) >> shift & ((1 << self.bits) - 1);
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
        .map(|(name, dtype, shape, bytes)| (&**name, *dtype, &**shape, bytes.clone()))
        .collect();
    safetensors(&tensors)
}

#[test]
fn weights_of_every_bit_width_and_axis_equal_the_formula() {
    for axis in [0, 1] {
        for bits in [1, 2, 3, 4, 8] {
            // rows that do not fill a word, group sizes that are no multiple of 16, several tiles
            for (shape, group_size) in [
                ([8, 24], 24),
                ([16, 40], 8),
                ([500, 640], 32),
                ([640, 500], 400),
            ] {
                let weight = HqqWeight {
                    shape,
                    bits,
                    group_size,
                    axis,
                };
                let (found, values) = dequantised(weight.file(), "{}", "a.fc.weight");
                assert_eq!(found, weight.shape.map(|n| n as u64));
                assert_same_bits(&values, &weight.expected());
            }
        }
    }
}

#[test]
fn metadata_tensors_are_no_outputs() {
    let weight = HqqWeight {
        shape: [8, 24],
        bits: 4,
        group_size: 8,
        axis: 1,
    };
    assert_eq!(output_names(weight.file(), "{}"), ["a.fc.weight"]);
}

#[test]
fn inconsistent_metadata_tensors_are_refused() {
    let weight = HqqWeight {
        shape: [16, 24],
        bits: 4,
        group_size: 8,
        axis: 1,
    };
    for key in ["scale", "zero", "axis", "shape"] {
        let message = assert_refused(weight.file_with(key, None), "missing");
        assert!(message.contains(key), "{message}");
    }
    let number = |n: i32| Some(("I32", &[][..], i32_bytes(&[n])));
    for n in [0, -8, 7, 1 << 30, 16] {
        assert_refused(weight.file_with("group_size", number(n)), "");
    }
    for n in [-1, 0, 2] {
        assert_refused(weight.file_with("axis", number(n)), "");
    }
    for n in [0, 3, 8, 7, -4] {
        assert_refused(weight.file_with("nbits", number(n)), "packing");
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
        assert_refused(
            weight.file_with("shape", Some(("I64", &len, i64_bytes(&shape)))),
            "",
        );
    }
    assert_refused(
        weight.file_with("shape", Some(("F32", &[2], f32_bytes(&[16.0, 24.0])))),
        "instead of an integer",
    );
    assert_refused(
        weight.file_with("packing", Some(("U8", &[7], b"5bit_u8".to_vec()))),
        "packing",
    );
    assert_refused(
        weight.file_with("packing", Some(("U8", &[7], b"2bit_u8".to_vec()))),
        "packing",
    );
    assert_refused(
        weight.file_with("scale", Some(("F32", &[1, 48], f32_bytes(&[1.0; 48])))),
        "instead of",
    );
    assert_refused(
        weight.file_with("scale", Some(("F32", &[47, 1], f32_bytes(&[1.0; 47])))),
        "instead of",
    );
    assert_refused(
        weight.file_with("zero", Some(("U8", &[48, 1], vec![0; 48]))),
        "instead of F32, F16 or BF16",
    );
    assert_refused(
        weight.file_with("W_q", Some(("U8", &[24, 7], vec![0; 168]))),
        "do not hold",
    );
    assert_refused(
        weight.file_with("W_q", Some(("F16", &[24, 4], vec![0; 192]))),
        "packed",
    );
    for flag in ["quant_scale", "quant_zero"] {
        assert_refused(
            weight.file_with(flag, Some(("U8", &[], vec![1]))),
            "quantised",
        );
    }
    assert_refused(
        weight.file_with("channel_wise", Some(("U8", &[], vec![0]))),
        "instead of",
    );
    assert_refused(
        weight.file_with("axis", Some(("I32", &[2], i32_bytes(&[1, 1])))),
        "single number",
    );
}

#[track_caller]
fn assert_refused(file: Vec<u8>, reason: &str) -> String {
    let message = refusal(file, "{}", "a.fc.");
    assert!(message.contains(reason), "{message}");
    message
}
