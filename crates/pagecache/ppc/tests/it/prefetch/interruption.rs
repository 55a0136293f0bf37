//! Interrupting, pausing and dropping a prefetcher while it reads.

use std::time::{Duration, Instant};

use anamnesis_ppc::cache::{PrefetchOptions, Prefetcher};

use crate::support::files::{
    HANG_TIMEOUT, MIB, drop_cached_pages, is_populated, populated_bytes, uncached_files,
    wait_until, whole_file_request,
};

fn wait_for_first_read(prefetcher: &Prefetcher) {
    wait_until("bytes are read", || prefetcher.progress().bytes_read > 0);
}

#[test]
fn after_an_interrupt_each_thread_completes_at_most_one_read() {
    let Some((_dir, namespace)) = uncached_files("interrupt", &[256]) else {
        return;
    };
    let threads = PrefetchOptions::default().threads as u64;
    let prefetcher = Prefetcher::new(PrefetchOptions::default()).unwrap();
    let file = namespace.open(&namespace.entries()[0]).unwrap();
    let mut times = Vec::new();
    for _ in 0..9 {
        drop_cached_pages(&file);
        let before = prefetcher.progress().reads;
        prefetcher
            .submit(&namespace, &whole_file_request(&namespace, 0, "0"))
            .unwrap();
        while prefetcher.progress().reads < before + 5 {
            std::thread::yield_now();
        }
        prefetcher.interrupt(namespace.root(), 0);
        let at_interrupt = prefetcher.progress().reads;
        times.push(prefetcher.quiesce(HANG_TIMEOUT).unwrap());
        let at_quiescence = prefetcher.progress().reads;
        // reads are counted instead of timed, because their time depends on the disk
        assert!(
            at_quiescence - at_interrupt <= threads,
            "{} reads of {threads} threads after an interrupt",
            at_quiescence - at_interrupt
        );
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(
            prefetcher.progress().reads,
            at_quiescence,
            "reads continue after quiescence"
        );
    }
    times.sort_unstable();
    eprintln!("time from interrupt to quiescence: {times:?}");
    assert!(prefetcher.wait(HANG_TIMEOUT));
}

#[test]
fn a_paused_list_resumes_at_its_position() {
    let Some((dir, namespace)) = uncached_files("pause", &[128]) else {
        return;
    };
    let prefetcher = Prefetcher::new(PrefetchOptions {
        bandwidth: Some(8 * MIB),
        ..PrefetchOptions::default()
    })
    .unwrap();
    prefetcher
        .submit(&namespace, &whole_file_request(&namespace, 0, "0"))
        .unwrap();
    wait_for_first_read(&prefetcher);
    prefetcher.pause();
    prefetcher.quiesce(HANG_TIMEOUT).unwrap();
    let paused = prefetcher.progress();
    assert!(
        paused.paused && paused.bytes_read > 0 && paused.queues.len() == 1,
        "{paused:?}"
    );
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(prefetcher.progress().reads, paused.reads);
    prefetcher.set_bandwidth(None);
    prefetcher.resume();
    assert!(prefetcher.wait(HANG_TIMEOUT));
    let finished = prefetcher.progress();
    assert!(is_populated(&dir.path().join("0"), 0, 128 * MIB));
    // no byte is read twice
    assert_eq!(finished.bytes_read + finished.bytes_skipped, 128 * MIB);
    assert_eq!(finished.interrupts, 0);
}

#[test]
fn dropping_a_prefetcher_does_not_wait_for_its_lists() {
    let Some((dir, namespace)) = uncached_files("drop", &[256]) else {
        return;
    };
    let path = dir.path().join("0");
    // the whole list would take a minute at the first rate and four at the second
    for bandwidth in [4 * MIB, MIB] {
        drop_cached_pages(std::fs::File::open(&path).unwrap());
        let prefetcher = Prefetcher::new(PrefetchOptions {
            bandwidth: Some(bandwidth),
            ..PrefetchOptions::default()
        })
        .unwrap();
        prefetcher
            .submit(&namespace, &whole_file_request(&namespace, 0, "0"))
            .unwrap();
        wait_for_first_read(&prefetcher);
        let started = Instant::now();
        drop(prefetcher);
        assert!(
            started.elapsed() < HANG_TIMEOUT / 3,
            "{:?}",
            started.elapsed()
        );
        assert!(
            populated_bytes(&path, 0, 256 * MIB) < 200 * MIB,
            "the list was read to its end"
        );
    }
}
