//! Slabs that a caller registers: one `unregister` per `register` that succeeded, with the same memory, while it is mapped.

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use zeropool::{BufferPool, EvictionPolicy, GetError, PoolBuilder};

use crate::stress::stress;

const PAGE: usize = 4096;

/// A device that knows what is registered, and fails the test if memory is registered twice or not at all.
#[derive(Clone, Default)]
struct Device(Arc<DeviceState>);

#[derive(Default)]
struct DeviceState {
    /// Lengths by address.
    live: Mutex<BTreeMap<usize, usize>>,
    registered: AtomicUsize,
    /// The first call that is not as promised. Not a panic, which the pool would catch.
    broken: Mutex<Option<String>>,
    refuses: AtomicBool,
}

impl Device {
    fn pool(&self, builder: PoolBuilder) -> PoolBuilder {
        let (to_register, to_unregister) = (self.clone(), self.clone());
        builder.on_slab(
            move |memory| to_register.register(memory),
            move |memory| to_unregister.unregister(memory),
        )
    }

    fn register(&self, memory: NonNull<[u8]>) -> io::Result<()> {
        if self.0.refuses.load(SeqCst) {
            return Err(io::Error::other("the device is full"));
        }
        let (start, end) = (memory.addr().get(), memory.addr().get() + memory.len());
        let mut live = self.0.live.lock().unwrap();
        let before = live.range(..end).next_back();
        if before.is_some_and(|(at, len)| at + len > start) || memory.is_empty() {
            self.broken(format!("{memory:?} is registered already"));
        }
        live.insert(start, memory.len());
        self.0.registered.fetch_add(1, SeqCst);
        Ok(())
    }

    fn unregister(&self, memory: NonNull<[u8]>) {
        let mut live = self.0.live.lock().unwrap();
        if live.remove(&memory.addr().get()) != Some(memory.len()) {
            self.broken(format!("{memory:?} is not registered"));
        }
        if !is_mapped(memory) {
            self.broken(format!("{memory:?} is unmapped already"));
        }
    }

    fn broken(&self, what: String) {
        self.0.broken.lock().unwrap().get_or_insert(what);
    }

    /// Whether these bytes lie in registered memory.
    fn knows(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().addr();
        let live = self.0.live.lock().unwrap();
        let slab = live.range(..=start).next_back();
        slab.is_some_and(|(at, len)| start + bytes.len() <= at + len)
    }

    fn registered(&self) -> usize {
        self.0.registered.load(SeqCst)
    }

    /// Checks that every call was as promised, and that nothing is registered.
    fn finish(&self) {
        assert_eq!(*self.0.broken.lock().unwrap(), None);
        assert_eq!(*self.0.live.lock().unwrap(), BTreeMap::new());
    }
}

/// Whether the system lists a mapping that contains this memory.
#[cfg(all(target_os = "linux", not(miri)))]
fn is_mapped(memory: NonNull<[u8]>) -> bool {
    let (mut at, end) = (memory.addr().get(), memory.addr().get() + memory.len());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // adjacent mappings of different properties are separate lines
    for line in maps.lines() {
        let range = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [range.0, range.1].map(|hex| usize::from_str_radix(hex, 16).unwrap());
        if (from..to).contains(&at) {
            at = to;
        }
    }
    at >= end
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn is_mapped(_: NonNull<[u8]>) -> bool {
    true
}

const LARGE: usize = if cfg!(miri) { 70_000 } else { 3 << 20 };

#[test]
fn every_buffer_lies_in_registered_memory_until_it_is_released() {
    let device = Device::default();
    let builder = BufferPool::builder().budget(64 << 20).min_pooled(300);
    let pool = device.pool(builder).build().unwrap();
    for round in 0..2 {
        let buffers: Vec<_> = [1, 200, 300, 4000, PAGE, 5000, 70_000, LARGE]
            .into_iter()
            .map(|len| pool.get(len))
            .collect();
        assert!(buffers.iter().all(|buffer| device.knows(buffer)));
        if round == 1 {
            // the last handle is dropped before the buffers
            drop(pool);
            assert!(buffers.iter().all(|buffer| device.knows(buffer)));
            drop(buffers);
            break;
        }
        drop(buffers);
        assert!(!device.0.live.lock().unwrap().is_empty(), "free buffers");
        pool.trim();
        device.finish();
        assert_eq!((pool.stats().resident, pool.stats().mapped), (0, 0));
    }
    device.finish();
}

/// Registered memory counts in whole slabs, so it is what the budget counts.
#[test]
fn no_more_is_registered_than_the_budget_allows() {
    let device = Device::default();
    let budget = 64 * PAGE;
    let pool = device
        .pool(BufferPool::builder().budget(budget))
        .build()
        .unwrap();
    for len in [PAGE, 3 * PAGE, 2 * PAGE, 5 * PAGE] {
        let one_of_many = pool.get(len);
        let all: Vec<_> = std::iter::repeat_with(|| pool.try_get(len))
            .map_while(Result::ok)
            .collect();
        let registered: usize = device.0.live.lock().unwrap().values().sum();
        assert!(
            all.len() > 10 && registered <= budget,
            "{registered} bytes are registered"
        );
        drop((one_of_many, all));
    }
    drop(pool);
    device.finish();
}

#[test]
fn a_registration_that_fails_is_an_error_and_unmaps_the_memory() {
    let device = Device::default();
    let builder = BufferPool::builder().budget(4 * PAGE);
    let pool = device.pool(builder).build().unwrap();
    let kept = pool.get(PAGE);
    device.0.refuses.store(true, SeqCst);
    for len in [100, 2 * PAGE] {
        let refused = pool.try_get(len).unwrap_err();
        let GetError::Register { source, .. } = &refused else {
            panic!("{refused}")
        };
        assert_eq!(source.to_string(), "the device is full");
        assert_eq!(pool.stats().mapped, PAGE, "what is in use");
    }
    assert_eq!(pool.stats().resident, PAGE, "the budget's charge");
    // a request that waits for room is served after another one has failed
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.get_timeout(4 * PAGE, Duration::from_secs(60)));
        while pool.stats().waits == 0 {
            thread::yield_now();
        }
        device.0.refuses.store(false, SeqCst);
        drop(kept);
        assert_eq!(waiting.join().unwrap().unwrap().len(), 4 * PAGE);
    });
    drop(pool);
    device.finish();
}

