//! Conversations between the runtime of the page cache and the host process of a policy. Each side receives arbitrary bytes,
//! or talks to the other one, which calls a policy in C whose lists the input describes.

use std::ffi::{c_char, c_int, c_void};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::ptr::null_mut;
use std::sync::{Arc, LazyLock};

use anamnesis_ppc::Namespace;
use anamnesis_ppc::abi::{EvictIo, EvictIos, MissIo, Operation, PrefetchIo, PrefetchIos};
use anamnesis_ppc::host::fuzzing::{answer_daemon, call_host};

use super::UNCHARGED;
use super::counting_allocator::counted;

/// Memory per byte of the input: of messages, and of lists that the policy returns for one byte of its script.
const MEMORY_PER_BYTE: u64 = 16;
/// Memory that the conversation of both sides may take: what one list of the policy costs, in each of 65 slots on both sides.
const CONVERSATION: u64 = 1 << 20;
/// Entries of the policy's array.
const ENTRIES: usize = 16;

/// The first byte of the input selects what follows: replies, requests, or calls and the policy's script. The bit 4 replaces
/// the headers of messages by valid ones.
pub(crate) fn converse(bytes: &[u8]) {
    let Some((&mode, rest)) = bytes.split_first() else {
        return;
    };
    let headers = mode & 4 != 0;
    match mode & 3 {
        0 => replies(&messages(rest, headers)),
        1 => {
            let (script, requests) = rest.split_at(rest.len().min(32));
            requests_of(script, &messages(requests, headers));
        }
        _ => {
            let (calls, script) = rest.split_at(rest.len().min(usize::from(mode >> 3)));
            both(calls, script);
        }
    }
}

/// The bytes, or the messages in them with a number and a length that are valid.
fn messages(mut bytes: &[u8], replace_headers: bool) -> Vec<u8> {
    if !replace_headers {
        return bytes.to_vec();
    }
    let (mut all, mut number) = (Vec::new(), 0u32);
    while let Some((&[a, b, _, _, _, _, _, _], rest)) = bytes.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([a, b])).min(rest.len());
        let (message, rest) = rest.split_at(len);
        number += 1;
        all.extend(u32::try_from(len).expect("16 bits").to_ne_bytes());
        all.extend(number.to_ne_bytes());
        all.extend(message);
        bytes = rest;
    }
    all
}

