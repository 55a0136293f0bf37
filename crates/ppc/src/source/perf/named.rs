//! How trace points name files whose device is not what `stat` says.
//!
//! Devices without hardware have the major number 0. There `stat` may name a subvolume (btrfs) or what lies on top
//! (overlayfs), while the pages belong to an inode below, which no path tells to who is in a container. So the trace
//! points themselves are asked: this thread reads a page of the file, and it alone is told whose that was.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::path::Path;

use super::attr::Attr;
use super::cpu::refused;
use super::points::Probe;
use super::record::{Record, Records};
use super::ring::Ring;
use super::sys::{Ask, On, perf_event_open, perf_ioctl};
use crate::cache::peek;
use crate::error::Result;
use crate::event::Inode;
use crate::namespace::Namespace;

/// Said of files that trace points name as they name another.
const ALIKE: &str =
    "trace points name another file alike, as the subvolumes of one btrfs number their files alike";

/// These files by the names that trace points give them. They are opened below `root`, and `probe` tells of reads. Files
/// that cannot be recognised are left out, aloud.
pub(crate) fn named(
    files: &[Inode],
    root: Option<&Path>,
    probe: Option<&Probe>,
) -> Result<HashMap<Inode, Inode>> {
    let (unsure, sure): (Vec<Inode>, Vec<Inode>) =
        files.iter().partition(|file| file.dev >> 20 == 0);
    let mut named: HashMap<_, _> = sure.into_iter().map(|file| (file, file)).collect();
    if unsure.is_empty() {
        return Ok(named);
    }
    let namespace = root.map(Namespace::scan).transpose()?;
    let mut asker = probe.map(Asker::new).transpose()?;
    let (mut silent, mut alike) = (Vec::new(), Vec::new());
    for file in unsure {
        let told = match (&namespace, &mut asker) {
            (Some(namespace), Some(asker)) => asker.ask(namespace, file),
            (None, _) => Err("its source was not told where to open it".into()),
            (_, None) => Err("this kernel has no trace point that tells of reads".into()),
        };
        match told.map(|told| told.map(|told| named.entry(told))) {
            Ok(None) => {} // without pages
            Ok(Some(Vacant(place))) => {
                place.insert(file);
            }
            Ok(Some(Occupied(other))) if *other.get() == file => {}
            Ok(Some(Occupied(other))) => {
                alike.push(*other.key());
                silent.push((file, ALIKE.into()));
            }
            Err(why) => silent.push((file, why)),
        }
    }
    for told in alike {
        // one that `stat` names so is meant for certain
        if let Some(&file) = named.get(&told)
            && file != told
        {
            named.remove(&told);
            silent.push((file, ALIKE.into()));
        }
    }
    if let Some((file, why)) = silent.first() {
        let entry = namespace
            .as_ref()
            .and_then(|namespace| namespace.find(*file));
        let name = entry.map_or_else(
            || format!("inode {}", file.ino),
            |entry| entry.path.display().to_string(),
        );
        tracing::warn!(
            "nothing is heard of {} of {} files; {name}: {why}",
            silent.len(),
            files.len()
        );
    }
    Ok(named)
}

/// A trace point that tells of this thread only.
struct Asker<'a> {
    probe: &'a Probe,
    ring: Ring,
    bytes: Vec<u8>,
}

impl<'a> Asker<'a> {
    fn new(probe: &'a Probe) -> Result<Self> {
        let event =
            perf_event_open(&Attr::tracepoint(probe.id, false), On::Thread).map_err(refused)?;
        let ring = Ring::map(event, 1).map_err(refused)?;
        perf_ioctl(ring.fd(), Ask::Enable)?;
        Ok(Self {
            probe,
            ring,
            bytes: Vec::new(),
        })
    }

    /// How a file is named; `None` if it has no bytes. In words why that is not known.
    fn ask(&mut self, namespace: &Namespace, file: Inode) -> Result<Option<Inode>, String> {
        let entry = namespace
            .find(file)
            .ok_or("it is not below the directory that its source was opened for")?;
        if entry.len == 0 {
            return Ok(None);
        }
        let opened = namespace.open(entry).map_err(|error| error.to_string())?;
        self.heard();
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        peek(opened, page).map_err(|error| error.to_string())?;
        let told = self
            .heard()
            .ok_or("the kernel tells of no read of it, as of files that are memory (tmpfs)")?;
        Ok(Some(told))
    }

    /// Whose first page was asked for since this was called last.
    fn heard(&mut self) -> Option<Inode> {
        self.bytes.clear();
        let head = self.ring.head();
        self.ring.take(head, &mut self.bytes);
        // the file's comes before what its file system reads to find it
        Records(&self.bytes)
            .find_map(|record| match record {
                Record::Sample(sample) => self
                    .probe
                    .read(sample.raw)
                    .filter(|&(_, index, _)| index == 0),
                Record::Lost(_) => None,
            })
            .map(|(inode, _, _)| inode)
    }
}
