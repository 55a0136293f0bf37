//! Files next to the one that is opened must be regular files: pipes, devices and endless files are refused at once.
#![cfg(target_os = "linux")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anamnesis::{Checkpoint, Error, remember};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

/// Far more than any refusal takes, and far less than reading an endless file.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs `call` on another thread, and fails if it does not return.
fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(call()));
    receive.recv_timeout(TIMEOUT).expect("returns in time")
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Ways to put something else in the place of a regular file.
const PLACED: [(&str, fn(&Path)); 4] = [
    ("pipe", pipe),
    ("zero", |path| symlink("/dev/zero", path).unwrap()),
    ("directory", |path| std::fs::create_dir(path).unwrap()),
    // regular, of length 0, and not empty
    ("proc", |path| symlink("/proc/self/maps", path).unwrap()),
];

fn refusal(path: PathBuf) -> Error {
    in_time(move || Checkpoint::open(path).map(drop)).expect_err("is refused")
}

#[test]
fn an_index_is_a_regular_file() {
    for (name, place) in PLACED {
        let scratch = ScratchDir::new(&format!("regular-index-{name}"));
        let index = scratch.path("model.safetensors.index.json");
        place(&index);
        if name == "directory" {
            continue; // opened as a directory of files
        }
        let error = refusal(index);
        assert!(error.path().is_some(), "{name}: {error}");
    }
}

#[test]
fn a_file_that_an_index_names_is_a_regular_file() {
    for (name, place) in PLACED {
        let scratch = ScratchDir::new(&format!("regular-shard-{name}"));
        let index = scratch.path("model.safetensors.index.json");
        std::fs::write(&index, r#"{"weight_map":{"a":"a.safetensors"}}"#).unwrap();
        let shard = scratch.path("a.safetensors");
        place(&shard);
        let error = refusal(index);
        assert_eq!(error.path(), Some(&*shard), "{name}: {error}");
    }
}

#[test]
fn a_file_of_a_directory_is_a_regular_file() {
    for (name, place) in PLACED {
        let scratch = ScratchDir::new(&format!("regular-directory-{name}"));
        place(&scratch.path("model.safetensors"));
        refusal(scratch.path(""));
    }
}

#[test]
fn a_configuration_is_a_regular_file() {
    for (name, place) in PLACED {
        let scratch = ScratchDir::new(&format!("regular-config-{name}"));
        let model = scratch.path("model.safetensors");
        std::fs::copy(fixture("safetensors/all_dtypes.safetensors"), &model).unwrap();
        place(&scratch.path("config.json"));
        let (error, summary) = in_time(move || {
            let checkpoint = Checkpoint::open(model).unwrap();
            let error = remember(&checkpoint).plan().unwrap_err();
            (error, checkpoint.inspect().unwrap())
        });
        assert!(error.to_string().contains("config.json"), "{name}: {error}");
        // the tensors are listed, with a warning
        assert!(
            !summary.tensors.is_empty() && !summary.warnings.is_empty(),
            "{name}"
        );
    }
}
