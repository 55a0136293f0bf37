//! Models for model checkers, compiled with `RUSTFLAGS="--cfg shuttle"` only (`.ci/prove`): `biased_lock` for loom,
//! `pool_schedules` for shuttle. In a binary of its own, as `src/magazine/biased.rs` is compiled into it a second time and
//! refers to `crate::sync` and `crate::barrier`, which are loom's here.
#![cfg(shuttle)]

#[allow(dead_code, unreachable_pub)]
#[path = "../../src/magazine/biased.rs"]
mod biased;
mod biased_lock;
mod pool_schedules;

/// In place of `src/sync.rs`.
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

/// In place of `src/barrier.rs`: both sides are full fences, each of which a test can remove.
mod barrier {
    use loom::sync::atomic::{Ordering::SeqCst, fence};

    use crate::biased_lock::{BARRIER, HeavySide};

    pub(crate) fn light() {
        if BARRIER.get().light {
            fence(SeqCst);
        }
    }

    /// Returns false where `membarrier` is refused, as the real one.
    pub(crate) fn heavy() -> bool {
        let heavy = BARRIER.get().heavy;
        if heavy == HeavySide::Works {
            fence(SeqCst);
        }
        heavy != HeavySide::IsRefused
    }
}
