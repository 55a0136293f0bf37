//! File systems for which `stat` reports other inodes than trace points: btrfs and overlayfs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anamnesis_ppc::cache::FileResidency;
use anamnesis_ppc::source::CaptureMode;
use anamnesis_ppc::{EventKind, EventSource, Namespace};

use crate::disk::{
    self, ChildTask, MIB, collect_events, covered_bytes, dir, inode, run_child, write_uncached,
};
use crate::perf::perf;

/// A mount, removed when this is dropped.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        if !run("umount", &[&self.0]) {
            run("umount", &[Path::new("-l"), &self.0]);
        }
    }
}

fn run(program: &str, arguments: &[&Path]) -> bool {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!(
                "{program} {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
            false
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            false
        }
    }
}

/// A new btrfs in a file, mounted at `dir/btrfs`.
fn btrfs(dir: &Path) -> Option<Mounted> {
    let (image, at) = (dir.join("image"), dir.join("btrfs"));
    File::create(&image).unwrap().set_len(256 * MIB).unwrap();
    fs::create_dir(&at).unwrap();
    let made = run("mkfs.btrfs", &[Path::new("-q"), &image]);
    let mounted = made && run("mount", &[Path::new("-oloop"), &image, &at]);
    if !mounted {
        eprintln!("SKIPPED: cannot mount btrfs");
    }
    mounted.then_some(Mounted(at))
}

/// An overlay of directories below `dir` over `lower`, mounted at `dir/merged`.
fn overlay(dir: &Path, lower: &Path) -> Option<Mounted> {
    let [upper, work, at] = ["upper", "work", "merged"].map(|name| dir.join(name));
    for path in [&upper, &work, &at] {
        fs::create_dir(path).unwrap();
    }
    let options = format!(
        "-olowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let mounted = run(
        "mount",
        &["-toverlay", &options, "overlay"]
            .map(Path::new)
            .iter()
            .copied()
            .chain([&*at])
            .collect::<Vec<_>>(),
    );
    if !mounted {
        eprintln!("SKIPPED: cannot mount overlayfs");
    }
    mounted.then_some(Mounted(at))
}

fn resident(path: &Path) -> u64 {
    FileResidency::of(File::open(path).unwrap(), 0, MIB)
        .unwrap()
        .cached
}

/// Checks that uncached reads and map accesses are reported for the right file, and that watching does not cache the files.
fn check_files(root: &Path, files: &[&str]) {
    let namespace = Namespace::scan(root).unwrap();
    let paths: Vec<_> = files.iter().map(|file| root.join(file)).collect();
    let inodes: Vec<_> = namespace
        .entries()
        .iter()
        .map(|entry| entry.inode)
        .collect();
    for mode in [CaptureMode::Misses, CaptureMode::Accesses] {
        let Some(mut source) = perf(mode, |options| options.root = Some(root.into())) else {
            return;
        };
        for task in [ChildTask::Read(MIB), ChildTask::Map] {
            for path in &paths {
                disk::drop_cache(path);
                assert_eq!(resident(path), 0, "{}", path.display());
            }
            source.watch(&inodes).unwrap();
            for (file, path) in files.iter().zip(&paths) {
                assert_eq!(resident(path), 0, "{file}: watching reads nothing");
                let pid = run_child(task, path, 0, MIB);
                let events = collect_events(&mut source);
                let kind = if mode == CaptureMode::Misses {
                    EventKind::Miss
                } else {
                    EventKind::Touch
                };
                let first = events
                    .first()
                    .unwrap_or_else(|| panic!("{file}: {task:?} is not reported by {mode:?}"));
                assert_eq!(
                    (first.kind, first.start, first.pid),
                    (kind, 0, pid),
                    "{file}: {events:?}"
                );
                for event in &events {
                    let found = namespace.find(event.inode).map(|entry| &*entry.path);
                    assert_eq!(found, Some(Path::new(file)), "{task:?} {mode:?}: {event:?}");
                }
                if mode == CaptureMode::Accesses {
                    assert!(
                        covered_bytes(&events, 0, MIB) > MIB / 2,
                        "{file}: {events:?}"
                    );
                }
                // the file is cached now; it is read again where the kernel reclaimed pages meanwhile
                let is_cached = (0..20).any(|_| {
                    let is_cached = resident(path) >= MIB;
                    if !is_cached {
                        run_child(task, path, 0, MIB);
                        collect_events(&mut source);
                    }
                    is_cached
                });
                assert!(is_cached, "{file}");
            }
        }
        assert_eq!(source.lost(), 0);
    }
}

