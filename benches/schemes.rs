//! Schemes: one weight of 4096 by 4096 through `remember`, one thread, from memory to memory that is there.
//!
//! `cargo bench --bench schemes [name…]`. Elements per second, the best of some runs, beside what copying the
//! output's bytes takes here and now; the tests prove the bits.
#![allow(missing_docs, clippy::cast_precision_loss, clippy::cast_possible_truncation)] // small numbers

use std::hint::black_box;
use std::time::Instant;

use anamnesis::{Checkpoint, Dtype, QuantConfig, remember};

const SIDE: usize = 4096;
const ROUNDS: usize = 15;

/// A tensor: name behind `w`, dtype, shape, bytes.
type Made = (&'static str, Dtype, Vec<usize>, Vec<u8>);

struct Case {
    name: &'static str,
    config: &'static str,
    tensors: Vec<Made>,
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let copy = {
        let (from, mut to) = (vec![1u8; SIDE * SIDE * 2], vec![0; SIDE * SIDE * 2]);
        best(|| black_box(&mut to).copy_from_slice(black_box(&from)))
    };
    println!("copying 32 MiB: {:.1} GB/s", (SIDE * SIDE * 2) as f64 / copy / 1e9);
    println!("{:<14}{:>8}{:>8}{:>8}  10⁹ elements/s", "", "bf16", "f16", "f32");
    for case in cases() {
        if !wanted.is_empty() && !wanted.iter().any(|name| case.name.contains(&**name)) {
            continue;
        }
        let checkpoint = Checkpoint::from_bytes(file(&case.tensors)).expect("a safetensors file");
        let config = QuantConfig::from_json(case.config.as_bytes()).expect("JSON");
        print!("{:<14}", case.name);
        for dtype in [Dtype::BF16, Dtype::F16, Dtype::F32] {
            let ours = remember(&checkpoint).config(config.clone()).dtype(dtype).threads(1);
            let weight = ours.plan().expect("a plan").jobs.swap_remove(0).output;
            assert_eq!(weight.shape[..], [SIDE as u64; 2], "{}", case.name);
            let mut out = vec![0; SIDE * SIDE * usize::try_from(dtype.bits()).unwrap_or(0) / 8];
            let seconds = best(|| ours.tensor_into(&weight.name, black_box(&mut out)).expect("decodes"));
            print!("{:>8.2}", (SIDE * SIDE) as f64 / seconds / 1e9);
        }
        println!();
    }
}

fn best(mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

fn cases() -> Vec<Case> {
    let n = SIDE;
    let mut state = 1u64;
    // random, but for what would be NaN in E4M3
    let mut codes = |count: usize| -> Vec<u8> {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let byte = state.to_be_bytes()[0];
            if byte & 0x7f == 0x7f { 0 } else { byte }
        };
        (0..count).map(|_| next()).collect()
    };
    let halves = |count: usize| 0x2100u16.to_le_bytes().repeat(count);
    let singles = |count: usize| 0.01f32.to_le_bytes().repeat(count);
    let gptq = r#"{"quant_method":"gptq","bits":4,"group_size":128,"checkpoint_format":"gptq","sym":true}"#;
    let packed = |words: [usize; 2], zeros: [usize; 2], codes: &mut dyn FnMut(usize) -> Vec<u8>| {
        vec![
            (".qweight", Dtype::I32, words.to_vec(), codes(n * n / 2)),
            (".qzeros", Dtype::I32, zeros.to_vec(), codes(n / 128 * n / 2)),
            (".scales", Dtype::F16, vec![n / 128, n], halves(n / 128 * n)),
        ]
    };
    let mut acted = packed([n / 8, n], [n / 128, n / 8], &mut codes);
    let order = (0..4096u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 27).to_le_bytes()).collect();
    acted.push((".g_idx", Dtype::I32, vec![n], order));
    let fp8 = |shape: &[usize], codes: &mut dyn FnMut(usize) -> Vec<u8>| {
        let scales = singles(shape.iter().product());
        vec![
            (".weight", Dtype::F8_E4M3, vec![n, n], codes(n * n)),
            (".weight_scale", Dtype::F32, shape.to_vec(), scales),
        ]
    };
    let table: Vec<u8> = (0..16u8).flat_map(|i| ((f32::from(i) - 7.5) / 7.5).to_le_bytes()).collect();
    let state_of = br#"{"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[4096,4096]}"#.to_vec();
    vec![
        Case { name: "fp8 block", config: "{}", tensors: fp8(&[n / 128, n / 128], &mut codes) },
        Case { name: "fp8 tensor", config: "{}", tensors: fp8(&[1], &mut codes) },
        Case { name: "fp8 channel", config: "{}", tensors: fp8(&[n, 1], &mut codes) },
        Case { name: "gptq4", config: gptq, tensors: packed([n / 8, n], [n / 128, n / 8], &mut codes) },
        Case { name: "gptq4 act", config: gptq, tensors: acted },
        Case {
            name: "awq",
            config: r#"{"quant_method":"awq","bits":4,"group_size":128,"version":"gemm"}"#,
            tensors: packed([n, n / 8], [n / 128, n / 8], &mut codes),
        },
        Case {
            name: "nf4",
            config: r#"{"quant_method":"bitsandbytes","load_in_4bit":true}"#,
            tensors: vec![
                (".weight", Dtype::U8, vec![n * n / 2, 1], codes(n * n / 2)),
                (".weight.absmax", Dtype::F32, vec![n * n / 64], singles(n * n / 64)),
                (".weight.quant_map", Dtype::F32, vec![16], table),
                (".weight.quant_state.bitsandbytes__nf4", Dtype::U8, vec![state_of.len()], state_of),
            ],
        },
        Case {
            name: "int8",
            config: r#"{"quant_method":"bitsandbytes","load_in_8bit":true}"#,
            tensors: vec![(".weight", Dtype::I8, vec![n, n], codes(n * n)), (".SCB", Dtype::F32, vec![n], singles(n))],
        },
        Case {
            name: "nvfp4",
            config: r#"{"quant_method":"modelopt","quant_algo":"NVFP4"}"#,
            tensors: vec![
                (".weight", Dtype::U8, vec![n, n / 2], codes(n * n / 2)),
                (".weight_scale", Dtype::F8_E4M3, vec![n, n / 16], vec![0x38; n * n / 16]),
                (".weight_scale_2", Dtype::F32, vec![], singles(1)),
            ],
        },
        Case {
            name: "mxfp4",
            config: r#"{"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized"}"#,
            tensors: vec![
                (".weight_packed", Dtype::U8, vec![n, n / 2], codes(n * n / 2)),
                (".weight_scale", Dtype::U8, vec![n, n / 32], vec![0x78; n * n / 32]),
            ],
        },
        Case {
            name: "ct int4",
            config: r#"{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":
                {"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":128,
                "symmetric":true}}}}"#,
            tensors: vec![
                (".weight_packed", Dtype::I32, vec![n, n / 8], codes(n * n / 2)),
                (".weight_scale", Dtype::F16, vec![n, n / 128], halves(n * n / 128)),
                (".weight_shape", Dtype::I64, vec![2], [4096u64.to_le_bytes(); 2].concat()),
            ],
        },
    ]
}

fn file(tensors: &[Made]) -> Vec<u8> {
    let (mut header, mut at) = (Vec::new(), 0);
    for (name, dtype, shape, bytes) in tensors {
        let end = at + bytes.len();
        header.push(format!(r#""w{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{at},{end}]}}"#));
        at = end;
    }
    let header = format!("{{{}}}", header.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    tensors.iter().for_each(|(.., bytes)| file.extend(bytes));
    file
}
