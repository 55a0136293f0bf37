//! GGUF weights: big-endian blocks against the little-endian fixtures of gguf-py, and scales in sibling tensors against the
//! kernels' output times the scale.

use anamnesis::{BlockFormat, Checkpoint, Dtype, Encoding, Remembered, kernel, remember};

use crate::support;
use crate::support::random::random_bytes;
use crate::support::writers::{StoredTensor, gguf};

fn all(checkpoint: &Checkpoint, dtype: Dtype) -> Vec<Remembered> {
    remember(checkpoint).dtype(dtype).threads(1).all().unwrap()
}

/// The fields of a block that have items of more than one byte: `(offset, bytes of an item, items)`.
type Fields = &'static [(usize, usize, usize)];

/// From the structs of `ggml-common.h`; where these declare bytes, from the items that `ggml-quants.c` reads.
#[rustfmt::skip]
static MULTI_BYTE_FIELDS: &[(&str, Fields)] = &[
    ("q4_0", &[(0, 2, 1)]), ("q4_1", &[(0, 2, 2)]), ("q5_0", &[(0, 2, 1), (2, 4, 1)]),
    ("q5_1", &[(0, 2, 2), (4, 4, 1)]), ("q8_0", &[(0, 2, 1)]), ("q8_1", &[(0, 2, 2)]),
    ("q8_k", &[(0, 4, 1), (260, 2, 16)]), ("iq2_xxs", &[(0, 2, 33)]), ("q2_k", &[(80, 2, 2)]), ("q3_k", &[(108, 2, 1)]),
    ("q4_k", &[(0, 2, 2)]), ("q5_k", &[(0, 2, 2)]), ("q6_k", &[(208, 2, 1)]), ("iq2_xs", &[(0, 2, 33)]),
    ("iq2_s", &[(0, 2, 1)]), ("iq3_xxs", &[(0, 2, 1), (66, 4, 8)]), ("iq3_s", &[(0, 2, 1)]),
    ("iq1_s", &[(0, 2, 1), (34, 2, 8)]), ("iq1_m", &[(48, 2, 4)]), ("iq4_nl", &[(0, 2, 1)]), ("iq4_xs", &[(0, 2, 2)]),
    ("tq1_0", &[(52, 2, 1)]), ("tq2_0", &[(64, 2, 1)]), ("q1_0", &[(0, 2, 1)]), ("q2_0", &[(0, 2, 1)]),
    ("mxfp4", &[]), ("mxfp4_ollama", &[]), ("nvfp4", &[]),
];

#[test]
fn big_endian_blocks_give_the_values_of_little_endian_blocks() {
    for format in BlockFormat::all() {
        let name = format.name.to_lowercase();
        let (_, fields) = MULTI_BYTE_FIELDS
            .iter()
            .find(|(of, _)| *of == name)
            .unwrap_or_else(|| panic!("{name} is missing from MULTI_BYTE_FIELDS"));
        let random_file = || {
            let (bytes, cols) = (
                random_bytes(5, 6 * format.block_bytes as usize),
                2 * u64::from(format.block_len),
            );
            gguf(
                false,
                &[],
                &[StoredTensor::new(
                    "a.weight",
                    &format.ggml_type.to_string(),
                    &[3, cols],
                    bytes,
                )],
            )
        };
        // gguf-py writes no files of some types, so that these have no fixture
        let file = support::fixture(&format!("gguf/types/{name}.gguf"));
        let little = if file.exists() {
            Checkpoint::open(file)
        } else {
            Checkpoint::from_bytes(random_file())
        }
        .unwrap();
        let mut stored = Vec::new();
        for tensor in little.tensors() {
            let Encoding::Block(format) = tensor.info().encoding else {
                panic!("{name}")
            };
            let mut bytes = tensor.bytes().unwrap().into_owned();
            for block in bytes.chunks_mut(format.block_bytes as usize) {
                for &(offset, width, n) in *fields {
                    block[offset..offset + width * n]
                        .chunks_mut(width)
                        .for_each(<[u8]>::reverse);
                }
            }
            stored.push(StoredTensor::new(
                &tensor.info().name,
                &format.ggml_type.to_string(),
                &tensor.info().shape,
                bytes,
            ));
        }
        let big = Checkpoint::from_bytes(gguf(true, &[], &stored)).unwrap();
        for dtype in [Dtype::F32, Dtype::BF16] {
            assert!(all(&big, dtype) == all(&little, dtype), "{name} {dtype}");
        }
    }
}

#[test]
fn sibling_scale_tensor_multiplies_the_blocks() {
    let format = BlockFormat::from_name("NVFP4").unwrap();
    let (blocks, factors) = (random_bytes(77, 6 * 36), [0.37f32, -1.5, 1e-3]);
    let mut unscaled = vec![0; 6 * 64 * 4];
    kernel::dequantize(format, &blocks, Dtype::F32, &mut unscaled).unwrap();
    let unscaled: Vec<f32> = unscaled
        .as_chunks()
        .0
        .iter()
        .map(|x| f32::from_le_bytes(*x))
        .collect();
    for (shape, n, suffix, big) in [
        (&[3, 128][..], 1, ".scale", false),
        (&[3, 2, 64], 3, ".scale", false),
        (&[3, 2, 64], 1, ".weight.scale", false),
        (&[3, 2, 64], 3, ".weight.scale", true),
    ] {
        let bytes = |x: &f32| {
            if big {
                x.to_be_bytes()
            } else {
                x.to_le_bytes()
            }
        };
        let scale = factors[..n].iter().flat_map(bytes).collect();
        let input = StoredTensor::new("blk.0.up.input_scale", "0", &[1], vec![0; 4]);
        let stored = [
            StoredTensor::new("blk.0.up.weight", "40", shape, blocks.clone()),
            StoredTensor::new(&format!("blk.0.up{suffix}"), "0", &[n as u64], scale),
            input,
        ];
        let checkpoint = Checkpoint::from_bytes(gguf(big, &[], &stored)).unwrap();
        let scaled = unscaled
            .iter()
            .enumerate()
            .map(|(i, x)| x * factors[i / (unscaled.len() / n)]);
        let expected_f32: Vec<f32> = scaled.collect();
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let expected: Vec<u8> = match dtype {
                Dtype::F32 => expected_f32.iter().flat_map(|x| x.to_le_bytes()).collect(),
                Dtype::F16 => expected_f32
                    .iter()
                    .flat_map(|&x| half::f16::from_f32(x).to_le_bytes())
                    .collect(),
                _ => expected_f32
                    .iter()
                    .flat_map(|&x| half::bf16::from_f32(x).to_le_bytes())
                    .collect(),
            };
            let all = all(&checkpoint, dtype);
            assert_eq!(all.len(), 1, "scales are no outputs");
            support::compare_bits(&all[0].bytes, &expected, dtype)
                .unwrap_or_else(|e| panic!("{shape:?} {n} {dtype}: {e}"));
        }
    }
    // two scales for three matrices
    let stored = [
        StoredTensor::new("blk.0.up.weight", "40", &[3, 2, 64], blocks),
        StoredTensor::new("blk.0.up.scale", "0", &[2], vec![0; 8]),
    ];
    let checkpoint = Checkpoint::from_bytes(gguf(false, &[], &stored)).unwrap();
    let plan = remember(&checkpoint).plan().unwrap();
    assert!(
        plan.refused[0]
            .error
            .to_string()
            .contains("`blk.0.up.scale`"),
        "{:?}",
        plan.refused
    );
}
