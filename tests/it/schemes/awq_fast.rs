//! AWQ of four rows at a time: what AutoAWQ packs, and the packing written down again.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, bf16_bytes, compare_with_oracles, dequantised, f16_bytes, random_scales,
    refusal, safetensors,
};

#[test]
fn reference_outputs_are_met() {
    assert_eq!(compare_with_oracles("awq_fast"), 3);
}

fn config(group: i64) -> String {
    format!(r#"{{"quant_method":"awq","bits":4,"group_size":{group}}}"#)
}

/// Codes of 4 bits as the kernels of llm-awq want them: where each is, by the steps of its `pack_intweight`.
fn interleaved(codes: &[u8], cols: usize) -> Vec<u8> {
    let mut words = vec![0u16; codes.len() / 4];
    for (at, code) in codes.iter().enumerate() {
        let (row, col) = (at / cols, at % cols);
        // eights of pairs are turned, then the halves of pairs within eights
        let (block, b, a, c) = (col / 32, col % 32 / 8, col % 8 / 2, col % 2);
        let to = block * 32 + a * 8 + c * 4 + b;
        // four rows are interleaved by 64 columns, and four of that in a word
        let flat = (to / 64 * 4 + row % 4) * 64 + to % 64;
        words[row / 4 * cols + flat / 4] |= u16::from(*code) << (flat % 4 * 4);
    }
    words.into_iter().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn rows_are_those_of_the_formula() {
    for (rows, cols, group, room) in [
        (4, 64, 32, 2),
        (8, 192, 64, 8),
        (1200, 1024, 128, 8),
        (12, 320, 320, 1),
    ] {
        let codes: Vec<u8> = random_bytes(1, rows * cols)
            .into_iter()
            .map(|b| b >> 4)
            .collect();
        let (s, z) = (random_scales(2, room * rows), random_scales(3, room * rows));
        let shape = [room as u64, rows as u64];
        let file = safetensors(&[
            (
                "a.fc.qweight",
                "I16",
                &[rows as u64 / 4, cols as u64],
                interleaved(&codes, cols),
            ),
            ("a.fc.scales", "BF16", &shape, bf16_bytes(&s)),
            ("a.fc.scaled_zeros", "F16", &shape, f16_bytes(&z)),
        ]);
        let (found, values) =
            dequantised(file, &config(i64::try_from(group).unwrap()), "a.fc.weight");
        assert_eq!(found, [rows as u64, cols as u64]);
        let value = |i: usize| {
            let at = i % cols / group * rows + i / cols;
            let (s, z) = (
                half::bf16::from_f32(s[at]).to_f32(),
                half::f16::from_f32(z[at]).to_f32(),
            );
            f32::from(codes[i]) * s + z
        };
        assert_same_bits(&values, &(0..rows * cols).map(value).collect::<Vec<_>>());
    }
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let file = |codes: &[u64], factors: &[u64], zeros: (&str, u64)| {
        let bytes = |shape: &[u64], item: u64| {
            vec![0; usize::try_from(shape.iter().product::<u64>() * item).unwrap()]
        };
        safetensors(&[
            ("a.fc.qweight", "I16", codes, bytes(codes, 2)),
            ("a.fc.scales", "F16", factors, bytes(factors, 2)),
            ("a.fc.qzeros", zeros.0, factors, bytes(factors, zeros.1)),
        ])
    };
    for (codes, factors, zeros, name) in [
        (&[2, 96][..], &[8, 8][..], ("F16", 2), "a.fc.qweight"),
        (&[0, 64], &[8, 0], ("F16", 2), "a.fc.qweight"),
        (&[2, 64, 1], &[8, 8], ("F16", 2), "a.fc.qweight"),
        (&[2, 128], &[8, 4], ("F16", 2), "a.fc.scales"),
        (&[2, 128], &[3, 8], ("F16", 2), "a.fc.scales"),
        (&[2, 128], &[8, 8], ("I16", 2), "a.fc.qzeros"),
    ] {
        refusal(file(codes, factors, zeros), &config(32), name);
    }
    refusal(
        file(&[2, 128], &[8, 8], ("F16", 2)),
        &config(0),
        "a.fc.scales",
    );
}
