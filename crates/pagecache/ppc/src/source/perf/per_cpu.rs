//! The rings of all CPUs, and the perf events that write into them.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::decode::FileSample;
use super::filter;
use super::record::{RingRecord, RingRecords};
use super::ring::Ring;
use super::sys::{PerfEventAttr, PerfIoctl, SampleTarget, perf_event_open, perf_id, perf_ioctl};
use super::tracepoints::{ProbePlan, SampleMeaning};
use crate::error::{Error, ErrorKind, Result};
use crate::event::Inode;
use crate::source::poll::timespec;

/// Rings are not made smaller than this many pages.
const MIN_PAGES: usize = 8;

/// The perf event that a sample comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SampleOrigin {
    /// Index into [`ProbePlan::tracepoints`]; `None` for major faults.
    tracepoint: Option<usize>,
    /// Which call of [`Rings::watch`] opened it.
    generation: u32,
}

/// The ring of one CPU, and the events that write into it.
#[derive(Debug)]
struct CpuRing {
    ring: Ring,
    events: Vec<OwnedFd>,
}

impl CpuRing {
    /// Opens the ring of a CPU; `Ok(None)` if the CPU is offline. The ring becomes readable when it has `watermark` new
    /// bytes. It has at most `pages` pages, and fewer if the kernel does not permit as many without CAP_IPC_LOCK
    /// (`perf_event_mlock_kb`).
    fn open(cpu: u32, mut pages: usize, watermark: u32) -> Result<Option<Self>> {
        // an event that never occurs owns the ring, so that the trace points' events can be replaced while the ring
        // stays
        let attr = PerfEventAttr::ring_owner(watermark);
        loop {
            let owner = match perf_event_open(&attr, SampleTarget::Cpu(cpu)) {
                Ok(fd) => fd,
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
                Err(e) => return Err(unavailable(e)),
            };
            match Ring::map(owner, pages) {
                Ok(ring) => {
                    return Ok(Some(Self {
                        ring,
                        events: Vec::new(),
                    }));
                }
                // the limit on locked memory is per user and may be partly used, so the size that fits is found by
                // halving
                Err(e) if e.raw_os_error() == Some(libc::EPERM) && pages > MIN_PAGES => {
                    pages /= 2;
                    tracing::debug!(cpu, pages, "smaller ring, for lack of CAP_IPC_LOCK");
                }
                Err(e) => return Err(unavailable(e)),
            }
        }
    }

    /// Replaces the events by new ones with another filter. The kernel does not change the filter of an open event. The
    /// previous events are closed after the new ones were enabled, so that no access is missed; the decoder drops samples
    /// that both wrote.
    fn watch(
        &mut self,
        cpu: u32,
        plan: &ProbePlan,
        filter: &CStr,
        generation: u32,
        origins: &mut HashMap<u64, SampleOrigin>,
    ) -> Result<()> {
        let mut events = Vec::with_capacity(plan.tracepoints.len() + 1);
        let tracepoints = plan.tracepoints.iter().enumerate().map(|(n, tracepoint)| {
            let attr = PerfEventAttr::tracepoint(tracepoint.id, tracepoint.wake);
            (Some(n), attr)
        });
        let major_faults = plan
            .major_faults
            .then(|| (None, PerfEventAttr::major_faults()));
        for (tracepoint, attr) in tracepoints.chain(major_faults) {
            let event = match perf_event_open(&attr, SampleTarget::Cpu(cpu)) {
                Ok(event) => event,
                // the CPU went offline after its ring was opened; `update_cpus` closes the ring
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
                Err(e) => return Err(unavailable(e)),
            };
            // a software event takes no filter on fields of a file; the decoder drops what has no fault before it
            if tracepoint.is_some() {
                perf_ioctl(event.as_fd(), PerfIoctl::SetFilter(filter))?;
            }
            let origin = SampleOrigin {
                tracepoint,
                generation,
            };
            origins.insert(perf_id(event.as_fd())?, origin);
            perf_ioctl(event.as_fd(), PerfIoctl::SetOutput(self.ring.fd()))?;
            events.push(event);
        }
        // in reverse order: the events that show the outcome of a fault are enabled before the faults
        for event in events.iter().rev() {
            perf_ioctl(event.as_fd(), PerfIoctl::Enable)?;
        }
        self.events = events;
        Ok(())
    }
}

