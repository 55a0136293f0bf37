//! Getting a buffer and dropping it: by size, with one thread and two, with and without touching every page.
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use zeropool::{Buffer, BufferPool};

const SIZES: [(&str, usize); 4] = [
    ("1 KiB", 1 << 10),
    ("64 KiB", 64 << 10),
    ("1 MiB", 1 << 20),
    ("64 MiB", 64 << 20),
];

/// Writes one byte of every 4 KiB page.
fn touch(buffer: &mut Buffer) {
    buffer
        .iter_mut()
        .step_by(4096)
        .for_each(|byte| *byte = byte.wrapping_add(1));
}

/// Runs `run` on each thread `rounds` times; returns the time of the slowest thread.
fn time_threads(threads: usize, rounds: u64, run: impl Fn() + Sync) -> Duration {
    let start = Barrier::new(threads);
    let timed = || {
        run(); // warm-up: the first run maps memory, which `first_touch` measures
        start.wait();
        let began = Instant::now();
        (0..rounds).for_each(|_| run());
        began.elapsed()
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(timed)).collect();
        all.into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .max()
            .unwrap_or_default()
    })
}

fn get_and_put(criterion: &mut Criterion) {
    for (slots, cache) in [(8, "magazines"), (0, "one stack")] {
        let mut group = criterion.benchmark_group(format!("get and put, {cache}"));
        for threads in [1, 2] {
            for (name, len) in SIZES {
                let pool = BufferPool::builder()
                    .thread_cache(slots)
                    .build()
                    .expect("valid on every machine");
                assert_eq!(pool.get(len).len(), len);
                group.bench_function(format!("{name}, {threads} threads"), |bench| {
                    bench.iter_custom(|rounds| {
                        time_threads(threads, rounds, || {
                            drop(black_box(pool.get(black_box(len))))
                        })
                    });
                });
            }
        }
        group.finish();
    }
}

fn touched(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("get, touch every page and put");
    for threads in [1, 2] {
        for (name, len) in SIZES {
            let pool = BufferPool::new();
            group.bench_function(format!("{name}, {threads} threads"), |bench| {
                bench.iter_custom(|rounds| {
                    time_threads(threads, rounds, || touch(black_box(&mut pool.get(len))))
                });
            });
        }
    }
    group.finish();
}

/// The cost of new memory: mapping it and the page faults of the first touch.
fn first_touch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("first get, touch every page and release");
    for huge in [true, false] {
        for (name, len) in SIZES {
            let pool = BufferPool::builder()
                .huge_pages(huge)
                .build()
                .expect("valid on every machine");
            group.bench_function(
                format!(
                    "{name}, {}",
                    if huge { "huge pages" } else { "small pages" }
                ),
                |bench| {
                    bench.iter(|| {
                        touch(&mut pool.get(len));
                        black_box(pool.trim())
                    });
                },
            );
        }
    }
    group.finish();
}

/// Buffers are requested on one thread and dropped on another.
fn drop_remotely(criterion: &mut Criterion) {
    let pool = BufferPool::new();
    let (sender, receiver) = std::sync::mpsc::sync_channel::<Buffer>(8);
    let consumer = thread::spawn(move || receiver.into_iter().for_each(drop));
    criterion.bench_function("get 16 MiB, touch, drop on another thread", |bench| {
        bench.iter(|| {
            let mut buffer = pool.get(16 << 20);
            touch(&mut buffer);
            sender.send(buffer).expect("the consumer is running");
        });
    });
    drop(sender);
    consumer.join().expect("no panic");
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .sample_size(20);
    targets = get_and_put, touched, first_touch, drop_remotely
}
criterion_main!(benches);
