//! Which trace points tell what, and what this kernel has of them.

use std::collections::BTreeSet;
use std::path::Path;

use super::format::{Field, Format};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Inode, Sight};
use crate::source::Want;

/// What a sample of a trace point means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A miss of `read`, or of memory that is mapped for sequential use.
    Sync,
    /// A page fault that did not find its page mapped; the page may be in memory nevertheless.
    Fault,
    /// Read-ahead begins: if it covers the same thread's fault, that was a miss.
    Ahead,
    /// A page fault waited for a device: the same thread's last fault was a miss.
    Major,
    /// Bytes were asked for.
    Touch,
    /// Pages became part of the page cache, asked for or read ahead.
    Added,
}

/// How a trace point says how many pages it is about.
#[derive(Clone, Copy, Debug)]
enum Count {
    One,
    /// This many.
    Number(&'static str),
    /// Up to and with this page.
    Last(&'static str),
    /// 2 to the power of this; older kernels have single pages and no such field.
    Order(&'static str),
}

/// A trace point.
#[derive(Clone, Copy, Debug)]
struct Point {
    name: &'static str,
    role: Role,
    count: Count,
    /// Each sample wakes the reader.
    wake: bool,
}

const fn point(name: &'static str, role: Role, count: Count, wake: bool) -> Point {
    Point {
        name,
        role,
        count,
        wake,
    }
}

const FAULT: &str = "filemap/mm_filemap_fault";
const ADDED: Point = point(
    "filemap/mm_filemap_add_to_page_cache",
    Role::Added,
    Count::Order("order"),
    false,
);
const READ: Point = point(
    "filemap/mm_filemap_get_pages",
    Role::Touch,
    Count::Last("last_index"),
    false,
);

const MISSES: &[Point] = &[
    point(
        "readahead/page_cache_sync_ra",
        Role::Sync,
        Count::Number("req_count"),
        true,
    ),
    point(FAULT, Role::Fault, Count::One, true),
    point(
        "readahead/page_cache_ra_order",
        Role::Ahead,
        Count::Number("size"),
        false,
    ),
    point(
        "readahead/page_cache_ra_unbounded",
        Role::Ahead,
        Count::Number("nr_to_read"),
        false,
    ),
];

const ACCESSES: &[Point] = &[
    READ,
    point(
        "filemap/mm_filemap_map_pages",
        Role::Touch,
        Count::Last("last_index"),
        false,
    ),
    point(FAULT, Role::Touch, Count::One, false),
];

/// A trace point of this kernel, ready to be opened and read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) id: u32,
    pub(crate) role: Role,
    pub(crate) wake: bool,
    dev: Field,
    ino: Field,
    index: Field,
    count: FieldCount,
}

#[derive(Clone, Copy, Debug)]
enum FieldCount {
    One,
    Number(Field),
    Last(Field),
    Order(Field),
}

impl Probe {
    fn of(point: &Point, format: &Format) -> Option<Self> {
        let count = match point.count {
            Count::One => FieldCount::One,
            Count::Number(name) => FieldCount::Number(format.field(name)?),
            Count::Last(name) => FieldCount::Last(format.field(name)?),
            Count::Order(name) => format
                .field(name)
                .map_or(FieldCount::One, FieldCount::Order),
        };
        let field = |name| format.field(name);
        let (dev, ino, index) = (field("s_dev")?, field("i_ino")?, field("index")?);
        Some(Self {
            id: format.id,
            role: point.role,
            wake: point.wake,
            dev,
            ino,
            index,
            count,
        })
    }

    /// File, first page and number of pages of a sample; `None` if it is too short or counts past the end of numbers.
    pub(crate) fn read(&self, raw: &[u8]) -> Option<(Inode, u64, u64)> {
        let inode = Inode {
            dev: self.dev.read(raw)?,
            ino: self.ino.read(raw)?,
        };
        let index = self.index.read(raw)?;
        let count = match self.count {
            FieldCount::One => 1,
            FieldCount::Number(field) => field.read(raw)?,
            FieldCount::Last(field) => field.read(raw)?.checked_sub(index)?.checked_add(1)?,
            FieldCount::Order(field) => 1u64.checked_shl(u32::try_from(field.read(raw)?).ok()?)?,
        };
        index.checked_add(count)?;
        Some((inode, index, count))
    }
}

/// What is opened on every CPU.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) probes: Vec<Probe>,
    /// Major faults complete the picture.
    pub(crate) major: bool,
    pub(crate) sight: Sight,
}

/// What tells of a read whose file it is: of every read, or where the kernel has no such trace point, of those that bring
/// pages.
pub(crate) fn of_reads(tracefs: &Path, absent: &BTreeSet<String>) -> Option<Probe> {
    [READ, ADDED]
        .iter()
        .find_map(|point| probe(point, tracefs, absent))
}

fn probe(point: &Point, tracefs: &Path, absent: &BTreeSet<String>) -> Option<Probe> {
    let path = tracefs.join("events").join(point.name).join("format");
    let text = if absent.contains(point.name) {
        None
    } else {
        std::fs::read_to_string(path).ok()
    };
    Probe::of(point, &Format::parse(&text?)?)
}

/// Chooses what tells `want` on this kernel; trace points in `absent` are as if it did not have them.
pub(crate) fn plan(want: Want, tracefs: &Path, absent: &BTreeSet<String>) -> Result<Plan> {
    let mut missing = Vec::new();
    let mut load = |point: &Point| {
        let probe = probe(point, tracefs, absent);
        if probe.is_none() {
            missing.push(point.name);
        }
        probe
    };
    let all = |points: &[Point], load: &mut dyn FnMut(&Point) -> Option<Probe>| {
        points.iter().map(load).collect::<Option<Vec<_>>>()
    };
    let (points, sight, added_sight) = match want {
        Want::Misses => (MISSES, MISSES_SIGHT, ADDED_MISSES_SIGHT),
        Want::Accesses => (ACCESSES, ACCESSES_SIGHT, ADDED_ACCESSES_SIGHT),
        Want::Recording => (ACCESSES, RECORDING_SIGHT, ADDED_ACCESSES_SIGHT),
    };
    if let Some(mut probes) = all(points, &mut load) {
        if want == Want::Recording {
            probes.extend(load(&ADDED));
        }
        return Ok(Plan {
            probes,
            major: want == Want::Misses,
            sight,
        });
    }
    if let Some(probe) = load(&ADDED) {
        return Ok(Plan {
            probes: vec![probe],
            major: false,
            sight: added_sight,
        });
    }
    let what = format!(
        "this kernel lacks the trace points {}, or their fields are not known here",
        missing.join(", ")
    );
    Err(Error::new(ErrorKind::Unavailable(what)))
}

const NONE: Sight = Sight {
    read_misses: false,
    map_misses: false,
    reads: false,
    maps: false,
    blind: "",
};
const MISSES_SIGHT: Sight = Sight {
    read_misses: true,
    map_misses: true,
    blind: "reads that find their pages in memory or already on their way, and reads past the page cache (O_DIRECT)",
    ..NONE
};
const ACCESSES_SIGHT: Sight = Sight {
    reads: true,
    maps: true,
    blind: "mapped pages after the first of a fault (16 pages are mapped at once, and folios of 2 MiB without a word), the \
            beginning of a read whose end is still on its way, and reads past the page cache (O_DIRECT)",
    ..NONE
};
const RECORDING_SIGHT: Sight = Sight {
    blind: "mapped pages that were in memory before and came in large folios, what was read of that which was read ahead, \
            and reads past the page cache (O_DIRECT)",
    ..ACCESSES_SIGHT
};
const ADDED_MISSES_SIGHT: Sight = Sight {
    read_misses: true,
    map_misses: true,
    blind: "the difference between what was asked for and what the kernel read ahead (this kernel has no trace points of \
            read-ahead), and reads past the page cache (O_DIRECT)",
    ..NONE
};
const ADDED_ACCESSES_SIGHT: Sight = Sight {
    blind: "everything but what was brought into memory, read ahead included (this kernel has no trace points of \
            access): record with cold files",
    ..NONE
};

#[cfg(test)]
mod tests {
    use super::*;

