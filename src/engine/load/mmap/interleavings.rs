//! The advice of consumers that share a mapped feed, under thousands of thread schedules, explored with shuttle: the system is
//! advised of each read at most once, in the order of the list.
//! `RUSTFLAGS="--cfg shuttle" cargo test --lib load::mmap::models` (`.ci/prove`).
//!
//! The model was seen to fail with a position that is copied out of its lock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use shuttle::thread;

use super::*;
use crate::base::sync::explore;
use crate::engine::load::interleavings::{FILE, TENSOR_BYTES, reads};
use crate::read::source::Source;

/// The bytes of [`FILE`], and what was advised of them.
struct AdvisedSource(Arc<Mutex<Vec<u64>>>);

impl Source for AdvisedSource {
    fn len(&self) -> Option<u64> {
        Some(FILE.1.len() as u64)
    }

    fn read_at(&self, start: u64, out: &mut [u8]) -> std::io::Result<usize> {
        let bytes = &FILE.1[usize::try_from(start).unwrap()..];
        let n = bytes.len().min(out.len());
        out[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn mapped(&self) -> Option<&[u8]> {
        Some(&FILE.1)
    }

    fn will_need(&self, start: u64, _: u64) {
        thread::sleep(Duration::ZERO); // runs another thread
        self.0.lock().unwrap().push(start);
    }
}

#[test]
fn each_read_is_advised_at_most_once_and_in_order() {
    explore(1000, || {
        let advised = Arc::new(Mutex::new(Vec::new()));
        let reads = reads();
        let checkpoint = Checkpoint::from_source(AdvisedSource(Arc::clone(&advised))).unwrap();
        advised.lock().unwrap().clear();
        let pool = BufferPool::builder().budget(1 << 20).build().unwrap();
        let feed = MappedFeed {
            checkpoint: &checkpoint,
            pool: &pool,
            reads: &reads,
            window: TENSOR_BYTES as u64,
            drop_behind: false,
            consumed: AtomicU64::new(0),
            advice: PoisonMutex::default(),
            has_copied: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            for own in [&[0, 2][..], &[1]] {
                let (feed, reads) = (&feed, &reads);
                scope.spawn(move || {
                    for &read in own {
                        let chunk = feed.get(read).unwrap();
                        let start = usize::try_from(reads[read].start).unwrap();
                        assert_eq!(chunk[..], FILE.1[start..][..TENSOR_BYTES]);
                    }
                });
            }
        });
        let advised = advised.lock().unwrap();
        assert!(advised.is_sorted_by(|a, b| a < b), "{advised:?}");
    });
}
