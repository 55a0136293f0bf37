//! Waiting: who is next, who gives up, and what makes room.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use zeropool::{BufferPool, GetError};

const PAGE: usize = 4096;

fn pool(pages: usize) -> BufferPool {
    BufferPool::builder().budget(pages * PAGE).build().unwrap()
}

/// Until `count` requests have queued since the pool was built.
fn queued(pool: &BufferPool, count: u64) {
    while pool.stats().waits < count {
        thread::yield_now();
    }
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Woken {
    fn new() -> (Arc<Self>, Waker) {
        let woken = Arc::new(Self::default());
        (Arc::clone(&woken), Waker::from(woken))
    }
}

#[test]
fn the_budget_is_exact() {
    let pool = pool(10);
    let held: Vec<_> = (0..10).map(|_| pool.try_get(PAGE).unwrap()).collect();
    let error = pool.try_get(1).unwrap_err();
    assert!(
        matches!(
            error,
            GetError::Spent {
                held: 40_960,
                budget: 40_960,
                ..
            }
        ),
        "{error:?}"
    );
    drop(held);
    assert_eq!(pool.stats().free, 10 * PAGE);
}

#[test]
fn free_buffers_of_other_sizes_go_before_anybody_waits() {
    let pool = pool(8);
    drop((pool.get(2 * PAGE), pool.get(3 * PAGE), pool.get(PAGE)));
    assert_eq!(pool.stats().free, 6 * PAGE);
    let large = pool.try_get(8 * PAGE).unwrap();
    let stats = pool.stats();
    assert_eq!(
        (stats.resident, stats.evicted, stats.waits),
        (8 * PAGE, 3, 0)
    );
    drop(large);
}

#[test]
fn a_request_that_fails_gives_nothing_up() {
    let pool = pool(8);
    let held = pool.get(4 * PAGE);
    drop((pool.get(PAGE), pool.get(2 * PAGE)));
    assert!(matches!(
        pool.try_get(5 * PAGE),
        Err(GetError::Spent { .. })
    ));
    let stats = pool.stats();
    assert_eq!((stats.free, stats.evicted), (3 * PAGE, 0));
    // with all of it there is room for four, and without waiting
    assert_eq!(pool.try_get(4 * PAGE).unwrap().len(), 4 * PAGE);
    drop(held);
}

#[test]
fn a_timeout_gives_up_and_leaves_no_trace() {
    let pool = pool(1);
    let held = pool.get(PAGE);
    let began = Instant::now();
    let error = pool
        .get_timeout(PAGE, Duration::from_millis(20))
        .unwrap_err();
    assert!(matches!(error, GetError::TimedOut { len: PAGE }), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(20));
    drop(held);
    assert_eq!(pool.try_get(PAGE).unwrap().len(), PAGE);
    assert!(pool.get_timeout(PAGE, Duration::MAX).is_ok());
}

#[test]
fn threads_are_served_in_their_order() {
    let pool = pool(4);
    let held = pool.get(4 * PAGE);
    let order = Arc::new(Mutex::new(Vec::new()));
    let waiting: Vec<_> = (0..6)
        .map(|i| {
            let (pool_of_thread, order) = (pool.clone(), Arc::clone(&order));
            let thread = thread::spawn(move || {
                // all of the budget, so that one is served after the other
                let buffer = pool_of_thread.get(4 * PAGE - i);
                order.lock().unwrap().push(i);
                drop(buffer);
            });
            queued(&pool, i as u64 + 1);
            thread
        })
        .collect();
    drop(held);
    waiting
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn nobody_overtakes_a_large_request() {
    let pool = pool(4);
    let (held, kept) = (pool.get(PAGE), pool.get(PAGE));
    let large = thread::spawn({
        let pool = pool.clone();
        move || pool.get(3 * PAGE).len()
    });
    queued(&pool, 1);
    // two pages are free, and it is not this one's turn
    assert!(matches!(pool.try_get(PAGE), Err(GetError::Spent { .. })));
    drop(held);
    assert_eq!(large.join().unwrap(), 3 * PAGE);
    drop(kept);
}

#[test]
fn futures_and_threads_wait_in_one_queue() {
    let pool = pool(2);
    let held = pool.get(2 * PAGE);
    let (first_woken, first_waker) = Woken::new();
    let mut first = pin!(pool.get_async(2 * PAGE));
    assert!(
        first
            .as_mut()
            .poll(&mut Context::from_waker(&first_waker))
            .is_pending()
    );
    let thread = thread::spawn({
        let pool = pool.clone();
        move || pool.get(2 * PAGE).len()
    });
    queued(&pool, 2);
    let (last_woken, last_waker) = Woken::new();
    let mut last = pin!(pool.get_async(PAGE));
    assert!(
        last.as_mut()
            .poll(&mut Context::from_waker(&last_waker))
            .is_pending()
    );

    drop(held);
    assert_eq!(
        (first_woken.0.load(SeqCst), last_woken.0.load(SeqCst)),
        (1, 0)
    );
    assert!(!thread.is_finished());
    let Poll::Ready(Ok(buffer)) = first.as_mut().poll(&mut Context::from_waker(&first_waker))
    else {
        panic!("its turn had come");
    };
    drop(buffer);
    assert_eq!(thread.join().unwrap(), 2 * PAGE);
    let Poll::Ready(Ok(buffer)) = last.as_mut().poll(&mut Context::from_waker(&last_waker)) else {
        panic!("the thread's buffer is back");
    };
    assert_eq!((buffer.len(), last_woken.0.load(SeqCst)), (PAGE, 1));
}

#[test]
fn a_dropped_future_passes_its_turn_on() {
    let pool = pool(2);
    let held = pool.get(PAGE);
    let (_, waker) = Woken::new();
    let mut context = Context::from_waker(&waker);
    // one that blocks the queue, and one behind it that would fit
    let mut large = Box::pin(pool.get_async(2 * PAGE));
    assert!(large.as_mut().poll(&mut context).is_pending());
    let mut small = Box::pin(pool.get_async(PAGE));
    assert!(small.as_mut().poll(&mut context).is_pending());
    drop(large);
    let Poll::Ready(Ok(buffer)) = small.as_mut().poll(&mut context) else {
        panic!("it is first now, and fits")
    };

    // one that was granted its buffer, and never looks
    let mut granted = Box::pin(pool.get_async(PAGE));
    assert!(granted.as_mut().poll(&mut context).is_pending());
    let mut next = Box::pin(pool.get_async(PAGE));
    assert!(next.as_mut().poll(&mut context).is_pending());
    drop(buffer);
    drop(granted);
    assert!(matches!(
        next.as_mut().poll(&mut context),
        Poll::Ready(Ok(_))
    ));
    drop((next, held));
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_future_that_is_never_polled_or_can_never_be_met() {
    let pool = pool(2);
    drop(pool.get_async(PAGE));
    let (_, waker) = Woken::new();
    let mut never = pin!(pool.get_async(3 * PAGE));
    let Poll::Ready(Err(error)) = never.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("too large")
    };
    assert!(matches!(error, GetError::TooLarge { .. }));
    let mut now = pin!(pool.get_async(2 * PAGE));
    assert!(matches!(
        now.as_mut().poll(&mut Context::from_waker(&waker)),
        Poll::Ready(Ok(_))
    ));
}

#[test]
fn a_future_that_moves_to_another_task_wakes_that_one() {
    let pool = pool(1);
    let held = pool.get(PAGE);
    let ((old, old_waker), (new, new_waker)) = (Woken::new(), Woken::new());
    let mut moved = pin!(pool.get_async(PAGE));
    assert!(
        moved
            .as_mut()
            .poll(&mut Context::from_waker(&old_waker))
            .is_pending()
    );
    assert!(
        moved
            .as_mut()
            .poll(&mut Context::from_waker(&new_waker))
            .is_pending()
    );
    drop(held);
    assert_eq!((old.0.load(SeqCst), new.0.load(SeqCst)), (0, 1));
    assert!(matches!(
        moved.as_mut().poll(&mut Context::from_waker(&new_waker)),
        Poll::Ready(Ok(_))
    ));
}

#[test]
fn a_waker_that_panics_strands_nobody() {
    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("in a waker, on purpose");
        }
    }

    let pool = pool(2);
    let held = pool.get(2 * PAGE);
    let (bad, (woken, good)) = (Waker::from(Arc::new(Panics)), Woken::new());
    let mut first = pin!(pool.get_async(PAGE));
    assert!(
        first
            .as_mut()
            .poll(&mut Context::from_waker(&bad))
            .is_pending()
    );
    let mut second = pin!(pool.get_async(PAGE));
    assert!(
        second
            .as_mut()
            .poll(&mut Context::from_waker(&good))
            .is_pending()
    );
    drop(held);
    assert_eq!(woken.0.load(SeqCst), 1);
    assert!(matches!(
        second.as_mut().poll(&mut Context::from_waker(&good)),
        Poll::Ready(Ok(_))
    ));
    assert!(matches!(
        first.as_mut().poll(&mut Context::from_waker(&good)),
        Poll::Ready(Ok(_))
    ));
}

#[test]
fn what_an_idle_thread_keeps_goes_before_anybody_waits() {
    let pool = pool(1);
    // returned into the cache of a thread that then does nothing
    let (sender, receiver) = std::sync::mpsc::channel::<zeropool::Buffer>();
    let (done, idle) = (
        std::sync::mpsc::channel::<()>(),
        std::sync::mpsc::channel::<()>(),
    );
    let other = thread::spawn(move || {
        for buffer in receiver {
            drop(buffer);
            done.0.send(()).unwrap();
        }
        idle.1.recv().unwrap_err();
    });
    for round in 0..10 {
        // of another size each time: the cached one has to go
        let buffer = pool.get(PAGE - 600 * (round % 2));
        sender.send(buffer).unwrap();
        done.1.recv().unwrap();
    }
    drop((sender, idle.0));
    other.join().unwrap();
    assert_eq!(pool.stats().waits, 0);
}
