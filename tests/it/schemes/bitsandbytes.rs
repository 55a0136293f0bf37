//! bitsandbytes, 4-bit and INT8: against reference outputs of bitsandbytes and against the formula.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, compare_with_oracles, dequantise, dequantised, f32_bytes, output_names,
    random_scales, refusal, safetensors,
};

use anamnesis::Dtype;

const WEIGHT: &str = "a.fc.weight";

/// The offset of nested scales: a value that is exact in neither BF16 nor F16.
const NESTED_OFFSET: f32 = 0.123_456_79;

#[test]
fn weights_equal_reference_outputs_of_bitsandbytes() {
    assert_eq!(compare_with_oracles("bnb"), 16);
}

/// A 4-bit weight to be stored. `state` replaces its quantisation state.
struct FourBitWeight {
    shape: Vec<u64>,
    blocksize: u64,
    nested: Option<u64>,
    nested_dtype: &'static str,
    storage: (&'static str, u64),
    state: Option<String>,
}

impl FourBitWeight {
    fn new(shape: &[u64], blocksize: u64) -> Self {
        Self {
            shape: shape.to_vec(),
            blocksize,
            nested: None,
            nested_dtype: "float32",
            storage: ("U8", 1),
            state: None,
        }
    }

    fn elements(&self) -> usize {
        usize::try_from(self.shape.iter().product::<u64>()).unwrap()
    }

    fn codes(&self) -> Vec<u8> {
        let item = usize::try_from(self.storage.1).unwrap();
        random_bytes(1, self.elements().div_ceil(2).next_multiple_of(item))
    }

    fn blocks(&self) -> usize {
        self.elements()
            .div_ceil(usize::try_from(self.blocksize).unwrap())
    }

    fn file(&self, omitted_part: &str) -> Vec<u8> {
        let dtype = self.nested_dtype;
        let nested_fields = |block: u64| {
            format!(
                r#", "nested_blocksize": {block}, "nested_dtype": "{dtype}", "nested_offset": {NESTED_OFFSET}"#
            )
        };
        let state = self.state.clone().unwrap_or_else(|| {
            let (nested, Self { shape, blocksize, .. }) = (self.nested.map_or_else(String::new, nested_fields), self);
            format!(
                r#"{{"quant_type": "nf4", "blocksize": {blocksize}, "dtype": "float32", "shape": {shape:?}{nested}}}"#
            )
        });
        let (codes, blocks) = (self.codes(), self.blocks());
        let (storage, item) = self.storage;
        let mut tensors: Vec<(&str, &str, Vec<u64>, Vec<u8>)> = vec![
            (
                "a.fc.weight",
                storage,
                vec![codes.len() as u64 / item, 1],
                codes,
            ),
            (
                "a.fc.weight.quant_map",
                "F32",
                vec![16],
                f32_bytes(&random_scales(2, 16)),
            ),
            (
                "a.fc.weight.quant_state.bitsandbytes__nf4",
                "U8",
                vec![state.len() as u64],
                state.into_bytes(),
            ),
        ];
        if let Some(block) = self.nested {
            let n = blocks.div_ceil(usize::try_from(block).unwrap());
            tensors.push((
                "a.fc.weight.absmax",
                "U8",
                vec![blocks as u64],
                random_bytes(3, blocks),
            ));
            tensors.push((
                "a.fc.weight.nested_absmax",
                "F32",
                vec![n as u64],
                f32_bytes(&random_scales(4, n)),
            ));
            tensors.push((
                "a.fc.weight.nested_quant_map",
                "F32",
                vec![256],
                f32_bytes(&random_scales(5, 256)),
            ));
        } else {
            tensors.push((
                "a.fc.weight.absmax",
                "F32",
                vec![blocks as u64],
                f32_bytes(&random_scales(3, blocks)),
            ));
        }
        tensors.retain(|(name, ..)| omitted_part.is_empty() || !name.ends_with(omitted_part));
        let tensors: Vec<_> = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| (*name, *dtype, shape.as_slice(), bytes.clone()))
            .collect();
        safetensors(&tensors)
    }

