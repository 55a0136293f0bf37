//! Getting a buffer and putting it back: our pool, others, and allocators. One process per variant, alternating.

mod measured;

use std::process::ExitCode;

use crate::alternate::{Case, Contender, Reading, myself};
use crate::child::Usage;
use crate::report::options::Options;
use crate::results::markdown;

const SIZES: [(&str, usize); 4] = [
    ("1 KiB", 1 << 10),
    ("64 KiB", 64 << 10),
    ("1 MiB", 1 << 20),
    ("64 MiB", 64 << 20),
];

/// A buffer that is there and stays: what touching its pages costs by itself.
const KEPT: &str = "limit: one buffer that is kept";

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
    KEPT,
];

pub fn compare(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    for case in cases() {
        let found = case.run(options.rounds);
        println!("{}", markdown::outcome(&found));
    }
    ExitCode::SUCCESS
}

/// Every size, by one thread and by two, with pages touched and not; and buffers that change threads.
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
    let me = myself();
    let contender = |variant: &&str| {
        let command: Vec<&str> = [me.as_str(), "pool-one", variant]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        Contender::new(variant, &command, read)
    };
    let contenders = VARIANTS.iter().map(contender).collect();
    Case {
        name: name.to_owned(),
        contenders,
        limit: Some(KEPT),
        ..Case::default()
    }
}

/// Nanoseconds and faults a buffer.
fn read(usage: &Usage) -> Option<Vec<Reading>> {
    let text = String::from_utf8_lossy(&usage.said);
    let mut words = text
        .split_whitespace()
        .map_while(|word| word.parse::<f64>().ok());
    Some(vec![Reading::new(
        words.next()?,
        vec![("faults each", words.next()?)],
    )])
}

pub use measured::one;
