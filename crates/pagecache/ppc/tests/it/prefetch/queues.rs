//! Queues of the prefetcher: the order of a list, its replacement by a newer one, and turns of several queues.

use std::time::Duration;

use anamnesis_ppc::cache::{PrefetchOptions, Prefetcher};
use anamnesis_ppc::{PrefetchRequest, RangeList};

use crate::support::files::{
    HANG_TIMEOUT, MIB, file_range, is_populated, populated_bytes, prefetch_request,
    read_ahead_bound, uncached_files, wait_until, whole_file_request,
};

/// A rate at which a list is still being read when the test looks, and a single read is not.
const SLOW: u64 = 8 * MIB;

fn wait_for_bytes_read(prefetcher: &Prefetcher, bytes: u64) {
    wait_until("bytes are read", || {
        prefetcher.progress().bytes_read >= bytes
    });
}

#[test]
fn files_are_read_in_list_order() {
    let Some((dir, namespace)) = uncached_files("list order", &[32, 32]) else {
        return;
    };
    let prefetcher = Prefetcher::new(PrefetchOptions {
        threads: 1,
        bandwidth: Some(SLOW),
        ..PrefetchOptions::default()
    })
    .unwrap();
    let ranges = vec![file_range("1", 0, 16 * MIB), file_range("0", 0, 16 * MIB)];
    prefetcher
        .submit(&namespace, &prefetch_request(0, ranges))
        .unwrap();
    let (listed_second, listed_first) = (dir.path().join("0"), dir.path().join("1"));
    wait_for_bytes_read(&prefetcher, 1);
    prefetcher.pause();
    prefetcher.quiesce(HANG_TIMEOUT).unwrap();
    assert!(populated_bytes(&listed_first, 0, 16 * MIB) > 0);
    assert_eq!(populated_bytes(&listed_second, 0, 16 * MIB), 0);
    prefetcher.set_bandwidth(Some(64 * MIB));
    prefetcher.resume();
    while !prefetcher.wait(Duration::from_millis(10)) {
        // queried before the other file, because its reads may start between the two queries
        let second_started = populated_bytes(&listed_second, 0, 16 * MIB) > 0;
        assert!(!second_started || is_populated(&listed_first, 0, 16 * MIB));
    }
    assert!(is_populated(&listed_second, 0, 16 * MIB));
}

#[test]
fn a_newer_list_replaces_the_list_of_its_queue() {
    let Some((dir, namespace)) = uncached_files("newer list", &[256, 64]) else {
        return;
    };
    let prefetcher = Prefetcher::new(PrefetchOptions {
        bandwidth: Some(SLOW),
        ..PrefetchOptions::default()
    })
    .unwrap();
    prefetcher
        .submit(&namespace, &whole_file_request(&namespace, 1, "0"))
        .unwrap();
    wait_for_bytes_read(&prefetcher, 1);
    let queues = prefetcher.progress().queues;
    assert_eq!((queues.len(), queues[0].queue, queues[0].ranges), (1, 1, 1));
    prefetcher
        .submit(&namespace, &whole_file_request(&namespace, 1, "1"))
        .unwrap();
    prefetcher.set_bandwidth(None);
    assert!(prefetcher.wait(HANG_TIMEOUT));
    assert_eq!(prefetcher.progress().interrupts, 1);
    assert!(is_populated(&dir.path().join("1"), 0, 64 * MIB));
    let replaced = populated_bytes(&dir.path().join("0"), 0, 256 * MIB);
    assert!(
        replaced < 200 * MIB,
        "{replaced} bytes of the replaced list"
    );
}

#[test]
fn queues_are_served_in_turn() {
    let Some((dir, namespace)) = uncached_files("two queues", &[128, 128]) else {
        return;
    };
    let prefetcher = Prefetcher::new(PrefetchOptions {
        threads: 1,
        bandwidth: Some(200 * MIB),
        ..PrefetchOptions::default()
    })
    .unwrap();
    for queue in 0..2 {
        let request = whole_file_request(&namespace, queue, &queue.to_string());
        prefetcher.submit(&namespace, &request).unwrap();
    }
    wait_for_bytes_read(&prefetcher, 40 * MIB);
    prefetcher.interrupt_all();
    prefetcher.quiesce(HANG_TIMEOUT).unwrap();
    let read_ahead = read_ahead_bound(dir.path());
    let [first, second] =
        ["0", "1"].map(|file| populated_bytes(&dir.path().join(file), 0, 128 * MIB));
    assert!(
        first > 0 && second > 0 && first.abs_diff(second) <= read_ahead + 8 * MIB,
        "{first} and {second}"
    );
}

/// Processor time of this thread, which other processes do not affect.
fn thread_time() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)
        .try_into()
        .unwrap()
}

#[test]
fn a_long_list_is_submitted_without_a_copy_and_read_in_merged_pieces() {
    let Some((dir, namespace)) = uncached_files("long lists", &[128]) else {
        return;
    };
    let prefetcher = Prefetcher::new(PrefetchOptions::default()).unwrap();
    // 1300 bytes of every 1342
    let ranges: RangeList = (0..100_000)
        .map(|n| file_range("0", n * 1342, 1300))
        .collect::<Vec<_>>()
        .into();
    let started = thread_time();
    for _ in 0..1000 {
        let request = PrefetchRequest {
            ranges: RangeList::clone(&ranges),
            queue: 0,
        };
        prefetcher.submit(&namespace, &request).unwrap();
    }
    let elapsed = thread_time() - started;
    assert!(
        elapsed < Duration::from_secs(1),
        "{elapsed:?} for 1000 lists"
    );
    assert!(prefetcher.wait(HANG_TIMEOUT));
    assert!(populated_bytes(&dir.path().join("0"), 0, 128 * MIB) >= 127 * MIB);
    let progress = prefetcher.progress();
    assert!(progress.reads < 2000, "{progress:?}");
    assert_eq!(progress.submitted, 1000);
}

#[test]
fn more_than_1024_queues_are_refused() {
    let Some((_dir, namespace)) = uncached_files("number of queues", &[64]) else {
        return;
    };
    let prefetcher = Prefetcher::new(PrefetchOptions::default()).unwrap();
    prefetcher.pause();
    let submit = |queue| prefetcher.submit(&namespace, &whole_file_request(&namespace, queue, "0"));
    for queue in 0..1024 {
        submit(queue).unwrap();
    }
    submit(1024).unwrap_err();
    submit(5).unwrap(); // replaces a list and needs no further queue
    prefetcher.interrupt_namespace(namespace.root());
    assert_eq!(prefetcher.progress().interrupts, 1025);
    assert!(prefetcher.wait(HANG_TIMEOUT));
}