/// The states of a directory with files that appear and disappear.
static FILES: LazyLock<[Arc<Namespace>; 2]> = LazyLock::new(|| {
    let name = format!("anamnesis-fuzz-host-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(directory.join("sub")).expect("a temporary directory");
    let scan = |file: &str| {
        std::fs::write(directory.join(file), [0; 5000]).expect("a temporary file");
        Arc::new(Namespace::scan(&directory).expect("a directory"))
    };
    let files = [scan("a"), scan("sub/b")];
    std::fs::remove_dir_all(&directory).expect("just made");
    files
});

/// The daemon receives `bytes`.
fn replies(bytes: &[u8]) {
    let files = &*FILES;
    let (daemon, mut host) = UnixStream::pair().expect("a socket");
    // inputs are shorter than the buffer of a socket
    host.write_all(bytes).expect("a connection");
    host.shutdown(Shutdown::Write).expect("a connection");
    let mut daemon = Some(daemon);
    let counts = counted(&mut || {
        let Some(daemon) = daemon.take() else { return };
        let ended = call_host(daemon, files, (0..=255).cycle().take(600));
        // the host sends no more than these bytes, so that they end before the calls
        let error = ended.expect_err("more replies than bytes");
        assert!(error.len() <= 20_000, "a reason of {} bytes", error.len());
        // a reason that the policy states may contain any word
        let timed_out = !error.starts_with("Policy(") && error.contains("TimedOut");
        assert!(!timed_out, "the end was not noticed");
    });
    check(counts.peak, bytes.len(), 0);
}

/// The host process receives `bytes`, and calls a policy that follows `script`.
fn requests_of(script: &[u8], bytes: &[u8]) {
    let (mut daemon, host) = UnixStream::pair().expect("a socket");
    daemon.write_all(bytes).expect("a connection");
    daemon.shutdown(Shutdown::Write).expect("a connection");
    let reader = std::thread::spawn(move || daemon.read_to_end(&mut Vec::new()));
    let mut host = Some(host);
    SCRIPT.with_borrow_mut(|own| own.start(script));
    let counts = counted(&mut || {
        let Some(host) = host.take() else { return };
        let _ = answer_daemon(&host, OPERATION); // malformed requests are refused
    });
    let _ = reader.join().expect("no panic"); // reset where the host has not read everything
    check(counts.peak, bytes.len(), CONVERSATION);
}

/// The daemon makes `calls` of a policy that follows `script`.
fn both(calls: &[u8], script: &[u8]) {
    let files = &*FILES;
    let (daemon, host) = UnixStream::pair().expect("a socket");
    let (len, script) = (calls.len() + script.len(), script.to_vec());
    let server = std::thread::spawn(move || {
        SCRIPT.with_borrow_mut(|own| own.start(&script));
        answer_daemon(&host, OPERATION)
    });
    let mut daemon = Some(daemon);
    let counts = counted(&mut || {
        let Some(daemon) = daemon.take() else { return };
        if let Err(error) = call_host(daemon, files, calls.iter().copied()) {
            // an invalid list is refused by either side; each message is well-formed
            assert!(error.starts_with("Policy("), "{error}");
        }
    });
    let served = server.join().expect("no panic");
    served.expect("the daemon's requests are well-formed");
    check(counts.peak, len, CONVERSATION);
}

fn check(peak: u64, nbytes: usize, fixed: u64) {
    let most = MEMORY_PER_BYTE * nbytes as u64 + fixed + UNCHARGED;
    assert!(peak <= most, "{peak} bytes of memory for {nbytes} bytes");
}

/// The paths that the policy returns: of files, of none, and one that has no end within the limit.
static PATHS: [&[u8]; 8] = [
    b"a\0",
    b"sub/b\0",
    b"b\0",
    b"\0",
    b"../a\0",
    b"/etc/passwd\0",
    b"\x1b[31m\xff\0",
    &LONG_PATH,
];
static LONG_PATH: [u8; 5000] = {
    let mut path = [b'a'; 5000];
    path[4999] = 0;
    path
};

/// The answers of the policy: each field is taken from the bytes, and 0 after their end. The arrays are valid until the list
/// is released or the next callback is called, whatever the lists state.
struct PolicyScript {
    bytes: Vec<u8>,
    at: usize,
    prefetches: [PrefetchIo; ENTRIES],
    evictions: [EvictIo; ENTRIES],
    heads: [PrefetchIos; 4],
    evict_head: EvictIos,
}

const NO_PREFETCH: PrefetchIo = PrefetchIo {
    path: std::ptr::null(),
    offset: 0,
    size: 0,
    xpu: 0,
    flags: 0,
};
const NO_EVICTION: EvictIo = EvictIo {
    path: std::ptr::null(),
    offset: 0,
    size: 0,
};
const NO_PREFETCHES: PrefetchIos = PrefetchIos {
    count: 0,
    ios: null_mut(),
    first: 0,
    limit: 0,
    generation: 0,
    queue: 0,
    reserved: 0,
    next: null_mut(),
};
const NO_EVICTIONS: EvictIos = EvictIos {
    count: 0,
    ios: null_mut(),
    first: 0,
    limit: 0,
    generation: 0,
};

thread_local! {
    static SCRIPT: std::cell::RefCell<PolicyScript> = const {
        std::cell::RefCell::new(PolicyScript {
            bytes: Vec::new(),
            at: 0,
            prefetches: [NO_PREFETCH; ENTRIES],
            evictions: [NO_EVICTION; ENTRIES],
            heads: [NO_PREFETCHES; 4],
            evict_head: NO_EVICTIONS,
        })
    };
}

impl PolicyScript {
    fn start(&mut self, bytes: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.at = 0;
    }

    fn byte(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    /// A small number, or one near a power of two.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..128 => small.into(),
            large => (1u64 << (large % 64)).wrapping_sub(u64::from(large >> 6 & 1)),
        }
    }

    fn number_u32(&mut self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }

    /// The entries of a list, and how many it states. The array is NULL where it states more than there are.
    fn count(&mut self) -> (u64, bool) {
        match self.number() {
            count if count <= ENTRIES as u64 => (count, true),
            more => (more, false),
        }
    }

    fn path(&mut self) -> *const c_char {
        match self.byte() {
            255 => std::ptr::null(),
            path => PATHS[usize::from(path) % PATHS.len()].as_ptr().cast(),
        }
    }

    fn fill_head(&mut self, index: usize) {
        let (count, valid) = self.count();
        if valid {
            for entry in 0..usize::try_from(count).expect("small") {
                self.prefetches[entry] = PrefetchIo {
                    path: self.path(),
                    offset: self.number(),
                    size: self.number(),
                    xpu: self.number_u32(),
                    flags: self.byte().into(),
                };
            }
        }
        self.heads[index] = PrefetchIos {
            count,
            ios: if valid {
                self.prefetches.as_mut_ptr()
            } else {
                null_mut()
            },
            first: self.number(),
            limit: self.number(),
            generation: self.number(),
            queue: self.number_u32(),
            reserved: 0,
            next: null_mut(),
        };
    }
}

