//! Locks and atomics of what threads share. With `--cfg shuttle` they are those of the model checker, which controls every
//! interleaving (`.ci/prove`).

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use std::sync::Mutex as PoisonMutex;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
}

#[cfg(shuttle)]
mod imp {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    pub(crate) use shuttle::sync::Mutex as PoisonMutex;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

    /// As that of `parking_lot`.
    pub(crate) struct Mutex<T>(PoisonMutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(PoisonMutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("no panic under a lock")))
        }
    }

    /// `None` inside while a condition variable has released it.
    pub(crate) struct MutexGuard<'m, T>(Option<shuttle::sync::MutexGuard<'m, T>>);

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("not waiting")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("not waiting")
        }
    }

    #[derive(Default)]
    pub(crate) struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let released = guard.0.take().expect("not waiting");
            guard.0 = Some(self.0.wait(released).expect("no panic under a lock"));
        }

        /// Never times out: a wait that only its timeout ends is a deadlock of the model.
        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> Notified {
            self.wait(guard);
            Notified
        }
    }

    pub(crate) struct Notified;

    impl Notified {
        pub(crate) fn timed_out(&self) -> bool {
            false
        }
    }
}

pub(crate) use imp::*;
