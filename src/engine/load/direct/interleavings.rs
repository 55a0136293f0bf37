//! Threads whose direct reads a file system refuses, under thousands of thread schedules, explored with shuttle: each of them
//! repeats its read through the page cache, and one of them reports it.
//! `RUSTFLAGS="--cfg shuttle" cargo test --lib load::direct::models` (`.ci/prove`).
//!
//! The model was seen to fail with a flag that is set before the file is switched.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use shuttle::thread;

use super::*;
use crate::base::sync::explore;
use crate::engine::load::report::{Backend, DirectIo};

/// A read that the system refuses while the file is open for direct I/O.
fn read(file: &DirectFile) -> io::Result<()> {
    loop {
        let buffered = file.is_buffered();
        thread::sleep(Duration::ZERO); // runs another thread
        if !rustix::fs::fcntl_getfl(&file.file)?.contains(OFlags::DIRECT) {
            file.succeeded(buffered);
            return Ok(());
        }
        let refused = io::Error::from(rustix::io::Errno::INVAL);
        file.failed(buffered, refused)?;
    }
}

#[test]
fn each_thread_repeats_a_refused_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/model/scribe.safetensors");
    let plain = File::open(path).unwrap();
    if reopen(plain.as_fd(), OFlags::DIRECT).is_err() {
        return println!("SKIPPED: the file system of the fixtures has no direct I/O");
    }
    explore(1000, move || {
        let report = Arc::new(ReportBuilder::new(Backend::Threads, None));
        let file = DirectFile {
            file: reopen(plain.as_fd(), OFlags::DIRECT).unwrap(),
            buffered: AtomicBool::new(false),
            report: Arc::clone(&report),
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| read(&file).unwrap());
            }
        });
        let report = report.report();
        assert!(report.fallback.is_some());
        assert!(report.direct != DirectIo::All);
    });
}
