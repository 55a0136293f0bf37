//! Returned buffers that the pool keeps: class limits, the eviction policies, trimming; the statistics; settings that are
//! refused.

use zeropool::{BufferPool, BuildError, EvictionPolicy};

const PAGE: usize = 4096;

/// Lengths of three different classes.
const A: usize = 4 * PAGE;
const B: usize = 5 * PAGE;
const C: usize = 6 * PAGE;

fn pool(policy: EvictionPolicy, pages: usize) -> BufferPool {
    BufferPool::builder()
        .budget(pages * PAGE)
        .eviction(policy)
        .build()
        .unwrap()
}

fn is_hit(pool: &BufferPool, len: usize) -> bool {
    let before = pool.stats().hits;
    drop(pool.get(len));
    pool.stats().hits > before
}

#[test]
fn a_class_limit_releases_the_buffer_that_was_free_longest() {
    let pool = BufferPool::builder()
        .budget(1 << 20)
        .class_limit(2)
        .class_limit_for(B, 0)
        .build()
        .unwrap();
    let (a, b, c) = (pool.get(A), pool.get(A), pool.get(A));
    let kept = [b.as_ptr(), c.as_ptr()];
    drop(a);
    drop(b);
    drop(c);
    let stats = pool.stats();
    assert_eq!((stats.free, stats.evicted), (2 * A, 1));
    let (first, second) = (pool.get(A), pool.get(A));
    assert_eq!(
        [second.as_ptr(), first.as_ptr()],
        kept,
        "last in, first out"
    );
    drop(pool.get(B));
    assert_eq!(pool.stats().free, 0, "a limit of 0 keeps no buffer");
}

#[test]
fn lifo_evicts_the_smallest_buffer_that_makes_room() {
    let pool = pool(EvictionPolicy::Lifo, 16);
    drop((pool.get(A), pool.get(B), pool.get(C)));
    // one page of the budget is left; two are needed
    drop(pool.get(2 * PAGE));
    assert!(!is_hit(&pool, A) && is_hit(&pool, C));
}

/// One length is requested at every step, others once. `ClockPro` keeps the first, `Lifo` evicts it.
#[test]
fn clock_pro_keeps_a_class_that_is_reused() {
    const STEPS: usize = if cfg!(miri) { 10 } else { 40 };
    let hits_of_the_reused_class = |policy| {
        let pool = pool(policy, 24);
        let mut hits = 0;
        for i in 0..STEPS {
            hits += usize::from(is_hit(&pool, C));
            // changing classes, each of which needs an eviction
            let len = 7 * PAGE + (i % 5) * 4 * PAGE / 2;
            drop(pool.get(len));
        }
        hits
    };
    let (lifo, clock) = (
        hits_of_the_reused_class(EvictionPolicy::Lifo),
        hits_of_the_reused_class(EvictionPolicy::ClockPro),
    );
    assert!(clock >= STEPS - 2, "{clock} hits of {STEPS}");
    assert!(clock > lifo, "{clock} hits with ClockPro, {lifo} with Lifo");
}

#[test]
fn clock_pro_evicts_although_every_class_is_hot() {
    let pool = pool(EvictionPolicy::ClockPro, 16);
    for _ in 0..if cfg!(miri) { 3 } else { 20 } {
        for len in [A, B, C, 16 * PAGE, A, A] {
            drop(pool.get(len));
        }
    }
    let stats = pool.stats();
    assert!(stats.resident <= 16 * PAGE);
    assert!(
        stats.hits > 0 && stats.evicted > 0 && stats.waits == 0,
        "{stats:?}"
    );
}

