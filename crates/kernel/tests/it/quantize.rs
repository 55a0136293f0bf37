//! Quantised rows are llama.cpp's, byte for byte: checksums of what its library made of the same rows.
//!
//! `quantize_checksums.py` beside this file makes the table: it needs llama.cpp's library, and the same generator of rows.

use anamnesis_kernel::{BlockFormat, Dtype, Error, dequantize, quantize_rows};

/// Rows and columns of a case.
const ROWS: usize = 12;
const WIDTH: usize = 512;

/// Types, and the checksums without importance (0 where there must be one) and with it.
#[rustfmt::skip]
static EXPECTED: &[(&str, u64, u64)] = &[
    ("Q1_0", 0x2ec18723ad9bcc04, 0x2ec18723ad9bcc04),
    ("Q2_0", 0x81ec479445337428, 0x81ec479445337428),
    ("Q4_0", 0x6facec53f7aa69c0, 0x823b8cd2d1c3481f),
    ("Q4_1", 0x9525dc9600603ed1, 0x22bbb692808af232),
    ("Q5_0", 0x37ef2085f48755e7, 0x545947b3873bf73c),
    ("Q5_1", 0x309caadae47c3b05, 0x31040d96744dbc67),
    ("Q8_0", 0x7accb651ad7766df, 0x7accb651ad7766df),
    ("Q2_K", 0x0bfe48bece843f47, 0x144415f8ef64a99a),
    ("Q3_K", 0xaf893b8736949eda, 0xe40046752334f274),
    ("Q4_K", 0xfae6007411a483fc, 0xb9986bf63a8676e8),
    ("Q5_K", 0x785da45c3bd517f6, 0x5fd980ff7c118975),
    ("Q6_K", 0x072bf5c60a218ee2, 0xbcea7ced5d1608ec),
    ("IQ1_S", 0, 0x9a7e2f88be1c7565),
    ("IQ1_M", 0xfd143f1f3d6b1df8, 0x9457ff9a007664b6),
    ("IQ2_XXS", 0, 0x54d7e305fedec38f),
    ("IQ2_XS", 0, 0x32c8df3283a6fc35),
    ("IQ2_S", 0x4837157da9cbc8e0, 0xbd2fc364e45838ec),
    ("IQ3_XXS", 0x53957cb6426db2ab, 0x6eb0771b368a4c9f),
    ("IQ3_S", 0xa2b5b6cb09ff9a59, 0x3665ab8d679da7bc),
    ("IQ4_NL", 0x59822b040017834b, 0x2e45570e941de2cf),
    ("IQ4_XS", 0xa4105dcbbd3c3f09, 0xe7b5bf75985ecbd3),
    ("TQ1_0", 0xea4c7b4bccfeb370, 0xea4c7b4bccfeb370),
    ("TQ2_0", 0xf2d38eacdf925d51, 0xf2d38eacdf925d51),
    ("MXFP4", 0x5a4d4292b69fced3, 0x5a4d4292b69fced3),
    ("NVFP4", 0x371b75b21e4102d8, 0x371b75b21e4102d8),
];

/// The numbers of a linear congruential generator: the upper 24 bits, as a float from 0 to 1.
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as f32 / 16_777_216.0
    }
}

/// Rows of several kinds: noise of several sizes, sparse, positive, steps, constant, zeros, an outlier, subnormal.
fn rows() -> Vec<f32> {
    let mut numbers = Numbers(7);
    let mut rows = Vec::with_capacity(ROWS * WIDTH);
    for row in 0..ROWS {
        for column in 0..WIDTH {
            let x = numbers.next() - 0.5;
            rows.push(match row {
                0 => x,
                1 => x * 0.001,
                2 => x * 100.0,
                3 if x > -0.45 => 0.0,
                4 => x + 0.5,
                5 => (x * 16.0).floor() * 0.25,
                6 => 0.75,
                7 => 0.0,
                8 if column == 77 => 1000.0,
                9 => x * x * x,
                10 => -(x + 0.5),
                11 => x * 1e-39,
                _ => x,
            });
        }
    }
    rows
}

