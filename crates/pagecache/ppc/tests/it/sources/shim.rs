//! The shim source: accesses of programs that run with the preloaded library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anamnesis_ppc::source::ShimSource;
use anamnesis_ppc::{EventKind, EventSource};

use super::check_contract;
use super::child_process::{self, ChildTask};
use super::events::{collect_events, covered_bytes};
use crate::support::files::{MIB, inode, write_uncached};

/// Builds the preloaded library. Prints a message and returns `None` if that fails.
fn shim_library() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "build",
            "--quiet",
            "--offline",
            "--package",
            "anamnesis-shim",
            "--target-dir",
        ])
        .arg(target);
    let built = cargo
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .is_ok_and(|status| status.success());
    let library = target.join("debug/libanamnesis_shim.so");
    if !built || !library.exists() {
        eprintln!("SKIPPED: cannot build the shim");
        return None;
    }
    Some(library)
}

/// The library by a path that `LD_PRELOAD` can hold, wherever the project lies.
fn preloadable(library: &Path, directory: &Path) -> PathBuf {
    let link = directory.join("shim.so");
    std::os::unix::fs::symlink(library, &link).unwrap();
    link
}

#[test]
fn a_library_whose_path_is_a_list_to_the_linker_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let shim = ShimSource::listen(&dir.path().join("pipe")).unwrap();
    for name in ["with space.so", "a:b.so", "$LIB.so"] {
        let error = shim.environment(&dir.path().join(name)).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert!(error.to_string().contains("link the library"), "{error}");
    }
}

#[test]
fn reads_are_reported_and_results_are_those_of_libc() {
    let Some(library) = shim_library() else {
        return;
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("model");
    write_uncached(&path, 4 * MIB);
    let links = tempfile::tempdir().unwrap();
    let library = preloadable(&library, links.path());
    let mut shim = ShimSource::listen(&dir.path().join("pipe")).unwrap();
    let environment = shim.environment(&library).unwrap();
    let run = |task| {
        let mut child = child_process::command(task, &path, MIB, 4 * MIB)
            .envs(environment.clone())
            .spawn()
            .unwrap();
        let pid = child.id();
        assert!(child.wait().unwrap().success());
        pid
    };
    check_contract(&mut shim, inode(&path), || _ = run(ChildTask::Read(4096)));

    shim.watch(&[inode(&path)]).unwrap();
    let pid = run(ChildTask::Read(4096));
    let events = collect_events(&mut shim);
    assert_eq!(
        (events[0].kind, events[0].pid, events.len()),
        (EventKind::Open, pid, 769)
    );
    assert_eq!(covered_bytes(&events, MIB, 4 * MIB), 3 * MIB);
    assert_eq!(covered_bytes(&events, 0, MIB), 0);
    run(ChildTask::Map);
    let events = collect_events(&mut shim);
    assert!(
        events
            .iter()
            .any(|event| (event.kind, event.len) == (EventKind::Open, 4 * MIB)),
        "{events:?}"
    );

    // reads advance the position; results and errors are libc's; a process may close all its descriptors
    let script = "import os,sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.lseek(fd, 8192, 0)
assert len(os.read(fd, 4096)) == 4096
assert os.readv(fd, [bytearray(4096), bytearray(4096)]) == 8192
assert os.preadv(fd, [bytearray(10)], 1 << 20) == 10
assert os.lseek(fd, 0, 1) == 20480
try:
    os.read(999, 1)
    assert False
except OSError as e:
    assert e.errno == 9
try:
    os.open('/nowhere/at/all', os.O_RDONLY)
    assert False
except FileNotFoundError:
    pass
created = os.open(sys.argv[1] + '.created', os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
assert os.fstat(created).st_mode & 0o777 == 0o640
r, w = os.pipe()
os.write(w, b'x')
assert os.read(r, 5) == b'x'
for n in range(3, 1000):
    try: os.close(n)
    except OSError: pass
os.dup2(os.open(sys.argv[1] + '.created', os.O_RDWR), 200)
open(sys.argv[1], 'rb').read(5)
assert os.fstat(200).st_size == 0
";
    let mut python = Command::new("python3");
    python
        .args(["-c", script])
        .arg(&path)
        .envs(environment.clone());
    match python.env("PYTHONDONTWRITEBYTECODE", "1").status() {
        Ok(status) => {
            assert!(status.success());
            let touches: Vec<_> = collect_events(&mut shim)
                .into_iter()
                .filter(|event| event.kind == EventKind::Touch)
                .map(|event| (event.start, event.len))
                .collect();
            assert_eq!(touches, [(8192, 4096), (12288, 8192), (MIB, 4096)]);
        }
        Err(error) => eprintln!("SKIPPED: python3: {error}"),
    }
}

#[test]
fn programs_do_not_wait_for_a_receiver_that_is_slow_or_has_ended() {
    let Some(library) = shim_library() else {
        return;
    };
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("model");
    write_uncached(&path, 32 * MIB);
    let mut shim = ShimSource::listen(&dir.path().join("pipe")).unwrap();
    shim.watch(&[inode(&path)]).unwrap();
    let links = tempfile::tempdir().unwrap();
    let library = preloadable(&library, links.path());
    let environment = shim.environment(&library).unwrap();
    let run = || {
        let mut command = child_process::command(ChildTask::Read(1024), &path, 0, 32 * MIB);
        assert!(
            command
                .envs(environment.clone())
                .status()
                .unwrap()
                .success()
        );
    };
    // the receiver does not read until the pipe is full
    let mut command = child_process::command(ChildTask::Read(64), &path, 0, 32 * MIB);
    let mut child = command.envs(environment.clone()).spawn().unwrap();
    let mut events = Vec::new();
    let pipe = std::fs::File::open(dir.path().join("pipe")).unwrap();
    while child.try_wait().unwrap().is_none() {
        let full = rustix::io::ioctl_fionread(&pipe).unwrap() >= MIB;
        std::thread::sleep(Duration::from_millis(20));
        if full {
            shim.wait(Duration::ZERO, &mut events).unwrap();
        }
    }
    events.extend(collect_events(&mut shim));
    let reads = events
        .iter()
        .filter(|event| event.kind == EventKind::Touch)
        .count() as u64;
    assert!(
        reads >= 16_000 && shim.lost() > 0,
        "{reads} reported, {} lost",
        shim.lost()
    );
    // the program opens and reads some other files, too
    assert!(
        reads + shim.lost() <= 32 * MIB / 64 + 1000,
        "{reads} reported, {} lost",
        shim.lost()
    );
    drop(shim);
    run();
    // a regular file of that name is not written to
    std::fs::write(dir.path().join("pipe"), b"unchanged").unwrap();
    run();
    assert_eq!(
        std::fs::read(dir.path().join("pipe")).unwrap(),
        b"unchanged"
    );
}
