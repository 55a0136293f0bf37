//! Brings a directory into the page cache and takes it out again, and says how quickly; the commands of `EXPERIMENTS.md`.
//!
//! ```sh
//! cargo run --release -p anamnesis-ppc --example prefetch -- MODELS [threads=4] [per_lane=0] [read=524288] \
//!     [piece=8388608] [bandwidth=BYTES] [lanes=1] [rounds=5] [interrupts=0] [populate=0]
//! ```
//!
//! Lanes share the files by name. With `interrupts=N` it also measures how long an interrupt takes, N times.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_ppc::cache::{Evictor, Fill, Mappers, Options, Prefetcher};
use anamnesis_ppc::{Ios, Namespace, Prefetch};

const LONG: Duration = Duration::from_secs(3600);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("which directory?")?;
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
    let defaults = Options::default();
    let options = Options {
        threads: usize::try_from(number("threads", defaults.threads as u64)?)?,
        per_lane: Some(usize::try_from(number("per_lane", 0)?)?).filter(|&threads| threads > 0),
        read: usize::try_from(number("read", defaults.read as u64)?)?,
        piece: number("piece", defaults.piece)?,
        fill: if number("populate", 0)? > 0 {
            Fill::Populate
        } else {
            Fill::Read
        },
        bandwidth: Some(number("bandwidth", 0)?).filter(|&bandwidth| bandwidth > 0),
        ..defaults
    };
    let (lanes, rounds, interrupts) = (
        number("lanes", 1)?,
        number("rounds", 5)?,
        number("interrupts", 0)?,
    );
    let namespace = Arc::new(Namespace::scan(Path::new(&dir))?);
    let bytes: u64 = namespace.entries().iter().map(|entry| entry.len).sum();
    let lists = (0..lanes)
        .map(|lane| of_lane(&namespace, lane, lanes))
        .collect::<Result<Vec<_>, _>>()?;
    let prefetcher = Prefetcher::new(options)?;
    let mut evictor = Evictor::new(&namespace).mappers(Mappers::None);
    let mut evict_all = || {
        lists
            .iter()
            .map(|list| evictor.evict(&list.ios).left)
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
            "{rate} MiB/s, evicted in {:?}; left before {left}, after {after}",
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

fn of_lane(namespace: &Namespace, lane: u64, lanes: u64) -> Result<Prefetch, Box<dyn Error>> {
    let entries = namespace
        .entries()
        .iter()
        .zip(0u64..)
        .filter(|(_, at)| at % lanes == lane);
    let ios: Ios = entries
        .map(|(entry, _)| entry.whole())
        .collect::<Vec<_>>()
        .into();
    Ok(Prefetch {
        ios,
        lane: u32::try_from(lane)?,
    })
}