fn importance() -> Vec<f32> {
    let mut numbers = Numbers(99);
    (0..WIDTH).map(|_| numbers.next() + 0.01).collect()
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn quantized(
    format: &BlockFormat,
    rows: &[f32],
    importance: Option<&[f32]>,
) -> Result<Vec<u8>, Error> {
    let blocks = rows.len() / format.block_len as usize;
    let mut out = vec![0; blocks * format.block_bytes as usize];
    quantize_rows(format, rows, WIDTH, importance, &mut out).map(|()| out)
}

#[test]
fn rows_are_quantized_as_llama_cpp_does() {
    let (rows, importance) = (rows(), importance());
    for &(name, plain, weighted) in EXPECTED {
        let format = BlockFormat::from_name(name).unwrap();
        assert!(format.is_quantized_to());
        match quantized(format, &rows, None) {
            Ok(bytes) => assert_eq!(checksum(&bytes), plain, "{name}"),
            Err(_) => assert!(plain == 0 && format.needs_importance(), "{name}"),
        }
        let bytes = quantized(format, &rows, Some(&importance)).unwrap();
        assert_eq!(checksum(&bytes), weighted, "{name} with importance");
    }
    let made = BlockFormat::all()
        .iter()
        .filter(|format| format.is_quantized_to());
    assert_eq!(made.count(), EXPECTED.len());
}

#[test]
fn any_bits_are_refused_or_decode_to_finite_values() {
    let mut numbers = Numbers(1234);
    for format in BlockFormat::all()
        .iter()
        .filter(|format| format.is_quantized_to())
    {
        for round in 0..24 {
            let mut bits = || {
                numbers.next();
                // all exponents in every second round, and none that is not finite in the others
                f32::from_bits(if round % 2 == 0 {
                    numbers.0
                } else {
                    numbers.0 & 0xbfff_ffff
                })
            };
            let row: Vec<f32> = (0..WIDTH).map(|_| bits()).collect();
            let importance: Vec<f32> = (0..WIDTH).map(|_| bits().abs().min(1e6)).collect();
            let importance: Vec<f32> = importance
                .iter()
                .map(|w| if w.is_finite() { *w } else { 1.0 })
                .collect();
            for importance in [None, Some(&*importance)] {
                let Ok(blocks) = quantized(format, &row, importance) else {
                    continue;
                };
                assert!(row.iter().all(|x| x.is_finite()), "{}", format.name);
                let mut values = vec![0; WIDTH * 4];
                dequantize(format, &blocks, Dtype::F32, &mut values).unwrap();
                let mut values = values.as_chunks().0.iter().copied().map(f32::from_le_bytes);
                assert!(values.all(f32::is_finite), "{}", format.name);
            }
        }
    }
}

#[test]
fn wrong_lengths_and_missing_importance_are_refused() {
    let q4_k = BlockFormat::from_name("Q4_K").unwrap();
    let row = [0.5; 256];
    let refused = |width, importance: Option<&[f32]>, bytes: usize| {
        matches!(
            quantize_rows(q4_k, &row, width, importance, &mut vec![0; bytes]),
            Err(Error::Mismatch(_))
        )
    };
    assert!(refused(128, None, 144) && refused(0, None, 144) && refused(512, None, 144));
    assert!(refused(256, None, 143) && refused(256, Some(&[1.0; 255]), 144));
    let iq1_s = BlockFormat::from_name("IQ1_S").unwrap();
    let made = quantize_rows(iq1_s, &row, 256, None, &mut [0; 50]);
    assert!(matches!(made, Err(Error::Unsupported(_))));
    let q8_k = BlockFormat::from_name("Q8_K").unwrap();
    let made = quantize_rows(q8_k, &row, 256, None, &mut [0; 292]);
    assert!(matches!(made, Err(Error::Unsupported(_))));
}
