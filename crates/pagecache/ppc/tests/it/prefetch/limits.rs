//! Limits on the prefetcher: bandwidth, memory headroom, invalid options, and callbacks that panic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use anamnesis_ppc::cache::{PrefetchOptions, Prefetcher};

use crate::support::files::{
    HANG_TIMEOUT, MIB, cached_bytes, file_range, is_populated, prefetch_request, read_ahead_bound,
    uncached_files, wait_until, whole_file_request,
};

#[test]
fn bandwidth_stays_below_its_limit() {
    let Some((_dir, namespace)) = uncached_files("bandwidth", &[100]) else {
        return;
    };
    let prefetcher = Prefetcher::new(PrefetchOptions {
        bandwidth: Some(100 * MIB),
        ..PrefetchOptions::default()
    })
    .unwrap();
    let started = Instant::now();
    prefetcher
        .submit(&namespace, &whole_file_request(&namespace, 0, "0"))
        .unwrap();
    assert!(prefetcher.wait(HANG_TIMEOUT));
    let seconds = started.elapsed().as_secs_f64();
    let read = prefetcher.progress().bytes_read + prefetcher.progress().bytes_skipped;
    assert_eq!(read, 100 * MIB);
    // the limit bounds the rate from above only: a busy machine or a slow disk may be slower
    assert!(
        (0.8..30.0).contains(&seconds),
        "{seconds} s for 100 MiB at 100 MiB/s"
    );
}

#[test]
fn cached_bytes_stay_within_the_headroom() {
    let Some((dir, namespace)) = uncached_files("headroom", &[128]) else {
        return;
    };
    let path = dir.path().join("0");
    let allowed = Arc::new(AtomicU64::new(24 * MIB));
    let (limit, in_callback) = (Arc::clone(&allowed), path.clone());
    let headroom = move |_: u64| {
        let cached = cached_bytes(&in_callback, 0, 128 * MIB);
        limit.load(SeqCst).saturating_sub(cached)
    };
    let prefetcher = Prefetcher::new(PrefetchOptions {
        headroom: Some(Arc::new(headroom)),
        ..PrefetchOptions::default()
    })
    .unwrap();
    prefetcher
        .submit(&namespace, &whole_file_request(&namespace, 0, "0"))
        .unwrap();
    wait_until("the headroom is used", || {
        prefetcher.progress().memory_waits > 0 && cached_bytes(&path, 0, 128 * MIB) >= 16 * MIB
    });
    assert!(!prefetcher.wait(Duration::from_millis(300)));
    let cached = cached_bytes(&path, 0, 128 * MIB);
    // the kernel's read-ahead may use a part of the headroom, or exceed it
    assert!(
        cached >= 16 * MIB && cached <= 24 * MIB + 2 * read_ahead_bound(dir.path()),
        "{cached} bytes"
    );
    assert!(prefetcher.progress().memory_waits > 0);
    allowed.store(u64::MAX, SeqCst);
    assert!(prefetcher.wait(HANG_TIMEOUT));
    assert!(is_populated(&path, 0, 128 * MIB));
}

#[test]
fn panics_of_callbacks_do_not_end_the_prefetch_threads() {
    let Some((dir, namespace)) = uncached_files("panics of callbacks", &[8]) else {
        return;
    };
    let calls = AtomicU64::new(0);
    let headroom = move |_: u64| {
        if calls.fetch_add(1, SeqCst) == 0 {
            panic!("headroom panics")
        } else {
            u64::MAX
        }
    };
    let on_error = |_: u32, _: &anamnesis_ppc::Error| panic!("on_error panics");
    let prefetcher = Prefetcher::new(PrefetchOptions {
        headroom: Some(Arc::new(headroom)),
        on_error: Some(Arc::new(on_error)),
        threads: 1,
        ..PrefetchOptions::default()
    })
    .unwrap();
    let ranges = vec![file_range("none", 0, MIB), file_range("0", 0, 8 * MIB)];
    prefetcher
        .submit(&namespace, &prefetch_request(0, ranges))
        .unwrap();
    assert!(prefetcher.wait(HANG_TIMEOUT));
    assert!(is_populated(&dir.path().join("0"), 0, 8 * MIB));
}

#[test]
fn invalid_options_are_refused() {
    let with = |change: fn(&mut PrefetchOptions)| {
        let mut options = PrefetchOptions::default();
        change(&mut options);
        Prefetcher::new(options).map(|_| ())
    };
    with(|_| ()).unwrap();
    with(|options| options.threads = 0).unwrap_err();
    with(|options| options.threads_per_queue = Some(0)).unwrap_err();
    with(|options| options.read_size = 1000).unwrap_err();
    with(|options| options.piece_size = (1 << 20) + 1).unwrap_err();
    with(|options| options.piece_size = 0).unwrap_err();
}
