//! Locks and atomics of what threads share. With `--cfg shuttle` they are the model checker's, which controls every
//! interleaving (`.ci/prove`).

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
    pub(crate) use std::sync::{Mutex as PoisonMutex, MutexGuard as PoisonMutexGuard, OnceLock};

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
}

#[cfg(shuttle)]
mod imp {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
    pub(crate) use shuttle::sync::{Mutex as PoisonMutex, MutexGuard as PoisonMutexGuard};
    use shuttle::thread::sleep;

    /// Replaces the type of `parking_lot`.
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

    /// Replaces the type of `std`. Other threads may run at the beginning of each call, and while the value is made.
    pub(crate) struct OnceLock<T> {
        cell: std::sync::OnceLock<T>,
        /// Held while the value is made. Not locked later: a value may outlive the schedule in which it was made, as a
        /// `static`'s does, and a lock of the model checker may not.
        making: PoisonMutex<()>,
    }

    impl<T> OnceLock<T> {
        pub(crate) fn new() -> Self {
            Self {
                cell: std::sync::OnceLock::new(),
                making: PoisonMutex::new(()),
            }
        }

        pub(crate) fn get(&self) -> Option<&T> {
            sleep(Duration::ZERO); // runs another thread
            self.cell.get()
        }

        pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            if let Some(value) = self.get() {
                return value;
            }
            let _one_maker = self.making.lock().expect("no panic under a lock");
            self.cell.get_or_init(make)
        }
    }

    /// Runs a model with this many random schedules, and with as many that have few preemptions at chosen points (probabilistic
    /// concurrency testing).
    #[cfg(test)]
    pub(crate) fn explore(schedules: usize, body: impl Fn() + Send + Sync + 'static) {
        let body = std::sync::Arc::new(body);
        let same = std::sync::Arc::clone(&body);
        shuttle::check_random(move || body(), schedules);
        // three preemptions: bugs of more ordered steps are rare, and random schedules cover few steps in a certain
        // order
        shuttle::check_pct(move || same(), schedules, 3);
    }

    pub(crate) struct Notified;

    impl Notified {
        pub(crate) fn timed_out(&self) -> bool {
            false
        }
    }
}

pub(crate) use imp::*;
