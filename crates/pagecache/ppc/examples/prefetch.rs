//! Prefetches a directory into the page cache and evicts it, and prints the rates. `EXPERIMENTS.md` names the
//! arguments of its measurements.
//!
//! ```sh
//! cargo run --release -p anamnesis-ppc --example prefetch -- MODELS [threads=4] [threads_per_queue=0] [read=524288] \
//!     [piece=8388608] [bandwidth=BYTES] [queues=1] [rounds=5] [interrupts=0] [populate=0]
//! ```
//!
//! The files are distributed over the queues. `interrupts=N` also measures N times how long an interrupt takes.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_ppc::cache::{
    Evictor, MappingProcesses, PrefetchMethod, PrefetchOptions, Prefetcher,
};
use anamnesis_ppc::{Namespace, PrefetchRequest, RangeList};

const LONG: Duration = Duration::from_secs(3600);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args
        .next()
        .ok_or("the first argument must be a directory")?;
    let settings: HashMap<_, _> = args
        .filter_map(|arg| {
            arg.split_once('=')
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
        })
        .collect();
    let number = |key: &str, default: u64| {
        settings
            .get(key)
            .map_or(Ok(default), |value| value.parse::<u64>())
    };
    let defaults = PrefetchOptions::default();
    let options = PrefetchOptions {
        threads: usize::try_from(number("threads", defaults.threads as u64)?)?,
        threads_per_queue: Some(usize::try_from(number("threads_per_queue", 0)?)?)
            .filter(|&threads| threads > 0),
        read_size: usize::try_from(number("read", defaults.read_size as u64)?)?,
        piece_size: number("piece", defaults.piece_size)?,
        method: if number("populate", 0)? > 0 {
            PrefetchMethod::Populate
        } else {
            PrefetchMethod::Read
        },
        bandwidth: Some(number("bandwidth", 0)?).filter(|&bandwidth| bandwidth > 0),
        ..defaults
    };
    let (queues, rounds, interrupts) = (
        number("queues", 1)?,
        number("rounds", 5)?,
        number("interrupts", 0)?,
    );
    let namespace = Arc::new(Namespace::scan(Path::new(&dir))?);
    let bytes: u64 = namespace.entries().iter().map(|entry| entry.len).sum();
    let lists = (0..queues)
        .map(|queue| of_queue(&namespace, queue, queues))
        .collect::<Result<Vec<_>, _>>()?;
    let prefetcher = Prefetcher::new(options)?;
    let mut evictor = Evictor::new(&namespace).mapping_processes(MappingProcesses::None);
    let mut evict_all = || {
        lists
            .iter()
            .map(|list| evictor.evict(&list.ranges).remaining)
            .sum::<u64>()
    };
    let submit = || {
        lists
            .iter()
            .try_for_each(|list| prefetcher.submit(&namespace, list))
    };

    let mib = |bytes: u64| bytes / (1 << 20);
    for _ in 0..rounds {
        let left = evict_all();
        let begun = Instant::now();
        submit()?;
        prefetcher.wait(LONG);
        let took = begun.elapsed();
        let begun = Instant::now();
        let after = evict_all();
        let rate = u128::from(mib(bytes)) * 1_000_000 / took.as_micros().max(1);
        println!(
            "{rate} MiB/s, evicted in {:?}; bytes still cached before {left}, after {after}",
            begun.elapsed()
        );
    }
    let mut times = Vec::new();
    for _ in 0..interrupts {
        evict_all();
        let before = prefetcher.progress().reads;
        submit()?;
        while prefetcher.progress().reads < before + 20 {
            std::thread::sleep(Duration::from_micros(200));
        }
        prefetcher.interrupt_all();
        times.extend(prefetcher.quiesce(LONG));
    }
    times.sort_unstable();
    if let (Some(median), Some(longest)) = (times.get(times.len() / 2), times.last()) {
        println!("interrupt to quiescent: median {median:?}, longest {longest:?} of {interrupts}");
    }
    println!("{:?}", prefetcher.progress());
    Ok(())
}

fn of_queue(
    namespace: &Namespace,
    queue: u64,
    queues: u64,
) -> Result<PrefetchRequest, Box<dyn Error>> {
    let entries = namespace
        .entries()
        .iter()
        .zip(0u64..)
        .filter(|(_, at)| at % queues == queue);
    let ranges: RangeList = entries
        .map(|(entry, _)| entry.whole())
        .collect::<Vec<_>>()
        .into();
    Ok(PrefetchRequest {
        ranges,
        queue: u32::try_from(queue)?,
    })
}
