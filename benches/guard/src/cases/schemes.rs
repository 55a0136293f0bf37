//! Quantisation schemes: executing an existing plan of one 256 × 256 weight, memory to memory, on one thread.

use std::hint::black_box;

use anamnesis::sink::MemorySink;
use anamnesis::{Checkpoint, Dtype, QuantConfig, remember};

use crate::case::{Case, Metric};

/// Both counters, since each process chooses the best build that it sees: AVX2 under callgrind, AVX-512 on the processor.
const METRICS: &[Metric] = &[Metric::Instructions, Metric::Steps];
const SIDE: usize = 256;

/// A stored tensor: name suffix after `w`, dtype, shape, bytes.
type Stored = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// A case name, the quantisation configuration, and the stored tensors.
type Scheme = (&'static str, &'static str, fn() -> Vec<Stored>);

const SCHEMES: &[Scheme] = &[
    ("FP8, blocks", "{}", fp8),
    (
        "NF4",
        r#"{"quant_method":"bitsandbytes","load_in_4bit":true}"#,
        nf4,
    ),
    (
        "AWQ",
        r#"{"quant_method":"awq","bits":4,"group_size":128,"version":"gemm"}"#,
        || packed([SIDE, SIDE / 8]),
    ),
    (
        "GPTQ",
        r#"{"quant_method":"gptq","bits":4,"group_size":128,"checkpoint_format":"gptq","sym":true}"#,
        || packed([SIDE / 8, SIDE]),
    ),
];

pub(super) fn cases() -> Vec<Case> {
    let case = |&(name, config, stored): &Scheme, dtype: Dtype| {
        Case::new(format!("scheme {name} to {dtype}"), METRICS, move || {
            let checkpoint = Checkpoint::from_bytes(file(&stored())).expect(name);
            let config = QuantConfig::from_json(config.as_bytes()).expect(name);
            let plan = remember(&checkpoint)
                .config(config.clone())
                .dtype(dtype)
                .plan()
                .expect(name);
            assert_eq!(plan.jobs[0].output.shape[..], [SIDE as u64; 2], "{name}");
            let mut out = vec![0; SIDE * SIDE * if dtype == Dtype::F32 { 4 } else { 2 }];
            let mut make = move || {
                let ours = remember(&checkpoint)
                    .config(config.clone())
                    .dtype(dtype)
                    .threads(1);
                let mut sink = MemorySink::new(vec![black_box(&mut out)]);
                ours.run(&plan, &mut sink).expect(name);
                out.iter().rev().any(|&byte| byte != 0)
            };
            assert!(make(), "{name}");
            Box::new(move || {
                make();
            })
        })
    };
    SCHEMES
        .iter()
        .flat_map(|scheme| [case(scheme, Dtype::BF16), case(scheme, Dtype::F32)])
        .collect()
}

/// Codes without NaN.
fn codes(count: usize) -> Vec<u8> {
    (0u8..=255)
        .map(|i| i.wrapping_mul(151) & 0x77)
        .cycle()
        .take(count)
        .collect()
}

fn singles(count: usize) -> Vec<u8> {
    0.01f32.to_le_bytes().repeat(count)
}

fn fp8() -> Vec<Stored> {
    let n = SIDE;
    vec![
        (".weight", Dtype::F8_E4M3, vec![n, n], codes(n * n)),
        (
            ".weight_scale_inv",
            Dtype::F32,
            vec![n / 128, n / 128],
            singles(n / 128 * n / 128),
        ),
    ]
}

fn nf4() -> Vec<Stored> {
    let n = SIDE;
    let table: Vec<u8> = (0..16u8)
        .flat_map(|i| ((f32::from(i) - 7.5) / 7.5).to_le_bytes())
        .collect();
    let state =
        format!(r#"{{"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[{n},{n}]}}"#)
            .into_bytes();
    vec![
        (".weight", Dtype::U8, vec![n * n / 2, 1], codes(n * n / 2)),
        (
            ".weight.absmax",
            Dtype::F32,
            vec![n * n / 64],
            singles(n * n / 64),
        ),
        (".weight.quant_map", Dtype::F32, vec![16], table),
        (
            ".weight.quant_state.bitsandbytes__nf4",
            Dtype::U8,
            vec![state.len()],
            state,
        ),
    ]
}

/// The tensors of AWQ and GPTQ, which differ in the shape of the words.
fn packed(words: [usize; 2]) -> Vec<Stored> {
    let n = SIDE;
    let halves = 0x2100u16.to_le_bytes().repeat(n / 128 * n);
    vec![
        (".qweight", Dtype::I32, words.to_vec(), codes(n * n / 2)),
        (
            ".qzeros",
            Dtype::I32,
            vec![n / 128, n / 8],
            vec![0x55; n / 128 * n / 2],
        ),
        (".scales", Dtype::F16, vec![n / 128, n], halves),
    ]
}

fn file(tensors: &[Stored]) -> Vec<u8> {
    let (mut header, mut data) = (Vec::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let from = data.len();
        data.extend(bytes);
        let end = data.len();
        header.push(format!(
            r#""w{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{from},{end}]}}"#
        ));
    }
    let header = format!("{{{}}}", header.join(","));
    [
        &(header.len() as u64).to_le_bytes(),
        header.as_bytes(),
        &data,
    ]
    .concat()
}
