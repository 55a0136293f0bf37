//! A recording that several consumers write to, under thousands of thread schedules, explored with shuttle: each read is
//! recorded once, in the order of its time, and only a failed read's record loses its bytes. `RUSTFLAGS="--cfg shuttle"
//! cargo test --lib load::recording::models` (`.ci/prove`).
//!
//! The model was seen to fail with an index that is looked up after the lock is released.

use std::time::Duration;

use shuttle::thread;

use super::*;
use crate::base::sync::explore;
use crate::engine::load::interleavings::FILE;

/// Returns no bytes, and fails for every other read.
struct FailingFeed;

impl<'c> Feed<'c> for FailingFeed {
    fn get(&self, read: usize) -> Result<Chunk<'c>> {
        thread::sleep(Duration::ZERO); // runs another thread
        if read % 2 == 1 {
            return Err(Error::malformed("an odd read"));
        }
        Ok(Chunk::Borrowed(&[]))
    }
}

const CONSUMERS: usize = 2;
const READS: usize = 2 * CONSUMERS;

#[test]
fn each_read_is_recorded_once_and_a_failed_one_without_bytes() {
    explore(1000, || {
        let reads: Vec<_> = (0..READS as u64)
            .map(|number| ByteRange {
                file: 0,
                start: number,
                len: 10 + number,
            })
            .collect();
        let recording = RecordingLoader::new(crate::engine::load::PreadLoader::new());
        let started = recording.start(&FILE.0);
        let feed = RecordingFeed {
            feed: &FailingFeed,
            reads: &reads,
            started,
            log: &recording.log,
        };
        thread::scope(|scope| {
            for consumer in 0..CONSUMERS {
                let feed = &feed;
                scope.spawn(move || {
                    for read in [2 * consumer, 2 * consumer + 1] {
                        assert_eq!(feed.get(read).is_ok(), read % 2 == 0);
                    }
                });
            }
            // another load of the same recording
            scope.spawn(|| assert_eq!(recording.start(&FILE.0), started));
        });
        let accesses = &recording.log().accesses;
        assert!(accesses.is_sorted_by_key(|(_, at)| *at), "{accesses:?}");
        let mut recorded: Vec<_> = accesses.iter().map(|(bytes, _)| *bytes).collect();
        recorded.sort_by_key(|bytes| bytes.start);
        let expected = reads.iter().map(|bytes| ByteRange {
            len: bytes.len * (1 - bytes.start % 2),
            ..*bytes
        });
        assert!(recorded.into_iter().eq(expected), "{accesses:?}");
    });
}
