//! AWQ in the layout of four interleaved rows (`gemv_fast`): against reference outputs of AutoAWQ, and against the formula with
//! a second implementation of the packing.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, bf16_bytes, compare_with_oracles, dequantised, f16_bytes, random_scales,
    refusal, safetensors,
};

#[test]
fn weights_equal_reference_outputs_of_autoawq() {
    assert_eq!(compare_with_oracles("awq_fast"), 3);
}

fn config(group_size: i64) -> String {
    format!(r#"{{"quant_method":"awq","bits":4,"group_size":{group_size}}}"#)
}

/// Packs 4-bit codes in the order of llm-awq's kernels, after the steps of its `pack_intweight`.
fn interleaved(codes: &[u8], cols: usize) -> Vec<u8> {
    let mut words = vec![0u16; codes.len() / 4];
    for (i, code) in codes.iter().enumerate() {
        let (row, col) = (i / cols, i % cols);
        // in each block of 32 codes the 4 x 8 pairs are transposed, then even and odd codes of each 8 are separated
        let (block, eight, pair, half) = (col / 32, col % 32 / 8, col % 8 / 2, col % 2);
        let target = block * 32 + pair * 8 + half * 4 + eight;
        // four rows are interleaved every 64 columns, and a word has four codes
        let position = (target / 64 * 4 + row % 4) * 64 + target % 64;
        words[row / 4 * cols + position / 4] |= u16::from(*code) << (position % 4 * 4);
    }
    words.into_iter().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn weight_equals_code_times_scale_plus_scaled_zero() {
    for (rows, cols, group_size, group_rows) in [
        (4, 64, 32, 2),
        (8, 192, 64, 8),
        (1200, 1024, 128, 8),
        (12, 320, 320, 1),
    ] {
        let codes: Vec<u8> = random_bytes(1, rows * cols)
            .into_iter()
            .map(|b| b >> 4)
            .collect();
        let mut scales = random_scales(2, group_rows * rows);
        // writers copy them into a tensor of zeros
        scales[cols.div_ceil(group_size) * rows..].fill(0.0);
        let zeros = random_scales(3, group_rows * rows);
        let shape = [group_rows as u64, rows as u64];
        let file = safetensors(&[
            (
                "a.fc.qweight",
                "I16",
                &[rows as u64 / 4, cols as u64],
                interleaved(&codes, cols),
            ),
            ("a.fc.scales", "BF16", &shape, bf16_bytes(&scales)),
            ("a.fc.scaled_zeros", "F16", &shape, f16_bytes(&zeros)),
        ]);
        let (found, values) = dequantised(
            file,
            &config(i64::try_from(group_size).unwrap()),
            "a.fc.weight",
        );
        assert_eq!(found, [rows as u64, cols as u64]);
        let value = |i: usize| {
            let g = i % cols / group_size * rows + i / cols;
            let scale = half::bf16::from_f32(scales[g]).to_f32();
            let zero = half::f16::from_f32(zeros[g]).to_f32();
            f32::from(codes[i]) * scale + zero
        };
        assert_same_bits(&values, &(0..rows * cols).map(value).collect::<Vec<_>>());
    }
}

#[test]
fn parts_with_inconsistent_shapes_or_dtypes_are_refused() {
    let file = |codes_shape: &[u64], scales_shape: &[u64], zeros: (&str, u64)| {
        let bytes = |shape: &[u64], item_bytes: u64| {
            vec![0; usize::try_from(shape.iter().product::<u64>() * item_bytes).unwrap()]
        };
        safetensors(&[
            ("a.fc.qweight", "I16", codes_shape, bytes(codes_shape, 2)),
            ("a.fc.scales", "F16", scales_shape, bytes(scales_shape, 2)),
            (
                "a.fc.qzeros",
                zeros.0,
                scales_shape,
                bytes(scales_shape, zeros.1),
            ),
        ])
    };
    for (codes_shape, scales_shape, zeros, refused_part) in [
        (&[2, 96][..], &[8, 8][..], ("F16", 2), "a.fc.qweight"),
        (&[0, 64], &[8, 0], ("F16", 2), "a.fc.qweight"),
        (&[2, 64, 1], &[8, 8], ("F16", 2), "a.fc.qweight"),
        (&[2, 128], &[8, 4], ("F16", 2), "a.fc.scales"),
        (&[2, 128], &[3, 8], ("F16", 2), "a.fc.scales"),
        (&[2, 128], &[8, 8], ("I16", 2), "a.fc.qzeros"),
    ] {
        refusal(
            file(codes_shape, scales_shape, zeros),
            &config(32),
            refused_part,
        );
    }
    refusal(
        file(&[2, 128], &[8, 8], ("F16", 2)),
        &config(0),
        "a.fc.scales",
    );
}