    /// A dequantised scale plus the offset, rounded to the dtype of nested scales.
    fn absmax(&self, scale: f32) -> f32 {
        let bf16 = |x: f32| half::bf16::from_f32(x).to_f32();
        let f16 = |x: f32| half::f16::from_f32(x).to_f32();
        match self.nested_dtype {
            "bfloat16" => bf16(bf16(scale) + bf16(NESTED_OFFSET)),
            "float16" => f16(f16(scale) + f16(NESTED_OFFSET)),
            #[allow(clippy::cast_possible_truncation)] // rounding is intended
            "float64" => (f64::from(scale) + f64::from(NESTED_OFFSET)) as f32,
            _ => scale + NESTED_OFFSET,
        }
    }

    fn expected(&self) -> Vec<f32> {
        let (quant_map, codes) = (random_scales(2, 16), self.codes());
        let absmax: Vec<f32> = match self.nested {
            None => random_scales(3, self.blocks()),
            Some(block) => {
                let (nested_map, nested_absmax) =
                    (random_scales(5, 256), random_scales(4, self.blocks()));
                let value = |(i, code): (usize, &u8)| {
                    self.absmax(
                        nested_map[usize::from(*code)]
                            * nested_absmax[i / usize::try_from(block).unwrap()],
                    )
                };
                random_bytes(3, self.blocks())
                    .iter()
                    .enumerate()
                    .map(value)
                    .collect()
            }
        };
        let value = |i: usize| {
            let byte = codes[i / 2];
            let code = if i.is_multiple_of(2) {
                byte >> 4
            } else {
                byte & 15
            };
            quant_map[usize::from(code)] * absmax[i / usize::try_from(self.blocksize).unwrap()]
        };
        (0..self.elements()).map(value).collect()
    }
}

#[test]
fn four_bit_weights_equal_the_formula() {
    // odd lengths, a shorter last block, blocks across rows and across tiles, one to three dimensions
    let shapes: [(&[u64], u64); 8] = [
        (&[5, 7], 64),
        (&[1], 64),
        (&[3, 4, 33], 32),
        (&[129], 128),
        (&[500, 601], 64),
        (&[300, 1024], 4096),
        (&[9, 8], 2),
        (&[16, 64], 8),
    ];
    for (shape, blocksize) in shapes {
        for nested in [None, Some(256), Some(3)] {
            for storage in [("U8", 1), ("BF16", 2), ("F32", 4)] {
                let weight = FourBitWeight {
                    nested,
                    storage,
                    ..FourBitWeight::new(shape, blocksize)
                };
                let (found, values) = dequantised(weight.file(""), "{}", WEIGHT);
                assert_eq!(found, shape);
                assert_same_bits(&values, &weight.expected());
            }
        }
    }
}

#[test]
fn nested_scales_and_their_sum_with_the_offset_are_rounded_to_nested_dtype() {
    for nested_dtype in ["float32", "bfloat16", "float16", "float64"] {
        for (shape, nested) in [(&[40, 64][..], 3), (&[513, 33], 256)] {
            let weight = FourBitWeight {
                nested: Some(nested),
                nested_dtype,
                ..FourBitWeight::new(shape, 64)
            };
            assert_same_bits(
                &dequantised(weight.file(""), "{}", WEIGHT).1,
                &weight.expected(),
            );
        }
    }
}

#[test]
fn parts_of_a_weight_are_no_outputs() {
    let weight = FourBitWeight {
        nested: Some(256),
        ..FourBitWeight::new(&[8, 64], 64)
    };
    assert_eq!(output_names(weight.file(""), "{}"), [WEIGHT]);
}

#[test]
fn missing_parts_are_refused_by_name() {
    let weight = FourBitWeight {
        nested: Some(256),
        ..FourBitWeight::new(&[8, 64], 64)
    };
    for part in [
        ".absmax",
        ".quant_map",
        ".nested_absmax",
        ".nested_quant_map",
        "bitsandbytes__nf4",
        "fc.weight",
    ] {
        let message = refusal(weight.file(part), "{}", WEIGHT);
        assert!(message.contains("missing"), "{message}");
    }
}