    /// A tracefs with these trace points, all with the same fields.
    fn made(points: &[&str], fields: &[&str]) -> tempfile::TempDir {
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
    fn a_kernel_without_read_ahead_points_tells_insertions() {
        let all: Vec<_> = MISSES
            .iter()
            .chain([&ADDED])
            .map(|point| point.name)
            .collect();
        let dir = made(&all, FIELDS);
        let none = BTreeSet::new();
        let plan = super::plan(Want::Misses, dir.path(), &none).unwrap();
        assert_eq!((plan.probes.len(), plan.major), (4, true));
        let absent = BTreeSet::from([MISSES[0].name.to_owned()]);
        let plan = super::plan(Want::Misses, dir.path(), &absent).unwrap();
        assert_eq!(
            (plan.probes.len(), plan.probes[0].role, plan.major),
            (1, Role::Added, false)
        );
        assert!(plan.sight.blind.contains("read ahead"));
        // a renamed field is as good as none, and the message says which
        let dir = made(&all, &["s_dev", "inode", "index"]);
        let error = super::plan(Want::Misses, dir.path(), &none)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("readahead/page_cache_sync_ra") && error.contains("add_to_page_cache"),
            "{error}"
        );
    }

    #[test]
    fn pages_past_the_end_of_numbers_are_no_pages() {
        let fields = |values: [u64; 4]| values.map(u64::to_ne_bytes).concat();
        let format = Format::parse(
            "ID: 1\nfield:u64 s_dev; offset:0; size:8;\nfield:u64 i_ino; offset:8; size:8;\n\
             field:u64 index; offset:16; size:8;\nfield:u64 last_index; offset:24; size:8;\n",
        );
        let probe = Probe::of(&ACCESSES[0], &format.unwrap()).unwrap();
        let inode = Inode { dev: 1, ino: 2 };
        assert_eq!(probe.read(&fields([1, 2, 3, 5])), Some((inode, 3, 3)));
        assert_eq!(probe.read(&fields([1, 2, 3, 5])[..31]), None);
        for (index, last) in [(3, 2), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            assert_eq!(probe.read(&fields([1, 2, index, last])), None);
        }
    }
}
