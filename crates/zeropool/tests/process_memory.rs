//! The pool's memory as the kernel reports it in `/proc/self`: locked, resident, page faults, excluded from core dumps;
//! trimming under memory pressure. In a process of its own, because locked and resident memory, limits and the threads'
//! names belong to the whole process.
#![cfg(all(target_os = "linux", not(miri)))]

use std::time::{Duration, Instant};

use zeropool::{BufferPool, GetError, Pinning};

/// A field of `/proc/self/status`, in bytes.
fn status(field: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    line.trim_start_matches(':')
        .split_whitespace()
        .next()
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

/// Minor page faults of this thread.
fn faults() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // the tenth field; the second is the name, in parentheses, and may contain spaces
    text.rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .nth(7)
        .unwrap()
        .parse()
        .unwrap()
}

/// One test, because the locked memory and its limit belong to the whole process.
#[test]
fn pinned_memory_is_locked_until_it_is_trimmed() {
    let before = status("VmLck");
    let pool = BufferPool::builder()
        .budget(1 << 30)
        .pinned(true)
        .build()
        .unwrap();
    let buffer = match pool.try_get(4 << 20) {
        Ok(buffer) => buffer,
        Err(GetError::Pin { source, .. }) => {
            eprintln!("SKIPPED: locking 4 MiB is not allowed: {source}");
            return;
        }
        Err(other) => panic!("{other}"),
    };
    assert_eq!(status("VmLck"), before + (4 << 20));
    assert_eq!(pool.stats().pinned, 4 << 20);
    drop(buffer);
    assert_eq!(
        status("VmLck"),
        before + (4 << 20),
        "free memory stays locked"
    );
    pool.trim();
    assert_eq!((status("VmLck"), pool.stats().pinned), (before, 0));

    // no more is locked than buffers use, in whole pages
    let small: Vec<_> = (0..16).map(|_| pool.get(200)).collect();
    assert_eq!(status("VmLck"), before + 16 * 256);
    let mut others: Vec<_> = [4096, 5000, 64 << 10, 100 << 10, 1 << 20]
        .map(|len| pool.get(len))
        .into();
    assert_eq!(status("VmLck"), before + pool.stats().in_use);
    others.iter_mut().for_each(|buffer| buffer.fill(1));
    drop((small, others));
    pool.trim();
    assert_eq!((status("VmLck"), pool.stats().mapped), (before, 0));

    // the limit on locked memory applies to unprivileged processes
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
    let low = rustix::process::Rlimit {
        current: Some(1 << 16),
        maximum: limit.maximum,
    };
    rustix::process::setrlimit(rustix::process::Resource::Memlock, low).unwrap();
    let pool_with_fallback = BufferPool::builder()
        .budget(1 << 30)
        .pinning(Pinning::Try)
        .build()
        .unwrap();
    let refused = pool.try_get(8 << 20);
    let unpinned = pool_with_fallback.try_get(8 << 20).unwrap();
    match refused {
        Err(error) => {
            assert!(matches!(error, GetError::Pin { .. }), "{error}");
            assert_eq!(
                (pool_with_fallback.stats().pinned, unpinned.len()),
                (0, 8 << 20)
            );
        }
        Ok(_) => eprintln!("SKIPPED: the limit on locked memory does not apply to this process"),
    }
    drop(unpinned);

    // free locked buffers are released when a request needs the limit
    let enough = rustix::process::Rlimit {
        current: Some((before + (3 << 20)) as u64),
        maximum: limit.maximum,
    };
    if rustix::process::setrlimit(rustix::process::Resource::Memlock, enough).is_ok() {
        drop(pool.get(2 << 20));
        assert_eq!(pool.try_get(3 << 20).unwrap().len(), 3 << 20);
    }
    rustix::process::setrlimit(rustix::process::Resource::Memlock, limit).unwrap();
}

