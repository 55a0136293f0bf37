//! Kernels against the reference's outputs, build against build.

use crate::support;
use crate::support::fixture;
use anamnesis::{BlockFormat, Checkpoint, Dtype, Encoding, kernel};

/// Every block type with its reference outputs, F32 from ggml and BF16 from PyTorch's rounding of it.
#[test]
fn every_build_gives_the_reference_bits() {
    let mut types = Vec::new();
    for format in BlockFormat::all() {
        let name = format.name.to_lowercase();
        let Ok(blocks) = Checkpoint::open(fixture(&format!("gguf/types/{name}.gguf"))) else {
            continue;
        };
        let Ok(builds) = kernel::builds(format) else {
            continue;
        };
        for (dtype, ending) in [(Dtype::F32, "f32"), (Dtype::BF16, "bf16")] {
            let oracle = Checkpoint::open(fixture(&format!(
                "gguf/types/{name}.oracle.{ending}.safetensors"
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

/// Q8_K has no reference output, for it is not written to files: its formula by hand.
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

/// Every scale of the FP4 types, times 1 and -1 (stored doubled): the references hold only a few.
#[test]
fn fp4_scales_are_half_of_e8m0_and_ue4m3() {
    let run = |name: &str, blocks: &[u8], elements: usize| -> Vec<f64> {
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
        let mx = run("MXFP4", &[&[x][..], &[0x91; 16]].concat(), 32);
        let nv = run("NVFP4", &[[x; 4].as_slice(), &[0x91; 32]].concat(), 64);
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

/// Random bits through every build and output: all builds give the same bits, and the 16-bit outputs
/// are the F32 output rounded once, with one NaN each but for F16's sign.
#[test]
fn all_builds_agree_on_random_bits() {
    let mut state = 20_261_121u64;
    let mut random = |n: usize| -> Vec<u8> {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        (0..n).map(|_| next()).collect()
    };
    for format in BlockFormat::all() {
        let Ok(builds) = kernel::builds(format) else {
            continue;
        };
        let blocks = random(format.block_bytes as usize * 513);
        let elements = format.block_len as usize * 513;
        let run = |isa: &str, dtype: Dtype| {
            let mut out =
                vec![0x55; elements * usize::try_from(dtype.item_bytes().unwrap()).unwrap()];
            kernel::dequantize_with(isa, format, &blocks, dtype, &mut out).unwrap();
            out
        };
        let wide = run("baseline", Dtype::F32);
        for isa in &builds {
            let same = support::compare_bits(&run(isa, Dtype::F32), &wide, Dtype::F32);
            same.unwrap_or_else(|e| panic!("{} {isa}: {e}", format.name));
            let (narrow, brain) = (run(isa, Dtype::F16), run(isa, Dtype::BF16));
            for (i, x) in wide.chunks(4).enumerate() {
                let x = f32::from_le_bytes(x.try_into().unwrap());
                let half = half::f16::from_le_bytes([narrow[2 * i], narrow[2 * i + 1]]);
                let bf = half::bf16::from_le_bytes([brain[2 * i], brain[2 * i + 1]]);
                let (want_half, want_bf) =
                    (half::f16::from_f32_const(x), half::bf16::from_f32_const(x));
                let equal =
                    half.to_bits() == want_half.to_bits() && bf.to_bits() == want_bf.to_bits();
                let nan = x.is_nan() && half.to_bits() & 0x7fff == 0x7e00 && bf.to_bits() == 0x7fc0;
                assert!(equal || nan, "{} {isa} element {i}: {x}", format.name);
            }
        }
    }
}
