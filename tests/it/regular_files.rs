//! Files next to the one that is opened must be regular files: pipes, sockets, devices and endless files are refused by
//! name, at once.
#![cfg(target_os = "linux")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;
use crate::support::testing::ThreadTime;
use anamnesis::{Checkpoint, OpenOptions, remember};
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// Things that lie where a regular file is expected.
#[derive(Clone, Copy, Debug)]
enum Impostor {
    Fifo,
    Socket,
    Link(&'static str),
    Directory,
}

const IMPOSTORS: [Impostor; 8] = [
    Impostor::Fifo,
    Impostor::Socket,
    Impostor::Link("/dev/zero"),
    Impostor::Link("/dev/tty"),
    // regular files of length 0, whose reads wait or do not end
    Impostor::Link("/proc/kmsg"),
    Impostor::Link("/proc/self/mem"),
    Impostor::Link("/proc/self/maps"),
    Impostor::Directory,
];

/// Those that this process may open: a configuration that it may not read counts as absent.
fn impostors() -> impl Iterator<Item = Impostor> {
    let is_denied = |path: &str| {
        fs::File::open(path).is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
    };
    IMPOSTORS
        .into_iter()
        .filter(move |impostor| !matches!(impostor, Impostor::Link(to) if is_denied(to)))
}

impl Impostor {
    /// Replaces the file, and returns what must be kept meanwhile.
    fn replace(self, path: &Path) -> Option<UnixListener> {
        let _ = fs::remove_file(path);
        match self {
            Self::Fifo => {
                mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            }
            // the name of a socket has at most 108 bytes
            Self::Socket => {
                static SOCKETS: AtomicUsize = AtomicUsize::new(0);
                let number = SOCKETS.fetch_add(1, Ordering::Relaxed);
                let name = format!("anamnesis-{}-{number}", std::process::id());
                let short = std::env::temp_dir().join(name);
                let listener = UnixListener::bind(&short).unwrap();
                fs::rename(&short, path)
                    .or_else(|_| symlink(&short, path))
                    .unwrap();
                return Some(listener);
            }
            Self::Link(to) => symlink(to, path).unwrap(),
            Self::Directory => fs::create_dir(path).unwrap(),
        }
        None
    }
}

/// How long to wait for an operation that waits for a writer which never arrives.
const HANG: Duration = Duration::from_secs(60);

/// The most processor time of one operation.
const MOST_TIME: Duration = Duration::from_secs(2);

/// Runs an operation on a thread, which is left behind if it waits.
fn ends<T: Send + 'static>(place: &str, operation: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let began = ThreadTime::start();
        let result = operation();
        let _ = sender.send((result, began.elapsed()));
    });
    let (result, time) = receiver
        .recv_timeout(HANG)
        .unwrap_or_else(|_| panic!("{place}: hangs"));
    assert!(time < MOST_TIME, "{place}: {time:?}");
    result
}

/// A directory of fixtures, the file that is replaced, and the path that is opened.
type Case = (&'static str, &'static str, &'static str);

const CASES: &[Case] = &[
    (
        "safetensors/sharded",
        "model.safetensors.index.json",
        "model.safetensors.index.json",
    ),
    ("safetensors/sharded", "model.safetensors.index.json", ""),
    (
        "safetensors/sharded",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ),
    (
        "safetensors/sharded",
        "model-00001-of-00002.safetensors",
        "",
    ),
    (
        "gguf/split",
        "m-00002-of-00003.gguf",
        "m-00001-of-00003.gguf",
    ),
    ("gguf/split", "m-00003-of-00003.gguf", ""),
    ("model", "scribe.safetensors", ""),
];

fn copy(from: &Path, scratch: &ScratchDir) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            fs::copy(entry.path(), scratch.path("").join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn parts_of_a_checkpoint_are_regular_files() {
    for (number, impostor) in impostors().enumerate() {
        for (case, &(from, replaced, opened)) in CASES.iter().enumerate() {
            for map in [true, false] {
                let scratch = ScratchDir::new(&format!("impostor-{number}-{case}-{map}"));
                copy(&fixture(from), &scratch);
                let _kept = impostor.replace(&scratch.path(replaced));
                let place = format!("{impostor:?} as {replaced}, opened {opened:?}");
                let path = scratch.path(opened);
                let result = ends(&place, move || {
                    OpenOptions::new().mmap(map).open(path).map(drop)
                });
                // a directory with the name of the only checkpoint is not a file of it
                let Err(error) = result else {
                    assert!(matches!(impostor, Impostor::Directory), "{place}");
                    continue;
                };
                let text = format!("{:?} {error}", error.path());
                let is_named = text.contains(replaced);
                let is_missing = matches!(
                    impostor,
                    Impostor::Directory | Impostor::Link("/proc/self/fd")
                );
                assert!(is_named || is_missing, "{place}: {text}");
            }
        }
    }
}

#[test]
fn configurations_are_regular_files() {
    let gptq = fixture("quant/gptq/4bit_v1_zero_overflow");
    for (number, impostor) in impostors().enumerate() {
        for config in ["config.json", "quantize_config.json"] {
            let scratch = ScratchDir::new(&format!("configuration-{number}-{config}"));
            copy(&gptq, &scratch);
            // it is read before the files of other writers
            fs::remove_file(scratch.path("config.json")).unwrap();
            let _kept = impostor.replace(&scratch.path(config));
            let place = format!("{impostor:?} as {config}");
            let directory = scratch.path("");
            let (planned, summary) = ends(&place, move || {
                let checkpoint = Checkpoint::open(&directory).unwrap();
                let planned = remember(&checkpoint).plan().map(drop);
                (planned, checkpoint.inspect().unwrap())
            });
            // the tensors are listed, with a warning
            assert!(!summary.tensors.is_empty() && !summary.warnings.is_empty());
            let error = planned.expect_err(&place);
            let text = format!("{:?} {error}", error.path());
            assert!(text.contains(config), "{place}: {text}");
        }
    }
}

/// Only what the caller names is read as a stream.
#[test]
fn a_device_or_socket_that_the_caller_names_ends_in_an_error() {
    for path in ["/dev/zero", "/dev/null", "/proc/kmsg", "/proc/self/mem"] {
        for map in [true, false] {
            let opened = ends(path, move || OpenOptions::new().mmap(map).open(path));
            let error = opened.expect_err(path);
            assert_eq!(error.path().map(Path::as_os_str), Some(OsStr::new(path)));
        }
    }
    let scratch = ScratchDir::new("named-socket");
    let _kept = Impostor::Socket.replace(&scratch.path("s"));
    let path = scratch.path("s");
    assert!(ends("socket", move || Checkpoint::open(path)).is_err());
}
