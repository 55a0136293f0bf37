//! Section `schemes`: dequantises one large weight of each scheme through `remember` with one thread, from memory into a
//! reused buffer. The limit is a copy of the output's size. Outputs are verified by the tests, not here.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use anamnesis::{Dtype, QuantConfig, remember};

use crate::case::{self, Variant, this_program};
use crate::kernels;
use crate::kernels::checkpoint_weight::checkpoint;
use crate::kernels::variants::{DTYPES, MEMCPY};

/// Rows and columns of the weight, which is larger than any cache.
const SIDE: usize = 4096;
/// The same with `--small`.
const SMALL_SIDE: usize = 512;
/// Calls per output dtype; the fastest is reported.
const CALLS: usize = 15;

/// Name, dtype, shape and bytes of a tensor.
type OwnedTensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

/// A weight of one scheme.
struct SchemeWeight {
    name: &'static str,
    config: &'static str,
    tensors: Vec<OwnedTensor>,
}

pub fn names() -> Vec<&'static str> {
    // only the names are used, so the smallest side that all schemes allow
    [MEMCPY]
        .into_iter()
        .chain(all(128).iter().map(|stored| stored.name))
        .collect()
}

/// One scheme to every output dtype; `None` for an unknown name.
pub fn case(name: &str, small: bool) -> Option<case::Case> {
    let name = names().into_iter().find(|known| *known == name)?;
    let (this_program, side) = (
        this_program(),
        if small { SMALL_SIDE } else { SIDE }.to_string(),
    );
    let variant = if name == MEMCPY { MEMCPY } else { "ours" };
    let variant = Variant::new(
        variant,
        &[&this_program, "scheme-one", name, &side],
        kernels::parse,
    );
    Some(case::Case {
        name: name.to_owned(),
        variants: vec![variant],
        ..case::Case::default()
    })
}

/// The work of one process: prints dtype, nanoseconds of the fastest call and number of elements for each output dtype.
pub fn one(name: &str, side: &str) -> ExitCode {
    let Ok(side) = side.parse::<usize>() else {
        return ExitCode::from(2);
    };
    let stored = all(side).into_iter().find(|stored| stored.name == name);
    if stored.is_none() && name != MEMCPY {
        return ExitCode::from(2);
    }
    for &dtype in DTYPES {
        let len = side * side * dtype.item_bytes().expect("a dtype of whole bytes") as usize;
        let mut out = vec![0; len];
        let ns = match &stored {
            Some(stored) => dequantised(stored, side, dtype, &mut out),
            None => {
                let from = vec![1u8; len];
                fastest_ns(|| black_box(&mut out).copy_from_slice(black_box(&from)))
            }
        };
        println!("{dtype} {ns} {}", side * side);
    }
    ExitCode::SUCCESS
}

fn dequantised(stored: &SchemeWeight, side: usize, dtype: Dtype, out: &mut [u8]) -> u128 {
    let tensors = stored
        .tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| (*name, dtype.name(), shape.clone(), &**bytes));
    let checkpoint = checkpoint(&tensors.collect::<Vec<_>>());
    let config =
        QuantConfig::from_json(stored.config.as_bytes()).expect("the configuration is JSON");
    let ours = remember(&checkpoint).config(config).dtype(dtype).threads(1);
    let weight = ours
        .plan()
        .expect("the weight can be planned")
        .jobs
        .swap_remove(0)
        .output;
    assert_eq!(weight.shape[..], [side as u64; 2], "{}", stored.name);
    fastest_ns(|| {
        ours.tensor_into(&weight.name, black_box(out))
            .expect("the weight can be dequantised")
    })
}

/// Nanoseconds of the fastest call.
fn fastest_ns(mut call: impl FnMut()) -> u128 {
    let time_once = |_| {
        let started = Instant::now();
        call();
        started.elapsed().as_nanos()
    };
    (0..CALLS).map(time_once).min().unwrap_or_default()
}

