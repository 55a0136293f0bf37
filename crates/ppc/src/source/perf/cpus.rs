//! All CPUs: those that are online, and those that come and go.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::cpu::{self, Cpu, Origin};
use super::filter;
use super::points::{Plan, Role};
use super::record::{Record, Records};
use super::told::Told;
use crate::error::Result;
use crate::event::Inode;
use crate::source::timespec;

/// The rings of all CPUs.
#[derive(Debug)]
pub(crate) struct Cpus {
    pages: usize,
    watermark: u32,
    cpus: BTreeMap<u32, Cpu>,
    /// `None`: nothing is watched.
    filter: Option<CString>,
    round: u32,
    ids: HashMap<u64, Origin>,
    buffer: Vec<u8>,
    lost: u64,
}

impl Cpus {
    /// Opens a ring on each.
    pub(crate) fn open(pages: usize, watermark: u32) -> Result<Self> {
        let (cpus, ids, buffer) = (BTreeMap::new(), HashMap::new(), Vec::new());
        let mut this = Self {
            pages,
            watermark,
            cpus,
            filter: None,
            round: 0,
            ids,
            buffer,
            lost: 0,
        };
        for cpu in cpu::online()? {
            if let Some(opened) = Cpu::open(cpu, pages, watermark)? {
                this.cpus.insert(cpu, opened);
            }
        }
        Ok(this)
    }

    /// From now on samples these files, and no more others than the filter cannot tell apart.
    pub(crate) fn watch(&mut self, plan: &Plan, files: &[Inode]) -> Result<()> {
        self.filter = (!files.is_empty()).then(|| filter::of(files));
        let last = self.round;
        self.round = self.round.wrapping_add(1);
        self.ids.retain(|_, origin| origin.round == last);
        for (&number, cpu) in &mut self.cpus {
            match &self.filter {
                Some(filter) => cpu.watch(number, plan, filter, self.round, &mut self.ids)?,
                None => cpu.rest(),
            }
        }
        Ok(())
    }

    /// CPUs come and go: those that came are sampled too, from now on.
    pub(crate) fn follow(&mut self, plan: &Plan) -> io::Result<()> {
        let online = cpu::online()?;
        self.cpus.retain(|cpu, _| online.contains(cpu));
        for cpu in online {
            if !self.cpus.contains_key(&cpu)
                && let Err(error) = self.add(cpu, plan)
            {
                tracing::warn!(cpu, %error, "events of this processor are not seen");
            }
        }
        Ok(())
    }

    fn add(&mut self, number: u32, plan: &Plan) -> Result<()> {
        if let Some(mut cpu) = Cpu::open(number, self.pages, self.watermark)? {
            if let Some(filter) = &self.filter {
                cpu.watch(number, plan, filter, self.round, &mut self.ids)?;
            }
            self.cpus.insert(number, cpu);
        }
        Ok(())
    }

    /// These have gone.
    pub(crate) fn drop(&mut self, gone: &[u32]) {
        self.cpus.retain(|cpu, _| !gone.contains(cpu));
    }

    /// Sleeps until a ring or `wake` is readable; which CPUs' rings have ended.
    pub(crate) fn sleep(&self, wake: &OwnedFd, timeout: Duration) -> io::Result<Vec<u32>> {
        let rings: Vec<_> = self.cpus.values().map(|cpu| cpu.ring.fd()).collect();
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
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

    /// Appends what is in the rings, CPU by CPU, but not that of the process `own`.
    pub(crate) fn read(&mut self, plan: &Plan, own: Option<u32>, into: &mut Vec<Told>) {
        let heads: Vec<_> = self.cpus.values().map(|cpu| cpu.ring.head()).collect();
        for (cpu, head) in self.cpus.values_mut().zip(heads) {
            self.buffer.clear();
            cpu.ring.take(head, &mut self.buffer);
            for record in Records(&self.buffer) {
                let sample = match record {
                    Record::Lost(lost) => {
                        self.lost = self.lost.saturating_add(lost);
                        continue;
                    }
                    Record::Sample(sample) => sample,
                };
                let Some(&Origin { probe, round }) = self.ids.get(&sample.id) else {
                    continue;
                };
                let (role, about) = match probe.map(|probe| &plan.probes[probe]) {
                    Some(probe) => (probe.role, probe.read(sample.raw)),
                    None => (Role::Major, Some((Inode { dev: 0, ino: 0 }, 0, 0))),
                };
                if let Some((inode, index, pages)) = about
                    && Some(sample.pid) != own
                {
                    let (pid, tid, time) = (sample.pid, sample.tid, sample.time);
                    into.push(Told {
                        role,
                        round,
                        inode,
                        index,
                        pages,
                        pid,
                        tid,
                        time,
                    });
                }
            }
        }
    }

    /// Samples that did not fit into the rings.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_went_is_taken_up_again_when_it_is_there() {
        let Ok(mut cpus) = Cpus::open(1, 1) else {
            eprintln!("SKIPPED: no perf events");
            return;
        };
        let all: Vec<_> = cpus.cpus.keys().copied().collect();
        cpus.drop(&all[..1]);
        assert_eq!(cpus.cpus.len(), all.len() - 1);
        let sight = crate::Sight {
            read_misses: false,
            map_misses: false,
            reads: false,
            maps: false,
            blind: "all",
        };
        cpus.follow(&Plan {
            probes: Vec::new(),
            major: false,
            sight,
        })
        .unwrap();
        assert!(cpus.cpus.keys().eq(&cpu::online().unwrap()));
    }
}
