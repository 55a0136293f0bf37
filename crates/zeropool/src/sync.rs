//! Locks and atomics. With `--cfg shuttle` they are the model checker's, which controls every interleaving. Under Miri the
//! locks are the standard library's: it refuses parking_lot's `syscall(SYS_futex, …)`, as a variadic argument is
//! `&AtomicI32` where the kernel declares `u32 *`.

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
    pub(crate) use std::thread_local;

    /// A pause between two reads of a value that another thread is about to change.
    #[derive(Default)]
    pub(crate) struct Pause(u32);

    impl Pause {
        pub(crate) fn pause(&mut self) {
            // under Miri no other thread runs during a spin
            if self.0 < 64 && !cfg!(miri) {
                self.0 += 1;
                std::hint::spin_loop();
            } else {
                // the other thread was probably preempted
                std::thread::yield_now();
            }
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
}

#[cfg(not(any(miri, shuttle)))]
mod locks {
    pub(crate) use parking_lot::{Mutex, MutexGuard};

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

#[cfg(any(miri, shuttle))]
mod locks {
    #[cfg(shuttle)]
    use shuttle::sync;
    #[cfg(not(shuttle))]
    use std::sync;

    pub(crate) use sync::MutexGuard;

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
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
    pub(crate) struct Condvar(sync::Condvar);

    impl Condvar {
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait<'a, T>(
            &self,
            guard: MutexGuard<'a, T>,
            deadline: Option<std::time::Instant>,
        ) -> (MutexGuard<'a, T>, bool) {
            let Some(deadline) = deadline else {
                return (self.0.wait(guard).expect("no panic under a lock"), false);
            };
            if cfg!(shuttle) {
                // without the lock, which the panic would poison for the other threads
                drop(guard);
                panic!("a wait with a deadline in a model, which has no clock");
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            let (guard, waited) = self
                .0
                .wait_timeout(guard, left)
                .expect("no panic under a lock");
            (guard, waited.timed_out())
        }
    }
}

pub(crate) use imp::*;
pub(crate) use locks::*;