/// A weight of `n` by `n` of each scheme.
fn all(n: usize) -> Vec<SchemeWeight> {
    let mut state = 1u64;
    // random bytes, without those that are NaN in E4M3
    let mut codes = |count: usize| -> Vec<u8> {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
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
            ("w.qweight", Dtype::I32, words.to_vec(), codes(n * n / 2)),
            (
                "w.qzeros",
                Dtype::I32,
                zeros.to_vec(),
                codes(n / 128 * n / 2),
            ),
            (
                "w.scales",
                Dtype::F16,
                vec![n / 128, n],
                halves(n / 128 * n),
            ),
        ]
    };
    let mut act_order = packed([n / 8, n], [n / 128, n / 8], &mut codes);
    let groups = n as u32 / 128;
    let g_idx = (0..n as u32)
        .flat_map(|i| ((i.wrapping_mul(2_654_435_761) >> 27) % groups).to_le_bytes())
        .collect();
    act_order.push(("w.g_idx", Dtype::I32, vec![n], g_idx));
    let fp8 = |shape: &[usize], codes: &mut dyn FnMut(usize) -> Vec<u8>| {
        let scales = singles(shape.iter().product());
        vec![
            ("w.weight", Dtype::F8_E4M3, vec![n, n], codes(n * n)),
            ("w.weight_scale", Dtype::F32, shape.to_vec(), scales),
        ]
    };
    let codebook: Vec<u8> = (0..16u8)
        .flat_map(|i| ((f32::from(i) - 7.5) / 7.5).to_le_bytes())
        .collect();
    let quant_state =
        format!(r#"{{"quant_type":"nf4","blocksize":64,"dtype":"bfloat16","shape":[{n},{n}]}}"#)
            .into_bytes();
    vec![
        SchemeWeight {
            name: "fp8 block",
            config: "{}",
            tensors: fp8(&[n / 128, n / 128], &mut codes),
        },
        SchemeWeight {
            name: "fp8 tensor",
            config: "{}",
            tensors: fp8(&[1], &mut codes),
        },
        SchemeWeight {
            name: "fp8 channel",
            config: "{}",
            tensors: fp8(&[n, 1], &mut codes),
        },
        SchemeWeight {
            name: "gptq4",
            config: gptq,
            tensors: packed([n / 8, n], [n / 128, n / 8], &mut codes),
        },
        SchemeWeight {
            name: "gptq4 act",
            config: gptq,
            tensors: act_order,
        },
        SchemeWeight {
            name: "awq",
            config: r#"{"quant_method":"awq","bits":4,"group_size":128,"version":"gemm"}"#,
            tensors: packed([n, n / 8], [n / 128, n / 8], &mut codes),
        },
        SchemeWeight {
            name: "nf4",
            config: r#"{"quant_method":"bitsandbytes","load_in_4bit":true}"#,
            tensors: vec![
                ("w.weight", Dtype::U8, vec![n * n / 2, 1], codes(n * n / 2)),
                (
                    "w.weight.absmax",
                    Dtype::F32,
                    vec![n * n / 64],
                    singles(n * n / 64),
                ),
                ("w.weight.quant_map", Dtype::F32, vec![16], codebook),
                (
                    "w.weight.quant_state.bitsandbytes__nf4",
                    Dtype::U8,
                    vec![quant_state.len()],
                    quant_state,
                ),
            ],
        },
        SchemeWeight {
            name: "int8",
            config: r#"{"quant_method":"bitsandbytes","load_in_8bit":true}"#,
            tensors: vec![
                ("w.weight", Dtype::I8, vec![n, n], codes(n * n)),
                ("w.SCB", Dtype::F32, vec![n], singles(n)),
            ],
        },
        SchemeWeight {
            name: "nvfp4",
            config: r#"{"quant_method":"modelopt","quant_algo":"NVFP4"}"#,
            tensors: vec![
                ("w.weight", Dtype::U8, vec![n, n / 2], codes(n * n / 2)),
                (
                    "w.weight_scale",
                    Dtype::F8_E4M3,
                    vec![n, n / 16],
                    vec![0x38; n * n / 16],
                ),
                ("w.weight_scale_2", Dtype::F32, vec![], singles(1)),
            ],
        },
        SchemeWeight {
            name: "mxfp4",
            config: r#"{"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized"}"#,
            tensors: vec![
                (
                    "w.weight_packed",
                    Dtype::U8,
                    vec![n, n / 2],
                    codes(n * n / 2),
                ),
                (
                    "w.weight_scale",
                    Dtype::U8,
                    vec![n, n / 32],
                    vec![0x78; n * n / 32],
                ),
            ],
        },
        SchemeWeight {
            name: "ct int4",
            config: r#"{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":
                {"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":128,
                "symmetric":true}}}}"#,
            tensors: vec![
                (
                    "w.weight_packed",
                    Dtype::I32,
                    vec![n, n / 8],
                    codes(n * n / 2),
                ),
                (
                    "w.weight_scale",
                    Dtype::F16,
                    vec![n, n / 128],
                    halves(n * n / 128),
                ),
                (
                    "w.weight_shape",
                    Dtype::I64,
                    vec![2],
                    [(n as u64).to_le_bytes(); 2].concat(),
                ),
            ],
        },
    ]
}