#[test]
fn files_of_btrfs_and_its_subvolumes_are_reported() {
    let _exclusive = crate::disk::trace_exclusively();
    let Some(dir) = dir() else { return };
    let Some(mounted) = btrfs(dir.path()) else {
        return;
    };
    let root = &mounted.0;
    let [one, two] = ["one", "two"].map(|name| root.join(name));
    for path in [&one, &two] {
        assert!(run(
            "btrfs",
            &["subvolume".as_ref(), "create".as_ref(), path]
        ));
    }
    // inode numbers start again in each subvolume
    let number = |path: &Path| inode(path).ino;
    write_uncached(&root.join("top"), MIB);
    fs::write(one.join("small"), b"").unwrap();
    write_uncached(&one.join("model"), MIB);
    assert_ne!(number(&root.join("top")), number(&one.join("model")));
    check_files(root, &["top", "one/model"]);

    // two files with the same inode number are not reported; others are
    write_uncached(&two.join("model"), MIB);
    assert_eq!(number(&two.join("model")), number(&root.join("top")));
    check_files(root, &["one/model"]);
    let Some(mut source) = perf(CaptureMode::Misses, |options| {
        options.root = Some(root.clone())
    }) else {
        return;
    };
    for alone in [false, true] {
        let [top, model] = [root.join("top"), two.join("model")];
        let watched = [inode(&model), inode(&top)];
        source.watch(&watched[..2 - usize::from(alone)]).unwrap();
        for path in [&top, &model] {
            disk::drop_cache(path);
        }
        run_child(ChildTask::Read(MIB), &model, 0, MIB);
        assert_eq!(
            collect_events(&mut source).first().map(|event| event.inode),
            alone.then_some(watched[0])
        );
    }

    // without the directory of the files nothing is reported
    let Some(mut source) = perf(CaptureMode::Misses, |_| {}) else {
        return;
    };
    source.watch(&[inode(&one.join("model"))]).unwrap();
    disk::drop_cache(&one.join("model"));
    run_child(ChildTask::Read(MIB), &one.join("model"), 0, MIB);
    assert_eq!(collect_events(&mut source), []);
}

#[test]
fn files_of_all_layers_of_an_overlay_are_reported() {
    let _exclusive = crate::disk::trace_exclusively();
    let Some(dir) = dir() else { return };
    let btrfs = btrfs(dir.path());
    let plain = dir.path().join("lower");
    fs::create_dir(&plain).unwrap();
    // both layers on one file system, and on two
    for (name, lower) in [
        ("one", Some(&plain)),
        ("two", btrfs.as_ref().map(|mounted| &mounted.0)),
    ] {
        let Some(lower) = lower else { continue };
        write_uncached(&lower.join("low"), MIB);
        write_uncached(&lower.join("changed"), MIB);
        let top = dir.path().join(name);
        fs::create_dir(&top).unwrap();
        let Some(mounted) = overlay(&top, lower) else {
            return;
        };
        let root = &mounted.0;
        write_uncached(&root.join("up"), MIB);
        // opening it for writing copies it to the upper layer
        File::options()
            .append(true)
            .open(root.join("changed"))
            .unwrap()
            .sync_all()
            .unwrap();
        assert!(top.join("upper/changed").exists());
        check_files(root, &["low", "up", "changed"]);
    }
}
