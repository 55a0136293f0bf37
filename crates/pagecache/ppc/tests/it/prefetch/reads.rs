//! Which bytes the prefetcher reads into the page cache, and what it does with files that changed.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anamnesis_ppc::FileRange;
use anamnesis_ppc::cache::{
    Accelerator, NumaNode, PrefetchMethod, PrefetchOptions, Prefetcher, Topology,
};

use crate::support::files::{
    HANG_TIMEOUT, MIB, cached_bytes, drop_cached_pages, file_range, is_populated, populated_bytes,
    prefetch_request, read_ahead_bound, uncached_files, wait_until, whole_file_request,
};

/// A rate at which a whole file is still being read when the test changes it.
const SLOW: u64 = 8 * MIB;

fn wait_for_first_read(prefetcher: &Prefetcher) {
    let before = prefetcher.progress().bytes_read;
    wait_until("bytes are read", || {
        prefetcher.progress().bytes_read > before
    });
}

fn truncate(path: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

#[test]
fn requested_ranges_are_populated_with_little_excess() {
    let Some((dir, namespace)) = uncached_files("prefetch", &[64, 64]) else {
        return;
    };
    let prefetcher = Prefetcher::new(PrefetchOptions::default()).unwrap();
    let (first, second) = (dir.path().join("0"), dir.path().join("1"));
    // small and large, not in file order, in two files
    let ranges = vec![
        file_range("0", 40 * MIB + 5, 3 * MIB),
        file_range("1", 7, 1),
        file_range("0", 100, 2 * MIB),
        file_range("1", 100, 4000),
    ];
    prefetcher
        .submit(&namespace, &prefetch_request(3, ranges))
        .unwrap();
    assert!(prefetcher.wait(HANG_TIMEOUT));
    let page = rustix::param::page_size() as u64;
    assert!(is_populated(&first, 40 * MIB, 3 * MIB + page));
    assert!(is_populated(&first, 0, 2 * MIB + page));
    assert!(is_populated(&second, 0, page));
    let read_ahead = read_ahead_bound(dir.path());
    assert!(populated_bytes(&first, 0, 64 * MIB) <= 5 * MIB + 2 * page + 2 * read_ahead);
    assert!(populated_bytes(&second, 0, 64 * MIB) <= page + read_ahead);
    // the kernel reads ahead only after a range, not before it
    assert_eq!(
        populated_bytes(
            &first,
            2 * MIB + page + read_ahead,
            (38 * MIB).saturating_sub(read_ahead + page).max(1)
        ),
        0
    );
    let progress = prefetcher.progress();
    assert!(
        progress.bytes_read > 0 && progress.bytes_read <= 5 * MIB + 3 * page,
        "{progress:?}"
    );
    assert_eq!(
        (progress.bytes_read + progress.bytes_skipped) / MIB,
        5,
        "{progress:?}"
    );
    assert_eq!(
        (
            progress.errors,
            progress.stale,
            progress.interrupts,
            progress.queues.len()
        ),
        (0, 0, 0, 0)
    );
    // repeated, because the kernel may have reclaimed pages, which are then read again
    wait_until("a resident range is skipped", || {
        let before = prefetcher.progress();
        let resident = vec![file_range("0", 40 * MIB, 3 * MIB)];
        prefetcher
            .submit(&namespace, &prefetch_request(3, resident))
            .unwrap();
        assert!(prefetcher.wait(HANG_TIMEOUT));
        let after = prefetcher.progress();
        let skipped = after.bytes_skipped - before.bytes_skipped;
        (after.reads, after.bytes_read, skipped) == (before.reads, before.bytes_read, 3 * MIB)
    });
}

#[test]
fn populate_reads_no_more_than_the_folios_of_a_range() {
    let Some((dir, namespace)) = uncached_files("populate", &[64, 16]) else {
        return;
    };
    let path = dir.path().join("0");
    let prefetcher = Prefetcher::new(PrefetchOptions {
        method: PrefetchMethod::Populate,
        threads_per_queue: Some(2),
        ..PrefetchOptions::default()
    })
    .unwrap();
    let ranges = vec![
        file_range("0", 4 * MIB, 20 * MIB),
        file_range("0", 41 * MIB, 4000),
    ];
    prefetcher
        .submit(&namespace, &prefetch_request(0, ranges))
        .unwrap();
    assert!(prefetcher.wait(HANG_TIMEOUT));
    assert!(is_populated(&path, 4 * MIB, 20 * MIB) && is_populated(&path, 41 * MIB, 4000));
    // large folios have 2 MiB here: ten for the first range and the one that contains the second
    if populated_bytes(&path, 40 * MIB, 2 * MIB) == 2 * MIB {
        assert_eq!(populated_bytes(&path, 0, 64 * MIB), 22 * MIB);
    } else {
        eprintln!("SKIPPED: populate: this kernel or file system makes no large folios");
    }
    let progress = prefetcher.progress();
    assert_eq!((progress.errors, progress.past_end), (0, 0), "{progress:?}");
    // pages that are mapped could not be dropped: the prefetcher keeps no mapping
    drop_cached_pages(fs::File::open(&path).unwrap());
    assert_eq!(cached_bytes(&path, 0, 64 * MIB), 0);
    // truncation of a mapped file raises no SIGBUS
    prefetcher.set_bandwidth(Some(SLOW / 4));
    prefetcher
        .submit(&namespace, &whole_file_request(&namespace, 0, "1"))
        .unwrap();
    wait_for_first_read(&prefetcher);
    truncate(&dir.path().join("1"), 5000);
    prefetcher.set_bandwidth(None);
    assert!(prefetcher.wait(HANG_TIMEOUT));
    let progress = prefetcher.progress();
    assert!(
        progress.past_end + progress.stale > 0 && progress.errors == 0,
        "{progress:?}"
    );
}

#[test]
fn missing_and_replaced_files_are_reported_once_per_list() {
    let Some((dir, namespace)) = uncached_files("stale files", &[8, 8, 8]) else {
        return;
    };
    let reported = Arc::new(Mutex::new(Vec::new()));
    let in_callback = Arc::clone(&reported);
    let on_error = move |queue, error: &anamnesis_ppc::Error| {
        in_callback.lock().unwrap().push((queue, error.to_string()))
    };
    let prefetcher = Prefetcher::new(PrefetchOptions {
        on_error: Some(Arc::new(on_error)),
        threads: 1,
        ..PrefetchOptions::default()
    })
    .unwrap();
    fs::rename(dir.path().join("1"), dir.path().join("0")).unwrap();
    let ranges = vec![
        file_range("0", 0, MIB),
        file_range("2", 0, MIB),
        file_range("0", 4 * MIB, MIB),
        file_range("no such", 0, 1),
        file_range("1", 0, 1),
    ];
    prefetcher
        .submit(&namespace, &prefetch_request(7, ranges))
        .unwrap();
    assert!(prefetcher.wait(HANG_TIMEOUT));
    assert!(is_populated(&dir.path().join("2"), 0, MIB));
    assert_eq!(cached_bytes(&dir.path().join("0"), 0, 8 * MIB), 0);
    let reported = reported.lock().unwrap();
    assert_eq!(reported.len(), 3, "{reported:?}");
    assert!(
        reported.iter().all(|(queue, _)| *queue == 7) && reported[0].1.contains("stale"),
        "{reported:?}"
    );
    let progress = prefetcher.progress();
    assert_eq!((progress.stale, progress.errors), (2, 1), "{progress:?}");
}

#[test]
fn truncated_files_and_ranges_beyond_the_end_are_no_errors() {
    let Some((dir, namespace)) = uncached_files("truncated files", &[64, 8]) else {
        return;
    };
    let prefetcher = Prefetcher::new(PrefetchOptions {
        threads: 1,
        bandwidth: Some(SLOW),
        ..PrefetchOptions::default()
    })
    .unwrap();
    prefetcher
        .submit(&namespace, &whole_file_request(&namespace, 0, "0"))
        .unwrap();
    wait_for_first_read(&prefetcher);
    truncate(&dir.path().join("0"), 3 * MIB + 1);
    prefetcher.set_bandwidth(None);
    assert!(prefetcher.wait(HANG_TIMEOUT));
    let progress = prefetcher.progress();
    assert!(progress.past_end + progress.stale > 0, "{progress:?}");
    let ranges = vec![
        file_range("1", 7 * MIB, 9 * MIB),
        file_range("1", 100 * MIB, MIB),
        file_range("1", u64::MAX - 1, u64::MAX),
        file_range("1", 8 * MIB, 1),
        file_range("1", 3, u64::MAX),
        file_range("1", 0, 0),
    ];
    prefetcher
        .submit(&namespace, &prefetch_request(1, ranges))
        .unwrap();
    assert!(prefetcher.wait(HANG_TIMEOUT));
    assert!(is_populated(&dir.path().join("1"), 0, 8 * MIB));
    let progress = prefetcher.progress();
    assert_eq!(progress.errors, 0);
    assert!(progress.past_end >= 5, "{progress:?}");
}

#[test]
fn ranges_of_unknown_or_unreachable_accelerators_are_read_too() {
    let Some((dir, namespace)) = uncached_files("accelerators", &[16]) else {
        return;
    };
    // this process may not run on the core of the second node
    let nodes = vec![
        NumaNode {
            id: 0,
            cores: vec![0],
        },
        NumaNode {
            id: 1,
            cores: vec![5000],
        },
    ];
    let accelerator = |node| Accelerator {
        address: String::new(),
        node: Some(node),
    };
    let topology = Arc::new(Topology {
        nodes,
        accelerators: vec![accelerator(0), accelerator(1)],
    });
    let prefetcher = Prefetcher::new(PrefetchOptions {
        topology,
        ..PrefetchOptions::default()
    })
    .unwrap();
    // accelerators 0 and 1 exist, 2 does not
    let ranges = (0..16).map(|mib| FileRange {
        device: Some(mib % 3),
        ..file_range("0", u64::from(mib) * MIB, MIB)
    });
    prefetcher
        .submit(&namespace, &prefetch_request(0, ranges.collect()))
        .unwrap();
    assert!(prefetcher.wait(HANG_TIMEOUT));
    assert!(is_populated(&dir.path().join("0"), 0, 16 * MIB));
}
