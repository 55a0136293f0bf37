//! What one process of a variant does: gets buffers and puts them back, for a while.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::KEPT;

/// What is got by one thread and dropped by another.
const ACROSS: usize = 16 << 20;

/// One variant alone; prints nanoseconds and faults per buffer.
pub fn one(variant: &str, case: &[&str]) -> ExitCode {
    let measured = match case {
        ["across"] => across(variant),
        ["get", len, threads, touch] => match (len.parse(), threads.parse()) {
            (Ok(len), Ok(threads)) => get(variant, len, threads, *touch == "touch"),
            _ => None,
        },
        _ => None,
    };
    let Some((ns, faults)) = measured else {
        eprintln!("it cannot");
        return ExitCode::from(2);
    };
    println!("{ns} {faults}");
    ExitCode::SUCCESS
}

/// Length of what the pools of whole objects make; their constructors take none.
static LEN: AtomicUsize = AtomicUsize::new(0);

/// An object for pools of objects.
struct Object(Vec<u8>);

impl Default for Object {
    fn default() -> Self {
        Self(vec![0; LEN.load(Relaxed)])
    }
}

impl lifeguard::Recycleable for Object {
    fn new() -> Self {
        Self::default()
    }

    fn reset(&mut self) {}
}

impl sharded_slab::Clear for Object {
    fn clear(&mut self) {}
}

struct Objects;

impl opool::PoolAllocator<Object> for Objects {
    fn allocate(&self) -> Object {
        Object::default()
    }
}

/// A buffer of another allocator than this program's.
struct Mi(*mut u8, Layout);

// SAFETY: memory of an allocator that frees on any thread.
unsafe impl Send for Mi {}

impl Mi {
    fn new(len: usize) -> Self {
        let layout = Layout::from_size_align(len, 1).expect("small enough");
        // SAFETY: lengths here are not zero.
        Self(unsafe { mimalloc::MiMalloc.alloc(layout) }, layout)
    }

    fn touch(&mut self) {
        for at in (0..self.1.size()).step_by(4096) {
            // SAFETY: within the allocation, which nobody else has.
            unsafe { self.0.add(at).write_volatile(1) };
        }
    }
}

impl Drop for Mi {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { mimalloc::MiMalloc.dealloc(self.0, self.1) };
    }
}

/// One byte of every page is written; reading it first would be waiting for the write before.
fn touch(buffer: &mut [u8]) {
    for byte in buffer.iter_mut().step_by(4096) {
        // SAFETY: a reference to a byte.
        unsafe { std::ptr::write_volatile(byte, 1) };
    }
}

/// The same for a vector whose bytes may be anything: pages are written where the capacity is.
fn touch_vec(buffer: &mut Vec<u8>) {
    let start = buffer.as_mut_ptr();
    for at in (0..buffer.capacity()).step_by(4096) {
        // SAFETY: within the capacity; bytes are written, not read.
        unsafe { start.add(at).write_volatile(1) };
    }
}

fn get(variant: &str, len: usize, threads: usize, touched: bool) -> Option<(f64, f64)> {
    LEN.store(len, Relaxed);
    let bytes = |buffer: &mut [u8]| {
        if touched {
            touch(buffer)
        }
    };
    let vec = |buffer: &mut Vec<u8>| {
        if touched {
            touch_vec(buffer)
        }
    };
    Some(match variant {
        "ours" => {
            let pool = zeropool::BufferPool::new();
            timed(threads, || {
                || bytes(black_box(&mut pool.get(black_box(len))))
            })
        }
        "zeropool 0.2" => {
            let pool = zeropool02::BufferPool::new();
            timed(threads, || {
                || {
                    let mut buffer = black_box(pool.get(black_box(len)));
                    vec(&mut buffer);
                    pool.put(buffer);
                }
            })
        }
        "zeropool 0.7 alloc" => {
            let pool = zeropool07::ZeroPool::new();
            timed(threads, || {
                || bytes(black_box(&mut pool.alloc(black_box(len))))
            })
        }
        "zeropool 0.7 alloc_uninit" => {
            let pool = zeropool07::ZeroPool::new();
            timed(threads, || {
                || {
                    let mut buffer = black_box(pool.alloc_uninit(black_box(len)));
                    if touched {
                        buffer
                            .as_uninit_mut()
                            .iter_mut()
                            .step_by(4096)
                            .for_each(|byte| _ = byte.write(1));
                    }
                }
            })
        }
        // of one thread only: one pool each
        "lifeguard" => timed(threads, || {
            let pool = lifeguard::Pool::<Object>::with_size_and_max(1, 8);
            move || bytes(black_box(&mut pool.new().0))
        }),
        "object-pool" => {
            let pool = object_pool::Pool::new(threads, Object::default);
            timed(threads, || {
                || bytes(black_box(&mut pool.pull(Object::default).0))
            })
        }
        "sharded-slab" => {
            let pool = sharded_slab::Pool::<Object>::new();
            timed(threads, || {
                || {
                    let mut buffer = pool.create().expect("room for one");
                    bytes(black_box(&mut buffer.0));
                    let key = buffer.key();
                    drop(buffer);
                    pool.clear(key);
                }
            })
        }
        "opool" => {
            let pool = opool::Pool::new_prefilled(8, Objects);
            timed(threads, || || bytes(black_box(&mut pool.get().0)))
        }
        "BytesMut" => timed(threads, || {
            || {
                let mut buffer = black_box(bytes::BytesMut::with_capacity(black_box(len)));
                if touched {
                    // SAFETY: what is exposed is written, by whole pages, and never read.
                    let spare = buffer.spare_capacity_mut();
                    spare
                        .iter_mut()
                        .step_by(4096)
                        .for_each(|byte| _ = byte.write(1));
                }
            }
        }),
        "Vec, glibc" => timed(threads, || {
            || vec(black_box(&mut Vec::with_capacity(black_box(len))))
        }),
        "Vec, mimalloc" => timed(threads, || {
            || {
                let mut buffer = black_box(Mi::new(black_box(len)));
                if touched {
                    buffer.touch();
                }
            }
        }),
        KEPT => timed(threads, || {
            let mut kept = vec![1; len];
            move || bytes(black_box(&mut kept))
        }),
        _ => return None,
    })
}

