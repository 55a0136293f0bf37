//! The protocol between daemon and host process: messages round-trip, and malformed, truncated and inconsistent ones are
//! refused.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::message::{Init, NewList, Reply, Request, WireAccess, WireList, WireRange};
use super::received_lists::ReceivedLists;
use super::sent_lists::{EVICT, ListPart, SLOTS, SentLists, slot};
use super::wire::{Deadline, HostIdentity, MAX_MESSAGE, receive, send};
use crate::supervisor::call_clock::{CallClock, CallLimit};
use crate::{FileRange, Namespace};

/// A deterministic sequence of pseudo-random numbers (xorshift64).
struct PseudoRandom(u64);

impl PseudoRandom {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
    fn index(&mut self, below: usize) -> usize {
        usize::try_from(self.next(below as u64)).unwrap()
    }
}

fn entry(path: u32, start: u64) -> WireRange {
    WireRange {
        path,
        device: u32::MAX,
        start,
        len: 1,
    }
}

fn requests() -> Vec<Request> {
    let access = WireAccess {
        path: b"a/b".to_vec(),
        start: 1,
        len: 2,
        file_len: 3,
        pid: 4,
        tid: 5,
        kind: 2,
        time: 6,
    };
    let init = Init {
        library: b"l".to_vec(),
        config: vec![],
        root: b"/".to_vec(),
        cache_memory: 1,
        process_memory: 2,
        max_entries: 3,
    };
    let (prefetch, touch) = (
        Request::Prefetch(access.clone()),
        Request::Touch(access.clone()),
    );
    let evict = [Request::Evict(None), Request::Evict(Some(access))];
    [
        vec![
            Request::Init(init),
            Request::Start,
            prefetch,
            touch,
            Request::Exit,
        ],
        evict.to_vec(),
    ]
    .concat()
}

fn replies() -> Vec<Reply> {
    let new = NewList {
        paths: vec![b"x".to_vec(), vec![]],
        entries: vec![entry(0, 7), entry(1, 8)],
    };
    let list = WireList {
        queue: 1,
        slot: 2,
        new: Some(new),
        start: 0,
        end: 2,
    };
    let part = WireList {
        new: None,
        ..list.clone()
    };
    let ready = Reply::Ready {
        wants: 7,
        start: true,
    };
    vec![
        ready,
        Reply::Failed(b"why".to_vec()),
        Reply::Lists(vec![]),
        Reply::Lists(vec![list, part]),
    ]
}

#[test]
fn messages_round_trip_and_truncated_or_longer_ones_are_refused() {
    for request in requests() {
        let bytes = request.encode();
        assert_eq!(Request::decode(&bytes), Ok(request));
        assert!((0..bytes.len()).all(|len| Request::decode(&bytes[..len]).is_err()));
        assert!(Request::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
    for reply in replies() {
        let bytes = reply.encode();
        assert_eq!(Reply::decode(&bytes), Ok(reply));
        assert!((0..bytes.len()).all(|len| Reply::decode(&bytes[..len]).is_err()));
        assert!(Reply::decode(&[&bytes[..], &[0]].concat()).is_err());
    }
}

#[test]
fn corrupted_messages_are_decoded_without_panics() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x"), b"x").unwrap();
    let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
    let mut numbers = PseudoRandom(0x9e37_79b9_7f4a_7c15);
    let replies: Vec<Vec<u8>> = replies().iter().map(Reply::encode).collect();
    for _ in 0..100_000 {
        let mut bytes = replies[numbers.index(replies.len())].clone();
        for _ in 0..=numbers.next(3) {
            let at = numbers.index(bytes.len());
            bytes[at] = u8::try_from(numbers.next(256)).unwrap();
        }
        if let Ok(Reply::Lists(lists)) = Reply::decode(&bytes) {
            let mut received = ReceivedLists::new(Arc::clone(&namespace), 100);
            let _ = lists
                .into_iter()
                .try_for_each(|list| received.resolve(list).map(|_| ()));
        }
    }
    // counts beyond the length of the message
    for message in [
        &[2, 255, 255, 255, 255][..],
        &[1, 255, 255, 255, 127],
        &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 0, 0],
    ] {
        assert!(Reply::decode(message).is_err());
    }
}

