//! Mapped files whose storage fails, so that a page cannot be read (`EIO` of a file system in memory, FUSE): a message and exit
//! status 1, nothing is left of an output, and the next run over the repaired storage is right.

#[path = "../../../../tests/hostile/files/faulty_files.rs"]
#[allow(dead_code, missing_docs, unreachable_pub)] // not every test binary uses all of it
pub(crate) mod faulty_files;

use std::fs;
use std::path::Path;

use faulty_files::{FaultyFiles, FileCall, Outcome};

use crate::process::{Run, path_str, run, workspace};
use crate::remember::sorted_names;

const PAGE: u64 = 4096;

/// Mounts the file system; `None` where that is not possible.
fn mount(directory: &Path) -> Option<FaultyFiles> {
    FaultyFiles::mount(directory)
        .inspect_err(|error| eprintln!("SKIPPED: pages that cannot be read: {error}"))
        .ok()
}

/// Fails all reads of the page at `bad`.
fn fail_page(files: &FaultyFiles, bad: u64) {
    files.fail(move |call| match call {
        FileCall::Read { start, len, .. } if start < bad + PAGE && bad < start + len as u64 => {
            Outcome::Error(libc::EIO)
        }
        _ => Outcome::Success,
    });
}

/// Checks that a run has failed with one message, of the file and an offset that is at most in the page `bad`. Whether the
/// message names a page of a map.
fn check_failure(what: &str, run: &Run, path: &Path, bad: u64) -> bool {
    assert_eq!(run.code, 1, "{what}: {}", run.stderr);
    assert_eq!(
        run.stderr.matches("anamnesis: ").count(),
        1,
        "{what}: {}",
        run.stderr
    );
    assert!(!run.stderr.contains("panicked"), "{what}: {}", run.stderr);
    assert!(
        run.stderr.contains(path_str(path)),
        "{what}: {}",
        run.stderr
    );
    let (_, offset) = run.stderr.split_once("at byte ").expect(&run.stderr);
    let end = offset
        .find(|c: char| !c.is_ascii_digit())
        .expect(&run.stderr);
    let offset: u64 = offset[..end].parse().expect(&run.stderr);
    assert!(offset < bad + PAGE, "{what}, page at {bad}: {}", run.stderr);
    let is_mapped = run
        .stderr
        .contains("a page of the mapped file cannot be read");
    assert!(
        is_mapped || run.stderr.contains("os error 5"),
        "{what}: {}",
        run.stderr
    );
    is_mapped
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_with_file_and_offset() {
    let (mounted, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(files) = mount(mounted.path()) else {
        return;
    };
    let target = out.path().join("out.safetensors");
    for name in ["scribe.safetensors", "scribe-Q8_0.gguf"] {
        let fixture = workspace().join("fixtures/model").join(name);
        let bytes = fs::read(&fixture).unwrap();
        let last_page = (bytes.len() as u64 - 1) / PAGE * PAGE;
        files.write(name, bytes);
        let source = files.path(name);
        // whether the page is one of a map; `None` where that depends on the tensor
        let arguments = |source| -> Vec<(Vec<&str>, Option<bool>)> {
            let to_file = ["remember", source, "-o", path_str(&target)];
            vec![
                (["load", "--loader", "mmap", source].to_vec(), Some(true)),
                (
                    ["load", "--loader", "mmap", "--json", source].to_vec(),
                    Some(true),
                ),
                (["load", "--loader", "pread", source].to_vec(), Some(false)),
                // stored tensors are copied from file to file, and blocks are decoded from the map
                (to_file.to_vec(), None),
                ([&to_file[..], &["--no-map"]].concat(), Some(false)),
                // streamed tensors are read, not mapped
                (["inspect", "--hash", source].to_vec(), Some(false)),
                (
                    ["inspect", "--hash", "--no-map", source].to_vec(),
                    Some(false),
                ),
            ]
        };
        let run_of = |args: &[&str]| {
            let run = run(args);
            (run, fs::read(&target).ok())
        };
        let expected_runs = arguments(path_str(&fixture));
        for ((args, is_mapped), (expected_args, _)) in
            arguments(path_str(&source)).into_iter().zip(&expected_runs)
        {
            let (_, expected_output) = run_of(expected_args);
            let _ = fs::remove_file(&target);
            for bad in [last_page / 2 / PAGE * PAGE, last_page] {
                let what = format!("{args:?}");
                fail_page(&files, bad);
                let (failed, _) = run_of(&args);
                let of_map = check_failure(&what, &failed, &source, bad);
                assert_eq!(
                    of_map,
                    is_mapped.unwrap_or(of_map),
                    "{what}: {}",
                    failed.stderr
                );
                assert_eq!(sorted_names(out.path()), [""; 0], "{what}");
                if args.contains(&"--json") {
                    assert_eq!(failed.stdout, "", "{what}");
                }
            }
            files.succeed();
            let (repaired, output) = run_of(&args);
            assert_eq!(repaired.code, 0, "{args:?}: {}", repaired.stderr);
            assert!(output == expected_output, "{args:?}: other bytes");
            let _ = fs::remove_file(&target);
        }
    }
}
