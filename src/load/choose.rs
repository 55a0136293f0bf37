//! Which loader suits: decided by what can be seen, and explained.

use std::fmt;
use std::sync::Arc;

use super::facts::{Facts, Kind};
use super::{Loader, Mapped, Pread};
use crate::checkpoint::Checkpoint;

/// A loader, and why it was chosen.
#[derive(Clone, Debug)]
pub struct Choice {
    /// What to load with.
    pub loader: Arc<dyn Loader>,
    /// The reason, as a sentence.
    pub why: String,
}

/// From this share on a file counts as being in the page cache.
const WARM: f64 = 0.9;
/// Below this share reading around the page cache is faster than reading through it.
const COLD: f64 = 0.5;
/// Below these bytes starting a ring and opening the files again costs more than it saves.
const SMALL: u64 = 8 << 20;
/// Up to these bytes looking where a file lies takes longer than it saves.
const AT_ONCE: u64 = 256 << 10;

/// As [`choose`], looking at no more than what decides: of a small file at its length, since it is copied sooner than
/// it is mapped; and what is in memory, as files of a few pages are since they were opened, needs no loader to be copied.
pub(super) fn choose_for(checkpoint: &Checkpoint, own: bool) -> Choice {
    match checkpoint.sources() {
        [only] if only.in_memory().is_some() => Choice {
            loader: Arc::new(Mapped::new()),
            why: "the bytes are in memory".to_owned(),
        },
        [only] if only.len().is_some_and(|len| len <= AT_ONCE) => Choice {
            loader: Arc::new(Pread::new().threads(1)),
            why: "small: read at once".to_owned(),
        },
        _ => choose(&Facts::of(checkpoint), own),
    }
}

/// Picks a loader. `own`: the caller wants memory of its own, rather than the mapped file lent.
///
/// | what is seen | loader |
/// |---|---|
/// | bytes in memory, lent | [`Mapped`] |
/// | network file system | [`Pread`], never a map |
/// | warm, lent | [`Mapped`] |
/// | warm, owned | [`Pread`] |
/// | cold and small | [`Pread`], one thread |
/// | cold | direct reads: io_uring, or threads |
/// | between | [`Pread`] |
pub fn choose(facts: &Facts, own: bool) -> Choice {
    let percent = facts
        .resident
        .map(|share| format!("{:.0} % in the page cache", share * 100.0));
    let seen = percent.unwrap_or_else(|| "residency unknown".to_owned());
    let pick = |loader: Arc<dyn Loader>, why: String| Choice { loader, why };
    let warm =
        facts.resident.is_some_and(|share| share >= WARM) || matches!(facts.kind, Kind::Memory(_));
    match facts.kind {
        Kind::None if !own && facts.lent => {
            pick(Arc::new(Mapped::new()), "the bytes are in memory".into())
        }
        Kind::None => pick(
            Arc::new(Pread::new().threads(1)),
            "not a file: read as it comes".into(),
        ),
        Kind::Network(name) => pick(
            Arc::new(Pread::new().threads(8)),
            format!("{name}: reads in parallel, and no map that waits page by page"),
        ),
        _ if warm && !own && facts.lent => pick(
            Arc::new(Mapped::new()),
            format!("{seen}, and nobody needs a copy"),
        ),
        _ if warm => pick(
            Arc::new(Pread::new()),
            format!("{seen}, to be copied into memory of its own"),
        ),
        _ if facts.bytes < SMALL => pick(
            Arc::new(Pread::new().threads(1)),
            format!("{seen}, and small"),
        ),
        _ if facts.resident.is_some_and(|share| share < COLD) => pick(
            direct(),
            format!("{seen}: read around it, straight into memory"),
        ),
        _ => pick(Arc::new(Pread::new()), format!("{seen}: through it")),
    }
}

fn direct() -> Arc<dyn Loader> {
    #[cfg(all(target_os = "linux", feature = "uring"))]
    return Arc::new(super::Uring::new().direct(true));
    #[cfg(not(all(target_os = "linux", feature = "uring")))]
    return Arc::new(Pread::new().direct(true));
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.loader.name(), self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(kind: Kind, resident: Option<f64>, own: bool) -> &'static str {
        choose(
            &Facts {
                bytes: 1 << 30,
                resident,
                kind,
                lent: true,
            },
            own,
        )
        .loader
        .name()
    }

    #[test]
    fn every_row_of_the_table() {
        assert_eq!(chosen(Kind::None, None, false), "mmap");
        assert_eq!(chosen(Kind::None, None, true), "pread");
        assert_eq!(chosen(Kind::Local("ext4"), Some(1.0), false), "mmap");
        assert_eq!(chosen(Kind::Local("ext4"), Some(1.0), true), "pread");
        assert_eq!(chosen(Kind::Local("ext4"), Some(0.7), false), "pread");
        assert_eq!(chosen(Kind::Local("ext4"), None, false), "pread");
        assert_eq!(chosen(Kind::Memory("tmpfs"), None, false), "mmap");
        assert_eq!(chosen(Kind::Memory("tmpfs"), Some(0.0), true), "pread");
        for own in [false, true] {
            assert!(chosen(Kind::Local("xfs"), Some(0.1), own).ends_with("direct"));
            for resident in [None, Some(0.0), Some(1.0)] {
                assert_eq!(chosen(Kind::Network("nfs"), resident, own), "pread");
            }
        }
    }
}
