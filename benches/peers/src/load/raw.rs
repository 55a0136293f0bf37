//! The limit of the device: a whole file by io_uring and nothing else, in the shape of our loader. What `fio` does with
//! `--ioengine=io_uring --direct=1 --bs=2m --iodepth=16`, into one buffer that is kept.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use io_uring::{IoUring, opcode, types};

use super::variants::{Held, touched};

const DEPTH: u32 = 16;
const PIECE: usize = 2 << 20;
const PAGE: usize = 4096;

pub fn load(held: &mut Held, path: &str) -> u64 {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .unwrap();
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut buffer = held.pool.get(len.next_multiple_of(PAGE));
    let mut ring = IoUring::new(DEPTH).unwrap();
    let pieces = len.div_ceil(PIECE);
    let (mut next, mut done) = (0, 0);
    let mut push = |ring: &mut IoUring, piece: usize| {
        let start = piece * PIECE;
        let part = &mut buffer[start..];
        let want = PIECE.min(part.len());
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), part.as_mut_ptr(), want as u32)
            .offset(start as u64);
        // SAFETY: the part outlives the ring's use of it: the loop below waits for every read, and parts differ.
        unsafe {
            ring.submission()
                .push(&read.build().user_data(piece as u64))
                .unwrap()
        };
    };
    while done < pieces {
        while next < pieces && next - done < DEPTH as usize {
            push(&mut ring, next);
            next += 1;
        }
        ring.submit_and_wait(1).unwrap();
        let ended: Vec<_> = ring.completion().collect();
        for entry in ended {
            let start = entry.user_data() as usize * PIECE;
            assert!(
                entry.result() as usize >= PIECE.min(len - start),
                "{}",
                entry.result()
            );
            done += 1;
        }
    }
    touched(&buffer[..len])
}
