//! An owner and a stranger at one gate. Not in `gate.rs`, which `tests/gate.rs` takes as it is.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

#[cfg(shuttle)]
use shuttle::thread;
#[cfg(not(shuttle))]
use std::thread;

use crate::barrier;
use crate::gate::{Gate, NotAlone};
use crate::sync::{AtomicUsize, Mutex};

/// A gate before one cell, 0 if it is empty, and how often each token came out of it.
struct Room {
    gate: Gate,
    lock: Mutex<()>,
    cell: AtomicUsize,
    taken: Vec<AtomicUsize>,
}

impl Room {
    fn took(&self, token: usize) {
        if token != 0 {
            self.taken[token - 1].fetch_add(1, Relaxed);
        }
    }

    fn close(&self) {
        let _lock = self.lock.lock();
        self.gate.close(true);
    }

    fn rob(&self) {
        let _lock = self.lock.lock();
        if !self.gate.is_open() {
            self.gate.ask();
            if !barrier::heavy() {
                return;
            }
            self.gate.open();
        }
        self.took(self.cell.swap(0, SeqCst));
        self.gate.robbed();
    }

    /// As the owner: in with a token, and out with it, if no stranger has it.
    fn turn(&self, token: usize) {
        self.cell.store(token, Release);
        let found = self.gate.alone(|| {
            let token = self.cell.load(Relaxed);
            self.cell.store(0, Relaxed);
            (token != 0).then_some(token)
        });
        match found {
            Ok(token) => self.took(token.unwrap_or(0)),
            Err(NotAlone) => {
                if !self.gate.share() || token.is_multiple_of(2) {
                    self.close();
                }
                // also while closed: strangers take under the lock, or after they were let in
                self.took(self.cell.swap(0, SeqCst));
            }
        }
    }
}

/// A barrier's heavy side, or every robbery is refused.
fn nothing_is_taken_twice_or_lost(tokens: usize, robberies: usize) {
    let _ = barrier::has_heavy();
    let taken = (0..tokens).map(|_| AtomicUsize::new(0)).collect();
    let room = Room {
        gate: Gate::new(),
        lock: Mutex::new(()),
        cell: AtomicUsize::new(0),
        taken,
    };
    let room = Arc::new(room);
    room.close();
    let stranger = thread::spawn({
        let room = Arc::clone(&room);
        move || (0..robberies).for_each(|_| room.rob())
    });
    (1..=tokens).for_each(|token| room.turn(token));
    stranger.join().unwrap();
    assert!(room.taken.iter().all(|taken| taken.load(Relaxed) == 1));
}

#[test]
#[cfg(not(shuttle))]
fn owner_and_stranger() {
    if !barrier::has_heavy() {
        println!("SKIPPED: this system has no membarrier");
        return;
    }
    let (tokens, robberies) = if cfg!(miri) {
        (30, 10)
    } else {
        (500_000, 20_000)
    };
    nothing_is_taken_twice_or_lost(tokens, robberies);
}

#[test]
#[cfg(shuttle)]
fn owner_and_stranger() {
    shuttle::check_random(|| nothing_is_taken_twice_or_lost(4, 2), 10_000);
    shuttle::check_pct(|| nothing_is_taken_twice_or_lost(4, 2), 10_000, 3);
}