#[test]
fn lists_and_paths_that_were_not_sent_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("x"), b"x").unwrap();
    let mut lists = ReceivedLists::new(Arc::new(Namespace::scan(dir.path()).unwrap()), 1 << 18);
    let list = |slot: u8, new: Option<NewList>, start: u32, end: u32| WireList {
        queue: 0,
        slot,
        new,
        start,
        end,
    };
    let new = |paths: &[&str], entries: Vec<WireRange>| {
        Some(NewList {
            paths: paths.iter().map(|path| path.as_bytes().to_vec()).collect(),
            entries,
        })
    };
    assert!(lists.resolve(list(SLOTS, None, 0, 0)).is_err());
    assert!(lists.resolve(list(0, None, 0, 1)).is_err());
    assert!(
        lists
            .resolve(list(0, new(&[], vec![entry(0, 0)]), 0, 1))
            .is_err()
    );
    assert!(
        lists
            .resolve(list(0, new(&["y"], vec![]), 0, 0))
            .unwrap_err()
            .contains("\"y\": no file")
    );
    assert_eq!(
        lists
            .resolve(list(0, new(&["x"], vec![entry(0, 5)]), 0, 1))
            .unwrap()
            .ranges[0]
            .start,
        5
    );
    assert!(lists.resolve(list(0, None, 1, 0)).is_err());
    assert!(lists.resolve(list(0, None, 0, 2)).is_err());
    assert!(
        lists
            .resolve(list(0, new(&[], vec![entry(1, 5)]), 0, 1))
            .is_err()
    );
    // the entries of one list and of all slots together are limited
    assert!(
        lists
            .resolve(list(0, new(&[], vec![entry(0, 5); (1 << 18) + 1]), 0, 1))
            .is_err()
    );
    let resolve_longest = |lists: &mut ReceivedLists, slot| {
        lists
            .resolve(list(slot, new(&[], vec![entry(0, 5); 1 << 18]), 0, 1))
            .is_ok()
    };
    assert_eq!(
        (0..6)
            .map(|slot| resolve_longest(&mut lists, slot))
            .collect::<Vec<_>>(),
        [true, true, true, true, false, false]
    );
    assert!(
        resolve_longest(&mut lists, 3),
        "a new list replaces the old one of its slot"
    );
}

#[test]
fn received_lists_equal_those_that_the_policy_returned() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["x", "y", "z"] {
        std::fs::write(dir.path().join(name), b"x").unwrap();
    }
    let mut received = ReceivedLists::new(Arc::new(Namespace::scan(dir.path()).unwrap()), 1000);
    let (mut sent, mut numbers) = (SentLists::default(), PseudoRandom(77));
    let mut arrays: Vec<Vec<(&str, u64)>> = vec![Vec::new(); 3];
    let (mut sent_whole, mut sent_as_part) = (0, 0);
    for call in 1..20_000u64 {
        let which = numbers.index(arrays.len());
        if numbers.next(20) == 0 {
            let len = numbers.index(12);
            arrays[which] = (0..len)
                .map(|_| (["x", "y", "z"][numbers.index(3)], numbers.next(3)))
                .collect();
            arrays.truncate(3);
        }
        let whole = &arrays[which];
        let skip = numbers.index(whole.len() + 1);
        let queue = u32::try_from(numbers.next(3) * 64 + which as u64).unwrap();
        let slot = if numbers.next(5) == 0 {
            EVICT
        } else {
            slot(queue)
        };
        // the policy advances its pointer into the array, or uses generations
        let (array, generation, first) = match numbers.next(2) {
            0 => (&whole[skip..], 0, 0),
            _ => (
                &whole[..],
                if numbers.next(2) == 0 {
                    call
                } else {
                    generation_of(whole)
                },
                skip,
            ),
        };
        let end = first + numbers.index(array.len() - first + 1);
        let part = ListPart {
            queue,
            slot,
            generation,
            first,
            end,
        };
        let list = if sent.has(&part, array.len()) {
            SentLists::part(&part)
        } else {
            let mut new = NewList::default();
            for &(path, start) in array {
                let path = sent.path(path.as_bytes(), &mut new.paths).unwrap();
                new.entries.push(entry(path, start));
            }
            sent.read(&part, new)
        };
        *(if list.new.is_some() {
            &mut sent_whole
        } else {
            &mut sent_as_part
        }) += 1;
        let Ok(Reply::Lists(mut lists)) = Reply::decode(&Reply::Lists(vec![list]).encode()) else {
            panic!("the reply is not a list")
        };
        let resolved = received.resolve(lists.pop().unwrap()).unwrap();
        let range = |&(path, start): &(&str, u64)| FileRange {
            path: Path::new(path).into(),
            start,
            len: 1,
            device: None,
        };
        assert_eq!(
            *resolved.ranges,
            *array[first..end].iter().map(range).collect::<Vec<_>>(),
            "{call}: {part:?}"
        );
        assert_eq!(resolved.queue, queue);
    }
    assert!(
        sent_whole > 1000 && sent_as_part > 1000,
        "{sent_whole} {sent_as_part}"
    );
}

