//! Requests of the daemon and replies of a host process. Each request has one reply with its number, and the next request
//! follows it. Requests are numbered consecutively from 1.

use super::wire::{Malformed, Reader, Writer};

/// Version of the messages. Daemon and host are normally the same executable; a mismatch is refused.
pub(super) const PROTOCOL: u32 = 2;

/// A message from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Init(Init),
    Start,
    Prefetch(WireAccess),
    Evict(Option<WireAccess>),
    Touch(WireAccess),
    Exit,
}

/// Arguments of the first request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Init {
    pub(super) library: Vec<u8>,
    pub(super) config: Vec<u8>,
    pub(super) root: Vec<u8>,
    /// Bytes that the page cache may use.
    pub(super) cache_memory: u64,
    /// Limit on the memory of the host process in bytes.
    pub(super) process_memory: u64,
    /// Limit on the entries of one list.
    pub(super) max_entries: u64,
}

/// A [`FileAccess`](crate::FileAccess), with the length of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WireAccess {
    pub(super) path: Vec<u8>,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) file_len: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) kind: u32,
    pub(super) time: u64,
}

/// A message from the host process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The policy was initialised: its `PPC_WANTS_…`, and whether it has a `ppc_start`.
    Ready { wants: u32, start: bool },
    /// The call failed for this reason. The daemon ends the process.
    Failed(Vec<u8>),
    /// The lists that the policy returned; empty if it returned NULL or has no such callback.
    Lists(Vec<WireList>),
}

/// An answer: the range `start..end` of the list in a slot (see [`sent_lists`](super::sent_lists)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WireList {
    pub(super) queue: u32,
    pub(super) slot: u8,
    /// If present, replaces the slot's list first.
    pub(super) new: Option<NewList>,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The entries of a list, and the paths that they need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NewList {
    /// Paths that were not sent before. Paths are numbered in the order in which they were sent, from 0.
    pub(super) paths: Vec<Vec<u8>>,
    pub(super) entries: Vec<WireRange>,
}

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WireRange {
    pub(super) path: u32,
    /// The accelerator; `u32::MAX` for none.
    pub(super) device: u32,
    pub(super) start: u64,
    pub(super) len: u64,
}

/// Limit on the lists of one reply.
pub(super) const MAX_QUEUES: usize = 1024;
/// Limit on the new paths of one reply.
pub(super) const MAX_PATHS: usize = 1 << 18;

/// Encoded bytes of a [`WireRange`].
const RANGE_BYTES: usize = 24;
/// Minimum of encoded bytes of a [`WireList`].
const MIN_LIST_BYTES: usize = 14;

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Init(init) => {
                to.u8(0);
                to.u32(PROTOCOL);
                to.bytes(&init.library);
                to.bytes(&init.config);
                to.bytes(&init.root);
                to.u64(init.cache_memory);
                to.u64(init.process_memory);
                to.u64(init.max_entries);
            }
            Self::Start => to.u8(1),
            Self::Prefetch(access) => {
                to.u8(2);
                access.encode(&mut to);
            }
            Self::Evict(None) => to.u8(3),
            Self::Evict(Some(access)) => {
                to.u8(4);
                access.encode(&mut to);
            }
            Self::Touch(access) => {
                to.u8(5);
                access.encode(&mut to);
            }
            Self::Exit => to.u8(6),
        }
        to.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let request = match from.u8()? {
            // a mismatch is malformed like everything else: neither side can parse what the other means
            0 if from.u32()? == PROTOCOL => Self::Init(Init {
                library: from.bytes()?.to_vec(),
                config: from.bytes()?.to_vec(),
                root: from.bytes()?.to_vec(),
                cache_memory: from.u64()?,
                process_memory: from.u64()?,
                max_entries: from.u64()?,
            }),
            1 => Self::Start,
            2 => Self::Prefetch(WireAccess::decode(&mut from)?),
            3 => Self::Evict(None),
            4 => Self::Evict(Some(WireAccess::decode(&mut from)?)),
            5 => Self::Touch(WireAccess::decode(&mut from)?),
            6 => Self::Exit,
            _ => return Err(Malformed),
        };
        from.end()?;
        Ok(request)
    }
}