#[test]
fn quant_state_that_contradicts_the_parts_is_refused() {
    let state = |blocksize: &str, shape: &str, nested: &str| {
        Some(format!(
            r#"{{"quant_type":"nf4","blocksize":{blocksize},"dtype":"float32","shape":{shape}{nested}}}"#
        ))
    };
    for state in [
        state("0", "[8,64]", ""),
        state("63", "[8,64]", ""),
        state("1", "[8,64]", ""),
        state("-64", "[8,64]", ""),
        state("128", "[8,64]", ""),
        state("18446744073709551615", "[8,64]", ""),
        state("64", "[8,65]", ""),
        state("64", "[8,32]", ""),
        state("64", "[18446744073709551615,18446744073709551615]", ""),
        state("64", "[0,64]", ""),
        state("64", "[]", ""),
        state("64", "null", ""),
        state("64", "[8,-64]", ""),
        state(
            "64",
            "[8,64]",
            r#","nested_blocksize":0,"nested_offset":0.5"#,
        ),
        state("64", "[8,64]", r#","nested_blocksize":256"#),
        state(
            "64",
            "[8,64]",
            r#","nested_blocksize":256,"nested_offset":1e999"#,
        ),
        state(
            "64",
            "[8,64]",
            r#","nested_blocksize":256,"nested_offset":0.5,"nested_dtype":"int8""#,
        ),
        state(
            "64",
            "[8,64]",
            r#","nested_blocksize":256,"nested_offset":0.5,"nested_dtype":"float8_e4m3fn""#,
        ),
        Some(r#"{"quant_type":"fp4","blocksize":64,"shape":[8,64]}"#.to_owned()),
        Some("{".to_owned()),
        Some("[".repeat(10_000)),
    ] {
        refusal(
            FourBitWeight {
                state,
                ..FourBitWeight::new(&[8, 64], 64)
            }
            .file(""),
            "{}",
            WEIGHT,
        );
    }
    // longer than the limit of descriptors
    let long = format!(
        "{}{}",
        " ".repeat(70_000),
        FourBitWeight::new(&[8, 64], 64).state.unwrap_or_default()
    );
    refusal(
        FourBitWeight {
            state: Some(long),
            ..FourBitWeight::new(&[8, 64], 64)
        }
        .file(""),
        "{}",
        WEIGHT,
    );
}

fn int8(scb: (&str, &[u64], Vec<u8>), format: u8) -> Vec<u8> {
    safetensors(&[
        ("a.fc.weight", "I8", &[5, 33], random_bytes(1, 165)),
        ("a.fc.SCB", scb.0, scb.1, scb.2),
        ("a.fc.weight_format", "U8", &[], vec![format]),
    ])
}

#[test]
fn int8_product_is_rounded_after_each_factor() {
    let scb = random_scales(2, 5);
    let file = int8(("F32", &[5], f32_bytes(&scb)), 0);
    assert_eq!(output_names(file.clone(), "{}"), [WEIGHT]);
    let (shape, values) = dequantised(file, "{}", WEIGHT);
    let codes = random_bytes(1, 165);
    let constant: f32 = "7.874015718698502e-3".parse().unwrap();
    let expected: Vec<f32> = (0..165)
        .map(|i| f32::from(codes[i].cast_signed()) * scb[i / 33] * constant)
        .collect();
    assert_eq!(shape, [5, 33]);
    assert_same_bits(&values, &expected);
}

#[test]
fn int8_with_wrong_scales_or_weight_format_is_refused() {
    for scb in [
        ("F32", &[4][..], f32_bytes(&[1.0; 4])),
        ("F16", &[5], vec![0; 10]),
        ("F32", &[0], vec![]),
    ] {
        let message = refusal(int8(scb, 0), "{}", "a.fc.SCB");
        assert!(message.contains("5 rows"), "{message}");
    }
    refusal(
        int8(("F32", &[5], f32_bytes(&[1.0; 5])), 1),
        "{}",
        "a.fc.weight_format",
    );
    let result = dequantise(
        int8(("F32", &[5], f32_bytes(&[1.0; 5])), 1),
        "{}",
        WEIGHT,
        Dtype::F32,
    );
    assert!(result.is_err());
}