/// The pool releases free memory and tries again, as where the system has no memory.
#[test]
fn a_device_that_is_full_gets_the_memory_of_free_buffers() {
    let live = Arc::new(AtomicUsize::new(0));
    let (more, less) = (live.clone(), live.clone());
    let pool = BufferPool::builder()
        .budget(64 * PAGE)
        .on_slab(
            move |memory| {
                if more.fetch_add(memory.len(), SeqCst) + memory.len() > 4 * PAGE {
                    more.fetch_sub(memory.len(), SeqCst);
                    return Err(io::ErrorKind::OutOfMemory.into());
                }
                Ok(())
            },
            move |memory| {
                less.fetch_sub(memory.len(), SeqCst);
            },
        )
        .build()
        .unwrap();
    drop(pool.get(3 * PAGE));
    let other = pool.try_get(4 * PAGE).unwrap();
    assert_eq!(pool.stats().resident, 4 * PAGE);
    assert!(pool.try_get(PAGE).is_err());
    drop((pool, other));
    assert_eq!(live.load(SeqCst), 0);
}

#[test]
fn a_panic_of_register_is_an_error_of_the_request() {
    let panics = Arc::new(AtomicBool::new(true));
    let unregistered = Arc::new(AtomicUsize::new(0));
    let (when, count) = (panics.clone(), unregistered.clone());
    let pool = BufferPool::builder()
        .budget(2 * PAGE)
        .on_slab(
            move |_| {
                assert!(!when.load(SeqCst), "a panic of the test's callback");
                Ok(())
            },
            move |_| {
                count.fetch_add(1, SeqCst);
            },
        )
        .build()
        .unwrap();
    let error = pool.try_get(PAGE).unwrap_err();
    assert!(matches!(error, GetError::Register { .. }), "{error}");
    panics.store(false, SeqCst);
    drop(pool.get(2 * PAGE));
    drop(pool);
    assert_eq!(unregistered.load(SeqCst), 1);
}

/// Not under Miri, which reports the memory as leaked.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn memory_stays_mapped_if_unregister_panics() {
    let last = Arc::new(Mutex::new(None));
    let seen = last.clone();
    let pool = BufferPool::builder()
        .on_slab(
            |_| Ok(()),
            move |memory| {
                *seen.lock().unwrap() = Some((memory.addr().get(), memory.len()));
                panic!("a panic of the test's callback");
            },
        )
        .build()
        .unwrap();
    drop(pool.get(LARGE));
    assert_eq!(pool.trim(), LARGE);
    assert_eq!(pool.stats().mapped, 0);
    let (at, len) = last.lock().unwrap().take().unwrap();
    let start = NonNull::new(std::ptr::without_provenance_mut(at)).unwrap();
    assert!(is_mapped(NonNull::slice_from_raw_parts(start, len)));
}

/// Two requests of one class are in the callback at the same time, which a lock of the class would prevent, and the callback
/// reads the pool's statistics.
#[test]
fn callbacks_run_without_locks_of_the_pool() {
    type Shared = (Mutex<(usize, Option<BufferPool>)>, Condvar);
    let shared: Arc<Shared> = Arc::default();
    let meets = shared.clone();
    let builder = BufferPool::builder().budget(64 * PAGE).on_slab(
        move |_| {
            let (state, entered) = &*meets;
            let mut state = state.lock().unwrap();
            state.0 += 1;
            entered.notify_all();
            let pool = state.1.clone().expect("set below");
            let timeout = Duration::from_secs(60);
            let (state, waited) = entered
                .wait_timeout_while(state, timeout, |state| state.0 < 2)
                .unwrap();
            drop(state);
            assert!(pool.stats().budget > 0);
            match waited.timed_out() {
                true => Err(io::ErrorKind::TimedOut.into()),
                false => Ok(()),
            }
        },
        drop,
    );
    let pool = builder.build().unwrap();
    shared.0.lock().unwrap().1 = Some(pool.clone());
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| pool.get(100).fill(1));
        }
    });
    // otherwise the pool's callback would own the pool
    shared.0.lock().unwrap().1 = None;
}

#[test]
fn threads_exchange_buffers_in_registered_memory() {
    let device = Device::default();
    let builder = BufferPool::builder().budget(256 << 10);
    stress(device.pool(builder.clone()), 100 << 10);
    assert!(device.registered() > 2);
    device.finish();
    let builder = builder
        .eviction(EvictionPolicy::ClockPro)
        .thread_cache(0)
        .class_limit(2)
        .min_pooled(1000);
    stress(device.pool(builder), 100 << 10);
    device.finish();
}
