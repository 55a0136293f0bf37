//! The work of one process of a pool variant: gets buffers and returns them, for about 70 ms.

use std::cell::RefCell;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::REUSED;
use crate::mimalloc_buffer::MimallocBuffer;

/// Size of a buffer that one thread gets and another drops.
const ACROSS: usize = 16 << 20;

/// Prints nanoseconds and faults per buffer of one variant.
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
        eprintln!("not supported");
        return ExitCode::from(2);
    };
    println!("{ns} {faults}");
    ExitCode::SUCCESS
}

/// Length of the objects that object pools construct: their constructors take no argument.
static LEN: AtomicUsize = AtomicUsize::new(0);

/// The object of object pools.
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

/// Writes one byte of every page. A read-modify-write would wait for the store of the last round.
fn touch(buffer: &mut [u8]) {
    for byte in buffer.iter_mut().step_by(4096) {
        // SAFETY: `byte` is a valid reference
        unsafe { std::ptr::write_volatile(byte, 1) };
    }
}

/// The same for a vector whose bytes are not initialised: writes within its capacity.
fn touch_vec(buffer: &mut Vec<u8>) {
    let start = buffer.as_mut_ptr();
    for at in (0..buffer.capacity()).step_by(4096) {
        // SAFETY: within the capacity, and uninitialised bytes may be written
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
        // not Sync: one pool per thread
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
                    let mut buffer = pool.create().expect("the slab has room for one object");
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
                let mut buffer = black_box(MimallocBuffer::uninit(black_box(len)));
                if touched {
                    buffer.write_pages();
                }
            }
        }),
        REUSED => timed(threads, || {
            let mut buffer = vec![1; len];
            move || bytes(black_box(&mut buffer))
        }),
        _ => return None,
    })
}

/// Nanoseconds and faults per call on the slowest thread: the median of 7 runs of 4 ms or more. `make` returns the closure
/// that a thread repeats.
fn timed<F: FnMut()>(threads: usize, make: impl Fn() -> F + Sync) -> (f64, f64) {
    let barrier = Barrier::new(threads);
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
                barrier.wait();
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
            .map(|thread| thread.join().expect("the worker does not panic"));
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
        "Vec, mimalloc" => pipeline(
            || MimallocBuffer::uninit(ACROSS),
            MimallocBuffer::write_pages,
            drop,
        ),
        REUSED => {
            let buffer = RefCell::new(vec![1; ACROSS]);
            pipeline(|| (), |()| touch(&mut buffer.borrow_mut()), drop)
        }
        _ => return None,
    })
}

/// Gets and touches buffers on one thread and drops them on another; nanoseconds and faults per buffer.
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
                    sender
                        .send(buffer)
                        .expect("the receiving thread runs until the sender is dropped");
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
    // SAFETY: all zeros is a valid `rusage`
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a local that outlives the call
    let failed = unsafe { libc::getrusage(who, &mut usage) };
    assert_eq!(failed, 0);
    usage.ru_minflt
}
