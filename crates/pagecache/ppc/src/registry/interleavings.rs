//! Registrations that are replaced and removed while accesses are delivered, under hundreds of thread schedules, explored with
//! shuttle: an access is delivered to a policy that has not ended, and to one only.
//! `RUSTFLAGS="--cfg shuttle" cargo test -p anamnesis-ppc --lib models` (`.ci/prove`).
//!
//! The model was seen to fail: with a replaced policy that is shut down before the new one is registered, and with a delivery
//! outside of the lock.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use super::*;
use crate::Interests;
use crate::sync::{explore, thread};

/// Not reached: the model checker has no clock.
const FOREVER: Duration = Duration::from_secs(3600);

/// Sets a flag when its registration ends. A flag of the standard library, which orders nothing in the model.
struct EndingPolicy(Arc<AtomicBool>);

impl Policy for EndingPolicy {
    fn interests(&self) -> Interests {
        Interests::default()
    }

    fn exit(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn accesses_reach_a_policy_that_is_registered() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), [0; 10]).unwrap();
    let inode = Namespace::scan(dir.path()).unwrap().entries()[0].inode;
    let root = dir.path().to_owned();
    explore(move || {
        let limits = PolicyLimits {
            init: FOREVER,
            call: FOREVER,
            exit: FOREVER,
            ..PolicyLimits::default()
        };
        let registry = Arc::new(PolicyRegistry::new(0, limits, |_, _| {}));
        let ended: [Arc<AtomicBool>; 2] = Default::default();
        let register = |number: usize| {
            let policy = Box::new(EndingPolicy(Arc::clone(&ended[number])));
            registry
                .register(&root, policy, "")
                .unwrap()
                .origin()
                .number
        };
        let first = register(0);
        let (delivering, flags) = (Arc::clone(&registry), ended.clone());
        let delivers = thread::Builder::new().spawn(move || {
            let mut last = first;
            for _ in 0..3 {
                let delivered = delivering.with_owner(inode, |registration, _| {
                    let number = registration.origin().number;
                    let flag = &flags[usize::from(number != first)];
                    shuttle::thread::yield_now();
                    assert!(!flag.load(SeqCst), "delivered to a policy that has ended");
                    number
                });
                let Some(number) = delivered else {
                    return; // removed
                };
                assert!(number >= last, "delivered to a policy that was replaced");
                last = number;
            }
        });
        let before = registry.generation();
        let second = register(1);
        assert!(second > first && ended[0].load(SeqCst));
        registry.unregister(&root).unwrap();
        assert!(ended[1].load(SeqCst) && registry.generation() == before + 2);
        assert!(registry.with_owner(inode, |_, _| ()).is_none());
        delivers.unwrap().join().unwrap();
    });
}