impl WireAccess {
    fn encode(&self, to: &mut Writer) {
        to.bytes(&self.path);
        to.u64(self.start);
        to.u64(self.len);
        to.u64(self.file_len);
        to.u32(self.pid);
        to.u32(self.tid);
        to.u32(self.kind);
        to.u64(self.time);
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            path: from.bytes()?.to_vec(),
            start: from.u64()?,
            len: from.u64()?,
            file_len: from.u64()?,
            pid: from.u32()?,
            tid: from.u32()?,
            kind: from.u32()?,
            time: from.u64()?,
        })
    }
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Ready { wants, start } => {
                to.u8(0);
                to.u32(*wants);
                to.u8(u8::from(*start));
            }
            Self::Failed(what) => {
                to.u8(1);
                to.bytes(what);
            }
            Self::Lists(lists) => {
                to.u8(2);
                // a count that does not fit is refused by the receiver
                to.u32(u32::try_from(lists.len()).unwrap_or(u32::MAX));
                lists.iter().for_each(|list| list.encode(&mut to));
            }
        }
        to.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let reply = match from.u8()? {
            0 => Self::Ready {
                wants: from.u32()?,
                start: from.bool()?,
            },
            1 => Self::Failed(from.bytes()?.to_vec()),
            2 => {
                let count = from.count(MIN_LIST_BYTES, MAX_QUEUES)?;
                // not collected: as the items may be errors, the list would grow by doubling
                let mut lists = Vec::with_capacity(count);
                let mut paths = MAX_PATHS;
                for _ in 0..count {
                    lists.push(WireList::decode(&mut from, &mut paths)?);
                }
                Self::Lists(lists)
            }
            _ => return Err(Malformed),
        };
        from.end()?;
        Ok(reply)
    }
}

impl WireList {
    fn encode(&self, to: &mut Writer) {
        to.u32(self.queue);
        to.u8(self.slot);
        to.u8(u8::from(self.new.is_some()));
        if let Some(new) = &self.new {
            to.u32(u32::try_from(new.paths.len()).unwrap_or(u32::MAX));
            new.paths.iter().for_each(|path| to.bytes(path));
            to.u32(u32::try_from(new.entries.len()).unwrap_or(u32::MAX));
            // lists have up to 262,144 entries
            to.0.reserve(new.entries.len() * RANGE_BYTES);
            for entry in &new.entries {
                to.u32(entry.path);
                to.u32(entry.device);
                to.u64(entry.start);
                to.u64(entry.len);
            }
        }
        to.u32(self.start);
        to.u32(self.end);
    }

    /// `paths` is the number of new paths that the rest of the reply may have.
    fn decode(from: &mut Reader<'_>, paths: &mut usize) -> Result<Self, Malformed> {
        let (queue, slot) = (from.u32()?, from.u8()?);
        let new = if from.bool()? {
            let new = NewList::decode(from, *paths)?;
            // one number for all lists of a reply: a thousand lists must not have the limit each
            *paths -= new.paths.len();
            Some(new)
        } else {
            None
        };
        Ok(Self {
            queue,
            slot,
            new,
            start: from.u32()?,
            end: from.u32()?,
        })
    }
}

impl NewList {
    fn decode(from: &mut Reader<'_>, max_paths: usize) -> Result<Self, Malformed> {
        // 4 bytes are the length of a path, which may be empty
        let count = from.count(4, max_paths)?;
        let mut paths = Vec::with_capacity(count);
        for _ in 0..count {
            paths.push(from.bytes()?.to_vec());
        }
        // the limit on entries is checked where the list is resolved, which knows it; here the bytes of the message
        // bound them
        let count = from.count(RANGE_BYTES, usize::MAX)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(WireRange {
                path: from.u32()?,
                device: from.u32()?,
                start: from.u64()?,
                len: from.u64()?,
            });
        }
        Ok(Self { paths, entries })
    }
}
