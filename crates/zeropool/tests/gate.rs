//! The gate and the barrier before a thread's cells, with stores that other threads see late: the orders of two threads'
//! steps with at most four switches, and the values that loom lets a load return. Without either side of the barrier
//! it finds what goes wrong. `RUSTFLAGS="--cfg shuttle" cargo test --test gate`.
//!
//! It is `src/gate.rs` itself that is explored, with loom's atomics in place of its own. What is argued and not explored:
//! that the barrier's two sides, one of which is no instruction and the other `membarrier`, are worth two full fences.
#![cfg(shuttle)]

#[allow(dead_code, unreachable_pub)]
#[path = "../src/gate.rs"]
mod gate;

use std::cell::Cell;
use std::sync::Arc;

use gate::{Gate, NotAlone};
use loom::sync::Mutex;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use loom::thread;

/// As `src/sync.rs`.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64};

    #[derive(Default)]
    pub(crate) struct Pause;

    impl Pause {
        pub(crate) fn pause(&mut self) {
            loom::thread::yield_now();
        }
    }
}

/// As `src/barrier.rs`: what its two sides are worth.
mod barrier {
    use loom::sync::atomic::{Ordering::SeqCst, fence};

    pub(crate) fn light() {
        if super::SIDES.get().0 {
            fence(SeqCst);
        }
    }

    pub(crate) fn heavy() {
        if super::SIDES.get().1 {
            fence(SeqCst);
        }
    }
}

thread_local! {
    /// Which sides of the barrier there are: the light one, and the heavy one. All threads of a model are one of ours.
    static SIDES: Cell<(bool, bool)> = const { Cell::new((true, true)) };
}

fn explore(sides: (bool, bool), body: impl Fn() + Sync + Send + 'static) {
    SIDES.set(sides);
    let mut model = loom::model::Builder::new();
    // two threads are seldom wrong in a way that takes more switches where neither waits
    model.preemption_bound = Some(4);
    model.check(body);
}

/// One thread's cell, 0 if it is empty, what lies in the blocks that are put there, and how often each came out of it.
struct Room {
    gate: Gate,
    lock: Mutex<()>,
    cell: AtomicUsize,
    blocks: [AtomicUsize; BLOCKS],
    /// Of the standard library: it orders nothing in the model.
    taken: [std::sync::atomic::AtomicUsize; BLOCKS],
    alert: AtomicUsize,
}

const BLOCKS: usize = 2;

impl Room {
    fn new() -> Arc<Self> {
        let room = Self {
            gate: Gate::new(),
            lock: Mutex::new(()),
            cell: AtomicUsize::new(0),
            blocks: std::array::from_fn(|_| AtomicUsize::new(0)),
            taken: Default::default(),
            alert: AtomicUsize::new(0),
        };
        room.gate.close(true);
        Arc::new(room)
    }

    /// Whoever takes a block sees what was written into it.
    fn took(&self, block: usize) {
        if block != 0 {
            assert_eq!(
                self.blocks[block - 1].load(Relaxed),
                block,
                "what was written before is not seen"
            );
            assert_eq!(
                self.taken[block - 1].fetch_add(1, Relaxed),
                0,
                "taken twice"
            );
        }
    }

    /// As `Slot::put`, by the owner.
    fn put(&self, block: usize) {
        self.blocks[block - 1].store(block, Relaxed);
        self.cell.store(block, Release);
    }

    /// As `Slot::take`, by anybody.
    fn take(&self) -> usize {
        if self.cell.load(SeqCst) == 0 {
            0
        } else {
            self.cell.swap(0, SeqCst)
        }
    }

    /// As `Cells::get`, by the owner. In the end it may close the gate.
    fn get(&self, close: bool) {
        let found = self.gate.alone(|| {
            // as `Slot::take_alone`
            let block = self.cell.load(Relaxed);
            if block != 0 {
                self.cell.store(0, Relaxed);
            }
            (block != 0).then_some(block)
        });
        match found {
            Ok(block) => self.took(block.unwrap_or(0)),
            Err(NotAlone) => {
                self.gate.share();
                self.took(self.take());
                if close {
                    let _lock = self.lock.lock().unwrap();
                    self.gate.close(true);
                }
            }
        }
    }

    /// As `Members::open` and `rob`.
    fn rob(&self) -> usize {
        let _lock = self.lock.lock().unwrap();
        if !self.gate.is_open() {
            self.gate.ask();
            barrier::heavy();
            self.gate.open();
        }
        let block = self.take();
        self.gate.robbed();
        block
    }
}

/// The owner puts and takes, and a stranger robs it: each block goes to one of the two.
fn taken_once(sides: (bool, bool)) {
    explore(sides, || {
        let room = Room::new();
        let stranger = thread::spawn({
            let room = Arc::clone(&room);
            move || room.took(room.rob())
        });
        for block in 1..=BLOCKS {
            room.put(block);
            room.get(block == 1);
        }
        stranger.join().unwrap();
        assert!(
            room.taken.iter().all(|taken| taken.load(Relaxed) == 1),
            "a block is lost"
        );
    });
}

/// The owner puts a block and looks whether somebody waits, while somebody begins to wait and looks for blocks: one of the
/// two sees the other.
fn nobody_misses_a_put(sides: (bool, bool)) {
    explore(sides, || {
        let room = Room::new();
        let waits = thread::spawn({
            let room = Arc::clone(&room);
            move || {
                room.alert.store(1, SeqCst);
                room.rob()
            }
        });
        // as `Cells::put`
        room.put(1);
        barrier::light();
        let quiet = room.gate.is_closed() || room.alert.load(SeqCst) == 0;
        assert!(
            waits.join().unwrap() == 1 || !quiet,
            "it waits for a block that lies there"
        );
    });
}

#[test]
fn with_both_sides() {
    taken_once((true, true));
    nobody_misses_a_put((true, true));
}

#[test]
#[should_panic = "taken twice"]
fn taking_needs_the_light_side() {
    taken_once((false, true));
}

#[test]
#[should_panic = "taken twice"]
fn taking_needs_the_heavy_side() {
    taken_once((true, false));
}

#[test]
#[should_panic = "it waits for a block that lies there"]
fn putting_needs_the_light_side() {
    nobody_misses_a_put((false, true));
}

#[test]
#[should_panic = "it waits for a block that lies there"]
fn putting_needs_the_heavy_side() {
    nobody_misses_a_put((true, false));
}
