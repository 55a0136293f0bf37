//! Locks, flags and threads of what threads share. With `--cfg shuttle` they are the model checker's, which controls every
//! interleaving (`.ci/prove`). Waits with a timeout then have none: a wait that only its timeout ends is a deadlock of the
//! model.

#[cfg(not(shuttle))]
mod imp {
    pub(crate) use std::sync::atomic::AtomicBool;
    pub(crate) use std::sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };
    pub(crate) use std::thread;

    pub(crate) type ThreadHandle = thread::JoinHandle<()>;
}

#[cfg(shuttle)]
mod imp {
    pub(crate) use shuttle::sync::atomic::AtomicBool;
    pub(crate) use shuttle::sync::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };

    pub(crate) use thread::ThreadHandle;

    /// Like the module of `std`, with threads that are joined by looking at them again and again: shuttle 0.8 wakes a
    /// joining thread that was in a mutex's queue before.
    pub(crate) mod thread {
        use std::io;
        use std::sync::Arc;
        use std::sync::atomic::Ordering::SeqCst;

        use shuttle::sync::atomic::AtomicBool;
        use shuttle::thread::yield_now;

        #[derive(Debug)]
        pub(crate) struct ThreadHandle {
            ended: Arc<AtomicBool>,
        }

        impl ThreadHandle {
            /// A panic of the thread ends the model, so that there is no other result.
            pub(crate) fn join(self) -> Result<(), ()> {
                while !self.ended.load(SeqCst) {
                    yield_now();
                }
                Ok(())
            }
        }

        pub(crate) struct Builder;

        impl Builder {
            pub(crate) fn new() -> Self {
                Self
            }

            pub(crate) fn name(self, _: String) -> Self {
                self
            }

            /// Ignored: stacks of the model checker have one size.
            pub(crate) fn stack_size(self, _: usize) -> Self {
                self
            }

            pub(crate) fn spawn(
                self,
                run: impl FnOnce() + Send + 'static,
            ) -> io::Result<ThreadHandle> {
                let ended = Arc::new(AtomicBool::new(false));
                let end = Arc::clone(&ended);
                shuttle::thread::spawn(move || {
                    run();
                    end.store(true, SeqCst);
                });
                Ok(ThreadHandle { ended })
            }
        }
    }

    /// Runs a model with random schedules, and with few preemptions at chosen points (probabilistic concurrency testing).
    #[cfg(test)]
    pub(crate) fn explore(body: impl Fn() + Send + Sync + 'static) {
        use shuttle::Runner;
        use shuttle::scheduler::{PctScheduler, RandomScheduler};

        const ITERATIONS: usize = 300;
        let mut config = shuttle::Config::new();
        // the threads make system calls with paths
        config.stack_size = 256 << 10;
        // far more than any schedule that ends has
        config.max_steps = shuttle::MaxSteps::FailAfter(100_000);
        let body = std::sync::Arc::new(body);
        let same = std::sync::Arc::clone(&body);
        Runner::new(RandomScheduler::new(ITERATIONS), config.clone()).run(move || body());
        Runner::new(PctScheduler::new(3, ITERATIONS), config).run(move || same());
    }
}

pub(crate) use imp::*;
