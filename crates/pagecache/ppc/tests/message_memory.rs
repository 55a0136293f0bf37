//! A message of *n* bytes from a host process costs the daemon at most 16 *n* bytes of memory and 1 MiB. A binary of its
//! own, because it counts the allocations of all threads.

#[path = "../../../../benches/guard/src/counting_allocator.rs"]
mod counting_allocator;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anamnesis_ppc::Namespace;
use anamnesis_ppc::host::fuzzing::call_host;
use counting_allocator::{CountingAllocator, counted};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const MAX_PER_BYTE: u64 = 16;
const MAX_OVERHEAD: u64 = 1 << 20;

fn framed(number: u32, message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).unwrap();
    [&len.to_ne_bytes()[..], &number.to_ne_bytes(), message].concat()
}

/// A reply of lists, and the bytes of each.
fn lists(count: u32, list: &[u8]) -> Vec<u8> {
    [&[2], &count.to_ne_bytes()[..], &list.repeat(count as usize)].concat()
}

/// A list without old entries: paths, then the bytes of entries.
fn new_list(paths: u32, path: &[u8], entries: u32, entry: &[u8]) -> Vec<u8> {
    let path = [&u32::try_from(path.len()).unwrap().to_ne_bytes()[..], path].concat();
    [
        &[0, 0, 0, 0, 0, 1],
        &paths.to_ne_bytes()[..],
        &path.repeat(paths as usize),
        &entries.to_ne_bytes(),
        &entry.repeat(entries as usize),
        &[0; 8],
    ]
    .concat()
}

#[test]
fn a_reply_costs_memory_in_proportion_to_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), vec![0; 5000]).unwrap();
    let files = [Arc::new(Namespace::scan(dir.path()).unwrap())];
    let ready = framed(1, &[0, 7, 0, 0, 0, 1]);
    let reply = |message: &[u8]| [&ready[..], &framed(2, message)].concat();
    let text = |len: u32| [&[1], &len.to_ne_bytes()[..], &vec![0xff; len as usize]].concat();
    let entry = [0; 24];
    let false_length = [&ready[..], &(32u32 << 20).to_ne_bytes(), &[2, 0, 0, 0]].concat();
    let too_many_paths = [
        lists(2, &new_list(200_000, b"", 0, b"")),
        lists(1, &new_list(300_000, b"", 0, b"")),
    ];
    let cases = [
        ("false length", false_length, "UnexpectedEof"),
        ("text", reply(&text(30 << 20)), "Policy("),
        (
            "empty lists",
            reply(&lists(1024, &[0; 14])),
            "UnexpectedEof",
        ),
        ("many lists", reply(&lists(1025, &[0; 14])), "Malformed"),
        (
            "paths",
            reply(&lists(1, &new_list(1 << 18, b"a", 0, b""))),
            "UnexpectedEof",
        ),
        (
            "paths of no file",
            reply(&lists(1, &new_list(1 << 18, b"b", 0, b""))),
            "no file of the namespace",
        ),
        ("paths of two lists", reply(&too_many_paths[0]), "Malformed"),
        ("too many paths", reply(&too_many_paths[1]), "Malformed"),
        (
            "entries",
            reply(&lists(1, &new_list(1, b"a", 1 << 18, &entry))),
            "UnexpectedEof",
        ),
        (
            "too many entries",
            reply(&lists(5, &new_list(1, b"a", (1 << 18) + 1, &entry))),
            "at most 262144",
        ),
    ];
    for (what, bytes, expected) in cases {
        let len = bytes.len() as u64;
        let (daemon, mut host) = UnixStream::pair().unwrap();
        let mut daemon = Some(daemon);
        let mut result = None;
        // the replies are read meanwhile: they exceed the buffer of the socket
        let writer = std::thread::spawn(move || {
            let _ = host.write_all(&bytes); // the daemon may end before it has read everything
            let _ = host.shutdown(std::net::Shutdown::Write);
            host
        });
        let counts = counted(&mut || {
            result = daemon
                .take()
                .map(|daemon| call_host(daemon, &files, [0; 8]));
        });
        drop(writer.join().unwrap());
        let error = result.unwrap().unwrap_err();
        assert!(error.contains(expected), "{what}: {error}");
        assert!(error.len() < 20_000, "{what}: {}", error.len());
        assert!(
            counts.peak <= MAX_PER_BYTE * len + MAX_OVERHEAD,
            "{what}: {} bytes for {len}",
            counts.peak
        );
        println!(
            "{what}: {:.1} bytes per byte",
            counts.peak as f64 / len as f64
        );
    }
}
