//! Loaders, readers and sinks over a file system that fails (FUSE). Each run ends in the right bytes or in one error with file
//! and offset, in bounded time; its buffers are in the pool, its threads have ended, and no half-written output is left.
//!
//! The threads of the process are counted.

use std::fmt::Debug;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anamnesis::load::{DirectIo, IoReport, Loader, MmapLoader, PreadLoader, RecordingLoader, load};
use anamnesis::{CancelToken, Checkpoint, Error, ErrorKind, OpenOptions, Result, remember};
use zeropool::BufferPool;

use crate::in_own_process;
use crate::support::faulty_files::{FaultyFiles, FileCall, Outcome};
use crate::support::scratch_dir::ScratchDir;
use crate::support::tensor_files::odd_sized_tensors;
use crate::support::{fixture, sha256, skip};

/// Time for one run, on a machine that does other work too.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// A mounted file system.
struct Disk {
    files: FaultyFiles,
    _scratch: ScratchDir,
}

fn disk(name: &str) -> Option<Disk> {
    let scratch = ScratchDir::new(name);
    match FaultyFiles::mount(scratch.dir()) {
        Ok(files) => Some(Disk {
            files,
            _scratch: scratch,
        }),
        Err(error) => {
            skip(&format!("{name}: no FUSE file system: {error}"));
            None
        }
    }
}

/// Calls a function on another thread, and panics if it takes too long.
fn in_time<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || sender.send(run()));
    match receiver.recv_timeout(TIME_LIMIT) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: no end after {TIME_LIMIT:?}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
    }
}

/// The threads of loaders in this process, by name.
fn loader_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names
        .map(|name| name.trim_end().to_owned())
        .filter(|name| name.starts_with("pread-") || name == "io_uring" || name == "load")
        .collect()
}

