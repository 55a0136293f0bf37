//! The event loop: waits for events and queues calls to the policies that the files belong to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Runtime;
use crate::coalesce::coalesce;
use crate::error::Result;
use crate::source::{CaptureMode, poll::monotonic_ns};
use crate::{Event, EventKind, EventSource, FileAccess, FileEntry, Inode, Registration};

/// By how much the polling interval is divided while memory is short. Prefetching then waits for evictions, and those wait
/// for the events that report what was read. Polling every 20 ms instead of every 100 ms reduced a load from 1.47 s to
/// 1.26 s (EXPERIMENTS.md).
const PRESSURE_POLL_FACTOR: u32 = 5;
/// How long the last wait collects events that were on their way when `stop` was set.
const FINAL_WAIT: Duration = Duration::from_millis(20);

/// Counters of the event loop, read by [`Runtime::status`].
#[derive(Debug, Default)]
pub(super) struct EventLoopCounters {
    pub(super) received: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) unmatched: AtomicU64,
    pub(super) opens: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) missed_bytes: AtomicU64,
    pub(super) touches: AtomicU64,
    pub(super) touched_bytes: AtomicU64,
    pub(super) max_lag_ns: AtomicU64,
    pub(super) pressure_polls: AtomicU64,
    /// Name and limitations of the event source.
    pub(super) source: Mutex<(&'static str, &'static str)>,
}

impl EventLoopCounters {
    fn set_source(&self, source: &dyn EventSource) {
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) =
            (source.name(), source.capabilities().limitations);
    }
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl Runtime {
    /// Makes a source watch the files of all policies. Events from then on are delivered by [`run`](Self::run), so a service
    /// that is started between the two calls is observed from its first read.
    ///
    /// # Errors
    ///
    /// The source cannot watch the files.
    pub fn watch(&self, source: &mut dyn EventSource) -> Result<()> {
        let generation = self.policies.generation();
        let mode = self.capture_mode();
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let before = watched.replace((generation, mode));
        // the mode first: a source that it opens watches the files like the others
        let new_mode = before.is_none_or(|(_, before)| before != mode);
        if new_mode && let Err(error) = source.set_mode(mode) {
            tracing::warn!("{error}");
        }
        if before.is_none_or(|(before, _)| before != generation) {
            source.watch(&self.inodes())?;
        } else if !new_mode {
            return Ok(());
        }
        if mode != CaptureMode::Misses && !source.capabilities().reads {
            tracing::warn!(
                "a policy needs every access, but the event source {} reports only misses; restart with another source",
                source.name()
            );
        }
        self.counters.set_source(source);
        Ok(())
    }

    pub(super) fn event_loop(
        &self,
        mut source: Box<dyn EventSource>,
        stop: &AtomicBool,
    ) -> Result<()> {
        self.counters.set_source(&*source);
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(source.waker());
        let mut events = Vec::new();
        let mut last_pressure_poll = Instant::now();
        let (mut pressure, mut last) = (false, false);
        while !last {
            let interval = if pressure {
                self.poll_interval / PRESSURE_POLL_FACTOR
            } else {
                self.poll_interval
            };
            // read before the wait: events from before `stop` was set are still delivered in this round
            last = stop.load(Relaxed);
            // in every round: registrations and rescans change the set of files from other threads
            self.watch(&mut *source)?;
            let timeout = if last {
                interval.min(FINAL_WAIT)
            } else {
                interval
            };
            let more = source.wait(timeout, &mut events)?;
            self.counters.lost.store(source.lost(), Relaxed);
            pressure = self
                .pressure
                .as_ref()
                .is_some_and(|pressure| pressure.is_high());
            self.deliver_all(&mut events, pressure);
            if pressure && last_pressure_poll.elapsed() >= interval {
                last_pressure_poll = Instant::now();
                add(&self.counters.pressure_polls, 1);
                self.policies
                    .registrations()
                    .iter()
                    .for_each(|registration| registration.supervisor().queue_evict(None));
            }
            if !more {
                break;
            }
        }
        // the next source watches nothing yet
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// The inodes of all registered files, sorted and unique.
    fn inodes(&self) -> Vec<Inode> {
        let registrations = self.policies.registrations();
        let mut inodes: Vec<_> = registrations
            .iter()
            .flat_map(|registration| registration.origin().namespace.entries())
            .map(|entry| entry.inode)
            .collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// Merges the events and delivers each to the policy that its file belongs to.
    fn deliver_all(&self, events: &mut Vec<Event>, pressure: bool) {
        add(&self.counters.received, events.len() as u64);
        let own = std::process::id();
        // reads of the prefetcher are no misses of a service
        events.retain(|event| event.pid != own);
        // before the look-up of policies, of which merged events need one
        coalesce(events);
        for event in events.drain(..) {
            let delivered = self
                .policies
                .with_owner(event.inode, |registration, entry| {
                    self.deliver(registration, entry, event, pressure);
                });
            if delivered.is_none() {
                add(&self.counters.unmatched, 1);
            }
        }
    }

    fn deliver(
        &self,
        registration: &Registration,
        entry: &FileEntry,
        mut event: Event,
        pressure: bool,
    ) {
        if event.kind == EventKind::Open {
            add(&self.counters.opens, 1);
            return registration.supervisor().queue_start();
        }
        // the page cache holds whole pages, so the last page of a file may be accessed beyond its length
        let end = entry
            .len
            .next_multiple_of(rustix::param::page_size() as u64);
        if event.start >= end {
            return; // a read past the end of the file
        }
        event.len = event.len.min(end - event.start);
        let access = FileAccess::new(&event, entry);
        let supervisor = registration.supervisor();
        if event.kind == EventKind::Touch {
            add(&self.counters.touches, 1);
            add(&self.counters.touched_bytes, event.len);
            return supervisor.queue_touch(access);
        }
        let time = if event.time > 0 {
            event.time
        } else {
            monotonic_ns()
        };
        let missed = event.start..event.start + event.len;
        self.ledger.missed(
            registration.origin().namespace.root(),
            &access.path,
            missed,
            time,
        );
        add(&self.counters.misses, 1);
        add(&self.counters.missed_bytes, event.len);
        // the eviction first: it makes room for the prefetch
        if pressure {
            supervisor.queue_evict(Some(access.clone()));
        }
        supervisor.queue_prefetch(access);
        if event.time > 0 {
            self.counters
                .max_lag_ns
                .fetch_max(monotonic_ns().saturating_sub(event.time), Relaxed);
        }
    }
}
