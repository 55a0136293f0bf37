//! A sandbox that refuses the system calls of io_uring (seccomp), from the beginning or in the middle of a load. A load
//! ends in the right bytes, in bounded time.
//!
//! A filter holds for the rest of the process.

use std::time::Duration;

use anamnesis::OpenOptions;
use anamnesis::load::{Backend, IoReport, UringLoader, load};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter_all_threads};
use zeropool::BufferPool;

use crate::in_own_process;
use crate::support::scratch_dir::ScratchDir;
use crate::support::skip;
use crate::support::tensor_files::{large_tensors, tensor_bytes};

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Makes a system call fail with this error in all threads, until the process ends.
fn refuse(call: i64, errno: i32) {
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let refused = SeccompAction::Errno(errno.cast_unsigned());
    let rules = [(call, Vec::new())].into_iter().collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    apply_filter_all_threads(&program).unwrap();
}

/// Loads a file of 50 MB, calls `on_progress` at each report, and checks the bytes. `None`, and a line of output, if this
/// machine has no io_uring.
fn load_and_check(name: &str, direct: bool, mut on_progress: impl FnMut() + Send) -> IoReport {
    let scratch = ScratchDir::new(&format!("refused-{name}"));
    let path = scratch.path("in.safetensors");
    std::fs::write(&path, large_tensors()).unwrap();
    let checkpoint = OpenOptions::new().mmap(false).open(&path).unwrap();
    let expected = tensor_bytes(&checkpoint);
    let pool = BufferPool::new();
    let loaded = load(&checkpoint)
        .pool(&pool)
        .loader(UringLoader::new().request_size(64 << 10).direct(direct))
        .progress(|_| on_progress())
        .run()
        .unwrap();
    for (tensor, expected) in loaded.tensors().iter().zip(&expected) {
        assert!(tensor.bytes() == expected, "{name}: other bytes");
    }
    let report = loaded.report().unwrap().clone();
    drop(loaded);
    assert_eq!(pool.stats().in_use, 0, "{name}");
    report
}

fn setup_is_refused(errno: i32) {
    refuse(libc::SYS_io_uring_setup, errno);
    for direct in [false, true] {
        let report = load_and_check("setup", direct, || {});
        let why = report.fallback.as_deref().unwrap_or_default();
        assert!(
            report.backend == Backend::Threads && why.contains("no io_uring"),
            "{report}"
        );
    }
}

#[test]
fn a_setup_that_does_not_exist_falls_back_to_threads() {
    in_own_process!(TIME_LIMIT);
    setup_is_refused(libc::ENOSYS);
}

#[test]
fn a_setup_without_permission_falls_back_to_threads() {
    in_own_process!(TIME_LIMIT);
    setup_is_refused(libc::EPERM);
}

#[test]
fn a_setup_without_memory_falls_back_to_threads() {
    in_own_process!(TIME_LIMIT);
    setup_is_refused(libc::ENOMEM);
}

/// The ring exists, and the kernel accepts no submission. `late`: from the first bytes on, when reads are in flight.
fn submission_is_refused(errno: i32, late: bool, direct: bool) {
    if !late {
        refuse(libc::SYS_io_uring_enter, errno);
    }
    let mut is_refused = !late;
    let report = load_and_check("submission", direct, || {
        if !std::mem::replace(&mut is_refused, true) {
            refuse(libc::SYS_io_uring_enter, errno);
        }
    });
    if report.backend != Backend::IoUring {
        return skip("this machine has no io_uring");
    }
    let why = report.fallback.as_deref().unwrap_or_default();
    assert!(why.contains("one by one"), "{report}");
}

#[test]
fn a_submission_that_is_refused_is_read_without_the_ring() {
    in_own_process!(TIME_LIMIT);
    submission_is_refused(libc::EPERM, false, false);
    submission_is_refused(libc::EPERM, false, true);
}

#[test]
fn a_submission_without_memory_is_read_without_the_ring() {
    in_own_process!(TIME_LIMIT);
    submission_is_refused(libc::ENOMEM, false, false);
}

#[test]
fn a_submission_that_is_refused_in_the_middle_is_read_without_the_ring() {
    in_own_process!(TIME_LIMIT);
    submission_is_refused(libc::EPERM, true, false);
}

#[test]
fn a_direct_submission_that_is_refused_in_the_middle_is_read_without_the_ring() {
    in_own_process!(TIME_LIMIT);
    submission_is_refused(libc::ENOSYS, true, true);
}

#[test]
fn a_submission_that_is_interrupted_without_end_is_read_without_the_ring() {
    in_own_process!(TIME_LIMIT);
    submission_is_refused(libc::EINTR, true, false);
}
