//! Without io_uring the uring loader reads with threads. It is made unavailable by the limit of descriptors of the process.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use anamnesis::load::{Backend, DirectIo, UringLoader, load};
use anamnesis::{Checkpoint, OpenOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::in_own_process;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};

#[test]
fn the_uring_loader_falls_back_to_threads() {
    in_own_process!();
    let scratch = ScratchDir::new("no-io-uring");
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
    let default_limit = getrlimit(Resource::Nofile);
    // allows one more descriptor: for the file, and none for the ring
    let next_descriptor = u64::try_from(File::open(&path).unwrap().as_raw_fd()).unwrap();
    for (max_descriptors, direct) in [
        (Some(next_descriptor + 1), false),
        (Some(next_descriptor + 1), true),
        // a failure that passes is not remembered
        (default_limit.current, false),
    ] {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: max_descriptors,
                maximum: default_limit.maximum,
            },
        )
        .unwrap();
        let loaded = load(&checkpoint)
            .loader(UringLoader::new().direct(direct))
            .run();
        setrlimit(Resource::Nofile, default_limit).unwrap();
        let loaded = loaded.unwrap();
        assert_eq!(loaded.tensors()[0].bytes(), bytes);
        let report = loaded.report().unwrap();
        let reason = report.fallback.as_deref().unwrap_or_default();
        if max_descriptors == default_limit.current {
            assert!(
                report.backend == Backend::IoUring || reason.contains("not permitted"),
                "{report}"
            );
            continue;
        }
        assert!(
            report.backend == Backend::Threads && reason.contains("no io_uring"),
            "{report}"
        );
        assert!(direct || report.direct == DirectIo::No, "{report}");
    }
}
