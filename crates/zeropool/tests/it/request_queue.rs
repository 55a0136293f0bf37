//! The budget and the queue of requests that wait for it: order of service, timeouts, cancellation, eviction of free buffers
//! before a request waits. Expectations are exact, from the sizes in each test.

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

/// Waits until `count` requests have queued since the pool was built.
fn wait_until_queued(pool: &BufferPool, count: u64) {
    while pool.stats().waits < count {
        thread::yield_now();
    }
}

/// A waker that counts its calls.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl WakeCount {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (Arc::clone(&count), Waker::from(count))
    }
}

#[test]
fn a_request_beyond_the_budget_is_refused() {
    let pool = pool(10);
    let held: Vec<_> = (0..10).map(|_| pool.try_get(PAGE).unwrap()).collect();
    let error = pool.try_get(1).unwrap_err();
    assert!(
        matches!(
            error,
            GetError::BudgetExhausted {
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
fn free_buffers_of_other_sizes_are_evicted_before_a_request_waits() {
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
fn a_failed_request_evicts_nothing() {
    let pool = pool(8);
    let held = pool.get(4 * PAGE);
    drop((pool.get(PAGE), pool.get(2 * PAGE)));
    assert!(matches!(
        pool.try_get(5 * PAGE),
        Err(GetError::BudgetExhausted { .. })
    ));
    let stats = pool.stats();
    assert_eq!((stats.free, stats.evicted), (3 * PAGE, 0));
    // all free buffers together make room for four pages, without waiting
    assert_eq!(pool.try_get(4 * PAGE).unwrap().len(), 4 * PAGE);
    drop(held);
}

#[test]
fn a_timed_out_request_leaves_the_queue() {
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
fn waiting_threads_are_served_in_order() {
    let pool = pool(4);
    let held = pool.get(4 * PAGE);
    let order = Arc::new(Mutex::new(Vec::new()));
    let waiting: Vec<_> = (0..6)
        .map(|i| {
            let (pool_of_thread, order) = (pool.clone(), Arc::clone(&order));
            let thread = thread::spawn(move || {
                // each request needs the whole budget, so they are served one after the other
                let buffer = pool_of_thread.get(4 * PAGE - i);
                order.lock().unwrap().push(i);
                drop(buffer);
            });
            wait_until_queued(&pool, i as u64 + 1);
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
fn a_small_request_does_not_overtake_a_large_one() {
    let pool = pool(4);
    let (held, kept) = (pool.get(PAGE), pool.get(PAGE));
    let large = thread::spawn({
        let pool = pool.clone();
        move || pool.get(3 * PAGE).len()
    });
    wait_until_queued(&pool, 1);
    // two pages are free, but the large request is first
    assert!(matches!(
        pool.try_get(PAGE),
        Err(GetError::BudgetExhausted { .. })
    ));
    drop(held);
    assert_eq!(large.join().unwrap(), 3 * PAGE);
    drop(kept);
}

#[test]
fn futures_and_threads_share_one_queue() {
    let pool = pool(2);
    let held = pool.get(2 * PAGE);
    let (first_wakes, first_waker) = WakeCount::new();
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
    wait_until_queued(&pool, 2);
    let (last_wakes, last_waker) = WakeCount::new();
    let mut last = pin!(pool.get_async(PAGE));
    assert!(
        last.as_mut()
            .poll(&mut Context::from_waker(&last_waker))
            .is_pending()
    );

    drop(held);
    assert_eq!(
        (first_wakes.0.load(SeqCst), last_wakes.0.load(SeqCst)),
        (1, 0)
    );
    assert!(!thread.is_finished());
    let Poll::Ready(Ok(buffer)) = first.as_mut().poll(&mut Context::from_waker(&first_waker))
    else {
        panic!("the first request was not granted");
    };
    drop(buffer);
    assert_eq!(thread.join().unwrap(), 2 * PAGE);
    let Poll::Ready(Ok(buffer)) = last.as_mut().poll(&mut Context::from_waker(&last_waker)) else {
        panic!("the last request was not granted after the thread returned its buffer");
    };
    assert_eq!((buffer.len(), last_wakes.0.load(SeqCst)), (PAGE, 1));
}

#[test]
fn a_dropped_future_is_skipped_in_the_queue() {
    let pool = pool(2);
    let held = pool.get(PAGE);
    let (_, waker) = WakeCount::new();
    let mut context = Context::from_waker(&waker);
    // the first request blocks the queue; the second would fit
    let mut large = Box::pin(pool.get_async(2 * PAGE));
    assert!(large.as_mut().poll(&mut context).is_pending());
    let mut small = Box::pin(pool.get_async(PAGE));
    assert!(small.as_mut().poll(&mut context).is_pending());
    drop(large);
    let Poll::Ready(Ok(buffer)) = small.as_mut().poll(&mut context) else {
        panic!("the remaining request was not granted, although it fits")
    };

    // the first of these is granted its buffer and dropped without another poll
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
fn unpolled_and_oversized_futures_do_not_queue() {
    let pool = pool(2);
    drop(pool.get_async(PAGE));
    let (_, waker) = WakeCount::new();
    let mut never = pin!(pool.get_async(3 * PAGE));
    let Poll::Ready(Err(error)) = never.as_mut().poll(&mut Context::from_waker(&waker)) else {
        panic!("a request above the budget was queued")
    };
    assert!(matches!(error, GetError::TooLarge { .. }));
    let mut now = pin!(pool.get_async(2 * PAGE));
    assert!(matches!(
        now.as_mut().poll(&mut Context::from_waker(&waker)),
        Poll::Ready(Ok(_))
    ));
}

#[test]
fn a_grant_wakes_the_waker_of_the_last_poll() {
    let pool = pool(1);
    let held = pool.get(PAGE);
    let ((old, old_waker), (new, new_waker)) = (WakeCount::new(), WakeCount::new());
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
fn a_panicking_waker_does_not_stop_other_requests() {
    struct PanickingWake;

    impl Wake for PanickingWake {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics on purpose");
        }
    }

    let pool = pool(2);
    let held = pool.get(2 * PAGE);
    let (panicking, (wakes, counting)) = (Waker::from(Arc::new(PanickingWake)), WakeCount::new());
    let mut first = pin!(pool.get_async(PAGE));
    assert!(
        first
            .as_mut()
            .poll(&mut Context::from_waker(&panicking))
            .is_pending()
    );
    let mut second = pin!(pool.get_async(PAGE));
    assert!(
        second
            .as_mut()
            .poll(&mut Context::from_waker(&counting))
            .is_pending()
    );
    drop(held);
    assert_eq!(wakes.0.load(SeqCst), 1);
    assert!(matches!(
        second.as_mut().poll(&mut Context::from_waker(&counting)),
        Poll::Ready(Ok(_))
    ));
    assert!(matches!(
        first.as_mut().poll(&mut Context::from_waker(&counting)),
        Poll::Ready(Ok(_))
    ));
}

#[test]
fn buffers_of_an_idle_thread_are_evicted_before_a_request_waits() {
    let pool = pool(1);
    // buffers return into the magazine of a thread that is then idle
    let (sender, receiver) = std::sync::mpsc::channel::<zeropool::Buffer>();
    let (returned_sender, returned) = std::sync::mpsc::channel::<()>();
    let (keep_alive, ended) = std::sync::mpsc::channel::<()>();
    let other = thread::spawn(move || {
        for buffer in receiver {
            drop(buffer);
            returned_sender.send(()).unwrap();
        }
        ended.recv().unwrap_err();
    });
    for round in 0..10 {
        // another class each time, so the cached buffer must be evicted
        let buffer = pool.get(PAGE - 600 * (round % 2));
        sender.send(buffer).unwrap();
        returned.recv().unwrap();
    }
    drop((sender, keep_alive));
    other.join().unwrap();
    assert_eq!(pool.stats().waits, 0);
}
