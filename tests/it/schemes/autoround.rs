//! AutoRound: against reference outputs of its own packings, and cases in which only the configuration determines the scheme.

use crate::support::random::random_bytes;
use crate::support::scheme_checks::{
    assert_same_bits, compare_with_oracles, dequantised, f16_bytes, i32_bytes, random_scales,
    refusal, safetensors,
};

/// GPTQ packing with 2 to 8 bits in one checkpoint, AWQ packing with 4 to 7, MXINT4, MXFP4 and NVFP4 with E5M3 scales.
#[test]
fn weights_equal_reference_outputs_of_autoround() {
    assert_eq!(compare_with_oracles("autoround"), 7);
}

/// A weight of 32 inputs and 64 outputs in AWQ packing.
fn awq(bits: u64) -> Vec<u8> {
    let words = 64 * bits / 32;
    let words_of = |seed, n: u64| random_bytes(seed, usize::try_from(n * 4).unwrap());
    safetensors(&[
        ("m.qweight", "I32", &[32, words], words_of(1, 32 * words)),
        ("m.qzeros", "I32", &[1, words], words_of(2, words)),
        (
            "m.scales",
            "F16",
            &[1, 64],
            f16_bytes(&random_scales(3, 64)),
        ),
    ])
}

#[test]
fn awq_packing_with_other_bit_widths_is_refused_with_reason_and_remedy() {
    for format in ["auto_round:auto_awq", "auto_round:awq"] {
        for bits in 2..=8 {
            let config = format!(
                r#"{{"quant_method":"auto-round","packing_format":"{format}","bits":{bits},"group_size":32}}"#
            );
            if (4..=7).contains(&bits) {
                dequantised(awq(bits), &config, "m.weight");
                continue;
            }
            let message = refusal(awq(bits), &config, "m.qweight");
            let reason = format!("{bits} bits, which AutoRound does not write");
            assert!(
                message.contains(&reason) && message.contains("auto_round:auto_gptq"),
                "{message}"
            );
        }
    }
    // the shapes of GPTQ packing contradict a configuration of AWQ packing
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
    let message = refusal(gptq, config, "m.qweight");
    assert!(message.contains("auto_awq"), "{message}");
}

/// The same bytes are valid as MXFP4, as MXINT4 and as FP4 with UE5M3 scales.
#[test]
fn configuration_selects_the_data_type_of_4_bit_codes() {
    let (codes, scales) = (random_bytes(1, 64), vec![127u8; 4]);
    let file = || {
        safetensors(&[
            ("m.weight_packed", "U8", &[4, 16], codes.clone()),
            ("m.weight_scale", "U8", &[4, 1], scales.clone()),
        ])
    };
    let e2m1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let value = |i: usize, magnitude: &dyn Fn(usize) -> f32| {
        let code = usize::from(codes[i / 2] >> (i % 2 * 4) & 15);
        magnitude(code & 7) * if code > 7 { -1.0 } else { 1.0 }
    };
    let fp4: Vec<f32> = (0..128).map(|i| value(i, &|code| e2m1[code])).collect();
    #[allow(clippy::cast_precision_loss)]
    let mxint4: Vec<f32> = (0..128)
        .map(|i| value(i, &|code| code as f32 / 4.0))
        .collect();
    // byte 127 is 1.875 as UE5M3: exponent 15 with bias 15
    let ue5m3: Vec<f32> = fp4.iter().map(|x| x * 1.875).collect();
    let autoround_config = |options: &str| {
        format!(r#"{{"quant_method":"auto-round","bits":4,"group_size":32{options}}}"#)
    };
    let module_data_type = |data_type: &str| {
        format!(r#","data_type":"mx_fp","extra_config":{{"m":{{"data_type":"{data_type}"}}}}"#)
    };
    for (config, expected) in [
        ("{}".to_owned(), &fp4),
        (autoround_config(r#","data_type":"mx_fp""#), &fp4),
        (autoround_config(r#","data_type":"mx_int""#), &mxint4),
        (autoround_config(&module_data_type("mx_int")), &mxint4),
        (autoround_config(r#","data_type":"nvfp4_v2""#), &ue5m3),
        (autoround_config(&module_data_type("nvfp4_v2")), &ue5m3),
        (
            r#"{"quant_method":"compressed-tensors","format":"nvfp4-e5m3-pack-quantized"}"#
                .to_owned(),
            &ue5m3,
        ),
    ] {
        let (shape, values) = dequantised(file(), &config, "m.weight");
        assert_eq!(shape, [4, 32], "{config}");
        assert_same_bits(&values, expected);
    }
}