#[test]
fn trimmed_memory_is_no_longer_resident() {
    const LEN: usize = 256 << 20;
    let pool = BufferPool::builder().budget(1 << 30).build().unwrap();
    let before = status("RssAnon");
    pool.get(LEN).fill(1);
    let full = status("RssAnon");
    assert!(full > before + LEN / 2, "{before} {full}");
    assert_eq!(pool.trim(), LEN);
    assert!(status("RssAnon") < full - LEN / 2);
    assert_eq!(pool.stats().mapped, 0);
}

#[test]
fn trimmed_objects_of_a_shared_slab_are_zero_when_reused() {
    let pool = BufferPool::builder().budget(1 << 30).build().unwrap();
    let mut held = pool.get(64 << 10);
    held.fill(3);
    for _ in 0..4 {
        let mut other = pool.get(64 << 10);
        assert!(other.iter().all(|&byte| byte == 0));
        other.fill(7);
        drop(other);
        assert_eq!(pool.trim(), 64 << 10);
    }
    assert!(held.iter().all(|&byte| byte == 3));
}

#[test]
fn zero_on_return_excludes_small_buffers_from_core_dumps() {
    let flags = |address: usize| {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split_whitespace().next()?.split_once('-');
            let range =
                range.map(|(a, b)| (usize::from_str_radix(a, 16), usize::from_str_radix(b, 16)));
            if let Some((Ok(start), Ok(end))) = range {
                inside = (start..end).contains(&address);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
                return Some(flags.to_owned());
            }
        }
        None
    };
    for min_pooled in [0, 5000] {
        let builder = BufferPool::builder()
            .budget(1 << 20)
            .min_pooled(min_pooled)
            .zero_on_return(true);
        let pool = builder.build().unwrap();
        let buffer = pool.get(100);
        let Some(flags) = flags(buffer.as_ptr() as usize) else {
            eprintln!("SKIPPED: /proc/self/smaps has no VmFlags");
            return;
        };
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
    }
}

#[test]
fn a_reused_buffer_causes_no_page_faults() {
    let pool = BufferPool::new();
    pool.get(32 << 20).fill(1);
    let before = faults();
    for i in 0..10 {
        pool.get(32 << 20).fill(i);
    }
    let caused = faults() - before;
    assert!(caused < 64, "{caused} faults for 320 MiB");
}

#[test]
fn numa_node_is_ignored_on_a_machine_with_one_node() {
    let pool = BufferPool::builder()
        .numa_node(Some(0))
        .budget(1 << 20)
        .build();
    let Ok(pool) = pool else {
        eprintln!("SKIPPED: the system lists no NUMA nodes");
        return;
    };
    let nodes = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap();
    assert_eq!(pool.numa_node().is_none(), nodes.trim() == "0");
    assert_eq!(pool.get(10_000).len(), 10_000);
}

#[test]
fn trim_under_pressure_trims_above_its_threshold_only() {
    let pool = BufferPool::builder().budget(1 << 20).build().unwrap();
    drop(pool.get(5000));
    let below = match pool.trim_under_pressure(1000.0) {
        Ok(trim) => trim,
        Err(error) => {
            eprintln!("SKIPPED: memory pressure is not reported: {error}");
            return;
        }
    };
    assert_eq!(below.trimmed, 0);
    assert_eq!(pool.trim_under_pressure(0.0).unwrap().trimmed, 8192);
}

#[test]
fn the_pressure_watch_trims_and_its_thread_ends_with_the_pool() {
    let builder = BufferPool::builder()
        .budget(1 << 20)
        .watch_pressure(0.0, Duration::from_millis(2));
    let Ok(pool) = builder.build() else {
        eprintln!("SKIPPED: memory pressure is not reported");
        return;
    };
    let began = Instant::now();
    drop(pool.get(5000));
    while pool.stats().resident > 0 {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the watch did not trim"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let (buffer, clone) = (pool.get(100), pool.clone());
    drop((pool, clone));
    drop(buffer);
    let is_watch_thread_running = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
            .any(|n| n.starts_with("zeropool-"))
    };
    while is_watch_thread_running() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the watching thread did not end"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
