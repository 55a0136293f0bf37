//! Files that are replaced, truncated, removed or extended while they are loaded: the load reads the same bytes as without a
//! runtime, and the kernel alone manages the page cache of files that are not the template's any more.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::model::{RandomModel, fill, wait_until};
use crate::page_cache::evict_file;
use crate::process::path_str;
use crate::runtime_process::RuntimeProcess;

/// Changes of a file.
const CHANGES: [&str; 4] = ["replaced", "truncated", "removed", "extended"];

fn change(how: &str, path: &Path, len: u64) {
    let resize = |len| {
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(len).unwrap();
    };
    match how {
        "replaced" => {
            let other = path.with_extension("other");
            fs::write(&other, vec![7; usize::try_from(len).unwrap()]).unwrap();
            fill(&other, 0, 99);
            fs::rename(other, path).unwrap();
        }
        "truncated" => resize(len / 2),
        "removed" => fs::remove_file(path).unwrap(),
        _ => resize(2 * len),
    }
}

/// All bytes of an open file from an offset on, read in small calls.
fn read_from(file: &File, mut at: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = file.read_at(&mut piece, at).unwrap();
        if read == 0 {
            return bytes;
        }
        bytes.extend_from_slice(&piece[..read]);
        at += read as u64;
    }
}

/// The bytes that a load has read: the first half of an open file, then what is left of it after the change, and the file that
/// has its name then.
type LoadedBytes = [Vec<u8>; 3];

fn load_and_change(how: &str, path: &Path) -> LoadedBytes {
    let file = File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let mut first = vec![0; usize::try_from(len / 4).unwrap()];
    file.read_exact_at(&mut first, 0).unwrap();
    change(how, path, len);
    let rest = read_from(&file, len / 4);
    let named = File::open(path).map_or_else(|_| Vec::new(), |named| read_from(&named, 0));
    [first, rest, named]
}

#[test]
fn files_changed_during_a_load_are_read_as_without_a_runtime() {
    let Some(model) = RandomModel::new(6) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let template = model.template(scratch.path());
    let original = fs::read(model.path(0)).unwrap();
    let restore = || {
        fs::write(model.path(0), &original).unwrap();
        evict_file(&model.path(0));
    };
    for how in CHANGES {
        restore();
        let expected = load_and_change(how, &model.path(0));
        for policy in ["eager".to_owned(), format!("maio:{}", template.display())] {
            restore();
            model.evict();
            // slow, so that the file changes while it is prefetched
            let args = ["--dir", path_str(&model.root), "--policy", &policy];
            let mut runtime =
                RuntimeProcess::start(&[&args[..], &["--bandwidth", "100MB"]].concat());
            let loaded = load_and_change(how, &model.path(0));
            assert!(loaded == expected, "{how}, {policy}: other bytes");
            let status = runtime.wait_for("a miss", |status| {
                status["events"]["misses"].as_u64().unwrap() > 0
            });
            assert!(
                status["policies"][0]["failure"].is_null(),
                "{how}, {policy}: {status}"
            );
            // the runtime goes on with the files that are as they were
            wait_until("prefetched file that has not changed", || {
                let path = model.path(1);
                let len = fs::metadata(&path).unwrap().len();
                crate::page_cache::resident(&path) >= len / 100 * 99
                    || policy.starts_with("maio") && is_stale(&runtime)
            });
            runtime.signal(rustix::process::Signal::TERM);
            assert_eq!(runtime.0.wait().unwrap().code(), Some(0), "{how}, {policy}");
            let mut printed = String::new();
            let mut errors = runtime.0.stderr.take().unwrap();
            std::io::Read::read_to_string(&mut errors, &mut printed).unwrap();
            assert!(!printed.contains("panicked"), "{how}, {policy}: {printed}");
            eprintln!("{how}, {policy}: {printed}");
        }
    }
}

/// Whether MAIO has noticed that the files differ from its template.
fn is_stale(runtime: &RuntimeProcess) -> bool {
    let status = runtime.status().unwrap();
    status["policies"][0]["services"]
        .as_array()
        .unwrap()
        .iter()
        .any(|service| service["phase"] == "stale")
}
