//! Loading and dequantising files that are in the page cache, into a pool that has loaded before.

use anamnesis::load::{MmapLoader, PreadLoader};
use anamnesis::{Checkpoint, Dtype, Load, OpenOptions, load, remember};
use zeropool::BufferPool;

use crate::case::{Case, Metric};
use crate::case_files::{LOADED, WEIGHT};
use crate::self_counts;

const LOAD: &[Metric] = &[
    Metric::Faults,
    Metric::BytesRead,
    Metric::ReadCalls,
    Metric::Allocations,
    Metric::HeapPeak,
];
const REMEMBER: &[Metric] = &[
    Metric::BytesRead,
    Metric::ReadCalls,
    Metric::HeapPeak,
    Metric::AnonymousPeak,
];

pub(super) fn cases() -> Vec<Case> {
    let pread = loading("load by pread into a pool", |load| {
        load.loader(PreadLoader::new().threads(1))
    });
    let copied = loading("load from the map into a pool", |load| {
        load.loader(MmapLoader::new())
    });
    let borrowed = loading("load from the map, borrowed", |load| {
        load.loader(MmapLoader::new()).borrow_mapped()
    });
    vec![
        pread,
        copied,
        borrowed,
        remembering("remember Q4_0, mapped", true),
        remembering("remember Q4_0, read", false),
    ]
}

fn loading(name: &str, how: fn(Load<'_>) -> Load<'_>) -> Case {
    Case::new(name, LOAD, move || {
        let checkpoint = Checkpoint::open("large/load.safetensors").expect("made");
        let pool = BufferPool::new();
        let run = move |check: bool| {
            let loaded = how(load(&checkpoint).pool(&pool).threads(1))
                .run()
                .expect("loads");
            if check {
                let sum: usize = loaded
                    .tensors()
                    .iter()
                    .map(|tensor| tensor.bytes().len())
                    .sum();
                assert_eq!(sum, LOADED.iter().product::<usize>());
                for tensor in loaded.tensors() {
                    let stored = checkpoint
                        .tensor(tensor.name())
                        .expect("it is there")
                        .bytes()
                        .expect("reads");
                    assert!(*tensor.bytes() == *stored, "{}", tensor.name());
                }
            }
        };
        run(true);
        Box::new(move || run(false))
    })
}

/// Dequantises 64 MB of Q4_0 to a safetensors file of BF16.
fn remembering(name: &str, map: bool) -> Case {
    Case::new(name, REMEMBER, move || {
        let checkpoint = OpenOptions::new()
            .mmap(map)
            .open("large/q4_0.gguf")
            .expect("made");
        let out = format!("remembered.{map}.safetensors");
        let run = move || {
            let ours = remember(&checkpoint)
                .dtype(Dtype::BF16)
                .threads(1)
                .overwrite(true);
            let ours = ours.progress(|_| self_counts::sample_anonymous_memory());
            let plan = ours.plan().expect("plans");
            let mut sink = ours
                .safetensors(&out, anamnesis::sink::Sharding::SingleFile)
                .expect("no metadata");
            ours.run(&plan, &mut sink).expect("decodes");
            let written = std::fs::metadata(&out).expect("written").len();
            assert!(written > WEIGHT.iter().product::<usize>() as u64 * 2);
        };
        Box::new(run)
    })
}
