//! Whole pools under thousands of thread schedules, explored with shuttle: no schedule deadlocks, misses a return or hands
//! out a buffer twice. `RUSTFLAGS="--cfg shuttle" cargo test --test interleavings pool_schedules`. Models of private items run
//! with `--lib close_tests` (a closed pool keeps no object) and `--lib magazine`.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use shuttle::thread;
use zeropool::BufferPool;

const ITERATIONS: usize = 3000;

/// With random schedules, and with few preemptions at chosen points (probabilistic concurrency testing).
fn explore(body: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(body, ITERATIONS);
    shuttle::check_pct(body, ITERATIONS, 3);
}

fn pool(pages: usize) -> BufferPool {
    BufferPool::builder().budget(pages * 4096).build().unwrap()
}

#[test]
fn no_waiting_request_misses_a_return() {
    explore(|| {
        let pool = pool(1);
        let threads: Vec<_> = (0..3)
            .map(|i| {
                let pool = pool.clone();
                // buffers of different classes, so that a returned one may have to be evicted for the next request
                thread::spawn(move || {
                    for _ in 0..2 {
                        pool.get(4096 - 600 * i).fill(1);
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(pool.stats().in_use, 0);
    });
}

#[test]
fn buffers_dropped_on_another_thread_are_reused() {
    explore(|| {
        let pool = pool(2);
        let (sender, receiver) = shuttle::sync::mpsc::channel();
        let consumer = thread::spawn(move || {
            while let Ok(buffer) = receiver.recv() {
                let buffer: zeropool::Buffer = buffer;
                assert!(buffer.iter().all(|&byte| byte == buffer[0]));
            }
        });
        for i in 0..4 {
            let mut buffer = pool.get(4096);
            buffer.fill(i);
            sender.send(buffer).unwrap();
        }
        drop(sender);
        consumer.join().unwrap();
        assert!(pool.stats().misses <= 2);
    });
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn a_dropped_future_is_skipped_in_the_queue() {
    explore(|| {
        let pool = pool(1);
        let held = pool.get(4096);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut cancelled = Box::pin(pool.get_async(4096));
        assert!(
            cancelled
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        let blocked = thread::spawn({
            let pool = pool.clone();
            move || pool.get(3000).len()
        });
        let returned = thread::spawn(move || drop(held));
        drop(cancelled);
        returned.join().unwrap();
        assert_eq!(blocked.join().unwrap(), 3000);
    });
}

#[test]
fn a_returned_buffer_wakes_a_future() {
    explore(|| {
        let pool = pool(1);
        let held = pool.get(4096);
        let returned = thread::spawn(move || drop(held));
        shuttle::future::block_on(async { drop(pool.get_async(4096).await.unwrap()) });
        returned.join().unwrap();
    });
}

#[test]
fn a_buffer_is_never_handed_out_twice() {
    explore(|| {
        let pool = pool(3);
        let other = thread::spawn({
            let pool = pool.clone();
            move || {
                pool.get(4096).fill(200);
                pool.trim();
            }
        });
        for canary in 0..4 {
            let mut pair = [pool.get(4096), pool.get(4096)];
            pair.iter_mut()
                .zip([canary, canary + 100])
                .for_each(|(buffer, canary)| buffer[0] = canary);
            assert!(
                pair.iter()
                    .zip([canary, canary + 100])
                    .all(|(buffer, canary)| buffer[0] == canary)
            );
        }
        other.join().unwrap();
        assert_eq!(pool.stats().in_use, 0);
    });
}