/// Median of some runs of about 10 ms, of the slowest thread; `make` gives each thread what it repeats.
fn timed<F: FnMut()>(threads: usize, make: impl Fn() -> F + Sync) -> (f64, f64) {
    let meet = Barrier::new(threads);
    let worker = || {
        let mut once = make();
        once();
        let mut rounds = 1u32;
        loop {
            let began = Instant::now();
            (0..rounds).for_each(|_| once());
            if began.elapsed() > Duration::from_millis(4) || rounds > 1 << 28 {
                break;
            }
            rounds *= 2;
        }
        let before = faults();
        let mut times: Vec<f64> = (0..7)
            .map(|_| {
                meet.wait();
                let began = Instant::now();
                (0..rounds).for_each(|_| once());
                began.elapsed().as_nanos() as f64 / f64::from(rounds)
            })
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        (times[3], (faults() - before) as f64 / f64::from(7 * rounds))
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let all = all
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        all.max_by(|a, b| a.0.total_cmp(&b.0))
            .expect("at least one thread")
    })
}

fn across(variant: &str) -> Option<(f64, f64)> {
    LEN.store(ACROSS, Relaxed);
    Some(match variant {
        "ours" => {
            let pool = zeropool::BufferPool::new();
            pipeline(|| pool.get(ACROSS), |buffer| touch(buffer), drop)
        }
        "zeropool 0.2" => {
            let pool = zeropool02::BufferPool::new();
            pipeline(|| pool.get(ACROSS), touch_vec, |buffer| pool.put(buffer))
        }
        "zeropool 0.7 alloc" => {
            let pool = zeropool07::ZeroPool::new();
            pipeline(|| pool.alloc(ACROSS), |buffer| touch(buffer), drop)
        }
        "object-pool" => {
            let pool = Arc::new(object_pool::Pool::new(8, Object::default));
            pipeline(
                || pool.pull_owned(Object::default),
                |buffer| touch(&mut buffer.0),
                drop,
            )
        }
        "opool" => {
            let pool = opool::Pool::new_prefilled(8, Objects).to_rc();
            pipeline(
                || pool.clone().get_rc(),
                |buffer| touch(&mut buffer.0),
                drop,
            )
        }
        "BytesMut" => pipeline(
            || bytes::BytesMut::with_capacity(ACROSS),
            |buffer| {
                buffer
                    .spare_capacity_mut()
                    .iter_mut()
                    .step_by(4096)
                    .for_each(|byte| _ = byte.write(1))
            },
            drop,
        ),
        "Vec, glibc" => pipeline(|| Vec::with_capacity(ACROSS), touch_vec, drop),
        "Vec, mimalloc" => pipeline(|| Mi::new(ACROSS), Mi::touch, drop),
        KEPT => {
            let kept = RefCell::new(vec![1; ACROSS]);
            pipeline(|| (), |()| touch(&mut kept.borrow_mut()), drop)
        }
        _ => return None,
    })
}

/// Gets and touches on one thread, drops on another; the time per buffer.
fn pipeline<B: Send>(
    get: impl Fn() -> B,
    touch: impl Fn(&mut B),
    put: impl Fn(B) + Sync + Send,
) -> (f64, f64) {
    const BUFFERS: usize = 200;
    let before = process_faults();
    let (ns, all) = thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<B>(4);
        scope.spawn(move || receiver.into_iter().for_each(put));
        let mut times: Vec<f64> = (0..7)
            .map(|_| {
                let began = Instant::now();
                for _ in 0..BUFFERS {
                    let mut buffer = get();
                    touch(&mut buffer);
                    sender.send(buffer).expect("the consumer lives");
                }
                began.elapsed().as_nanos() as f64 / BUFFERS as f64
            })
            .collect();
        times.sort_unstable_by(f64::total_cmp);
        (times[3], times.len() * BUFFERS)
    });
    (ns, (process_faults() - before) as f64 / all as f64)
}

fn faults() -> i64 {
    usage(libc::RUSAGE_THREAD)
}

fn process_faults() -> i64 {
    usage(libc::RUSAGE_SELF)
}

fn usage(who: i32) -> i64 {
    // SAFETY: a plain structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it is written to.
    let failed = unsafe { libc::getrusage(who, &mut usage) };
    assert_eq!(failed, 0);
    usage.ru_minflt
}