#[test]
fn trim_to_keeps_at_most_the_given_bytes() {
    for policy in [EvictionPolicy::Lifo, EvictionPolicy::ClockPro] {
        let pool = pool(policy, 64);
        let held = pool.get(PAGE);
        let many: Vec<_> = (0..8).map(|_| pool.get(A)).collect();
        drop(many);
        assert_eq!(pool.trim_to(10 * PAGE), 6 * A);
        assert_eq!(pool.stats().free, 2 * A);
        assert_eq!(pool.trim(), 2 * A);
        let stats = pool.stats();
        assert_eq!((stats.free, stats.in_use), (0, PAGE));
        drop(held);
    }
}

#[test]
fn invalid_shards_and_nodes_are_refused() {
    for shards in [0, 3, 2048] {
        assert!(matches!(
            BufferPool::builder().shards(shards).build(),
            Err(BuildError::Shards(_))
        ));
    }
    let error = BufferPool::builder()
        .numa_node(Some(999))
        .build()
        .unwrap_err();
    assert!(
        matches!(error, BuildError::NoSuchNode { node: 999, .. }),
        "{error}"
    );
}

#[test]
fn statistics_count_hits_misses_and_avoided_faults() {
    let pool = BufferPool::builder().budget(1 << 30).build().unwrap();
    let mut buffer = pool.get(40 * PAGE);
    buffer.fill(1);
    drop(buffer);
    drop(pool.get(20 * PAGE));
    drop(pool.get(40 * PAGE));
    let stats = pool.stats();
    assert_eq!((stats.hits, stats.misses, stats.faults_avoided), (1, 2, 40));
    assert_eq!(
        (stats.in_use, stats.free, stats.resident),
        (0, 60 * PAGE, 60 * PAGE)
    );
    assert!(stats.mapped >= stats.resident && stats.pinned == 0);
}

/// Waits for a condition, and says whether it was met.
#[cfg(not(miri))]
fn is_met_soon(condition: impl Fn() -> bool) -> bool {
    let begun = std::time::Instant::now();
    while begun.elapsed() < std::time::Duration::from_secs(20) {
        if condition() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    false
}

#[test]
#[cfg(not(miri))]
fn idle_buffers_are_released_and_others_are_found_again() {
    use std::time::{Duration, Instant};
    let period = Duration::from_millis(400);
    let pool = BufferPool::builder()
        .budget(1 << 20)
        .release_after(period, A)
        .build()
        .unwrap();
    for round in 0..2 {
        drop((pool.get(A), pool.get(B), pool.get(C)));
        let dropped = Instant::now();
        // at once, unless this machine has stopped for a while
        let found = is_hit(&pool, B) && is_hit(&pool, C);
        assert!(found || dropped.elapsed() >= period, "round {round}");
        assert!(is_met_soon(|| pool.stats().free <= A), "{:?}", pool.stats());
        assert!(is_hit(&pool, A), "the kept bytes, round {round}");
    }
    // requests keep other buffers for those that follow
    drop((pool.get(B), pool.get(C)));
    for _ in 0..30 {
        assert!(is_hit(&pool, A));
        std::thread::sleep(Duration::from_millis(40));
    }
    assert!(is_hit(&pool, C), "{:?}", pool.stats());
    assert!(is_met_soon(|| pool.stats().free <= A), "{:?}", pool.stats());
    // a pool that is used all the time keeps its buffers
    let hits = (0..20).filter(|_| {
        std::thread::sleep(Duration::from_millis(20));
        is_hit(&pool, B)
    });
    assert!(hits.count() >= 18);
    drop(pool);
}

#[test]
#[cfg(target_os = "linux")]
#[cfg(not(miri))]
fn the_thread_that_releases_ends_with_its_work() {
    let is_running = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names
            .into_iter()
            .any(|name| name.trim() == "zeropool-releas")
    };
    // the only test that runs in this process, under nextest; else the other test's thread ends soon too
    let pool = BufferPool::builder()
        .release_after(std::time::Duration::from_millis(20), 0)
        .build()
        .unwrap();
    drop(pool.get(C));
    assert!(is_met_soon(|| pool.stats().free == 0));
    assert!(is_met_soon(|| !is_running()));
}