/// The rings of all online CPUs.
#[derive(Debug)]
pub(crate) struct Rings {
    pages: usize,
    watermark: u32,
    cpus: BTreeMap<u32, CpuRing>,
    /// `None`: no file is watched.
    filter: Option<CString>,
    generation: u32,
    /// By perf event id, of the current and of the previous generation.
    origins: HashMap<u64, SampleOrigin>,
    buffer: Vec<u8>,
    lost: u64,
}

impl Rings {
    /// Opens a ring on each online CPU.
    pub(crate) fn open(pages: usize, watermark: u32) -> Result<Self> {
        let mut rings = Self {
            pages,
            watermark,
            cpus: BTreeMap::new(),
            filter: None,
            generation: 0,
            origins: HashMap::new(),
            buffer: Vec::new(),
            lost: 0,
        };
        for cpu in online_cpus()? {
            if let Some(ring) = CpuRing::open(cpu, pages, watermark)? {
                rings.cpus.insert(cpu, ring);
            }
        }
        Ok(rings)
    }

    /// Samples accesses to these files from now on, and to others that the filter does not exclude.
    pub(crate) fn watch(&mut self, plan: &ProbePlan, files: &[Inode]) -> Result<()> {
        self.filter = (!files.is_empty()).then(|| filter::build(files));
        let previous = self.generation;
        self.generation = self.generation.wrapping_add(1);
        self.origins
            // samples of the previous generation may still be in the ring
            .retain(|_, origin| origin.generation == previous);
        for (&cpu, ring) in &mut self.cpus {
            match &self.filter {
                Some(filter) => {
                    ring.watch(cpu, plan, filter, self.generation, &mut self.origins)?;
                }
                None => ring.events.clear(),
            }
        }
        Ok(())
    }

    /// Closes the rings of CPUs that went offline, and opens rings on those that came online.
    pub(crate) fn update_cpus(&mut self, plan: &ProbePlan) -> io::Result<()> {
        let online = online_cpus()?;
        self.cpus.retain(|cpu, _| online.contains(cpu));
        for cpu in online {
            if !self.cpus.contains_key(&cpu)
                && let Err(error) = self.add(cpu, plan)
            {
                tracing::warn!(cpu, %error, "events of this CPU are not reported");
            }
        }
        Ok(())
    }

    fn add(&mut self, cpu: u32, plan: &ProbePlan) -> Result<()> {
        if let Some(mut ring) = CpuRing::open(cpu, self.pages, self.watermark)? {
            if let Some(filter) = &self.filter {
                ring.watch(cpu, plan, filter, self.generation, &mut self.origins)?;
            }
            self.cpus.insert(cpu, ring);
        }
        Ok(())
    }

    /// Closes the rings of these CPUs.
    pub(crate) fn close(&mut self, cpus: &[u32]) {
        self.cpus.retain(|cpu, _| !cpus.contains(cpu));
    }

