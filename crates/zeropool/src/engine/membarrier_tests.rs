//! Pools on a kernel that refuses `membarrier`, from the start or after pools were built (as a seccomp filter does): no put
//! is missed, and free buffers stay available.
#![cfg(not(any(miri, shuttle)))]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::BufferPool;
use crate::barrier::{self, REFUSED};

const PAGE: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `body` on a thread on which every `membarrier` is refused.
fn with_membarrier_refused<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            REFUSED.set(true);
            body()
        });
        thread.join().expect("the body does not panic")
    })
}

#[test]
fn without_membarrier_no_put_is_missed() {
    let builder = BufferPool::builder().budget(PAGE);
    let pool = builder.build_without_membarrier().unwrap();
    thread::scope(|scope| {
        for i in 0..2 {
            let pool = &pool;
            scope.spawn(move || {
                // a pool without bias must not depend on the barrier
                REFUSED.set(true);
                for round in 0..200_000 {
                    let mut buffer = pool.get_timeout(PAGE, TIMEOUT).expect("a put was missed");
                    buffer[round % PAGE] = i;
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.misses), (0, 1));
}

#[test]
fn without_membarrier_buffers_of_an_idle_thread_are_available_to_others() {
    let builder = BufferPool::builder().budget(2 * PAGE);
    let pool = builder.build_without_membarrier().unwrap();
    // this thread's magazine keeps both pages
    drop((pool.get(PAGE), pool.get(PAGE)));
    with_membarrier_refused(|| {
        assert_eq!(pool.try_get(PAGE).unwrap().len(), PAGE);
        assert_eq!(pool.try_get(2 * PAGE).unwrap().len(), 2 * PAGE);
        assert_eq!(pool.trim(), 2 * PAGE);
    });
}

#[test]
fn after_a_late_refusal_a_thread_can_release_its_own_buffers() {
    let pool = BufferPool::builder().budget(2 * PAGE).build().unwrap();
    with_membarrier_refused(|| {
        drop((pool.get(PAGE), pool.get(PAGE)));
        // both pages of its own biased magazine have to be released
        assert_eq!(pool.try_get(2 * PAGE).unwrap().len(), 2 * PAGE);
        drop((pool.get(PAGE), pool.get(PAGE)));
        let large = pool.get_timeout(2 * PAGE, TIMEOUT).unwrap();
        drop(large);
        assert_eq!(pool.trim(), 2 * PAGE);
    });
}

#[test]
fn after_a_late_refusal_the_owners_next_put_reaches_the_waiter() {
    if !barrier::register() {
        println!("SKIPPED: this system has no membarrier");
        return;
    }
    let pool = BufferPool::builder().budget(2 * PAGE).build().unwrap();
    // the owner's magazine is biased and keeps one page; the other page is in use
    let (first, second) = (pool.get(PAGE), pool.get(PAGE));
    drop(first);
    let (checked_sender, checked) = mpsc::channel();
    let waiter = thread::spawn({
        let pool = pool.clone();
        move || {
            REFUSED.set(true);
            // not available: its magazine's bias cannot be revoked
            assert!(pool.try_get(PAGE).is_err());
            checked_sender.send(()).unwrap();
            pool.get_timeout(2 * PAGE, TIMEOUT)
                .map(|buffer| buffer.len())
        }
    });
    checked.recv().unwrap();
    while pool.stats().waits == 0 {
        thread::yield_now();
    }
    drop(second);
    assert_eq!(
        waiter.join().unwrap().expect("the put was missed"),
        2 * PAGE
    );
    // no magazine is biased any more, so a thread without `membarrier` can take both pages
    drop((pool.get(PAGE), pool.get(PAGE)));
    with_membarrier_refused(|| assert_eq!(pool.trim(), 2 * PAGE));
}
