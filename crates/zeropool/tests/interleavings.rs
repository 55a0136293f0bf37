//! Interleavings of threads, by the thousand: `RUSTFLAGS="--cfg shuttle" cargo test --test interleavings`.
//! What is seen from inside only: the same with `--lib ends` (nothing is left of a pool that ends) and `--lib gate`.
#![cfg(shuttle)]

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use shuttle::thread;
use zeropool::BufferPool;

const ITERATIONS: usize = 3000;

/// At random, and with few but well-placed switches.
fn explore(body: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(body, ITERATIONS);
    shuttle::check_pct(body, ITERATIONS, 3);
}

fn pool(pages: usize) -> BufferPool {
    BufferPool::builder().budget(pages * 4096).build().unwrap()
}

#[test]
fn nobody_sleeps_through_a_return() {
    explore(|| {
        let pool = pool(1);
        let threads: Vec<_> = (0..3)
            .map(|i| {
                let pool = pool.clone();
                // of different classes, so that what is returned also has to be given up
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
fn returns_on_other_threads() {
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
fn futures_that_are_dropped_pass_their_turn_on() {
    explore(|| {
        let pool = pool(1);
        let held = pool.get(4096);
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut given_up = Box::pin(pool.get_async(4096));
        assert!(
            given_up
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        let blocked = thread::spawn({
            let pool = pool.clone();
            move || pool.get(3000).len()
        });
        let returned = thread::spawn(move || drop(held));
        drop(given_up);
        returned.join().unwrap();
        assert_eq!(blocked.join().unwrap(), 3000);
    });
}

#[test]
fn futures_are_woken() {
    explore(|| {
        let pool = pool(1);
        let held = pool.get(4096);
        let returned = thread::spawn(move || drop(held));
        shuttle::future::block_on(async { drop(pool.get_async(4096).await.unwrap()) });
        returned.join().unwrap();
    });
}

#[test]
fn what_others_take_is_not_taken_twice() {
    explore(|| {
        let pool = pool(3);
        let stranger = thread::spawn({
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
        stranger.join().unwrap();
        assert_eq!(pool.stats().in_use, 0);
    });
}
