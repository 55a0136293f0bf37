//! Listening: what a source tells, told to the policies whose files it is about.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Runtime;
use super::merge::merge;
use crate::error::Result;
use crate::source::{Want, monotonic};
use crate::{Entry, Event, EventSource, Inode, Kind, Registered};

/// Memory that is short is looked at so many times as often: who waits for room waits for what readers are told to have
/// read, and for what is let go then.
const BRISK: u32 = 5;
/// How long what is on its way in the end is waited for.
const LAST: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) told: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) outside: AtomicU64,
    pub(super) opens: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) touches: AtomicU64,
    pub(super) touched: AtomicU64,
    pub(super) lag: AtomicU64,
    pub(super) short: AtomicU64,
    pub(super) source: Mutex<(&'static str, &'static str)>,
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

impl Runtime {
    /// Lets a source listen to the files of all policies: what happens from now on is told when it is [run](Self::run).
    ///
    /// # Errors
    ///
    /// The source's.
    pub fn watch(&self, source: &mut dyn EventSource) -> Result<()> {
        let changes = Some(self.policies.changes());
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if changes != *watched {
            source.watch(&self.files())?;
            *watched = changes;
            if self.wanted() != Want::Misses && !source.sight().reads {
                tracing::warn!(
                    "a policy wants every access, and {} tells of misses only; start again",
                    source.name()
                );
            }
        }
        Ok(())
    }

    pub(super) fn listen(&self, mut source: Box<dyn EventSource>, stop: &AtomicBool) -> Result<()> {
        *self
            .counters
            .source
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = (source.name(), source.sight().blind);
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(source.waker());
        let mut events = Vec::new();
        let mut asked = Instant::now();
        let (mut short, mut last) = (false, false);
        while !last {
            let every = if short {
                self.every / BRISK
            } else {
                self.every
            };
            // what happened before `stop` was set is told, however late this thread hears of it
            last = stop.load(Relaxed);
            self.watch(&mut *source)?;
            let more = source.wait(if last { every.min(LAST) } else { every }, &mut events)?;
            self.counters.lost.store(source.lost(), Relaxed);
            short = self.short.as_ref().is_some_and(|short| short.is_near());
            self.tell(&mut events, short);
            if short && asked.elapsed() >= every {
                asked = Instant::now();
                add(&self.counters.short, 1);
                self.policies
                    .all()
                    .iter()
                    .for_each(|registered| registered.policy().evict(None));
            }
            if !more {
                break;
            }
        }
        // another source starts anew
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// Inodes of all namespaces.
    fn files(&self) -> Vec<Inode> {
        let all = self.policies.all();
        let mut files: Vec<_> = all
            .iter()
            .flat_map(|at| at.origin().namespace.entries())
            .map(|entry| entry.inode)
            .collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Tells policies what happened.
    fn tell(&self, events: &mut Vec<Event>, short: bool) {
        add(&self.counters.told, events.len() as u64);
        let own = std::process::id();
        // what is brought is no miss of a service
        events.retain(|event| event.pid != own);
        merge(events);
        for event in events.drain(..) {
            let known = self.policies.find(event.inode, |registered, entry| {
                self.pass(registered, entry, event, short)
            });
            if known.is_none() {
                add(&self.counters.outside, 1);
            }
        }
    }

    fn pass(&self, registered: &Registered, entry: &Entry, mut event: Event, short: bool) {
        if event.kind == Kind::Open {
            add(&self.counters.opens, 1);
            return registered.policy().start();
        }
        let end = entry
            .len
            .next_multiple_of(rustix::param::page_size() as u64);
        if event.start >= end {
            return; // a read behind the end
        }
        event.len = event.len.min(end - event.start);
        let access = registered.access(&event, entry);
        let policy = registered.policy();
        if event.kind == Kind::Touch {
            add(&self.counters.touches, 1);
            add(&self.counters.touched, event.len);
            return policy.touch(access);
        }
        add(&self.counters.misses, 1);
        add(&self.counters.missed, event.len);
        // what is let go makes room for what is brought
        if short {
            policy.evict(Some(access.clone()));
        }
        policy.prefetch(access);
        if event.time > 0 {
            self.counters
                .lag
                .fetch_max(monotonic().saturating_sub(event.time), Relaxed);
        }
    }
}
