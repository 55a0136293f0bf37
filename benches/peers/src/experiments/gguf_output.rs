//! Blocks of GGUF to BF16 by four ways to the output, for outputs that fit into caches and that do not.

use anamnesis::{BlockFormat, Dtype, kernel};
use peer::{Bf16Out, GgufType};
use zeropool::BufferPool;

use super::{case, repeat};
use crate::load as loads;
use crate::make::Random;
use crate::report::{Job, options::Options};

const NAME: &str = "gguf-output";
/// Blocks that are made in a small buffer at a time.
const CHUNK: usize = 64;
const VARIANTS: &[&str] = &[
    "ours, into the pool",
    "ours, straight into vec![0; n]",
    "ours, 64 blocks at a time, extend_from_slice",
    "ours, 64 blocks at a time, copy_from_slice into vec![0; n]",
    "anamnesis 0.7.10, extend_from_slice",
    "anamnesis 0.7.10, copy_from_slice into vec![0; n]",
    "limit: memcpy of the output",
];

pub fn jobs(options: &Options) -> Vec<Job> {
    let sizes: &[usize] = if options.small {
        &[2]
    } else {
        &[2, 16, 90, 200]
    };
    let cases = ["Q4_0", "Q8_0"]
        .into_iter()
        .flat_map(|kind| sizes.iter().map(move |size| (kind, *size)));
    cases
        .map(|(kind, size)| {
            let name = format!("{kind}, {size} MB of BF16");
            Job::new(&name.clone(), move |_| {
                let mut case = case(
                    NAME,
                    &name,
                    VARIANTS,
                    &[kind, &size.to_string()],
                    loads::read,
                );
                case.limit = VARIANTS.last().copied();
                Ok(case)
            })
        })
        .collect()
}

pub fn one(variant: &str, args: &[&str]) -> Option<()> {
    let &[kind, size] = args else { return None };
    let format = BlockFormat::all()
        .iter()
        .find(|format| format.name == kind)?;
    let theirs = if kind == "Q4_0" {
        GgufType::Q4_0
    } else {
        GgufType::Q8_0
    };
    let (bytes, len) = (format.block_bytes as usize, format.block_len as usize);
    let count = size.parse::<usize>().ok()? * 1_000_000 / 2 / len;
    let (elements, mut random) = (count * len, Random(1));
    let mut blocks = vec![0; count * bytes];
    blocks
        .chunks_mut(8)
        .for_each(|eight| eight.copy_from_slice(&random.next().to_le_bytes()[..eight.len()]));
    blocks.chunks_mut(bytes).for_each(|block| block[1] = 0x28); // the scale: like a real one's
    let decode = |blocks: &[u8], out: &mut [u8]| {
        kernel::dequantize(format, blocks, Dtype::BF16, out).expect("whole blocks")
    };
    let peer = |sink: &mut dyn FnMut(&[u8])| {
        let sink = |block: &[u8]| {
            sink(block);
            Ok(())
        };
        peer::dequantize_gguf_blocks::<Bf16Out, _>(&blocks, theirs, elements, sink)
            .expect("whole blocks");
    };
    // more often where it is short
    let times = (400 / size.parse::<usize>().ok()?).clamp(7, 60);
    let (pool, mut small) = (BufferPool::new(), vec![0; CHUNK * len * 2]);
    let mut kept = vec![0; elements * 2];
    match variant {
        "ours, into the pool" => repeat(times, || {
            let mut out = pool.get(elements * 2);
            decode(&blocks, &mut out);
            loads::touched(&out)
        }),
        "ours, straight into vec![0; n]" => repeat(times, || {
            let mut out = vec![0; elements * 2];
            decode(&blocks, &mut out);
            loads::touched(&out)
        }),
        "ours, 64 blocks at a time, extend_from_slice" => repeat(times, || {
            let mut out = Vec::with_capacity(elements * 2);
            for some in blocks.chunks(CHUNK * bytes) {
                let small = &mut small[..some.len() / bytes * len * 2];
                decode(some, small);
                out.extend_from_slice(small);
            }
            loads::touched(&out)
        }),
        "ours, 64 blocks at a time, copy_from_slice into vec![0; n]" => repeat(times, || {
            let mut out = vec![0; elements * 2];
            for (some, out) in blocks
                .chunks(CHUNK * bytes)
                .zip(out.chunks_mut(CHUNK * len * 2))
            {
                let small = &mut small[..out.len()];
                decode(some, small);
                out.copy_from_slice(small);
            }
            loads::touched(&out)
        }),
        "anamnesis 0.7.10, extend_from_slice" => repeat(times, || {
            let mut out = Vec::with_capacity(elements * 2);
            peer(&mut |block| out.extend_from_slice(block));
            loads::touched(&out)
        }),
        "anamnesis 0.7.10, copy_from_slice into vec![0; n]" => repeat(times, || {
            let (mut out, mut at) = (vec![0; elements * 2], 0);
            peer(&mut |block| {
                out[at..at + block.len()].copy_from_slice(block);
                at += block.len();
            });
            loads::touched(&out)
        }),
        "limit: memcpy of the output" => {
            let mut from = vec![0; elements * 2];
            decode(&blocks, &mut from);
            repeat(times, || {
                kept.copy_from_slice(std::hint::black_box(&from));
                loads::touched(&kept)
            });
        }
        _ => return None,
    }
    Some(())
}
