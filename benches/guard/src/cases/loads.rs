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
    let pread = load_case("load by pread into a pool", |load| {
        load.loader(PreadLoader::new().threads(1))
    });
    let copied = load_case("load from the map into a pool", |load| {
        load.loader(MmapLoader::new())
    });
    let borrowed = load_case("load from the map, borrowed", |load| {
        load.loader(MmapLoader::new()).borrow_mapped()
    });
    vec![
        pread,
        copied,
        borrowed,
        remember_case("remember Q4_0, mapped", true),
        remember_case("remember Q4_0, read", false),
    ]
}

fn load_case(name: &str, configure: fn(Load<'_>) -> Load<'_>) -> Case {
    Case::new(name, LOAD, move || {
        let checkpoint = Checkpoint::open("large/load.safetensors").expect("a generated file");
        let pool = BufferPool::new();
        let run = move |check: bool| {
            let loaded = configure(load(&checkpoint).pool(&pool).threads(1))
                .run()
                .expect("the load succeeds");
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
                        .expect("a tensor of the checkpoint")
                        .bytes()
                        .expect("its bytes can be read");
                    assert!(*tensor.bytes() == *stored, "{}", tensor.name());
                }
            }
        };
        run(true);
        Box::new(move || run(false))
    })
}

/// Dequantises 64 MB of Q4_0 to a safetensors file of BF16.
fn remember_case(name: &str, map: bool) -> Case {
    Case::new(name, REMEMBER, move || {
        let checkpoint = OpenOptions::new()
            .mmap(map)
            .open("large/q4_0.gguf")
            .expect("a generated file");
        let out = format!("remembered.{map}.safetensors");
        let run = move || {
            let conversion = remember(&checkpoint)
                .dtype(Dtype::BF16)
                .threads(1)
                .overwrite(true);
            let conversion = conversion.progress(|_| self_counts::sample_anonymous_memory());
            let plan = conversion.plan().expect("Q4_0 can be planned");
            let mut sink = conversion
                .safetensors(&out, anamnesis::sink::Sharding::SingleFile)
                .expect("the output can be created");
            conversion
                .run(&plan, &mut sink)
                .expect("Q4_0 is dequantised");
            let written = std::fs::metadata(&out).expect("the output exists").len();
            assert!(written > WEIGHT.iter().product::<usize>() as u64 * 2);
        };
        Box::new(run)
    })
}
