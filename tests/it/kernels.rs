//! Every build of every kernel gives the outputs of the reference (ggml for F32, PyTorch's rounding of it for BF16), and all
//! builds agree on random bits. `naive_kernels.rs` compares with an implementation of the specification.

use crate::support;
use crate::support::fixture;
use crate::support::random::random_bytes;
use anamnesis::{BlockFormat, Checkpoint, Dtype, Encoding, kernel};

#[test]
fn every_build_gives_the_outputs_of_the_reference() {
    let mut types = Vec::new();
    for format in BlockFormat::all() {
        let name = format.name.to_lowercase();
        let Ok(blocks) = Checkpoint::open(fixture(&format!("gguf/types/{name}.gguf"))) else {
            continue;
        };
        let Ok(builds) = kernel::builds(format) else {
            continue;
        };
        for (dtype, suffix) in [(Dtype::F32, "f32"), (Dtype::BF16, "bf16")] {
            let oracle = Checkpoint::open(fixture(&format!(
                "gguf/types/{name}.oracle.{suffix}.safetensors"
            )))
            .unwrap();
            for tensor in blocks.tensors() {
                assert_eq!(tensor.info().encoding, Encoding::Block(format));
                let stored = tensor.bytes().unwrap();
                let expected = oracle.tensor(&tensor.info().name).unwrap().bytes().unwrap();
                for isa in &builds {
                    let mut out = vec![0xaa; expected.len()];
                    kernel::dequantize_with(isa, format, &stored, dtype, &mut out).unwrap();
                    let same = support::compare_bits(&out, &expected, dtype);
                    same.unwrap_or_else(|e| {
                        panic!("{} {dtype} {isa} {}: {e}", format.name, tensor.info().name)
                    });
                }
            }
        }
        types.push(format.name);
    }
    println!("{} types: {types:?}", types.len());
    assert_eq!(types.len(), 25, "types with reference outputs");
}

/// Q8_K is not stored in files, so there is no reference output: it is compared with its formula.
#[test]
fn q8_k_is_scale_times_code() {
    let format = BlockFormat::from_name("Q8_K").unwrap();
    let mut block = 0.1f32.to_le_bytes().to_vec();
    block.extend(0..=255u8);
    block.extend([0xee; 32]);
    for isa in kernel::builds(format).unwrap() {
        let mut out = vec![0; 1024];
        kernel::dequantize_with(isa, format, &block, Dtype::F32, &mut out).unwrap();
        for (code, x) in (0..=255u8).zip(out.as_chunks().0) {
            assert_eq!(f32::from_le_bytes(*x), 0.1 * f32::from(code.cast_signed()));
        }
    }
}

/// All 256 values of the scale byte, with the codes for 1 and -1: the reference files contain few of them. The code table holds
/// doubled values, so the scales are halved.
#[test]
fn fp4_scales_are_half_of_e8m0_and_ue4m3() {
    let decode = |name: &str, blocks: &[u8], elements: usize| -> Vec<f64> {
        let mut out = vec![0; elements * 4];
        kernel::dequantize(
            BlockFormat::from_name(name).unwrap(),
            blocks,
            Dtype::F32,
            &mut out,
        )
        .unwrap();
        out.as_chunks()
            .0
            .iter()
            .map(|x| f64::from(f32::from_le_bytes(*x)))
            .collect()
    };
    for x in 0..=255u8 {
        let (exponent, mantissa) = (i32::from(x >> 3 & 15), f64::from(x & 7));
        let ue4m3 = match exponent {
            _ if x == 0x7f => 0.0,
            0 => mantissa / 512.0,
            _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
        };
        let mx = decode("MXFP4", &[&[x][..], &[0x91; 16]].concat(), 32);
        let nv = decode("NVFP4", &[[x; 4].as_slice(), &[0x91; 32]].concat(), 64);
        for (found, group, scale) in [
            (mx, 16, 2f64.powi(i32::from(x) - 128)),
            (nv, 8, ue4m3 / 2.0),
        ] {
            for (i, found) in found.iter().enumerate() {
                let sign = if i / group % 2 == 0 { 1.0 } else { -1.0 };
                assert_eq!(*found, sign * scale, "scale {x:#04x}, element {i}");
            }
        }
    }
}

/// The 16-bit outputs are the F32 output rounded once. A NaN becomes the canonical one; in F16 it may have either sign.
#[test]
fn all_builds_agree_on_random_bits() {
    for format in BlockFormat::all() {
        let Ok(builds) = kernel::builds(format) else {
            continue;
        };
        let blocks = random_bytes(
            u64::from(format.ggml_type),
            format.block_bytes as usize * 513,
        );
        let elements = format.block_len as usize * 513;
        let decode = |isa: &str, dtype: Dtype| {
            let mut out =
                vec![0x55; elements * usize::try_from(dtype.item_bytes().unwrap()).unwrap()];
            kernel::dequantize_with(isa, format, &blocks, dtype, &mut out).unwrap();
            out
        };
        let f32s = decode("baseline", Dtype::F32);
        for isa in &builds {
            let same = support::compare_bits(&decode(isa, Dtype::F32), &f32s, Dtype::F32);
            same.unwrap_or_else(|e| panic!("{} {isa}: {e}", format.name));
            let (f16s, bf16s) = (decode(isa, Dtype::F16), decode(isa, Dtype::BF16));
            for (i, x) in f32s.chunks(4).enumerate() {
                let x = f32::from_le_bytes(x.try_into().unwrap());
                let f16 = half::f16::from_le_bytes([f16s[2 * i], f16s[2 * i + 1]]);
                let bf16 = half::bf16::from_le_bytes([bf16s[2 * i], bf16s[2 * i + 1]]);
                let (expected_f16, expected_bf16) =
                    (half::f16::from_f32_const(x), half::bf16::from_f32_const(x));
                let is_equal = f16.to_bits() == expected_f16.to_bits()
                    && bf16.to_bits() == expected_bf16.to_bits();
                let is_nan =
                    x.is_nan() && f16.to_bits() & 0x7fff == 0x7e00 && bf16.to_bits() == 0x7fc0;
                assert!(is_equal || is_nan, "{} {isa} element {i}: {x}", format.name);
            }
        }
    }
}
