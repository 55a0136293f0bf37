//! Section `pool`: gets a buffer and returns it, from our pool, other pools and allocators.

mod workloads;

use std::process::ExitCode;

use crate::case::{Case, Measurement, Variant, this_program};
use crate::child_process::ProcessUsage;
use crate::report::options::Options;
use crate::results::markdown;

const SIZES: [(&str, usize); 4] = [
    ("1 KiB", 1 << 10),
    ("64 KiB", 64 << 10),
    ("1 MiB", 1 << 20),
    ("64 MiB", 64 << 20),
];

/// One buffer that is never returned: the cost of touching its pages alone.
const REUSED: &str = "limit: one reused buffer";

const VARIANTS: [&str; 12] = [
    "ours",
    "zeropool 0.2",
    "zeropool 0.7 alloc",
    "zeropool 0.7 alloc_uninit",
    "lifeguard",
    "object-pool",
    "sharded-slab",
    "opool",
    "BytesMut",
    "Vec, glibc",
    "Vec, mimalloc",
    REUSED,
];

/// `peers pool`.
pub fn compare(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    for case in cases() {
        let outcome = case.run(options.rounds);
        println!("{}", markdown::outcome(&outcome));
    }
    ExitCode::SUCCESS
}

/// Every size, with one thread and two, with and without touching the pages; and buffers that one thread gets and another
/// drops.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for touch in ["none", "touch"] {
        for threads in ["1", "2"] {
            for (name, len) in SIZES {
                let threaded = if threads == "1" {
                    "1 thread".to_owned()
                } else {
                    format!("{threads} threads")
                };
                let touched = if touch == "touch" {
                    "pages touched"
                } else {
                    "untouched"
                };
                cases.push(case(
                    &format!("{name}, {threaded}, {touched}"),
                    &["get", &len.to_string(), threads, touch],
                ));
            }
        }
    }
    cases.push(case("16 MiB, dropped by another thread", &["across"]));
    cases
}

fn case(name: &str, words: &[&str]) -> Case {
    let me = this_program();
    let variant = |name: &&str| {
        let command: Vec<&str> = [me.as_str(), "pool-one", name]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        Variant::new(name, &command, parse)
    };
    let variants = VARIANTS.iter().map(variant).collect();
    Case {
        name: name.to_owned(),
        variants,
        limit: Some(REUSED),
        ..Case::default()
    }
}

/// Nanoseconds and faults per buffer.
fn parse(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let text = String::from_utf8_lossy(&usage.stdout);
    let mut words = text
        .split_whitespace()
        .map_while(|word| word.parse::<f64>().ok());
    Some(vec![Measurement::new(
        words.next()?,
        vec![("faults per buffer", words.next()?)],
    )])
}

pub use workloads::one;
