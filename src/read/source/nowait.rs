//! Reads of small files that poll the page cache before they block.
//!
//! A thread that blocks until the device has answered wakes up late, on a core that has entered an idle state and whose
//! caches hold other data: of the 70 µs from `open` to the first page on a fast disk, 15 µs are wake-up time, and parsing
//! the header then takes twice as long (experiment 48). So the thread starts the read, polls for it with
//! `preadv2(RWF_NOWAIT)`, which never blocks, and blocks only if the data is late.

use std::fs::File;
use std::hint::spin_loop;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// How long to poll. A device that needs longer is so slow that the cost of a wake-up no longer matters.
const POLL_LIMIT: Duration = Duration::from_micros(150);

/// `spin_loop` calls between two polls, which take about as long as one poll.
const SPINS_PER_POLL: usize = 20;

/// Reads into `buf` from the beginning of the file, and returns the number of bytes read.
///
/// The result is short at the end of the file, after [`POLL_LIMIT`], and on errors; the caller reads the rest with an
/// ordinary read, which blocks or reports the error.
pub(super) fn read(file: &File, buf: &mut [u8]) -> usize {
    let (mut done, mut polling_since) = (0, None::<Instant>);
    while done < buf.len() {
        let mut rest = [IoSliceMut::new(&mut buf[done..])];
        match preadv2(file, &mut rest, done as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            // the pages are not resident, or the device has not delivered them yet
            Err(Errno::AGAIN) => match polling_since {
                None => {
                    // Older kernels do not start a read for a call with RWF_NOWAIT; newer ones already have.
                    let _ = rustix::fs::fadvise(
                        file,
                        done as u64,
                        NonZeroU64::new(buf.len() as u64),
                        Advice::WillNeed,
                    );
                    polling_since = Some(Instant::now());
                }
                Some(since) if since.elapsed() < POLL_LIMIT => {
                    // `sched_yield` would give a busy core away for milliseconds (experiment 48)
                    (0..SPINS_PER_POLL).for_each(|_| spin_loop());
                }
                Some(_) => break,
            },
            // the file system does not support RWF_NOWAIT
            Err(_) => break,
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// An unlinked file with these bytes.
    fn temporary(name: &str, bytes: &[u8]) -> File {
        let path =
            std::env::temp_dir().join(format!("anamnesis-nowait-{name}-{}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        fs::remove_file(path).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn non_blocking_read_returns_file_bytes_cached_or_not() {
        let bytes: Vec<u8> = (0..=250).cycle().take(10_000).collect();
        let file = temporary("cold", &bytes);
        let mut buffer = vec![0; bytes.len()];
        for _ in 0..20 {
            buffer.fill(0);
            // bytes that are not in the page cache yet are left out, never replaced
            let n = read(&file, &mut buffer);
            assert!(buffer[..n] == bytes[..n] && buffer[n..].iter().all(|byte| *byte == 0));
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }

    #[test]
    fn read_stops_at_end_of_file() {
        let file = temporary("end", b"short");
        assert!(read(&file, &mut [0; 100]) <= 5);
        assert_eq!(read(&file, &mut []), 0);
    }

    #[test]
    fn error_reads_zero_bytes() {
        let directory = File::open("/").unwrap();
        assert_eq!(read(&directory, &mut [0; 100]), 0);
    }
}
