//! Small files that the page cache may not have: looked for until they are there, not slept for.
//!
//! A thread that sleeps until the device has answered wakes late, on a core that was put to rest and whose caches have been
//! used by others: of 70 µs from `open` to a page of a good disk 15 are that, and parsing what was read takes twice its time
//! (experiment 48).

use std::fs::File;
use std::hint::spin_loop;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// How long it is looked. A device that takes longer is so slow that sleeping costs little beside it.
const LONG: Duration = Duration::from_micros(150);
/// Between two looks; a look takes about as long itself.
const PAUSES: usize = 20;

/// Reads from the file's beginning as much as comes soon: less than asked at its end, or where the rest has to be waited for.
pub(super) fn read(file: &File, buf: &mut [u8]) -> usize {
    let (mut done, mut began) = (0, None::<Instant>);
    while done < buf.len() {
        let mut rest = [IoSliceMut::new(&mut buf[done..])];
        match preadv2(file, &mut rest, done as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => match began {
                None => {
                    // newer systems have begun to read for the look itself
                    let _ = rustix::fs::fadvise(
                        file,
                        done as u64,
                        NonZeroU64::new(buf.len() as u64),
                        Advice::WillNeed,
                    );
                    began = Some(Instant::now());
                }
                Some(began) if began.elapsed() < LONG => (0..PAUSES).for_each(|_| spin_loop()),
                Some(_) => break,
            },
            // a file system that cannot be asked so
            Err(_) => break,
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A file with these bytes that has no name any more.
    fn written(name: &str, bytes: &[u8]) -> File {
        let path =
            std::env::temp_dir().join(format!("anamnesis-soon-{name}-{}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        fs::remove_file(path).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn what_comes_is_the_file_warm_and_cold() {
        let bytes: Vec<u8> = (0..=250).cycle().take(10_000).collect();
        let file = written("cold", &bytes);
        let mut whole = vec![0; bytes.len()];
        for _ in 0..20 {
            whole.fill(0);
            // from a slow device less may come, but nothing else
            let n = read(&file, &mut whole);
            assert!(whole[..n] == bytes[..n] && whole[n..].iter().all(|byte| *byte == 0));
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }

    #[test]
    fn it_ends_with_the_file() {
        let file = written("end", b"short");
        assert!(read(&file, &mut [0; 100]) <= 5);
        assert_eq!(read(&file, &mut []), 0);
    }

    #[test]
    fn what_cannot_be_read_is_left_to_who_asks_next() {
        let folder = File::open("/").unwrap();
        assert_eq!(read(&folder, &mut [0; 100]), 0);
    }
}
