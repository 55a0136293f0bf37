//! NPZ arrays read into new memory, zeroed before and not.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use anamnesis::{ByteRange, Checkpoint, OpenOptions, load};
use zeropool::BufferPool;

use super::{case, repeat};
use crate::load as loads;
use crate::make;
use crate::report::{Job, options::Options};

const NAME: &str = "npz-zeroing";
const VARIANTS: &[&str] = &[
    "ours: load into the pool",
    "ours: Tensor::bytes",
    "vec![0; n], read_exact",
    "resize(n, 0), read_exact",
    "with_capacity, take, read_to_end",
    "with_capacity, read into spare capacity",
    "limit: one buffer that is kept, read_exact",
];

pub fn jobs(_: &Options) -> Vec<Job> {
    vec![Job::new("autoencoder.npz", |options| {
        let file = make::file(options, "autoencoder.npz")?;
        let mut case = case(NAME, "autoencoder.npz", VARIANTS, &[&file], loads::read);
        case.limit = VARIANTS.last().copied();
        Ok(case)
    })]
}

pub fn one(variant: &str, args: &[&str]) -> Option<()> {
    let &[path] = args else { return None };
    let arrays: Vec<ByteRange> = Checkpoint::open(path)
        .ok()?
        .catalog()
        .tensors()
        .iter()
        .map(|t| t.bytes)
        .collect();
    let (pool, mut kept) = (BufferPool::new(), Vec::new());
    let read = |from: ByteRange, into: fn(&mut File, usize) -> Vec<u8>| {
        let mut file = File::open(path).expect("the file");
        file.seek(SeekFrom::Start(from.start))
            .expect("within the file");
        into(
            &mut file,
            usize::try_from(from.len).expect("it fits into memory"),
        )
    };
    let into: fn(&mut File, usize) -> Vec<u8> = match variant {
        "ours: load into the pool" => {
            repeat(5, || {
                let checkpoint = Checkpoint::open(path).expect("it opens");
                let loaded = load(&checkpoint)
                    .pool(&pool)
                    .own(true)
                    .run()
                    .expect("it loads");
                loaded
                    .tensors()
                    .iter()
                    .fold(0, |sum, t| sum.wrapping_add(loads::touched(t.bytes())))
            });
            return Some(());
        }
        "ours: Tensor::bytes" => {
            repeat(5, || {
                let checkpoint = OpenOptions::new().map(false).open(path).expect("it opens");
                let tensors = checkpoint.catalog().tensors().iter();
                let all: Vec<_> = tensors
                    .map(|t| {
                        checkpoint
                            .tensor(&t.name)
                            .expect("it is there")
                            .bytes()
                            .expect("it can be read")
                            .into_owned()
                    })
                    .collect();
                all.iter()
                    .fold(0, |sum: u64, bytes| sum.wrapping_add(loads::touched(bytes)))
            });
            return Some(());
        }
        "limit: one buffer that is kept, read_exact" => {
            repeat(5, || {
                arrays.iter().fold(0, |sum: u64, array| {
                    let len = usize::try_from(array.len).expect("it fits into memory");
                    if kept.len() < len {
                        kept.resize(len, 0);
                    }
                    let mut file = File::open(path).expect("the file");
                    file.seek(SeekFrom::Start(array.start))
                        .expect("within the file");
                    file.read_exact(&mut kept[..len]).expect("the array");
                    sum.wrapping_add(loads::touched(&kept[..len]))
                })
            });
            return Some(());
        }
        "vec![0; n], read_exact" => |file, n| {
            let mut bytes = vec![0; n];
            file.read_exact(&mut bytes).expect("the array");
            bytes
        },
        "resize(n, 0), read_exact" => |file, n| {
            #[expect(
                clippy::slow_vector_initialization,
                reason = "writing the zeros is what is measured"
            )]
            let mut bytes = Vec::with_capacity(n);
            bytes.resize(n, 0);
            file.read_exact(&mut bytes).expect("the array");
            bytes
        },
        "with_capacity, take, read_to_end" => |file, n| {
            let mut bytes = Vec::with_capacity(n);
            file.take(n as u64)
                .read_to_end(&mut bytes)
                .expect("the array");
            bytes
        },
        "with_capacity, read into spare capacity" => spare,
        _ => return None,
    };
    repeat(5, || {
        let all: Vec<Vec<u8>> = arrays.iter().map(|array| read(*array, into)).collect();
        all.iter()
            .fold(0, |sum: u64, bytes| sum.wrapping_add(loads::touched(bytes)))
    });
    Some(())
}

/// What a reader could do if memory that holds nothing could be lent to it.
fn spare(file: &mut File, n: usize) -> Vec<u8> {
    use std::os::fd::AsRawFd;
    let mut bytes: Vec<u8> = Vec::with_capacity(n);
    while bytes.len() < n {
        let at = bytes.len();
        let room = &mut bytes.spare_capacity_mut()[..n - at];
        // SAFETY: the room is this vector's own, so long, and bytes may be anything.
        let got = unsafe { libc::read(file.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
        let got = usize::try_from(got)
            .ok()
            .filter(|got| *got > 0)
            .expect("the array");
        // SAFETY: so many bytes behind `at` have just been written.
        unsafe { bytes.set_len(at + got) };
    }
    bytes
}
