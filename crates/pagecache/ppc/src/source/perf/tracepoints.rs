//! The trace points that are used, and which of them this kernel has.

use std::collections::BTreeSet;
use std::path::Path;

use super::tracefs::{RecordField, RecordFormat, access_denied};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Capabilities, Inode};
use crate::source::CaptureMode;

/// The meaning of a sample of a trace point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleMeaning {
    /// A miss of `read`, or of memory mapped for sequential use.
    SyncRead,
    /// A page fault whose page was not mapped, but may be cached.
    Fault,
    /// Read-ahead starts. If it covers the page of the same thread's last fault, that fault was a miss.
    ReadAhead,
    /// A page fault waited for a device: the same thread's last fault was a miss.
    MajorFault,
    /// An access, cached or not.
    Touch,
    /// Pages were inserted into the page cache, by an access or by read-ahead.
    Inserted,
}

/// How the record of a trace point holds the number of pages: by the name of a field.
#[derive(Clone, Copy, Debug)]
enum PageCount {
    /// There is no such field: always one page.
    One,
    /// The field is the number of pages.
    Number(&'static str),
    /// The field is the index of the last page.
    LastIndex(&'static str),
    /// The field is the binary logarithm of the number. Older kernels lack it and insert single pages.
    Order(&'static str),
}

/// The description of a trace point.
#[derive(Clone, Copy, Debug)]
struct TracepointSpec {
    name: &'static str,
    meaning: SampleMeaning,
    count: PageCount,
    /// Whether each sample wakes the consumer.
    wake: bool,
}

const fn spec(
    name: &'static str,
    meaning: SampleMeaning,
    count: PageCount,
    wake: bool,
) -> TracepointSpec {
    TracepointSpec {
        name,
        meaning,
        count,
        wake,
    }
}

const FAULT: &str = "filemap/mm_filemap_fault";
const INSERTED: TracepointSpec = spec(
    "filemap/mm_filemap_add_to_page_cache",
    SampleMeaning::Inserted,
    PageCount::Order("order"),
    false,
);
const READ: TracepointSpec = spec(
    "filemap/mm_filemap_get_pages",
    SampleMeaning::Touch,
    PageCount::LastIndex("last_index"),
    false,
);

// misses wake the consumer, as a thread waits for the device; read-ahead does not, as the fault before it has
const MISSES: &[TracepointSpec] = &[
    spec(
        "readahead/page_cache_sync_ra",
        SampleMeaning::SyncRead,
        PageCount::Number("req_count"),
        true,
    ),
    spec(FAULT, SampleMeaning::Fault, PageCount::One, true),
    spec(
        "readahead/page_cache_ra_order",
        SampleMeaning::ReadAhead,
        PageCount::Number("size"),
        false,
    ),
    spec(
        "readahead/page_cache_ra_unbounded",
        SampleMeaning::ReadAhead,
        PageCount::Number("nr_to_read"),
        false,
    ),
];

// none wakes the consumer: with a wake-up for every event, cached reads took 53 % longer (EXPERIMENTS.md)
const ACCESSES: &[TracepointSpec] = &[
    READ,
    spec(
        "filemap/mm_filemap_map_pages",
        SampleMeaning::Touch,
        PageCount::LastIndex("last_index"),
        false,
    ),
    spec(FAULT, SampleMeaning::Touch, PageCount::One, false),
];

/// A trace point of this kernel, with the fields of its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracepoint {
    pub(crate) id: u32,
    pub(crate) meaning: SampleMeaning,
    pub(crate) wake: bool,
    dev: RecordField,
    ino: RecordField,
    index: RecordField,
    count: PageCountField,
}

/// A [`PageCount`] whose field was found.
#[derive(Clone, Copy, Debug)]
enum PageCountField {
    One,
    Number(RecordField),
    LastIndex(RecordField),
    Order(RecordField),
}

impl Tracepoint {
    fn new(spec: &TracepointSpec, format: &RecordFormat) -> Option<Self> {
        let count = match spec.count {
            PageCount::One => PageCountField::One,
            PageCount::Number(name) => PageCountField::Number(format.field(name)?),
            PageCount::LastIndex(name) => PageCountField::LastIndex(format.field(name)?),
            PageCount::Order(name) => format
                .field(name)
                .map_or(PageCountField::One, PageCountField::Order),
        };
        Some(Self {
            id: format.id,
            meaning: spec.meaning,
            wake: spec.wake,
            dev: format.field("s_dev")?,
            ino: format.field("i_ino")?,
            index: format.field("index")?,
            count,
        })
    }

    /// Inode, index of the first page and number of pages in a record. `None` if the record is too short or the range
    /// overflows.
    pub(crate) fn decode(&self, raw: &[u8]) -> Option<(Inode, u64, u64)> {
        let inode = Inode {
            dev: self.dev.read(raw)?,
            ino: self.ino.read(raw)?,
        };
        let index = self.index.read(raw)?;
        let count = match self.count {
            PageCountField::One => 1,
            PageCountField::Number(field) => field.read(raw)?,
            PageCountField::LastIndex(field) => {
                field.read(raw)?.checked_sub(index)?.checked_add(1)?
            }
            PageCountField::Order(field) => {
                1u64.checked_shl(u32::try_from(field.read(raw)?).ok()?)?
            }
        };
        // a record of another layout than expected must not become a range that wraps
        index.checked_add(count)?;
        Some((inode, index, count))
    }
}

/// The perf events to open on every CPU.
#[derive(Debug)]
pub(crate) struct ProbePlan {
    pub(crate) tracepoints: Vec<Tracepoint>,
    /// Whether to open the software event of major faults, too.
    pub(crate) major_faults: bool,
    pub(crate) capabilities: Capabilities,
}

/// A trace point that fires when a file is read: at every read or, where the kernel lacks that, at reads that insert pages.
pub(crate) fn of_reads(tracefs: &Path, ignored: &BTreeSet<String>) -> Option<Tracepoint> {
    [READ, INSERTED]
        .iter()
        .find_map(|spec| load(spec, tracefs, ignored))
}

fn load(spec: &TracepointSpec, tracefs: &Path, ignored: &BTreeSet<String>) -> Option<Tracepoint> {
    if ignored.contains(spec.name) {
        return None;
    }
    let path = tracefs.join("events").join(spec.name).join("format");
    let text = std::fs::read_to_string(path).ok()?;
    Tracepoint::new(spec, &RecordFormat::parse(&text)?)
}

/// Chooses the trace points for `mode` from those that this kernel has. `ignored` trace points are treated as missing. If
/// any is missing, insertions into the page cache are used instead of all of them.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] with the names of the missing trace points.
pub(crate) fn plan(
    mode: CaptureMode,
    tracefs: &Path,
    ignored: &BTreeSet<String>,
) -> Result<ProbePlan> {
    let mut missing = Vec::new();
    let mut load = |spec: &TracepointSpec| {
        let tracepoint = load(spec, tracefs, ignored);
        if tracepoint.is_none() {
            missing.push(spec.name);
        }
        tracepoint
    };
    let (specs, capabilities, fallback_capabilities) = match mode {
        CaptureMode::Misses => (MISSES, MISSES_CAPABILITIES, MISSES_BY_INSERTION),
        CaptureMode::Accesses => (ACCESSES, ACCESSES_CAPABILITIES, ACCESSES_BY_INSERTION),
        CaptureMode::Recording => (ACCESSES, RECORDING_CAPABILITIES, ACCESSES_BY_INSERTION),
    };
    // all or none: only together do these trace points distinguish misses from hits
    if let Some(mut tracepoints) = specs.iter().map(&mut load).collect::<Option<Vec<_>>>() {
        if mode == CaptureMode::Recording {
            // if there is one: it adds pages that were read ahead, and a recording is possible without it
            tracepoints.extend(load(&INSERTED));
        }
        return Ok(ProbePlan {
            tracepoints,
            major_faults: mode == CaptureMode::Misses,
            capabilities,
        });
    }
    if let Some(tracepoint) = load(&INSERTED) {
        return Ok(ProbePlan {
            tracepoints: vec![tracepoint],
            major_faults: false,
            capabilities: fallback_capabilities,
        });
    }
    // directories may be open to all, and the files in them are not
    let is_denied = |name: &&str| {
        let format = tracefs.join("events").join(name).join("format");
        let opened = std::fs::File::open(format);
        opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    };
    if missing.iter().any(is_denied) {
        return Err(access_denied(tracefs));
    }
    let what = format!(
        "this kernel lacks the trace points {}, or their records have unknown fields",
        missing.join(", ")
    );
    Err(Error::new(ErrorKind::Unavailable(what)))
}

const NONE: Capabilities = Capabilities {
    read_misses: false,
    map_misses: false,
    reads: false,
    first_touches: false,
    limitations: "",
};
const MISSES_CAPABILITIES: Capabilities = Capabilities {
    read_misses: true,
    map_misses: true,
    limitations: "reads whose pages are cached or already being read, and direct I/O (O_DIRECT)",
    ..NONE
};
const ACCESSES_CAPABILITIES: Capabilities = Capabilities {
    reads: true,
    first_touches: true,
    limitations: "mapped pages after the first of a fault (16 pages are mapped at once, and folios of 2 MiB without an \
                  event), the beginning of a read whose end is still being read from the device, and direct I/O (O_DIRECT)",
    ..NONE
};
const RECORDING_CAPABILITIES: Capabilities = Capabilities {
    limitations: "mapped pages that were cached before in large folios, which of the pages read ahead were used, and \
                  direct I/O (O_DIRECT)",
    ..ACCESSES_CAPABILITIES
};
const MISSES_BY_INSERTION: Capabilities = Capabilities {
    read_misses: true,
    map_misses: true,
    limitations: "the difference between accesses and pages that the kernel read ahead (this kernel has no trace points of \
                  read-ahead), and direct I/O (O_DIRECT)",
    ..NONE
};
const ACCESSES_BY_INSERTION: Capabilities = Capabilities {
    limitations: "accesses to cached pages: only insertions into the page cache are reported, including pages read ahead \
                  (this kernel has no trace points of accesses); record with cold files",
    ..NONE
};

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory like tracefs with these trace points, all with the same fields.
    fn fake_tracefs(points: &[&str], fields: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (id, point) in points.iter().enumerate() {
            let at = dir.path().join("events").join(point);
            std::fs::create_dir_all(&at).unwrap();
            let fields = fields.iter().enumerate();
            let fields = fields
                .map(|(n, name)| format!("\tfield:u64 {name};\toffset:{};\tsize:8;\n", n * 8));
            std::fs::write(
                at.join("format"),
                format!("ID: {id}\n{}", fields.collect::<String>()),
            )
            .unwrap();
        }
        dir
    }

    const FIELDS: &[&str] = &[
        "s_dev",
        "i_ino",
        "index",
        "req_count",
        "size",
        "nr_to_read",
        "last_index",
    ];

    #[test]
    fn a_kernel_without_read_ahead_trace_points_reports_insertions() {
        let all: Vec<_> = MISSES
            .iter()
            .chain([&INSERTED])
            .map(|spec| spec.name)
            .collect();
        let dir = fake_tracefs(&all, FIELDS);
        let none = BTreeSet::new();
        let plan = super::plan(CaptureMode::Misses, dir.path(), &none).unwrap();
        assert_eq!((plan.tracepoints.len(), plan.major_faults), (4, true));
        let ignored = BTreeSet::from([MISSES[0].name.to_owned()]);
        let plan = super::plan(CaptureMode::Misses, dir.path(), &ignored).unwrap();
        assert_eq!(
            (
                plan.tracepoints.len(),
                plan.tracepoints[0].meaning,
                plan.major_faults
            ),
            (1, SampleMeaning::Inserted, false)
        );
        assert!(plan.capabilities.limitations.contains("read ahead"));
        // a trace point with a renamed field counts as missing, and the message names it
        let dir = fake_tracefs(&all, &["s_dev", "inode", "index"]);
        let error = super::plan(CaptureMode::Misses, dir.path(), &none)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("readahead/page_cache_sync_ra") && error.contains("add_to_page_cache"),
            "{error}"
        );
    }

    #[test]
    fn overflowing_page_ranges_are_rejected() {
        let fields = |values: [u64; 4]| values.map(u64::to_ne_bytes).concat();
        let format = RecordFormat::parse(
            "ID: 1\nfield:u64 s_dev; offset:0; size:8;\nfield:u64 i_ino; offset:8; size:8;\n\
             field:u64 index; offset:16; size:8;\nfield:u64 last_index; offset:24; size:8;\n",
        );
        let tracepoint = Tracepoint::new(&ACCESSES[0], &format.unwrap()).unwrap();
        let inode = Inode { dev: 1, ino: 2 };
        assert_eq!(
            tracepoint.decode(&fields([1, 2, 3, 5])),
            Some((inode, 3, 3))
        );
        assert_eq!(tracepoint.decode(&fields([1, 2, 3, 5])[..31]), None);
        for (index, last) in [(3, 2), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(tracepoint.decode(&fields([1, 2, index, last])), None);
        }
    }
}
