//! The limit of the device: reads a whole file by io_uring and direct I/O with our loader's read size and queue depth, into
//! one reused buffer; what `fio --ioengine=io_uring --direct=1 --bs=2m --iodepth=16` does.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use io_uring::{IoUring, opcode, types};

use super::variants::{ProcessState, touched};

const QUEUE_DEPTH: u32 = 16;
const READ_SIZE: usize = 2 << 20;
const PAGE: usize = 4096;

pub fn load(state: &mut ProcessState, path: &str) -> u64 {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .unwrap();
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut buffer = state.pool.get(len.next_multiple_of(PAGE));
    let mut ring = IoUring::new(QUEUE_DEPTH).unwrap();
    let reads = len.div_ceil(READ_SIZE);
    let (mut next, mut done) = (0, 0);
    let mut push = |ring: &mut IoUring, number: usize| {
        let start = number * READ_SIZE;
        let part = &mut buffer[start..];
        let want = READ_SIZE.min(part.len());
        let read = opcode::Read::new(types::Fd(file.as_raw_fd()), part.as_mut_ptr(), want as u32)
            .offset(start as u64);
        // SAFETY: the loop below waits for every completion, so the buffer outlives each read, and reads do not overlap
        unsafe {
            ring.submission()
                .push(&read.build().user_data(number as u64))
                .unwrap()
        };
    };
    while done < reads {
        while next < reads && next - done < QUEUE_DEPTH as usize {
            push(&mut ring, next);
            next += 1;
        }
        ring.submit_and_wait(1).unwrap();
        let ended: Vec<_> = ring.completion().collect();
        for entry in ended {
            let start = entry.user_data() as usize * READ_SIZE;
            assert!(
                entry.result() as usize >= READ_SIZE.min(len - start),
                "{}",
                entry.result()
            );
            done += 1;
        }
    }
    touched(&buffer[..len])
}
