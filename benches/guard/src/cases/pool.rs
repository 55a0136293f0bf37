//! The buffer pool: a thousand pairs of get and put on one thread, served from its own cache.

use std::hint::black_box;

use zeropool::BufferPool;

use crate::case::{Case, Metric};

const METRICS: &[Metric] = &[Metric::Instructions, Metric::Allocations];
const PAIRS: usize = 1_000;

pub(super) fn cases() -> Vec<Case> {
    let case = |name: &str, len: usize| {
        Case::new(format!("pool {PAIRS} pairs, {name}"), METRICS, move || {
            let pool = BufferPool::new();
            let address = pool.get(len).as_ptr();
            assert_eq!(
                pool.get(len).as_ptr(),
                address,
                "the pool returned other memory"
            );
            Box::new(move || {
                for _ in 0..PAIRS {
                    drop(black_box(pool.get(black_box(len))));
                }
            })
        })
    };
    vec![case("4 KiB", 4 << 10), case("1 MiB", 1 << 20)]
}
