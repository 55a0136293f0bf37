//! A large FP8 weight with one scale to BF16: straight into the output, or by way of a small buffer.

use anamnesis_kernel::{Dtype, Form, Packing, Rows, Value, rows};
use peer::Bf16Out;
use zeropool::BufferPool;

use super::{case, repeat};
use crate::load as loads;
use crate::make::Random;
use crate::report::{Job, options::Options};

const NAME: &str = "fp8-chunks";
/// Elements that are made in the small buffer at a time.
const CHUNK: usize = 2048;
const SCALE: f32 = 0.0123;
const VARIANTS: &[&str] = &[
    "ours, into the pool",
    "ours, straight into vec![0; n]",
    "ours, chunks, extend_from_slice",
    "ours, chunks, copy_from_slice into vec![0; n]",
    "anamnesis 0.7.10, returns a Vec",
    "limit: memcpy of the output",
];

pub fn jobs(options: &Options) -> Vec<Job> {
    let (rows, cols) = if options.small {
        (256, 512)
    } else {
        (4096, 11_008)
    };
    let name = format!("{rows} × {cols} E4M3");
    vec![Job::new(&name.clone(), move |_| {
        let mut case = case(
            NAME,
            &name,
            VARIANTS,
            &[&(rows * cols).to_string()],
            loads::read,
        );
        case.limit = VARIANTS.last().copied();
        Ok(case)
    })]
}

/// One row of these elements to BF16.
fn decode(codes: &[u8], out: &mut [u8]) {
    let geometry = Rows {
        cols: codes.len(),
        stride: codes.len(),
        packing: Packing::Bytes,
        value: Value::E4m3,
        form: Form::Scale,
        group: codes.len(),
        rows_per_factor: 1,
        rows_per_matrix: 1,
        first: 0,
    };
    rows(&geometry, codes, &[SCALE], &[], Dtype::BF16, out).expect("a row");
}

pub fn one(variant: &str, args: &[&str]) -> Option<()> {
    let elements: usize = args.first()?.parse().ok()?;
    let mut random = Random(1);
    // without the two NaNs, whose bits are the decoder's to choose
    let codes: Vec<u8> = (0..elements)
        .map(|_| (random.next() >> 56) as u8)
        .map(|code| if code & 0x7f == 0x7f { 0x3c } else { code })
        .collect();
    let (pool, mut kept) = (BufferPool::new(), Vec::new());
    let made: Box<dyn Fn() -> Vec<u8>> = match variant {
        "ours, into the pool" => {
            repeat(9, || {
                let mut out = pool.get(elements * 2);
                decode(&codes, &mut out);
                loads::touched(&out)
            });
            return Some(());
        }
        "limit: memcpy of the output" => {
            let mut from = vec![0; elements * 2];
            decode(&codes, &mut from);
            kept.resize(elements * 2, 1);
            repeat(9, || {
                kept.copy_from_slice(std::hint::black_box(&from));
                loads::touched(&kept)
            });
            return Some(());
        }
        "ours, straight into vec![0; n]" => Box::new(|| {
            let mut out = vec![0; elements * 2];
            decode(&codes, &mut out);
            out
        }),
        "ours, chunks, extend_from_slice" => Box::new(|| {
            let mut out = Vec::with_capacity(elements * 2);
            let mut small = [0; CHUNK * 2];
            for codes in codes.chunks(CHUNK) {
                let small = &mut small[..codes.len() * 2];
                decode(codes, small);
                out.extend_from_slice(small);
            }
            out
        }),
        "ours, chunks, copy_from_slice into vec![0; n]" => Box::new(|| {
            let mut out = vec![0; elements * 2];
            let mut small = [0; CHUNK * 2];
            for (codes, out) in codes.chunks(CHUNK).zip(out.chunks_mut(CHUNK * 2)) {
                let small = &mut small[..codes.len() * 2];
                decode(codes, small);
                out.copy_from_slice(small);
            }
            out
        }),
        "anamnesis 0.7.10, returns a Vec" => Box::new(|| {
            peer::dequantize_per_tensor_fp8::<Bf16Out>(&codes, SCALE).expect("whole bytes")
        }),
        _ => return None,
    };
    repeat(9, || loads::touched(&made()));
    Some(())
}