/// A generation that is equal for equal lists.
fn generation_of(list: &[(&str, u64)]) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    list.hash(&mut hasher);
    hasher.finish() | 1 << 63
}

#[test]
fn frames_have_a_limit_and_a_deadline() {
    let identity = |pid| HostIdentity {
        pidfd: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap(),
        schedstat: "/proc/self/schedstat".into(),
    };
    let own_process = identity(rustix::process::getpid());
    let limit = |millis| CallLimit {
        own: Duration::from_millis(millis),
        stall: Duration::ZERO,
    };
    let distant = || limit(20_000);
    // receives what `sender` has sent; after a frame without a body the connection stays open
    let receive_frame = |bytes: &[u8], sender: &HostIdentity, limit: CallLimit| {
        let (local, mut remote) = UnixStream::pair().unwrap();
        remote.write_all(bytes).unwrap();
        let kept_open = (bytes.len() == 8).then_some(remote);
        let (clock, exceeded) = (Cell::new(CallClock::start(limit)), Cell::new(None));
        let deadline = Deadline {
            clock: &clock,
            process: Some(sender),
            exceeded: &exceeded,
        };
        let received = receive(&local, Some(deadline));
        drop(kept_open);
        received
            .map(|frame| (frame.number, frame.message))
            .map_err(|error| error.kind())
    };
    use std::io::ErrorKind;
    assert_eq!(
        receive_frame(&[3, 0, 0, 0, 5, 0, 0, 0, 7, 8, 9], &own_process, distant()),
        Ok((5, vec![7, 8, 9]))
    );
    assert_eq!(
        receive_frame(&[3, 0, 0, 0, 5, 0, 0, 0, 7, 8], &own_process, distant()),
        Err(ErrorKind::UnexpectedEof)
    );
    assert_eq!(
        receive_frame(&[255; 16], &own_process, distant()),
        Err(ErrorKind::InvalidData)
    );
    assert_eq!(
        receive_frame(&[3, 0, 0, 0, 5, 0, 0, 0], &own_process, limit(50)),
        Err(ErrorKind::TimedOut)
    );
    // a process that ended while another one holds its connection
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let ended = identity(pid);
    assert_eq!(
        receive_frame(&[3, 0, 0, 0, 5, 0, 0, 0], &ended, distant()),
        Err(ErrorKind::UnexpectedEof)
    );
    child.wait().unwrap();
    // a receiver that reads slowly: the deadline holds for the whole message
    let (local, mut remote) = UnixStream::pair().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 1 << 14];
        while std::io::Read::read(&mut remote, &mut bytes).is_ok_and(|len| len > 0) {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let (clock, exceeded) = (Cell::new(CallClock::start(limit(50))), Cell::new(None));
    let deadline = Deadline {
        clock: &clock,
        process: None,
        exceeded: &exceeded,
    };
    let sent = send(&local, 1, &vec![0; MAX_MESSAGE], Some(deadline));
    assert_eq!(sent.map_err(|error| error.kind()), Err(ErrorKind::TimedOut));
    drop(local);
    reader.join().unwrap();
    // a message beyond the limit is not sent
    let (local, _remote) = UnixStream::pair().unwrap();
    assert!(send(&local, 1, &vec![0; MAX_MESSAGE + 1], None).is_err());
}