const OPERATION: Operation = Operation {
    init: Some(init),
    exit: Some(exit),
    prefetch: Some(prefetch),
    evict: Some(evict),
    start: Some(start),
    touch: Some(prefetch),
    release: Some(release),
    wants: Some(wants),
};

extern "C" fn init(_: *mut c_void) -> c_int {
    SCRIPT.with_borrow_mut(|script| c_int::from(script.byte() == 255))
}

extern "C" fn exit() -> c_int {
    SCRIPT.with_borrow_mut(|script| c_int::from(script.byte() == 255))
}

extern "C" fn wants() -> u32 {
    u32::MAX
}

extern "C" fn prefetch(_: *mut MissIo) -> *mut PrefetchIos {
    SCRIPT.with_borrow_mut(|script| {
        if script.byte() == 255 {
            return null_mut();
        }
        script.fill_head(0);
        &raw mut script.heads[0]
    })
}

/// Up to four lists; the last one may lead back to the first, which is a chain without end.
extern "C" fn start() -> *mut PrefetchIos {
    SCRIPT.with_borrow_mut(|script| {
        let shape = usize::from(script.byte());
        let lists = shape % 5;
        for index in 0..lists {
            script.fill_head(index);
        }
        for index in 1..lists {
            script.heads[index - 1].next = &raw mut script.heads[index];
        }
        match lists {
            0 => null_mut(),
            _ if shape > 200 => {
                script.heads[lists - 1].next = &raw mut script.heads[0];
                &raw mut script.heads[0]
            }
            _ => &raw mut script.heads[0],
        }
    })
}

extern "C" fn evict(_: *mut MissIo) -> *mut EvictIos {
    SCRIPT.with_borrow_mut(|script| {
        if script.byte() == 255 {
            return null_mut();
        }
        let (count, valid) = script.count();
        if valid {
            for entry in 0..usize::try_from(count).expect("small") {
                script.evictions[entry] = EvictIo {
                    path: script.path(),
                    offset: script.number(),
                    size: script.number(),
                };
            }
        }
        script.evict_head = EvictIos {
            count,
            ios: if valid {
                script.evictions.as_mut_ptr()
            } else {
                null_mut()
            },
            first: script.number(),
            limit: script.number(),
            generation: script.number(),
        };
        &raw mut script.evict_head
    })
}

/// Overwrites what was returned: the host may not read it any more.
extern "C" fn release(_: *mut c_void) {
    SCRIPT.with_borrow_mut(|script| {
        script.prefetches = [NO_PREFETCH; ENTRIES];
        script.evictions = [NO_EVICTION; ENTRIES];
        script.heads = [NO_PREFETCHES; 4];
        script.evict_head = NO_EVICTIONS;
    });
}
