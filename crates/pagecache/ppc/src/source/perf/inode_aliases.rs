//! Finds the inodes by which trace points identify files, where `stat` reports others.
//!
//! Devices without hardware have the major number 0. On these, `stat` may report a subvolume (btrfs) or an upper layer
//! (overlayfs), while the pages belong to an inode below it, whose path is unknown in a container. So the trace points
//! themselves are used: this thread reads a page of the file while a perf event samples this thread only, and the sample
//! holds the inode.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::path::Path;

use super::per_cpu::unavailable;
use super::record::{RingRecord, RingRecords};
use super::ring::Ring;
use super::sys::{PerfEventAttr, PerfIoctl, SampleTarget, perf_event_open, perf_ioctl};
use super::tracepoints::Tracepoint;
use crate::cache::{is_fuse, read_uncached};
use crate::error::Result;
use crate::event::Inode;
use crate::namespace::Namespace;

/// The reason for skipping files that share an inode in trace points.
const AMBIGUOUS: &str = "trace points identify another watched file by the same inode, as subvolumes of one btrfs number their files alike";

/// Maps the inodes in trace points to the watched `files`. The files are opened below `root`, and `read_probe` is a trace
/// point of reads. Files that cannot be identified are omitted and counted in a warning.
///
/// # Errors
///
/// `root` cannot be scanned, or the perf event cannot be opened.
pub(crate) fn resolve(
    files: &[Inode],
    root: Option<&Path>,
    read_probe: Option<&Tracepoint>,
) -> Result<HashMap<Inode, Inode>> {
    let (unsure, sure): (Vec<Inode>, Vec<Inode>) =
        files.iter().partition(|file| file.dev >> 20 == 0);
    let mut aliases: HashMap<_, _> = sure.into_iter().map(|file| (file, file)).collect();
    if unsure.is_empty() {
        return Ok(aliases);
    }
    let namespace = root.map(Namespace::scan).transpose()?;
    // only where some device has no hardware: an open perf event costs every read of this thread
    let mut prober = read_probe.map(InodeProber::new).transpose()?;
    let (mut skipped, mut ambiguous) = (Vec::new(), Vec::new());
    for file in unsure {
        let kernel_inode = match (&namespace, &mut prober) {
            (Some(namespace), Some(prober)) => prober.probe(namespace, file),
            (None, _) => {
                Err("the event source was opened without the directory of the file".into())
            }
            (_, None) => Err("this kernel has no trace point of reads".into()),
        };
        match kernel_inode.map(|inode| inode.map(|inode| aliases.entry(inode))) {
            Ok(None) => {} // an empty file has no pages and causes no events
            Ok(Some(Vacant(vacant))) => {
                vacant.insert(file);
            }
            Ok(Some(Occupied(other))) if *other.get() == file => {}
            Ok(Some(Occupied(other))) => {
                ambiguous.push(*other.key());
                skipped.push((file, AMBIGUOUS.into()));
            }
            Err(why) => skipped.push((file, why)),
        }
    }
    for kernel_inode in ambiguous {
        // the other file is skipped, too, unless `stat` reports this very inode for it
        if let Some(&file) = aliases.get(&kernel_inode)
            && file != kernel_inode
        {
            aliases.remove(&kernel_inode);
            skipped.push((file, AMBIGUOUS.into()));
        }
    }
    if let Some((file, why)) = skipped.first() {
        let entry = namespace
            .as_ref()
            .and_then(|namespace| namespace.find(*file));
        let name = entry.map_or_else(
            || format!("inode {}", file.ino),
            |entry| entry.path.display().to_string(),
        );
        tracing::warn!(
            "no events are reported for {} of {} files; {name}: {why}",
            skipped.len(),
            files.len()
        );
    }
    Ok(aliases)
}

/// A perf event that samples the reads of this thread.
struct InodeProber<'a> {
    tracepoint: &'a Tracepoint,
    ring: Ring,
    bytes: Vec<u8>,
}

impl<'a> InodeProber<'a> {
    fn new(tracepoint: &'a Tracepoint) -> Result<Self> {
        let attr = PerfEventAttr::tracepoint(tracepoint.id, false);
        let event = perf_event_open(&attr, SampleTarget::CurrentThread).map_err(unavailable)?;
        // one page: a probe causes a few samples, and the ring is emptied before each
        let ring = Ring::map(event, 1).map_err(unavailable)?;
        perf_ioctl(ring.fd(), PerfIoctl::Enable)?;
        Ok(Self {
            tracepoint,
            ring,
            bytes: Vec::new(),
        })
    }

    /// The inode by which trace points identify `file`; `None` if the file is empty. An error is the reason for a message.
    fn probe(&mut self, namespace: &Namespace, file: Inode) -> Result<Option<Inode>, String> {
        let entry = namespace
            .find(file)
            .ok_or("the file is not below the directory that the event source was opened for")?;
        if entry.len == 0 {
            return Ok(None);
        }
        if is_fuse(&namespace.root().join(&entry.path)) {
            // there both report one inode, and opening a file may discard what is cached of it for its readers
            return Ok(Some(file));
        }
        let opened = namespace.open(entry).map_err(|error| error.to_string())?;
        self.first_page_read(); // discards samples from before
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        read_uncached(opened, page).map_err(|error| error.to_string())?;
        let inode = self
            .first_page_read()
            .ok_or("the kernel reports no read of it, as for files without a device (tmpfs)")?;
        Ok(Some(inode))
    }

    /// The inode whose first page was read since the last call.
    fn first_page_read(&mut self) -> Option<Inode> {
        self.bytes.clear();
        let head = self.ring.head();
        self.ring.consume(head, &mut self.bytes);
        // the file's own sample precedes the samples of metadata that its file system reads to locate the page
        RingRecords(&self.bytes)
            .find_map(|record| match record {
                RingRecord::Sample(sample) => self
                    .tracepoint
                    .decode(sample.raw)
                    .filter(|&(_, index, _)| index == 0),
                RingRecord::Lost(_) => None,
            })
            .map(|(inode, _, _)| inode)
    }
}
