//! What the daemon and a host process say to each other: a request, its reply, one after the other.

use super::wire::{Malformed, Reader, Writer};

/// Changes whenever a message does. Daemon and host are normally the same program.
pub(super) const PROTOCOL: u32 = 1;

/// From the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Init(Init),
    Start,
    Prefetch(Told),
    Evict(Option<Told>),
    Touch(Told),
    Exit,
}

/// What a host needs to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Init {
    pub(super) library: Vec<u8>,
    pub(super) config: Vec<u8>,
    pub(super) root: Vec<u8>,
    /// That the page cache may take.
    pub(super) cache: u64,
    /// That the host may take.
    pub(super) memory: u64,
    /// Of one list.
    pub(super) entries: u64,
}

/// An access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) path: Vec<u8>,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) file: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) kind: u32,
    pub(super) time: u64,
}

/// From the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// It began; `PPC_WANTS_…` and whether there is a `ppc_start`.
    Ready { wants: u32, start: bool },
    /// It can go on no more.
    Failed(Vec<u8>),
    /// It answers with these; none where the policy returned NULL or nothing.
    Lists(Vec<List>),
}

/// The part `start..end` of the list that a slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) lane: u32,
    pub(super) slot: u8,
    /// The slot holds this from now on.
    pub(super) new: Option<New>,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A list that was not sent before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct New {
    /// Paths that were not sent before. The first ever is number 0.
    pub(super) paths: Vec<Vec<u8>>,
    pub(super) entries: Vec<Entry>,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: u32,
    /// `u32::MAX` for none.
    pub(super) device: u32,
    pub(super) start: u64,
    pub(super) len: u64,
}

/// Lists of one answer.
pub(super) const LANES: usize = 1024;
/// New paths of one list.
pub(super) const PATHS: usize = 1 << 18;

const ENTRY: usize = 24;
const LIST: usize = 14;

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
                to.u64(init.cache);
                to.u64(init.memory);
                to.u64(init.entries);
            }
            Self::Start => to.u8(1),
            Self::Prefetch(told) => {
                to.u8(2);
                told.encode(&mut to);
            }
            Self::Evict(None) => to.u8(3),
            Self::Evict(Some(told)) => {
                to.u8(4);
                told.encode(&mut to);
            }
            Self::Touch(told) => {
                to.u8(5);
                told.encode(&mut to);
            }
            Self::Exit => to.u8(6),
        }
        to.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader(bytes);
        let request = match from.u8()? {
            0 if from.u32()? == PROTOCOL => Self::Init(Init {
                library: from.bytes()?.to_vec(),
                config: from.bytes()?.to_vec(),
                root: from.bytes()?.to_vec(),
                cache: from.u64()?,
                memory: from.u64()?,
                entries: from.u64()?,
            }),
            1 => Self::Start,
            2 => Self::Prefetch(Told::decode(&mut from)?),
            3 => Self::Evict(None),
            4 => Self::Evict(Some(Told::decode(&mut from)?)),
            5 => Self::Touch(Told::decode(&mut from)?),
            6 => Self::Exit,
            _ => return Err(Malformed),
        };
        from.end()?;
        Ok(request)
    }
}

impl Told {
    fn encode(&self, to: &mut Writer) {
        to.bytes(&self.path);
        to.u64(self.start);
        to.u64(self.len);
        to.u64(self.file);
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
            file: from.u64()?,
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
                start: from.u8()? != 0,
            },
            1 => Self::Failed(from.bytes()?.to_vec()),
            2 => {
                let lists = from.count(LIST, LANES)?;
                Self::Lists(
                    (0..lists)
                        .map(|_| List::decode(&mut from))
                        .collect::<Result<_, _>>()?,
                )
            }
            _ => return Err(Malformed),
        };
        from.end()?;
        Ok(reply)
    }
}

impl List {
    fn encode(&self, to: &mut Writer) {
        to.u32(self.lane);
        to.u8(self.slot);
        to.u8(u8::from(self.new.is_some()));
        if let Some(new) = &self.new {
            to.u32(u32::try_from(new.paths.len()).unwrap_or(u32::MAX));
            new.paths.iter().for_each(|path| to.bytes(path));
            to.u32(u32::try_from(new.entries.len()).unwrap_or(u32::MAX));
            to.0.reserve(new.entries.len() * ENTRY);
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

    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (lane, slot) = (from.u32()?, from.u8()?);
        let new = match from.u8()? {
            0 => None,
            1 => Some(New::decode(from)?),
            _ => return Err(Malformed),
        };
        Ok(Self {
            lane,
            slot,
            new,
            start: from.u32()?,
            end: from.u32()?,
        })
    }
}

impl New {
    fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let paths = from.count(4, PATHS)?;
        let paths = (0..paths)
            .map(|_| from.bytes().map(<[u8]>::to_vec))
            .collect::<Result<_, _>>()?;
        let entries = from.count(ENTRY, usize::MAX)?;
        let entry = |_| {
            Ok(Entry {
                path: from.u32()?,
                device: from.u32()?,
                start: from.u64()?,
                len: from.u64()?,
            })
        };
        Ok(Self {
            paths,
            entries: (0..entries).map(entry).collect::<Result<_, _>>()?,
        })
    }
}
