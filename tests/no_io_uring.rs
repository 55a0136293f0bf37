//! A machine that gives no ring. A process of its own, as the limit is on all of it and is remembered.
#![cfg(all(target_os = "linux", feature = "uring"))]

mod support;

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use anamnesis::load::{Backend, DirectIo, UringLoader, load};
use anamnesis::{Checkpoint, OpenOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::random::random_bytes;
use support::scratch_dir::ScratchDir;
use support::writers::{StoredTensor, safetensors};

#[test]
fn threads_read_instead_and_say_so() {
    let scratch = ScratchDir::new("no-ring");
    let path = scratch.path("in.safetensors");
    let bytes = random_bytes(1, 3_000_001);
    fs::write(
        &path,
        safetensors(
            &[StoredTensor::new("t", "U8", &[3_000_001], bytes.clone())],
            &[],
        ),
    )
    .unwrap();
    let checkpoint: Checkpoint = OpenOptions::new().mmap(false).open(&path).unwrap();
    let before = getrlimit(Resource::Nofile);
    // one more descriptor: for the file, and none for the ring
    let next = u64::try_from(File::open(&path).unwrap().as_raw_fd()).unwrap();
    for (most, direct) in [
        (Some(next + 1), false),
        (before.current, false),
        (before.current, true),
    ] {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: most,
                maximum: before.maximum,
            },
        )
        .unwrap();
        let loaded = load(&checkpoint)
            .loader(UringLoader::new().direct(direct))
            .run();
        setrlimit(Resource::Nofile, before).unwrap();
        let loaded = loaded.unwrap();
        assert_eq!(loaded.tensors()[0].bytes(), bytes);
        let way = loaded.report().unwrap();
        let said = way.fallback.as_deref().unwrap_or_default();
        assert!(
            way.backend == Backend::Threads && said.contains("no io_uring"),
            "{way}"
        );
        assert!(direct || way.direct == DirectIo::No, "{way}");
    }
}
