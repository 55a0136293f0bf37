//! The eviction thread under hundreds of thread schedules, explored with shuttle: each list is evicted once, and the thread
//! ends when it is dropped, whatever it does then.
//! `RUSTFLAGS="--cfg shuttle" cargo test -p anamnesis-ppc --lib models` (`.ci/prove`).
//!
//! Each model was seen to fail: without the notification of a list or of the end, and with a lock that is released between
//! looking at the queue and waiting.

use super::*;
use crate::FileEntry;
use crate::sync::explore;

fn file() -> (tempfile::TempDir, Arc<Namespace>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), [0; 4096]).unwrap();
    let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
    (dir, namespace)
}

fn whole(namespace: &Namespace) -> RangeList {
    let files = namespace.entries().iter().map(FileEntry::whole);
    files.collect::<Vec<_>>().into()
}

#[test]
fn each_list_is_evicted_once() {
    let (_dir, namespace) = file();
    explore(move || {
        let evicts = Arc::new(EvictionThread::spawn().unwrap());
        let (other, same) = (Arc::clone(&evicts), Arc::clone(&namespace));
        let submits = thread::Builder::new().spawn(move || other.submit(&same, whole(&same)));
        evicts.submit(&namespace, whole(&namespace));
        submits.unwrap().join().unwrap();
        while evicts.totals().0 < 2 {
            shuttle::thread::yield_now();
        }
        assert_eq!(evicts.totals().0, 2);
    });
}

#[test]
fn the_thread_ends_with_its_owner() {
    let (_dir, namespace) = file();
    explore(move || {
        let evicts = EvictionThread::spawn().unwrap();
        evicts.submit(&namespace, whole(&namespace));
        let shared = Arc::clone(&evicts.shared);
        drop(evicts);
        assert!(shared.lock().lists <= 1);
    });
}
