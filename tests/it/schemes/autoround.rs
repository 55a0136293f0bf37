//! AutoRound against reference outputs of its own packings, and what its configuration alone tells.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, compare_with_oracles, dequantised, f16_bytes, i32_bytes, random_scales,
    refusal, safetensors,
};

/// 2 to 8 bits in one checkpoint as GPTQ packs them, 4 to 7 as AWQ does, and FP4's kin.
#[test]
fn reference_outputs_are_met() {
    assert_eq!(compare_with_oracles("autoround"), 7);
}

/// AWQ's tensors of 32 inputs and 64 outputs.
fn awq(bits: u64) -> Vec<u8> {
    let words = 64 * bits / 32;
    let some = |seed, n: u64| random_bytes(seed, usize::try_from(n * 4).unwrap());
    safetensors(&[
        ("m.qweight", "I32", &[32, words], some(1, 32 * words)),
        ("m.qzeros", "I32", &[1, words], some(2, words)),
        (
            "m.scales",
            "F16",
            &[1, 64],
            f16_bytes(&random_scales(3, 64)),
        ),
    ])
}

#[test]
fn awq_of_other_widths_is_refused_with_the_reason_and_a_remedy() {
    for format in ["auto_round:auto_awq", "auto_round:awq"] {
        for bits in 2..=8 {
            let config = format!(
                r#"{{"quant_method":"auto-round","packing_format":"{format}","bits":{bits},"group_size":32}}"#
            );
            if (4..=7).contains(&bits) {
                dequantised(awq(bits), &config, "m.weight");
                continue;
            }
            let text = refusal(awq(bits), &config, "m.qweight");
            let reason = format!("{bits} bits, which AutoRound does not write");
            assert!(
                text.contains(&reason) && text.contains("auto_round:auto_gptq"),
                "{text}"
            );
        }
    }
    // with a format of GPTQ's the shapes do not go
    let config = r#"{"quant_method":"auto-round","packing_format":"auto_round:auto_awq","bits":4,"group_size":32}"#;
    let gptq = safetensors(&[
        ("m.qweight", "I32", &[4, 64], i32_bytes(&[0; 256])),
        ("m.qzeros", "I32", &[1, 8], i32_bytes(&[0; 8])),
        (
            "m.scales",
            "F16",
            &[1, 64],
            f16_bytes(&random_scales(3, 64)),
        ),
    ]);
    let text = refusal(gptq, config, "m.qweight");
    assert!(text.contains("auto_awq"), "{text}");
}

/// The same bytes are MXFP4, MXINT4 or FP4 whose scales have a mantissa.
#[test]
fn the_configuration_tells_codes_of_the_same_shape() {
    let (codes, exponents) = (random_bytes(1, 64), vec![127u8; 4]);
    let file = || {
        safetensors(&[
            ("m.weight_packed", "U8", &[4, 16], codes.clone()),
            ("m.weight_scale", "U8", &[4, 1], exponents.clone()),
        ])
    };
    let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let signed = |i: usize, worth: &dyn Fn(usize) -> f32| {
        let code = usize::from(codes[i / 2] >> (i % 2 * 4) & 15);
        worth(code & 7) * if code > 7 { -1.0 } else { 1.0 }
    };
    let fp4: Vec<f32> = (0..128).map(|i| signed(i, &|code| e2m1[code])).collect();
    #[allow(clippy::cast_precision_loss)]
    let quarters: Vec<f32> = (0..128)
        .map(|i| signed(i, &|code| code as f32 / 4.0))
        .collect();
    // byte 127 is 1.875 with an exponent of 15 - 15
    let mantissa: Vec<f32> = fp4.iter().map(|x| x * 1.875).collect();
    let round =
        |rest: &str| format!(r#"{{"quant_method":"auto-round","bits":4,"group_size":32{rest}}}"#);
    let own = |kind: &str| {
        format!(r#","data_type":"mx_fp","extra_config":{{"m":{{"data_type":"{kind}"}}}}"#)
    };
    for (config, expected) in [
        ("{}".to_owned(), &fp4),
        (round(r#","data_type":"mx_fp""#), &fp4),
        (round(r#","data_type":"mx_int""#), &quarters),
        (round(&own("mx_int")), &quarters),
        (round(r#","data_type":"nvfp4_v2""#), &mantissa),
        (round(&own("nvfp4_v2")), &mantissa),
        (
            r#"{"quant_method":"compressed-tensors","format":"nvfp4-e5m3-pack-quantized"}"#
                .to_owned(),
            &mantissa,
        ),
    ] {
        let (shape, values) = dequantised(file(), &config, "m.weight");
        assert_eq!(shape, [4, 32], "{config}");
        assert_same_bits(&values, expected);
    }
}
