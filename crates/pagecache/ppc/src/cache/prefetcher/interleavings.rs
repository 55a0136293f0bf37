//! The prefetcher's threads, its pause and its cancellations under hundreds of thread schedules, explored with shuttle: each
//! piece is read once, no schedule deadlocks, and nothing is read while it is paused.
//! `RUSTFLAGS="--cfg shuttle" cargo test -p anamnesis-ppc --lib models` (`.ci/prove`).
//!
//! Each model was seen to fail: without the notification at the end of a claim, without the notifications of `resume` and of
//! the end, with `halt` set outside of the lock, and with a remainder that is dropped.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::sync::explore;
use crate::{FileEntry, RangeList};

/// The length of a read; a file has two of them, and each is a piece.
const READ: u64 = 64 << 10;
const FILES: u64 = 2;
/// Not reached: the model checker has no clock.
const FOREVER: Duration = Duration::from_secs(3600);

/// Sparse files, whose pages a file system in memory does not keep: each model reads them again.
fn files() -> (tempfile::TempDir, Arc<Namespace>) {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.expect("a temporary directory");
    for number in 0..FILES {
        let file = std::fs::File::create(dir.path().join(number.to_string())).unwrap();
        file.set_len(2 * READ).unwrap();
    }
    let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
    (dir, namespace)
}

fn prefetcher() -> Prefetcher {
    Prefetcher::new(PrefetchOptions {
        threads: 2,
        threads_per_queue: Some(2),
        read_size: usize::try_from(READ).unwrap(),
        piece_size: READ,
        gap: 0,
        topology: Arc::default(),
        ..PrefetchOptions::default()
    })
    .unwrap()
}

fn whole(namespace: &Namespace) -> RangeList {
    let files = namespace.entries().iter().map(FileEntry::whole);
    files.collect::<Vec<_>>().into()
}

fn submit(prefetcher: &Prefetcher, namespace: &Arc<Namespace>, queue: u32) {
    let ranges = whole(namespace);
    let request = PrefetchRequest { ranges, queue };
    prefetcher.submit(namespace, &request).unwrap();
}

/// Bytes that were read, or found in the page cache.
fn processed(prefetcher: &Prefetcher) -> u64 {
    let progress = prefetcher.progress();
    assert_eq!((progress.errors, progress.stale), (0, 0));
    progress.bytes_read + progress.bytes_skipped
}

#[test]
fn each_piece_is_read_once_and_the_end_is_noticed() {
    let (_dir, namespace) = files();
    explore(move || {
        let prefetcher = prefetcher();
        submit(&prefetcher, &namespace, 0);
        submit(&prefetcher, &namespace, 1);
        assert!(prefetcher.wait(FOREVER));
        assert_eq!(processed(&prefetcher), 2 * FILES * 2 * READ);
    });
}

#[test]
fn nothing_is_read_during_a_pause_and_the_rest_after_it() {
    let (_dir, namespace) = files();
    explore(move || {
        let prefetcher = Arc::new(prefetcher());
        submit(&prefetcher, &namespace, 0);
        let paused = Arc::clone(&prefetcher);
        let pause = thread::Builder::new().spawn(move || {
            paused.pause();
            paused.quiesce(FOREVER).unwrap();
            let before = processed(&paused);
            for _ in 0..10 {
                shuttle::thread::yield_now();
            }
            assert_eq!(processed(&paused), before, "read during a pause");
            paused.resume();
        });
        assert!(prefetcher.wait(FOREVER));
        assert_eq!(processed(&prefetcher), FILES * 2 * READ);
        pause.unwrap().join().unwrap();
    });
}

#[test]
fn of_a_pause_and_a_resume_at_once_one_wins() {
    let (_dir, namespace) = files();
    explore(move || {
        let prefetcher = Arc::new(prefetcher());
        let paused = Arc::clone(&prefetcher);
        let pause = thread::Builder::new().spawn(move || paused.pause());
        prefetcher.resume();
        pause.unwrap().join().unwrap();
        let is_paused = prefetcher.shared.lock().paused;
        assert_eq!(prefetcher.shared.halt.load(SeqCst), is_paused);
        prefetcher.resume();
        submit(&prefetcher, &namespace, 0);
        assert!(prefetcher.wait(FOREVER));
    });
}

#[test]
fn replaced_and_interrupted_lists_end() {
    let (_dir, namespace) = files();
    explore(move || {
        let prefetcher = Arc::new(prefetcher());
        submit(&prefetcher, &namespace, 0);
        let (other, root) = (Arc::clone(&prefetcher), namespace.root().to_owned());
        let interrupt = thread::Builder::new().spawn(move || {
            other.interrupt(&root, 0);
            other.quiesce(FOREVER).unwrap();
        });
        submit(&prefetcher, &namespace, 0);
        assert!(prefetcher.wait(FOREVER));
        interrupt.unwrap().join().unwrap();
        let state = prefetcher.shared.lock();
        assert_eq!((state.claims, state.claimed_bytes), (0, 0));
        assert_eq!(state.queues.len(), 0);
    });
}

/// A list that is dropped with the prefetcher, whose threads end.
#[test]
fn threads_end_with_the_prefetcher() {
    let (_dir, namespace) = files();
    explore(move || {
        let prefetcher = prefetcher();
        submit(&prefetcher, &namespace, 0);
        prefetcher.pause();
    });
}
