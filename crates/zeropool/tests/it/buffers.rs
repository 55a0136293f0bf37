//! One buffer: length, capacity, alignment, initial content, return to the pool. A random sequence of requests is checked
//! against the list of live buffers.

use std::panic;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use zeropool::{BufferPool, GetError};

/// Too large for a shared slab. Slabs are smaller under Miri, which is slow on large memory.
const LARGE: usize = if cfg!(miri) { 70_000 } else { 3 << 20 };

/// One comparison of slices, which Miri makes much faster than one per byte.
fn is_filled(bytes: &[u8], with: u8) -> bool {
    *bytes == *vec![with; bytes.len()]
}

fn pool(budget: usize) -> BufferPool {
    BufferPool::builder().budget(budget).build().unwrap()
}

#[test]
fn a_buffer_has_the_requested_length_and_is_aligned_to_pages_or_cache_lines() {
    let pool = pool(64 << 20);
    for len in [
        0,
        1,
        255,
        256,
        257,
        4095,
        4096,
        4097,
        12_289,
        65_536,
        100_000,
        LARGE / 3,
        LARGE,
    ] {
        let mut buffer = pool.get(len);
        assert_eq!((buffer.len(), buffer.is_empty()), (len, len == 0));
        assert!(buffer.capacity() >= len);
        if len >= 4096 {
            assert_eq!(buffer.as_ptr() as usize % 4096, 0, "{len}");
            assert_eq!(buffer.capacity() % 4096, 0, "{len}");
        } else {
            assert_eq!(buffer.as_ptr() as usize % 64, 0, "{len}");
        }
        buffer.fill(7);
        assert!(is_filled(&buffer, 7));
    }
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn get_zeroed_zeroes_reused_memory() {
    let pool = pool(64 << 20);
    for len in [100, 5000, LARGE / 10] {
        let mut buffer = pool.get(len);
        assert!(is_filled(&buffer, 0), "new memory is zero");
        buffer.fill(0xa5);
        let address = buffer.as_ptr();
        drop(buffer);
        let buffer = pool.get_zeroed(len / 2);
        assert!(is_filled(&buffer, 0));
        drop(buffer);
        // the same memory; only the requested length was zeroed
        let mut again = pool.get(len);
        assert_eq!(again.as_ptr(), address);
        again.truncate(10);
        again.resize(len);
        drop(again);
        assert!(is_filled(&pool.get_zeroed(len), 0));
    }
}

#[test]
fn truncate_and_resize_stay_within_the_capacity() {
    let pool = pool(1 << 20);
    let mut buffer = pool.get(5000);
    assert_eq!(buffer.capacity(), 8192);
    buffer.truncate(9000);
    assert_eq!(buffer.len(), 5000);
    buffer.resize(8192);
    buffer[8191] = 1;
    buffer.truncate(3);
    assert_eq!(buffer.to_vec(), [0; 3]);
    let too_long = panic::catch_unwind(panic::AssertUnwindSafe(|| buffer.resize(8193)));
    assert!(too_long.is_err());
    assert_eq!(buffer.len(), 3);
    // bytes beyond the length at the drop are zeroed too
    drop(buffer);
    assert_eq!(pool.get_zeroed(8192)[8191], 0);
}

#[test]
fn buffers_outlive_their_pool() {
    let pool = pool(64 << 20);
    let mut small = pool.get(10);
    let mut large = pool.get(LARGE);
    let clone = pool.clone();
    drop((pool, clone));
    small.fill(1);
    large.fill(2);
    thread::spawn(move || {
        assert!(is_filled(&small, 1));
        assert!(is_filled(&large, 2));
    })
    .join()
    .unwrap();
}

#[test]
fn a_panicking_thread_returns_its_buffer() {
    let pool = pool(4096);
    for _ in 0..3 {
        let pool = pool.clone();
        let result = thread::spawn(move || {
            let _buffer = pool.get(4096);
            panic!("a thread with a buffer panics on purpose");
        });
        assert!(result.join().is_err());
    }
    assert_eq!(pool.try_get(4096).unwrap().len(), 4096);
}

#[test]
fn a_forgotten_buffer_stays_charged() {
    let pool = pool(3 * 4096);
    // like `forget`, but released at the end: a leak would be reported by Miri and LeakSanitizer
    let forgotten = std::mem::ManuallyDrop::new(pool.get(4096));
    let stats = pool.stats();
    assert_eq!((stats.in_use, stats.free), (4096, 0));
    let rest = pool.try_get(8192).unwrap();
    assert!(matches!(
        pool.try_get(4096),
        Err(GetError::BudgetExhausted { .. })
    ));
    drop(rest);
    assert_eq!(pool.trim(), 8192);
    assert_eq!(pool.stats().resident, 4096);
    drop(std::mem::ManuallyDrop::into_inner(forgotten));
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn requests_above_the_budget_fail_at_once() {
    let pool = pool(1 << 20);
    for len in [(1 << 20) + 1, isize::MAX as usize, usize::MAX] {
        assert!(matches!(pool.try_get(len), Err(GetError::TooLarge { .. })));
        assert!(matches!(
            pool.get_timeout(len, Duration::MAX),
            Err(GetError::TooLarge { .. })
        ));
        let pool = pool.clone();
        let message = thread::spawn(move || pool.get(len).len())
            .join()
            .unwrap_err();
        assert!(
            message
                .downcast_ref::<String>()
                .unwrap()
                .contains("whole budget of 1048576 bytes")
        );
    }
}

#[test]
#[cfg(not(miri))]
fn out_of_memory_is_an_error() {
    let pool = pool(usize::MAX);
    let error = pool.try_get(1 << 55).unwrap_err();
    assert!(matches!(error, GetError::OutOfMemory { .. }), "{error}");
    assert_eq!(pool.stats().resident, 0, "a failed request is not charged");
    assert_eq!(pool.get(10).len(), 10);
}

#[test]
fn pools_do_not_share_memory() {
    let pools: Vec<_> = (1..=if cfg!(miri) { 4 } else { 20 })
        .map(|i: u8| (i, pool(1 << 20)))
        .collect();
    for (i, pool) in &pools {
        pool.get(1000).fill(*i);
    }
    for (i, pool) in &pools {
        assert!(is_filled(&pool.get(1000), *i), "bytes of another pool");
        assert_eq!(pool.stats().hits, 1);
    }
}

#[test]
fn the_debug_output_of_a_pool_is_short() {
    let pool = BufferPool::builder()
        .budget(1 << 20)
        .thread_cache(0)
        .build()
        .unwrap();
    let held: Vec<_> = (1..=6).map(|i| pool.get(i * 4096)).collect();
    let bytes = held.iter().map(|buffer| buffer.capacity()).sum::<usize>();
    drop(held);
    let text = format!("BufferPool {{ budget: 1048576, resident: {bytes}, .. }}");
    assert_eq!(format!("{pool:?}"), text);
    assert!(format!("{:?}", pool.get_async(1)).contains(&text));
}

#[test]
fn buffers_below_min_pooled_are_heap_memory() {
    let pool = BufferPool::builder()
        .budget(1 << 20)
        .min_pooled(2000)
        .build()
        .unwrap();
    drop(pool.get(100));
    let stats = pool.stats();
    assert_eq!((stats.resident, stats.free, stats.mapped), (0, 0, 0));
    let held = pool.get(100);
    assert_eq!(pool.stats().in_use, held.capacity());
    drop(pool.get(2000));
    assert_eq!(pool.stats().free, 2048);
}

#[test]
fn zero_on_return_wipes_the_whole_capacity() {
    let pool = BufferPool::builder()
        .budget(8 << 20)
        .zero_on_return(true)
        .build()
        .unwrap();
    for len in [64, 10_000, LARGE] {
        let mut buffer = pool.get(len);
        buffer.fill(0x5a);
        buffer.truncate(1); // the wipe does not depend on the length
        let address = buffer.as_ptr();
        drop(buffer.freeze());
        let again = pool.get(len);
        assert_eq!(
            again.as_ptr(),
            address,
            "the memory was not reused, which this test needs"
        );
        assert!(is_filled(&again, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 200 }))]
    /// Random requests and returns: live buffers never share a byte, and the statistics add up.
    #[test]
    fn live_buffers_are_disjoint_and_statistics_add_up(steps in prop::collection::vec((0usize..40_000, any::<u8>()), 1..if cfg!(miri) { 10 } else { 60 })) {
        let pool = pool(200_000);
        let mut live = Vec::new();
        for (len, pick) in steps {
            match pool.try_get(len) {
                Ok(mut buffer) => {
                    buffer.fill(pick);
                    live.push((buffer, pick));
                }
                Err(GetError::BudgetExhausted { .. }) => {
                    prop_assert!(!live.is_empty(), "the budget is exhausted, but no buffer is in use");
                    drop(live.swap_remove(usize::from(pick) % live.len()));
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
            let used: usize = live.iter().map(|(buffer, _)| buffer.capacity()).sum();
            let stats = pool.stats();
            prop_assert_eq!(stats.in_use, used);
            prop_assert_eq!(stats.resident, used + stats.free);
            prop_assert!(stats.resident <= 200_000);
        }
        for (buffer, pick) in &live {
            prop_assert!(is_filled(buffer, *pick));
        }
        drop(live);
        pool.trim();
        let stats = pool.stats();
        prop_assert_eq!((stats.resident, stats.mapped), (0, 0));
    }
}
