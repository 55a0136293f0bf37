//! A request that cannot map memory (`RLIMIT_AS`) releases free buffers first, and fails only then. In a process of its own,
//! as the limit applies to the whole process.
#![cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    not(any(miri, shuttle))
))]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zeropool::{BufferPool, GetError};

#[test]
fn free_buffers_are_released_before_a_request_runs_out_of_memory() {
    const MIB: usize = 1 << 20;
    let pool = BufferPool::builder().budget(8 << 30).build().unwrap();
    // mapped before the limit is set, so that only the large requests need memory
    let small = pool.get(10);
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
    let before = getrlimit(Resource::As);
    let address_space = pages * rustix::param::page_size() as u64 + (900 << 20);
    setrlimit(
        Resource::As,
        Rlimit {
            current: Some(address_space),
            maximum: before.maximum,
        },
    )
    .unwrap();

    drop(pool.get(512 * MIB));
    assert_eq!(pool.stats().free, 512 * MIB);
    let large = pool.try_get(640 * MIB);
    let (free, held) = (pool.stats().free, pool.stats().resident);
    // no buffer is free, so this request fails
    let refused = pool.try_get(512 * MIB);
    let after = pool.stats().resident;
    setrlimit(Resource::As, before).unwrap();

    assert_eq!(large.unwrap().len(), 640 * MIB);
    assert_eq!((free, held), (0, 640 * MIB + small.capacity()));
    assert!(
        matches!(refused, Err(GetError::OutOfMemory { .. })),
        "{refused:?}"
    );
    assert_eq!(after, held, "a failed request is not charged");
}
