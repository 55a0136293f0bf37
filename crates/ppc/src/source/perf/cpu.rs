//! The events of one CPU, and which CPUs there are.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::attr::Attr;
use super::points::Plan;
use super::ring::Ring;
use super::sys::{Ask, On, perf_event_open, perf_id, perf_ioctl};
use crate::error::{Error, ErrorKind, Result};

/// Pages of a ring that is worth having.
const FEWEST: usize = 8;

/// Which probe of the plan a sample is of, and by which [`Cpu::watch`] it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// `None`: a major fault.
    pub(crate) probe: Option<usize>,
    pub(crate) round: u32,
}

/// One CPU's ring, and the events that write into it.
#[derive(Debug)]
pub(crate) struct Cpu {
    pub(crate) ring: Ring,
    events: Vec<OwnedFd>,
}

impl Cpu {
    /// Opens the ring; `Ok(None)` if the CPU is not there (any more). `pages`: at the most; without CAP_IPC_LOCK the
    /// kernel may allow fewer (`perf_event_mlock_kb`). `watermark`: bytes after which it wakes.
    pub(crate) fn open(cpu: u32, mut pages: usize, watermark: u32) -> Result<Option<Self>> {
        loop {
            let carrier = match perf_event_open(&Attr::carrier(watermark), On::Cpu(cpu)) {
                Ok(fd) => fd,
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
                Err(e) => return Err(refused(e)),
            };
            match Ring::map(carrier, pages) {
                Ok(ring) => {
                    return Ok(Some(Self {
                        ring,
                        events: Vec::new(),
                    }));
                }
                Err(e) if e.raw_os_error() == Some(libc::EPERM) && pages > FEWEST => {
                    pages /= 2;
                    tracing::debug!(cpu, pages, "a smaller ring, for want of CAP_IPC_LOCK");
                }
                Err(e) => return Err(refused(e)),
            }
        }
    }

    /// Samples what passes the filter from now on. The events before go on until these have begun, so that none is
    /// missed and some come twice.
    pub(crate) fn watch(
        &mut self,
        cpu: u32,
        plan: &Plan,
        filter: &CStr,
        round: u32,
        ids: &mut HashMap<u64, Origin>,
    ) -> Result<()> {
        let mut events = Vec::with_capacity(plan.probes.len() + 1);
        let attrs = plan
            .probes
            .iter()
            .enumerate()
            .map(|(n, probe)| (Some(n), Attr::tracepoint(probe.id, probe.wake)));
        for (probe, attr) in attrs.chain(plan.major.then(|| (None, Attr::major_faults()))) {
            let event = match perf_event_open(&attr, On::Cpu(cpu)) {
                Ok(event) => event,
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
                Err(e) => return Err(refused(e)),
            };
            if probe.is_some() {
                perf_ioctl(event.as_fd(), Ask::Filter(filter))?;
            }
            ids.insert(perf_id(event.as_fd())?, Origin { probe, round });
            perf_ioctl(event.as_fd(), Ask::Output(self.ring.fd()))?;
            events.push(event);
        }
        // what confirms a fault begins before the faults do
        for event in events.iter().rev() {
            perf_ioctl(event.as_fd(), Ask::Enable)?;
        }
        self.events = events;
        Ok(())
    }

    /// Samples nothing any more.
    pub(crate) fn rest(&mut self) {
        self.events.clear();
    }
}

/// Says what is needed for what the kernel refused.
pub(crate) fn refused(error: io::Error) -> Error {
    let paranoid =
        std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let paranoid = paranoid.trim();
    let what = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "perf events of all processes need CAP_PERFMON (or root), or kernel.perf_event_paranoid at -1 (it is \
             {paranoid}); without it use shim"
        ),
        Some(libc::EMFILE) => {
            "perf events need more descriptors: six for every CPU; raise the limit (ulimit -n)"
                .into()
        }
        Some(libc::ENOSYS) => "this kernel has no perf events (CONFIG_PERF_EVENTS)".into(),
        _ => return error.into(),
    };
    Error::new(ErrorKind::Unavailable(what))
}

/// The CPUs that are online.
pub(crate) fn online() -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    listed(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("no list of CPUs: {text:?}"),
        )
    })
}

/// A list such as `0-3,8`.
fn listed(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
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

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(listed("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(listed("0"), Some(vec![0]));
        for wrong in ["", "a", "0-", "0-4294967295"] {
            assert_eq!(listed(wrong), None);
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_passed_over() {
        match Cpu::open(60_000, 2, 1) {
            Ok(cpu) => assert!(cpu.is_none()),
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Unavailable(_) | ErrorKind::Io(_)),
                "{error}"
            ),
        }
    }

    #[test]
    fn refusals_say_what_is_needed() {
        let text = refused(io::Error::from_raw_os_error(libc::EACCES)).to_string();
        assert!(
            text.contains("CAP_PERFMON") && text.contains("perf_event_paranoid"),
            "{text}"
        );
        assert!(
            refused(io::Error::from_raw_os_error(libc::EMFILE))
                .to_string()
                .contains("ulimit")
        );
    }
}
