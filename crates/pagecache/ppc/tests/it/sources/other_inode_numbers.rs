//! The perf source on file systems for which `stat` reports other inodes than trace points: btrfs and overlayfs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anamnesis_ppc::source::CaptureMode;
use anamnesis_ppc::{EventKind, EventSource, Namespace};

use super::child_process::{ChildTask, run_child};
use super::events::{collect_events, covered_bytes, lock_tracing, traceable_dir};
use super::perf::perf_source;
use crate::support::files::{MIB, cached_bytes, drop_all_cached_pages, inode, write_uncached};

/// A mount point, unmounted when this is dropped.
struct MountPoint(PathBuf);

impl Drop for MountPoint {
    fn drop(&mut self) {
        if !run("umount", &[&self.0]) {
            run("umount", &[Path::new("-l"), &self.0]);
        }
    }
}

/// Runs a program. Prints its error and returns `false` if it fails.
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

/// Mounts a new btrfs, whose image is a file, at `dir/btrfs`. Prints a message and returns `None` if that fails.
fn mount_btrfs(dir: &Path) -> Option<MountPoint> {
    let (image, path) = (dir.join("image"), dir.join("btrfs"));
    File::create(&image).unwrap().set_len(256 * MIB).unwrap();
    fs::create_dir(&path).unwrap();
    let formatted = run("mkfs.btrfs", &[Path::new("-q"), &image]);
    let mounted = formatted && run("mount", &[Path::new("-oloop"), &image, &path]);
    if !mounted {
        eprintln!("SKIPPED: cannot mount btrfs");
    }
    mounted.then_some(MountPoint(path))
}

/// Mounts an overlay of directories below `dir` over `lower` at `dir/merged`. Prints a message and returns `None` if that
/// fails.
fn mount_overlay(dir: &Path, lower: &Path) -> Option<MountPoint> {
    let [upper, work, merged] = ["upper", "work", "merged"].map(|name| dir.join(name));
    for path in [&upper, &work, &merged] {
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
            .chain([&*merged])
            .collect::<Vec<_>>(),
    );
    if !mounted {
        eprintln!("SKIPPED: cannot mount overlayfs");
    }
    mounted.then_some(MountPoint(merged))
}

/// Checks that uncached reads and accesses through a mapping are reported for the right file, and that watching does not
/// populate the page cache.
fn check_reported_files(root: &Path, files: &[&str]) {
    let namespace = Namespace::scan(root).unwrap();
    let paths: Vec<_> = files.iter().map(|file| root.join(file)).collect();
    let inodes: Vec<_> = namespace
        .entries()
        .iter()
        .map(|entry| entry.inode)
        .collect();
    for mode in [CaptureMode::Misses, CaptureMode::Accesses] {
        let Some(mut source) = perf_source(mode, |options| options.root = Some(root.into())) else {
            return;
        };
        for task in [ChildTask::Read(MIB), ChildTask::Map] {
            for path in &paths {
                drop_all_cached_pages(path);
                assert_eq!(cached_bytes(path, 0, MIB), 0, "{}", path.display());
            }
            source.watch(&inodes).unwrap();
            for (file, path) in files.iter().zip(&paths) {
                assert_eq!(
                    cached_bytes(path, 0, MIB),
                    0,
                    "{file}: watching has populated the page cache"
                );
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
                // now the file is cached; it is read again if the kernel reclaimed pages meanwhile
                let is_cached = (0..20).any(|_| {
                    let is_cached = cached_bytes(path, 0, MIB) >= MIB;
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
fn files_of_btrfs_subvolumes_are_reported_unless_their_inode_numbers_are_equal() {
    let _tracing = lock_tracing();
    let Some(dir) = traceable_dir() else { return };
    let Some(mount_point) = mount_btrfs(dir.path()) else {
        return;
    };
    let root = &mount_point.0;
    let [first, second] = ["first", "second"].map(|name| root.join(name));
    for path in [&first, &second] {
        assert!(run(
            "btrfs",
            &["subvolume".as_ref(), "create".as_ref(), path]
        ));
    }
    // each subvolume numbers its inodes from the same value
    let inode_number = |path: &Path| inode(path).ino;
    let top = root.join("top");
    write_uncached(&top, MIB);
    fs::write(first.join("small"), b"").unwrap();
    write_uncached(&first.join("model"), MIB);
    assert_ne!(inode_number(&top), inode_number(&first.join("model")));
    check_reported_files(root, &["top", "first/model"]);

    // two watched files with the same inode number are not reported; others are
    let model = second.join("model");
    write_uncached(&model, MIB);
    assert_eq!(inode_number(&model), inode_number(&top));
    check_reported_files(root, &["first/model"]);
    let Some(mut source) = perf_source(CaptureMode::Misses, |options| {
        options.root = Some(root.clone())
    }) else {
        return;
    };
    for alone in [false, true] {
        let watched = [inode(&model), inode(&top)];
        source.watch(&watched[..2 - usize::from(alone)]).unwrap();
        for path in [&top, &model] {
            drop_all_cached_pages(path);
        }
        run_child(ChildTask::Read(MIB), &model, 0, MIB);
        assert_eq!(
            collect_events(&mut source).first().map(|event| event.inode),
            alone.then_some(watched[0])
        );
    }

    // without the option `root` nothing is reported
    let Some(mut source) = perf_source(CaptureMode::Misses, |_| {}) else {
        return;
    };
    let model = first.join("model");
    source.watch(&[inode(&model)]).unwrap();
    drop_all_cached_pages(&model);
    run_child(ChildTask::Read(MIB), &model, 0, MIB);
    assert_eq!(collect_events(&mut source), []);
}

#[test]
fn files_of_both_layers_of_an_overlay_are_reported() {
    let _tracing = lock_tracing();
    let Some(dir) = traceable_dir() else { return };
    let btrfs = mount_btrfs(dir.path());
    let lower_dir = dir.path().join("lower");
    fs::create_dir(&lower_dir).unwrap();
    // both layers on one file system, and on two
    for (name, lower) in [
        ("one_file_system", Some(&lower_dir)),
        (
            "two_file_systems",
            btrfs.as_ref().map(|mount_point| &mount_point.0),
        ),
    ] {
        let Some(lower) = lower else { continue };
        write_uncached(&lower.join("in_lower"), MIB);
        write_uncached(&lower.join("copied_up"), MIB);
        let overlay_dir = dir.path().join(name);
        fs::create_dir(&overlay_dir).unwrap();
        let Some(mount_point) = mount_overlay(&overlay_dir, lower) else {
            return;
        };
        let root = &mount_point.0;
        write_uncached(&root.join("in_upper"), MIB);
        // opening a file for writing copies it to the upper layer
        File::options()
            .append(true)
            .open(root.join("copied_up"))
            .unwrap()
            .sync_all()
            .unwrap();
        assert!(overlay_dir.join("upper/copied_up").exists());
        check_reported_files(root, &["in_lower", "in_upper", "copied_up"]);
    }
}
