//! A device of which a part cannot be read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use super::model::{fill, wait_until};
use super::mounts::{MountPoint, succeeds};
use crate::page_cache::{evict_file, resident};
use crate::process::{command, finish, path_str, run, safetensors};
use crate::runtime_process::{RuntimeProcess, on_device};

const MIB: u64 = 1 << 20;

/// The offset at which a file cannot be read, in calls of 64 KiB, and the error.
fn first_error(path: &Path) -> (u64, Option<i32>) {
    let file = File::open(path).unwrap();
    let mut piece = vec![0; 64 << 10];
    let mut at = 0;
    loop {
        match file.read_at(&mut piece, at) {
            Ok(0) => return (at, None),
            Ok(read) => at += read as u64,
            Err(error) => return (at, error.raw_os_error()),
        }
    }
}

#[test]
fn errors_of_a_device_are_those_without_a_runtime_and_are_reported_once_a_file() {
    let Some(dir) = on_device() else { return };
    let (image, path) = (dir.path().join("image"), dir.path().join("mounted"));
    File::create(&image).unwrap().set_len(64 * MIB).unwrap();
    fs::create_dir(&path).unwrap();
    // without a journal, and with all metadata at the beginning
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-F", "-O", "^has_journal,flex_bg", "-G", "64"]);
    if !succeeds(make.arg(&image)) {
        return;
    }
    let Some(mounted) = MountPoint::new(&["-oloop", path_str(&image)], &path) else {
        return;
    };
    let root = mounted.0.join("model");
    fs::create_dir(&root).unwrap();
    let (whole, cut) = (root.join("a.safetensors"), root.join("b.safetensors"));
    for (seed, path, mib) in [(1, &whole, 4), (2, &cut, 44)] {
        let tensor = format!("t{seed}");
        safetensors(path, "", &[(tensor.as_str(), &[mib << 18])]);
        fill(path, 200, seed);
    }
    rustix::fs::syncfs(File::open(&root).unwrap()).unwrap();
    let evict = || {
        [&whole, &cut].iter().for_each(|path| evict_file(path));
    };
    // everything behind this byte of the image is lost
    let shorter = File::options().write(true).open(&image).unwrap();
    shorter.set_len(40 * MIB).unwrap();
    evict();
    let expected = first_error(&cut);
    assert_eq!(expected.1, Some(libc::EIO), "{expected:?}");
    assert_eq!(first_error(&whole).1, None);
    evict();
    let load = |path: &Path| finish(command(&["load", "--loader", "mmap", path_str(path)]));
    let mapped = load(&cut);
    assert_eq!(mapped.code, 1, "{}", mapped.stderr);
    evict();

    let root_text = path_str(&root);
    let args = ["--dir", root_text, "--policy", "eager"];
    let mut runtime = RuntimeProcess::start(&args);
    let mut first = [0];
    File::open(&cut).unwrap().read_at(&mut first, 0).unwrap();
    wait_until("prefetched file", || {
        runtime.assert_runs("it prefetched a file");
        resident(&whole) >= 4 * MIB
    });
    runtime.wait_for("an error", |status| status["prefetch"]["errors"] == 1);
    // by calls and by a map, also while the file is prefetched
    let found = first_error(&cut);
    assert_eq!(found.1, expected.1);
    // a folio is read as a whole, and may have another size
    assert!(found.0.abs_diff(expected.0) <= 2 * MIB, "{found:?}");
    assert_eq!(first_error(&whole).1, None);
    let with_runtime = load(&cut);
    assert_eq!(with_runtime.code, 1);
    let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(words(&with_runtime.stderr), words(&mapped.stderr));
    let status = runtime.status().unwrap();
    assert!(status["policies"][0]["failure"].is_null(), "{status}");
    runtime.signal(Signal::TERM);
    assert_eq!(runtime.0.wait().unwrap().code(), Some(0));
    let mut printed = String::new();
    let mut errors = runtime.0.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut errors, &mut printed).unwrap();
    let reports = printed.matches("not prefetched: ").count();
    assert_eq!(reports, 1, "{printed}");
    assert!(
        printed.contains("b.safetensors") && printed.contains("os error 5"),
        "{printed}"
    );

    // `warm` says so, too, and reads the rest
    evict();
    let warmed = run(&["warm", root_text]);
    assert!(
        warmed.code == 1 && warmed.stderr.contains("1 file could not be read"),
        "{}",
        warmed.stderr
    );
    assert!(resident(&whole) >= 4 * MIB);
}
