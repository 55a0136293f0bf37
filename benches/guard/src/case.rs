//! Cases and metrics: a case is a call and the metrics that are counted of it.
//!
//! Each case runs in a process of its own, which calls it twice to warm up and then once (or `repeat` times) to count.

use std::hint::black_box;

use crate::{cases, environment, self_counts, single_step};

/// A metric, in the order of the report. For all of them, lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Instructions as callgrind counts them. Valgrind has no AVX-512.
    Instructions,
    /// Instructions as the processor executes them, counted by single-stepping: for AVX-512.
    Steps,
    /// Minor page faults.
    Faults,
    /// Bytes returned by read calls.
    BytesRead,
    /// Calls of read functions of the operating system.
    ReadCalls,
    /// Allocations and reallocations on the heap.
    Allocations,
    /// The most heap bytes in use at once.
    HeapPeak,
    /// The most bytes of resident anonymous memory (heap and anonymous maps), as sampled by the case.
    AnonymousPeak,
}

/// How a process of a case counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counter {
    /// Runs under `valgrind --tool=callgrind`.
    Callgrind,
    /// Is single-stepped by the parent.
    Steps,
    /// Counts faults, reads and memory of itself.
    System,
}

impl Metric {
    pub(crate) const ALL: [Self; 8] = [
        Self::Instructions,
        Self::Steps,
        Self::Faults,
        Self::BytesRead,
        Self::ReadCalls,
        Self::Allocations,
        Self::HeapPeak,
        Self::AnonymousPeak,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::Steps => "steps",
            Self::Faults => "faults",
            Self::BytesRead => "bytes read",
            Self::ReadCalls => "read calls",
            Self::Allocations => "allocations",
            Self::HeapPeak => "heap peak",
            Self::AnonymousPeak => "anonymous peak",
        }
    }

    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::Instructions => Counter::Callgrind,
            Self::Steps => Counter::Steps,
            _ => Counter::System,
        }
    }
}

impl Counter {
    pub(crate) const ALL: [Self; 3] = [Self::Callgrind, Self::Steps, Self::System];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Callgrind => "callgrind",
            Self::Steps => "steps",
            Self::System => "system",
        }
    }
}

/// The counts of one run of a case.
pub(crate) type Counts = Vec<(Metric, u64)>;

/// The code that a case counts.
pub(crate) type Call = Box<dyn FnMut()>;

/// A named call and its metrics.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) metrics: &'static [Metric],
    /// Calls that callgrind counts; the count is their mean.
    pub(crate) repeat: u32,
    /// Prepares the inputs, verifies the result once, and returns the call. Runs in the directory of [`crate::case_files`].
    pub(crate) make: Box<dyn Fn() -> Call + Send + Sync>,
}

impl Case {
    pub(crate) fn new(
        name: impl Into<String>,
        metrics: &'static [Metric],
        make: impl Fn() -> Call + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            metrics,
            repeat: 1,
            make: Box::new(make),
        }
    }

    /// Counts `repeat` calls instead of one. For short calls, because the work of the C library's allocator in one call depends
    /// on earlier calls.
    pub(crate) fn repeated(self, repeat: u32) -> Self {
        Self { repeat, ..self }
    }

    pub(crate) fn is_counted(&self, counter: Counter) -> bool {
        self.metrics
            .iter()
            .any(|metric| metric.counter() == counter)
    }
}

/// Runs one case as a process of its own (`guard case`).
pub(crate) fn run(counter: &str, name: &str) -> Result<(), String> {
    let counter = Counter::ALL
        .into_iter()
        .find(|known| known.name() == counter)
        .ok_or("unknown counter")?;
    if name == environment::PROBE {
        return environment::print_best_build();
    }
    if name == environment::NOTHING {
        return single_step::stepped(&mut || ());
    }
    let case = cases::all()
        .into_iter()
        .find(|case| case.name == name)
        .ok_or("unknown case")?;
    // fills the pool's caches, the allocator and the cached feature detection, and faults mapped pages in
    let warm = |call: &mut Call| (0..2).for_each(|_| call());
    match counter {
        Counter::Callgrind => {
            let mut call = (case.make)();
            warm(&mut call);
            measured_call(&mut || (0..case.repeat).for_each(|_| call()));
        }
        Counter::Steps => {
            let mut call = (case.make)();
            warm(&mut call);
            single_step::stepped(&mut *call)?;
        }
        Counter::System => {
            self_counts::disable_huge_pages();
            let mut call = (case.make)();
            warm(&mut call);
            for (metric, count) in self_counts::counted(&mut *call)? {
                println!("{}\t{count}", metric.name());
            }
        }
    }
    Ok(())
}

/// The function whose entry and return start and stop callgrind's counting, by name (see `callgrind.rs`).
#[inline(never)]
pub(crate) fn measured_call(call: &mut dyn FnMut()) {
    black_box(call)();
    // keeps the call from becoming a tail call, whose return callgrind would miss
    black_box(());
}
