//! Locks and atomics. With `--cfg shuttle` they are those of the model checker, which controls every interleaving.

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use std::thread_local;

    /// A pause between two reads of a value that another thread is about to change.
    #[derive(Default)]
    pub(crate) struct Pause(u32);

    impl Pause {
        pub(crate) fn pause(&mut self) {
            if self.0 < 64 && !cfg!(miri) {
                self.0 += 1;
                std::hint::spin_loop();
            } else {
                // the other thread was probably preempted
                std::thread::yield_now();
            }
        }
    }

    #[derive(Default)]
    pub(crate) struct Condvar(parking_lot::Condvar);

    impl Condvar {
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        /// Waits until notified or the deadline; true if the deadline has passed. May wake spuriously.
        pub(crate) fn wait<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            deadline: Option<std::time::Instant>,
        ) -> (MutexGuard<'a, T>, bool) {
            let late = match deadline {
                None => {
                    self.0.wait(&mut guard);
                    false
                }
                Some(deadline) => self.0.wait_until(&mut guard, deadline).timed_out(),
            };
            (guard, late)
        }
    }
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use shuttle::sync::MutexGuard;
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize,
    };
    pub(crate) use shuttle::thread_local;

    #[derive(Default)]
    pub(crate) struct Pause;

    impl Pause {
        pub(crate) fn pause(&mut self) {
            shuttle::thread::yield_now();
        }
    }

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no panic under a lock")
        }
    }

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    #[derive(Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        /// Models have no clock, so deadlines are not supported.
        pub(crate) fn wait<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            deadline: Option<std::time::Instant>,
        ) -> (MutexGuard<'a, T>, bool) {
            if deadline.is_some() {
                drop(guard);
                panic!("a wait with a deadline in a model");
            }
            (self.0.wait(guard).expect("no panic under a lock"), false)
        }
    }
}

pub(crate) use imp::*;