fn assert_no_thread_is_left(what: &str) {
    let begun = Instant::now();
    // the system lists a thread for a moment after it was joined
    while !loader_threads().is_empty() {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{what}: {:?}",
            loader_threads()
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Every loader that reads, with requests of 64 KiB.
fn loaders() -> Vec<(&'static str, Arc<dyn Loader>)> {
    const SIZE: usize = 64 << 10;
    let pread = |threads| PreadLoader::new().threads(threads).request_size(SIZE);
    let all: Vec<(&'static str, Arc<dyn Loader>)> = vec![
        ("one thread", Arc::new(pread(1))),
        ("three threads", Arc::new(pread(3))),
        ("direct", Arc::new(pread(2).direct(true))),
        ("recorded", Arc::new(RecordingLoader::new(pread(2)))),
        ("not mapped", Arc::new(MmapLoader::new())),
    ];
    #[cfg(feature = "uring")]
    let all = {
        use anamnesis::load::UringLoader;
        let ring = |depth| UringLoader::new().depth(depth).request_size(SIZE);
        let rings: [(&'static str, Arc<dyn Loader>); 3] = [
            ("io_uring", Arc::new(ring(8).threads(3))),
            ("io_uring, one read", Arc::new(ring(1))),
            ("io_uring, direct", Arc::new(ring(4).direct(true))),
        ];
        all.into_iter().chain(rings).collect()
    };
    all
}

/// Loads every other tensor, so that there are several extents, or all of them.
fn load_tensors(
    checkpoint: &Checkpoint,
    loader: Arc<dyn Loader>,
    all: bool,
) -> Result<(Vec<Vec<u8>>, Option<IoReport>)> {
    let pool = BufferPool::new();
    let is_wanted = move |name: &str| all || name.ends_with(['0', '2', '4', '6', '8']);
    let loaded = load(checkpoint)
        .pool(&pool)
        .loader(loader)
        .filter(is_wanted)
        .run();
    let result = loaded.map(|loaded| {
        let bytes = loaded
            .tensors()
            .iter()
            .map(|tensor| tensor.bytes().to_vec());
        (bytes.collect(), loaded.report().cloned())
    });
    assert_eq!(pool.stats().in_use, 0, "buffers are not in the pool");
    result
}

/// How a run must end.
#[derive(Clone, Copy, Debug)]
enum Expected {
    Bytes,
    /// An error of the system, by number.
    Error(i32),
    /// The right bytes, or this error.
    Either(i32),
    /// An error of this kind, made by the library.
    Kind(std::io::ErrorKind),
}

/// Checks an error: one of input and output, with file and offset.
fn check_error(what: &str, error: &Error, path: &Path) -> std::io::ErrorKind {
    let ErrorKind::Io(io) = error.kind() else {
        panic!("{what}: {error}")
    };
    assert_eq!(error.path(), Some(path), "{what}: {error}");
    assert!(error.offset().is_some(), "{what}: {error}");
    io.kind()
}

fn check<T: PartialEq + Debug>(
    what: &str,
    result: Result<T>,
    bytes: &T,
    path: &Path,
    expected: Expected,
) {
    let code = |error: &Error| match error.kind() {
        ErrorKind::Io(io) => io.raw_os_error(),
        _ => None,
    };
    match (result, expected) {
        (Ok(found), Expected::Bytes | Expected::Either(_)) => {
            assert!(&found == bytes, "{what}: other bytes");
        }
        (Err(error), Expected::Error(expected) | Expected::Either(expected)) => {
            check_error(what, &error, path);
            assert_eq!(code(&error), Some(expected), "{what}: {error}");
        }
        (Err(error), Expected::Kind(kind)) => {
            assert_eq!(check_error(what, &error, path), kind, "{what}: {error}");
        }
        (Ok(_), _) => panic!("{what}: no error"),
        (Err(error), Expected::Bytes) => panic!("{what}: {error}"),
    }
}

type Faults = fn(FileCall) -> Outcome;

fn on_read(call: FileCall, outcome: impl FnOnce(u64, u64, usize) -> Option<Outcome>) -> Outcome {
    match call {
        FileCall::Read { number, start, len } => outcome(number, start, len),
        _ => None,
    }
    .unwrap_or(Outcome::Success)
}

/// In the middle of a tensor, and of a request.
const BAD_OFFSET: u64 = 550_123;

fn eio_at_number<const NUMBER: u64>(call: FileCall) -> Outcome {
    on_read(call, |number, _, _| {
        (number == NUMBER).then_some(Outcome::Error(libc::EIO))
    })
}

fn eio_at_offset(call: FileCall) -> Outcome {
    on_read(call, |_, start, len| {
        (start..start + len as u64)
            .contains(&BAD_OFFSET)
            .then_some(Outcome::Error(libc::EIO))
    })
}

fn eio_from_the_third_read_on(call: FileCall) -> Outcome {
    on_read(call, |number, _, _| {
        (number >= 2).then_some(Outcome::Error(libc::EIO))
    })
}

fn ends_at_page_borders(call: FileCall) -> Outcome {
    on_read(call, |_, start, _| {
        Some(Outcome::AtMost(
            4096 - usize::try_from(start % 4096).unwrap(),
        ))
    })
}

fn ends_after_odd_lengths(call: FileCall) -> Outcome {
    on_read(call, |number, _, _| {
        Some(Outcome::AtMost(
            1 + 7919 * usize::try_from(number % 3).unwrap(),
        ))
    })
}

fn interrupted_now_and_then(call: FileCall) -> Outcome {
    on_read(call, |number, _, _| {
        (number % 3 != 2).then_some(Outcome::Error(libc::EINTR))
    })
}

fn interrupted_without_end(call: FileCall) -> Outcome {
    on_read(call, |_, _, _| Some(Outcome::Error(libc::EINTR)))
}

fn would_block(call: FileCall) -> Outcome {
    on_read(call, |_, _, _| Some(Outcome::Error(libc::EAGAIN)))
}

fn delayed(call: FileCall) -> Outcome {
    on_read(call, |number, _, _| {
        thread::sleep(Duration::from_millis(number % 4));
        None
    })
}

fn direct_open_is_refused(call: FileCall) -> Outcome {
    match call {
        FileCall::Open { direct: true } => Outcome::Error(libc::EINVAL),
        _ => Outcome::Success,
    }
}

fn third_read_is_invalid(call: FileCall) -> Outcome {
    on_read(call, |number, _, _| {
        (number == 2).then_some(Outcome::Error(libc::EINVAL))
    })
}

/// The faults of reads: name, faults, and how a run ends if the results of calls are the system calls' own, and if the page
/// cache is between (`None`: not tested, as the kernel takes a short result for the end of the file).
static READ_FAULTS: &[(&str, Faults, Expected, Option<Expected>)] = {
    use Expected::{Bytes, Either, Error, Kind};
    &[
        ("no fault", |_| Outcome::Success, Bytes, Some(Bytes)),
        (
            "EIO at the first read",
            eio_at_number::<0>,
            Error(libc::EIO),
            Some(Either(libc::EIO)),
        ),
        (
            "EIO at the second read",
            eio_at_number::<1>,
            Error(libc::EIO),
            Some(Either(libc::EIO)),
        ),
        (
            "EIO at the sixth read",
            eio_at_number::<5>,
            Error(libc::EIO),
            Some(Either(libc::EIO)),
        ),
        (
            "EIO from the third read on",
            eio_from_the_third_read_on,
            Error(libc::EIO),
            Some(Either(libc::EIO)),
        ),
        (
            "EIO at an offset",
            eio_at_offset,
            Error(libc::EIO),
            Some(Error(libc::EIO)),
        ),
        ("short at page borders", ends_at_page_borders, Bytes, None),
        ("short, odd lengths", ends_after_odd_lengths, Bytes, None),
        (
            "EINTR now and then",
            interrupted_now_and_then,
            Bytes,
            Some(Bytes),
        ),
        (
            "EINTR without end",
            interrupted_without_end,
            Kind(std::io::ErrorKind::Other),
            None,
        ),
        (
            "EAGAIN",
            would_block,
            Error(libc::EAGAIN),
            Some(Error(libc::EAGAIN)),
        ),
        ("delayed", delayed, Bytes, Some(Bytes)),
        (
            "direct open refused",
            direct_open_is_refused,
            Bytes,
            Some(Bytes),
        ),
    ]
};

#[test]
fn loads_end_in_the_right_bytes_or_in_one_error() {
    in_own_process!();
    let Some(disk) = disk("load-faults") else {
        return;
    };
    let file = odd_sized_tensors(14, 100_000);
    let path = disk.files.path("in.safetensors");
    let memory = Checkpoint::from_bytes(file.clone()).unwrap();
    let expected = [false, true].map(|all| {
        load_tensors(&memory, Arc::new(PreadLoader::new()), all)
            .unwrap()
            .0
    });
    disk.files.write("in.safetensors", file);
    for (name, faults, uncached, cached) in READ_FAULTS {
        for (use_page_cache, outcome) in [(false, Some(*uncached)), (true, *cached)] {
            let Some(outcome) = outcome else { continue };
            for (loader_name, loader) in loaders() {
                for (all, bytes) in [false, true].iter().zip(&expected) {
                    // 65 536 calls for each thread
                    if *all && *name == "EINTR without end" {
                        continue;
                    }
                    let what = format!("{name}, cached {use_page_cache}, {loader_name}, all {all}");
                    disk.files.succeed();
                    disk.files.use_page_cache(use_page_cache);
                    let checkpoint = OpenOptions::new().mmap(false).open(&path).unwrap();
                    disk.files.fail(faults);
                    let (loader, all) = (loader.clone(), *all);
                    let result = in_time(&what, move || load_tensors(&checkpoint, loader, all));
                    if let (Ok((_, Some(report))), true) = (&result, loader_name.contains("direct"))
                    {
                        let refused = *name == "direct open refused";
                        let buffered = report.fallback.is_some() && report.direct == DirectIo::No;
                        assert!(
                            buffered == refused || loader_name.contains("io_uring"),
                            "{what}: {report}"
                        );
                    }
                    let outcome = match outcome {
                        // the kernel's own reads ahead, which are advised for a mapped file, count too, and fail unseen
                        Expected::Error(code) if loader_name == "not mapped" => {
                            Expected::Either(code)
                        }
                        outcome => outcome,
                    };
                    check(&what, result.map(|(bytes, _)| bytes), bytes, &path, outcome);
                    assert_no_thread_is_left(&what);
                }
            }
        }
    }
}

/// `EINVAL` of a direct read means that the file system refuses such reads: the rest is read without.
#[test]
fn an_invalid_direct_read_is_repeated_through_the_page_cache() {
    in_own_process!();
    let Some(disk) = disk("invalid-reads") else {
        return;
    };
    let file = odd_sized_tensors(14, 100_000);
    let path = disk.files.path("in.safetensors");
    let memory = Checkpoint::from_bytes(file.clone()).unwrap();
    let (expected, _) = load_tensors(&memory, Arc::new(PreadLoader::new()), true).unwrap();
    disk.files.write("in.safetensors", file);
    disk.files.use_page_cache(false);
    for (name, loader) in loaders() {
        disk.files.succeed();
        let checkpoint = OpenOptions::new().mmap(false).open(&path).unwrap();
        disk.files.fail(third_read_is_invalid);
        let result = in_time(name, move || load_tensors(&checkpoint, loader, true));
        if !name.contains("direct") {
            check(
                name,
                result.map(|(bytes, _)| bytes),
                &expected,
                &path,
                // the kernel's own reads ahead, which are advised for a mapped file, count too, and fail unseen
                Expected::Either(libc::EINVAL),
            );
            continue;
        }
        let (bytes, report) = result.unwrap();
        assert!(bytes == expected, "{name}");
        let report = report.unwrap();
        assert!(report.fallback.is_some(), "{name}: {report}");
        assert!(report.direct != DirectIo::All, "{name}: {report}");
    }
}

#[test]
fn a_file_that_becomes_shorter_is_an_error_with_its_offset() {
    in_own_process!();
    let Some(disk) = disk("shorter") else {
        return;
    };
    let file = odd_sized_tensors(14, 100_000);
    let path = disk.files.path("in.safetensors");
    disk.files.use_page_cache(false);
    for (name, loader) in loaders() {
        for len in [600_001, 4096 * 100, file.len() - 1] {
            disk.files.write("in.safetensors", file.clone());
            disk.files.succeed();
            let checkpoint = OpenOptions::new().mmap(false).open(&path).unwrap();
            disk.files.truncate("in.safetensors", len);
            let (what, loader) = (format!("{name}, {len} bytes"), loader.clone());
            let result = in_time(&what, move || load_tensors(&checkpoint, loader, true));
            let Err(error) = result else {
                panic!("{what}: no error")
            };
            assert_eq!(
                check_error(&what, &error, &path),
                std::io::ErrorKind::UnexpectedEof,
                "{what}: {error}"
            );
            // one of several threads may find it behind the end
            assert!(error.offset() < Some(file.len() as u64), "{what}: {error}");
            assert_no_thread_is_left(&what);
        }
    }
}

#[test]
fn a_load_of_slow_reads_is_cancelled() {
    in_own_process!();
    let Some(disk) = disk("slow") else {
        return;
    };
    let path = disk.files.path("in.safetensors");
    disk.files
        .write("in.safetensors", odd_sized_tensors(40, 100_000));
    disk.files.use_page_cache(false);
    for (name, loader) in loaders() {
        disk.files.succeed();
        let checkpoint = OpenOptions::new().mmap(false).open(&path).unwrap();
        disk.files.fail(|call| {
            on_read(call, |_, _, _| {
                thread::sleep(Duration::from_millis(40));
                None
            })
        });
        let error = in_time(name, move || {
            let (pool, token) = (BufferPool::new(), CancelToken::new());
            let load = load(&checkpoint).pool(&pool).loader(loader).cancel(&token);
            let result = load.progress(|_| token.cancel()).run();
            assert_eq!(pool.stats().in_use, 0);
            result.unwrap_err()
        });
        assert!(
            matches!(error.kind(), ErrorKind::Cancelled),
            "{name}: {error}"
        );
        assert_no_thread_is_left(name);
        let reads = disk.files.reads();
        assert!(reads < 45, "{name}: {reads} reads after the cancel");
    }
}

/// The readers of tensors, and of `remember`: quantised blocks, plain tensors and checksums of members.
#[test]
fn tensors_and_outputs_of_failing_files_are_right_or_errors() {
    in_own_process!();
    let Some(disk) = disk("reader-faults") else {
        return;
    };
    let out = ScratchDir::new("reader-faults-out");
    for name in [
        "model/scribe-Q8_0.gguf",
        "pth/many.pth",
        "model/scribe.safetensors",
    ] {
        let source = fixture(name);
        let expected = Checkpoint::open(&source).unwrap();
        let hashes: Vec<String> = expected.tensors().map(|t| sha256(&t).unwrap()).collect();
        remember(&expected).to_file(out.path("expected")).unwrap();
        let output = std::fs::read(out.path("expected")).unwrap();
        std::fs::remove_file(out.path("expected")).unwrap();
        let file_name = source.file_name().unwrap().to_str().unwrap();
        disk.files.write(file_name, std::fs::read(&source).unwrap());
        let path = disk.files.path(file_name);
        for (fault, faults, uncached, cached) in READ_FAULTS {
            for (use_page_cache, outcome) in [(false, Some(*uncached)), (true, *cached)] {
                let Some(outcome) = outcome else { continue };
                let what = format!("{name}, {fault}, cached {use_page_cache}");
                // the file is shorter than the offset, and may have fewer reads
                let outcome = match outcome {
                    Expected::Error(code) => Expected::Either(code),
                    outcome => outcome,
                };
                let open = || {
                    disk.files.succeed();
                    disk.files.use_page_cache(use_page_cache);
                    OpenOptions::new().mmap(false).open(&path).unwrap()
                };
                let checkpoint = open();
                disk.files.fail(faults);
                let result = in_time(&what, move || {
                    checkpoint
                        .tensors()
                        .map(|t| sha256(&t))
                        .collect::<Result<Vec<_>>>()
                });
                check(&what, result, &hashes, &path, outcome);
                let (checkpoint, target) = (open(), out.path("out.safetensors"));
                disk.files.fail(faults);
                let to = target.clone();
                let result = in_time(&what, move || remember(&checkpoint).threads(2).to_file(&to));
                let written = result.map(|()| std::fs::read(&target).unwrap());
                let is_written = written.is_ok();
                check(&what, written, &output, &path, outcome);
                let names: &[&str] = if is_written {
                    &["out.safetensors"]
                } else {
                    &[]
                };
                assert_eq!(out.names(), names, "{what}");
                let _ = std::fs::remove_file(&target);
            }
        }
    }
}

/// Which calls of an output fail, by number; each with these errors.
fn output_faults() -> Vec<(&'static str, u64, i32)> {
    let mut faults = Vec::new();
    for kind in ["write", "sync", "sync directory", "create", "rename"] {
        for number in [0, 1, 2, 3, 5, 9] {
            faults.push((kind, number, libc::EIO));
            faults.push((kind, number, libc::ENOSPC));
        }
    }
    faults
}

fn fails(call: FileCall, kind: &str, at: u64) -> bool {
    match call {
        FileCall::Write { number, .. } => kind == "write" && number == at,
        FileCall::Sync { number } => kind == "sync" && number == at,
        FileCall::SyncDirectory { number } => kind == "sync directory" && number == at,
        FileCall::Create { number } => kind == "create" && number == at,
        FileCall::Rename { number } => kind == "rename" && number == at,
        FileCall::Open { .. } | FileCall::Read { .. } => false,
    }
}

#[test]
fn outputs_to_a_failing_disk_are_complete_or_absent() {
    in_own_process!();
    let Some(disk) = disk("output-faults") else {
        return;
    };
    let run = |source: &str, target: PathBuf, shard: Option<u64>, overwrite: bool| {
        let source = fixture(source);
        in_time("an output", move || {
            let checkpoint = Checkpoint::open(source).unwrap();
            let remember = remember(&checkpoint).overwrite(overwrite);
            match shard {
                Some(size) => remember.to_dir(target, size),
                None => remember.to_file(target),
            }
        })
    };
    // names differ between runs of shards, whose generation is in them
    let checkpoint_bytes = |path: &Path| {
        let checkpoint = OpenOptions::new().mmap(false).open(path).ok()?;
        let hash = |t: anamnesis::Tensor<'_>| Some((t.info().name.to_string(), sha256(&t).ok()?));
        let mut found = checkpoint.tensors().map(hash).collect::<Option<Vec<_>>>()?;
        found.sort();
        Some(found)
    };
    let (old, new) = ("model/scribe.safetensors", "model/scribe-Q8_0.gguf");
    run(new, disk.files.path("out"), None, false).unwrap();
    let expected = checkpoint_bytes(&disk.files.path("out"));
    assert!(expected.is_some());
    let mut failures = 0;
    for shard in [None, Some(60 << 10)] {
        for overwrite in [false, true] {
            for use_page_cache in [true, false] {
                disk.files.use_page_cache(use_page_cache);
                for (kind, number, code) in output_faults() {
                    let what =
                        format!("{kind} {number}: {code}, shards {shard:?}, overwrite {overwrite}");
                    disk.files.succeed();
                    disk.files.clear();
                    let target = disk.files.path("out");
                    if overwrite {
                        run(old, target.clone(), shard, false).unwrap();
                    }
                    let before = disk.files.content();
                    disk.files.fail(move |call| {
                        if fails(call, kind, number) {
                            Outcome::Error(code)
                        } else {
                            Outcome::Success
                        }
                    });
                    let result = run(new, target.clone(), shard, overwrite);
                    disk.files.succeed();
                    let after = disk.files.content();
                    let is_part = |(name, _): &(String, _)| name.contains(".part");
                    assert!(!after.iter().any(is_part), "{what}: {after:?}");
                    if let Err(error) = &result {
                        failures += 1;
                        let ErrorKind::Io(io) = error.kind() else {
                            panic!("{what}: {error}")
                        };
                        assert_eq!(io.raw_os_error(), Some(code), "{what}: {error}");
                        let root = disk.files.path("");
                        assert!(
                            error.path().is_some_and(|path| path.starts_with(&root)),
                            "{what}: {error}"
                        );
                    }
                    if after != before {
                        // the new one, complete
                        assert!(checkpoint_bytes(&target) == expected, "{what}: {result:?}");
                    } else {
                        assert!(result.is_err(), "{what}");
                    }
                }
            }
        }
    }
    assert!(failures > 100, "only {failures} runs failed");
}

/// The configuration changes with the tensors: the directory is exchanged for a new one.
#[test]
fn an_exchange_on_a_failing_disk_leaves_the_old_checkpoint_or_the_new_one() {
    in_own_process!();
    let Some(disk) = disk("exchange-faults") else {
        return;
    };
    let sources = ScratchDir::new("exchange-sources");
    for (name, file) in [
        ("old", "model/scribe.safetensors"),
        ("new", "model/scribe-Q8_0.gguf"),
    ] {
        let directory = sources.path(name);
        std::fs::create_dir(&directory).unwrap();
        let checkpoint = Checkpoint::open(fixture(file)).unwrap();
        let copy = directory.join("model.safetensors");
        remember(&checkpoint).to_file(copy).unwrap();
        let config = format!("{{\"name\": \"{name}\"}}");
        std::fs::write(directory.join("config.json"), config).unwrap();
    }
    let target = disk.files.path("out");
    let run = |source: &str| {
        let (source, target) = (sources.path(source), target.clone());
        in_time("an output", move || {
            let checkpoint = Checkpoint::open(source).unwrap();
            let remember = remember(&checkpoint).overwrite(true);
            remember.to_dir(target, 60 << 10)
        })
    };
    // the text of the configuration, and the hash of each tensor
    let found = || {
        let checkpoint = OpenOptions::new().mmap(false).open(&target).unwrap();
        let hash = |t: anamnesis::Tensor<'_>| (t.info().name.to_string(), sha256(&t).unwrap());
        let mut found: Vec<_> = checkpoint.tensors().map(hash).collect();
        found.sort();
        let config = std::fs::read_to_string(target.join("config.json")).unwrap();
        (config, found)
    };
    let [(old, old_inode), (new, new_inode)] = ["old", "new"].map(|source| {
        run(source).unwrap();
        (found(), std::fs::metadata(&target).unwrap().ino())
    });
    assert!(old.0.contains("old") && new.0.contains("new"));
    assert_ne!(old_inode, new_inode, "no exchange");
    let has_part = || {
        let content = disk.files.content();
        content.iter().any(|(name, _)| name.contains(".part"))
    };
    let (mut before_commit, mut after_commit) = (0, 0);
    for kind in ["write", "sync", "sync directory", "create", "rename"] {
        for number in 0..16 {
            let what = format!("{kind} {number}");
            disk.files.succeed();
            disk.files.clear();
            run("old").unwrap();
            let before = disk.files.content();
            disk.files.fail(move |call| {
                if fails(call, kind, number) {
                    Outcome::Error(libc::EIO)
                } else {
                    Outcome::Success
                }
            });
            let result = run("new");
            disk.files.succeed();
            match (disk.files.content() == before, result) {
                (true, Err(_)) => before_commit += 1,
                (false, Err(_)) => {
                    after_commit += 1;
                    assert_eq!(found(), new, "{what}");
                }
                (false, Ok(())) => {
                    assert_eq!(found(), new, "{what}");
                    assert!(!has_part(), "{what}");
                }
                (true, Ok(())) => panic!("{what}: nothing was written"),
            }
            run("new").unwrap();
            assert_eq!(found(), new, "{what}");
            assert!(!has_part(), "{what}");
        }
    }
    assert!(before_commit > 20, "{before_commit}");
    assert!(after_commit > 1, "{after_commit}");
}

/// Writes that transfer less than their bytes, and interrupted ones, are continued.
#[test]
fn short_and_interrupted_writes_are_continued() {
    in_own_process!();
    let Some(disk) = disk("short-writes") else {
        return;
    };
    let checkpoint = Checkpoint::open(fixture("model/scribe-Q8_0.gguf")).unwrap();
    let expected = ScratchDir::new("short-writes-expected");
    remember(&checkpoint).to_file(expected.path("out")).unwrap();
    disk.files.use_page_cache(false);
    disk.files.fail(|call| match call {
        FileCall::Write { number, .. } if number % 3 == 0 => Outcome::Error(libc::EINTR),
        FileCall::Write { number, .. } => {
            Outcome::AtMost(1 + usize::try_from(number % 5000).unwrap())
        }
        _ => Outcome::Success,
    });
    let target = disk.files.path("out");
    in_time("short writes", move || {
        let checkpoint = Checkpoint::open(fixture("model/scribe-Q8_0.gguf")).unwrap();
        remember(&checkpoint).to_file(target).unwrap();
    });
    let written = disk.files.content().remove(1);
    assert_eq!(
        written.1,
        Some(std::fs::read(expected.path("out")).unwrap())
    );
}
