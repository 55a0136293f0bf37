//! A case: something to call, and what is counted of it. Its own process calls it first to warm it, then to count.

use std::hint::black_box;

use crate::{cases, setting, steps, system};

/// What is counted. The order is that of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Instructions as callgrind counts them; it knows no AVX-512.
    Instructions,
    /// Instructions as the processor takes them, one trap each.
    Steps,
    /// Pages that were touched for the first time, and had to be looked up or made.
    Faults,
    /// Bytes of read calls.
    BytesRead,
    ReadCalls,
    Allocations,
    /// Bytes of the heap that were in use at once.
    HeapPeak,
    /// Bytes of anonymous memory, heap and maps, that were resident when somebody looked.
    AnonymousPeak,
}

/// How a process is run to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    Callgrind,
    Steps,
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

    pub(crate) fn way(self) -> Way {
        match self {
            Self::Instructions => Way::Callgrind,
            Self::Steps => Way::Steps,
            _ => Way::System,
        }
    }
}

impl Way {
    pub(crate) const ALL: [Self; 3] = [Self::Callgrind, Self::Steps, Self::System];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Callgrind => "callgrind",
            Self::Steps => "steps",
            Self::System => "system",
        }
    }
}

/// What was counted.
pub(crate) type Counts = Vec<(Metric, u64)>;

/// What is called.
pub(crate) type Call = Box<dyn FnMut()>;

/// Something to call.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) metrics: &'static [Metric],
    /// Calls that callgrind counts; the mean is the count.
    pub(crate) repeat: u32,
    /// Makes what it needs, checks the answer, and gives what is called. The directory is that of [`crate::files`].
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

    /// For short calls: what the C library's allocator does for one depends on those before.
    pub(crate) fn repeated(self, repeat: u32) -> Self {
        Self { repeat, ..self }
    }

    pub(crate) fn is_counted(&self, way: Way) -> bool {
        self.metrics.iter().any(|metric| metric.way() == way)
    }
}

/// A process of one case.
pub(crate) fn run(way: &str, name: &str) -> Result<(), String> {
    let way = Way::ALL
        .into_iter()
        .find(|known| known.name() == way)
        .ok_or("no such way to count")?;
    if name == setting::PROBE {
        return setting::tell();
    }
    if name == setting::NOTHING {
        return steps::stepped(&mut || ());
    }
    let case = cases::all()
        .into_iter()
        .find(|case| case.name == name)
        .ok_or("no such case")?;
    // the pool, the allocator and the processor's features settle; maps are made
    let warm = |call: &mut Call| (0..2).for_each(|_| call());
    match way {
        Way::Callgrind => {
            let mut call = (case.make)();
            warm(&mut call);
            measured_call(&mut || (0..case.repeat).for_each(|_| call()));
        }
        Way::Steps => {
            let mut call = (case.make)();
            warm(&mut call);
            steps::stepped(&mut *call)?;
        }
        Way::System => {
            system::quiet();
            let mut call = (case.make)();
            warm(&mut call);
            for (metric, count) in system::counted(&mut *call)? {
                println!("{}\t{count}", metric.name());
            }
        }
    }
    Ok(())
}

/// Where callgrind begins and ends to count, by name.
#[inline(never)]
pub(crate) fn measured_call(call: &mut dyn FnMut()) {
    black_box(call)();
    // nothing may become a jump: the end must be seen
    black_box(());
}
