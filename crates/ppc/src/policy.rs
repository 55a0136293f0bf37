//! Policies: who decides what is prefetched and evicted.

use std::path::Path;
use std::sync::Arc;

use crate::{Ios, Kind, Namespace};

/// Bytes of a file that a process asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether the page cache had them.
    pub kind: Kind,
    /// The file, relative to the namespace's root.
    pub path: Arc<Path>,
    /// First byte.
    pub start: u64,
    /// How many; neighbouring events are merged.
    pub len: u64,
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub time: u64,
}

/// What a policy is told when it is registered.
#[derive(Clone, Debug)]
pub struct Context {
    /// The directory that it decides for.
    pub namespace: Arc<Namespace>,
    /// The string that was given with its registration.
    pub config: String,
    /// Bytes that the page cache may take, with what else counts as used: the runtime's threshold of the limit of the
    /// service's cgroup, or of the machine's memory.
    pub memory: u64,
}

/// Which calls a policy wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// [`Policy::prefetch`]; without it the kernel reads ahead as ever.
    pub prefetch: bool,
    /// [`Policy::evict`]; without it the kernel evicts as ever.
    pub evict: bool,
    /// [`Policy::touch`]: every access, not only misses. Costs the readers up to 3 %.
    pub touch: bool,
    /// As `touch`, and also what came into memory along with what was asked for: a recording lacks nothing then.
    pub recording: bool,
}

/// What to bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// In this order.
    pub ios: Ios,
    /// Which worker it is for. A new list for a lane interrupts the one before it; lanes take turns.
    pub lane: u32,
}

/// Who decides. Calls come one at a time, on a thread of the policy's own, each with a deadline; a policy that panics,
/// misses it, or names bytes that are in no file of the namespace loses its registration.
pub trait Policy: Send {
    /// Which calls it wants; asked after [`init`](Self::init) and [`renew`](Self::renew).
    fn wants(&self) -> Wants;

    /// It is registered. An error undoes that.
    fn init(&mut self, context: &Context) -> Result<(), String> {
        let _ = context;
        Ok(())
    }

    /// Files of the directory came, went or changed: `context` is as it is now. Who does nothing goes on with the files
    /// that it knows; those that went are not brought, and cost nothing. It is asked what it [`wants`](Self::wants) anew. An
    /// error ends its registration.
    fn renew(&mut self, context: &Context) -> Result<(), String> {
        let _ = context;
        Ok(())
    }

    /// Its registration ends.
    fn exit(&mut self) {}

    /// The service is about to start: what to bring before the first miss, by lane.
    fn start(&mut self) -> Vec<Prefetch> {
        Vec::new()
    }

    /// A process waits for bytes: what to bring next. `None` leaves what is going on as it is.
    fn prefetch(&mut self, miss: &Access) -> Option<Prefetch> {
        let _ = miss;
        None
    }

    /// Memory is short; at a miss, or (`None`) from time to time: what to let go.
    fn evict(&mut self, miss: Option<&Access>) -> Option<Ios> {
        let _ = miss;
        None
    }

    /// A process asked for bytes, which may have been there: what to bring next, if that changes it. A policy that
    /// brings a bounded window ahead of its readers moves the window here, since what it brought is not missed.
    fn touch(&mut self, access: &Access) -> Option<Prefetch> {
        let _ = access;
        None
    }
    /// Why it can decide no more; asked after each call. An answer ends its registration, and what the call returned is
    /// not used.
    fn failed(&mut self) -> Option<String> {
        None
    }
}