    /// Sleeps until a ring or `wake_fd` is readable. Returns the CPUs whose rings have ended.
    pub(crate) fn sleep(&self, wake_fd: &OwnedFd, timeout: Duration) -> io::Result<Vec<u32>> {
        let rings: Vec<_> = self.cpus.values().map(|cpu| cpu.ring.fd()).collect();
        let mut fds = vec![PollFd::new(wake_fd, PollFlags::IN)];
        fds.extend(rings.iter().map(|ring| PollFd::new(ring, PollFlags::IN)));
        match poll(&mut fds, Some(&timespec(timeout))) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        }
        let ended = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR);
        Ok(self
            .cpus
            .keys()
            .zip(&fds[1..])
            .filter(|(_, fd)| ended(fd))
            .map(|(&cpu, _)| cpu)
            .collect())
    }

    /// Appends the samples in the rings, CPU by CPU, except for samples of the process `ignored_pid`.
    pub(crate) fn read(
        &mut self,
        plan: &ProbePlan,
        ignored_pid: Option<u32>,
        into: &mut Vec<FileSample>,
    ) {
        // all heads first: every sample from before this moment is read, whichever CPU wrote it
        let heads: Vec<_> = self.cpus.values().map(|cpu| cpu.ring.head()).collect();
        for (cpu, head) in self.cpus.values_mut().zip(heads) {
            self.buffer.clear();
            cpu.ring.consume(head, &mut self.buffer);
            for record in RingRecords(&self.buffer) {
                let sample = match record {
                    RingRecord::Lost(lost) => {
                        self.lost = self.lost.saturating_add(lost);
                        continue;
                    }
                    RingRecord::Sample(sample) => sample,
                };
                let Some(&SampleOrigin {
                    tracepoint,
                    generation,
                }) = self.origins.get(&sample.id)
                else {
                    // its event was closed before the last change of the files
                    continue;
                };
                let (meaning, pages) = match tracepoint.map(|index| &plan.tracepoints[index]) {
                    Some(tracepoint) => (tracepoint.meaning, tracepoint.decode(sample.raw)),
                    // a major fault has no record: the decoder finds its file by the thread
                    None => (
                        SampleMeaning::MajorFault,
                        Some((Inode { dev: 0, ino: 0 }, 0, 0)),
                    ),
                };
                if let Some((inode, index, pages)) = pages
                    && Some(sample.pid) != ignored_pid
                {
                    into.push(FileSample {
                        meaning,
                        generation,
                        inode,
                        index,
                        pages,
                        pid: sample.pid,
                        tid: sample.tid,
                        time: sample.time,
                    });
                }
            }
        }
    }

    /// How many samples did not fit into the rings.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

/// Explains an error of perf's system calls.
pub(crate) fn unavailable(error: io::Error) -> Error {
    let paranoid =
        std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let paranoid = paranoid.trim();
    let what = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "perf events of all processes need CAP_PERFMON (or root), or kernel.perf_event_paranoid at -1 (it is \
             {paranoid}); the source shim does not"
        ),
        Some(libc::EMFILE) => {
            "perf events need six descriptors per CPU; raise the limit (ulimit -n)".into()
        }
        Some(libc::ENOSYS) => "this kernel has no perf events (CONFIG_PERF_EVENTS)".into(),
        _ => return error.into(),
    };
    Error::new(ErrorKind::Unavailable(what))
}

fn online_cpus() -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_cpu_list(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/sys/devices/system/cpu/online is no list of CPUs: {text:?}"),
        )
    })
}

/// Parses a list such as `0-3,8`.
fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // bounds what a list may allocate
        if last >= 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Capabilities;

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(parse_cpu_list("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        for invalid in ["", "a", "0-", "0-4294967295"] {
            assert_eq!(parse_cpu_list(invalid), None);
        }
    }

    #[test]
    fn an_offline_cpu_is_skipped() {
        match CpuRing::open(60_000, 2, 1) {
            Ok(ring) => assert!(ring.is_none()),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Unavailable(_) | ErrorKind::Io(_)),
                "{error}"
            ),
        }
    }

    #[test]
    fn errors_name_the_missing_privilege_or_limit() {
        let text = unavailable(io::Error::from_raw_os_error(libc::EACCES)).to_string();
        assert!(
            text.contains("CAP_PERFMON") && text.contains("perf_event_paranoid"),
            "{text}"
        );
        assert!(
            unavailable(io::Error::from_raw_os_error(libc::EMFILE))
                .to_string()
                .contains("ulimit")
        );
    }

    #[test]
    fn a_cpu_that_comes_online_again_gets_a_ring() {
        let Ok(mut rings) = Rings::open(1, 1) else {
            eprintln!("SKIPPED: no perf events");
            return;
        };
        let all: Vec<_> = rings.cpus.keys().copied().collect();
        rings.close(&all[..1]);
        assert_eq!(rings.cpus.len(), all.len() - 1);
        let plan = ProbePlan {
            tracepoints: Vec::new(),
            major_faults: false,
            capabilities: Capabilities {
                read_misses: false,
                map_misses: false,
                reads: false,
                first_touches: false,
                limitations: "all",
            },
        };
        rings.update_cpus(&plan).unwrap();
        assert!(rings.cpus.keys().eq(&online_cpus().unwrap()));
    }
}
