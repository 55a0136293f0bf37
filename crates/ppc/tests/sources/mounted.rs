//! File systems whose files `stat` names by another device than trace points do.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anamnesis_ppc::cache::Residency;
use anamnesis_ppc::source::Want;
use anamnesis_ppc::{EventSource, Kind, Namespace};

use crate::disk::{self, Do, MIB, cold, covered, dir, inode, other, told};
use crate::perf::perf;

/// What is mounted, until this is dropped.
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
        eprintln!("SKIPPED: no btrfs can be mounted here");
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
        eprintln!("SKIPPED: no overlay can be mounted here");
    }
    mounted.then_some(Mounted(at))
}

fn resident(path: &Path) -> u64 {
    Residency::of(File::open(path).unwrap(), 0, MIB)
        .unwrap()
        .cached
}

/// Cold reads and cold touches of maps of these files are told of the right one, and watching leaves them cold.
fn suite(root: &Path, files: &[&str]) {
    let namespace = Namespace::scan(root).unwrap();
    let paths: Vec<_> = files.iter().map(|file| root.join(file)).collect();
    let inodes: Vec<_> = namespace
        .entries()
        .iter()
        .map(|entry| entry.inode)
        .collect();
    for want in [Want::Misses, Want::Accesses] {
        let Some(mut source) = perf(want, |options| options.root = Some(root.into())) else {
            return;
        };
        for task in [Do::Read(MIB), Do::Map] {
            for path in &paths {
                disk::chill(path);
                assert_eq!(resident(path), 0, "{}", path.display());
            }
            source.watch(&inodes).unwrap();
            for (file, path) in files.iter().zip(&paths) {
                assert_eq!(resident(path), 0, "{file}: watching brings nothing");
                let pid = other(task, path, 0, MIB);
                let events = told(&mut source);
                let kind = if want == Want::Misses {
                    Kind::Miss
                } else {
                    Kind::Touch
                };
                let first = events
                    .first()
                    .unwrap_or_else(|| panic!("{file}: {task:?} is not told by {want:?}"));
                assert_eq!(
                    (first.kind, first.start, first.pid),
                    (kind, 0, pid),
                    "{file}: {events:?}"
                );
                for event in &events {
                    let found = namespace.find(event.inode).map(|entry| &*entry.path);
                    assert_eq!(found, Some(Path::new(file)), "{task:?} {want:?}: {event:?}");
                }
                if want == Want::Accesses {
                    assert!(covered(&events, 0, MIB) > MIB / 2, "{file}: {events:?}");
                }
                // what was read is there; it is read again where the kernel took some of it back meanwhile
                let is_here = (0..20).any(|_| {
                    let is_here = resident(path) >= MIB;
                    if !is_here {
                        other(task, path, 0, MIB);
                        told(&mut source);
                    }
                    is_here
                });
                assert!(is_here, "{file}");
            }
        }
        assert_eq!(source.lost(), 0);
    }
}

#[test]
fn files_of_btrfs_and_of_its_subvolumes_are_told() {
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
    // numbers begin anew in each subvolume
    let number = |path: &Path| inode(path).ino;
    cold(&root.join("top"), MIB);
    fs::write(one.join("small"), b"").unwrap();
    cold(&one.join("model"), MIB);
    assert_ne!(number(&root.join("top")), number(&one.join("model")));
    suite(root, &["top", "one/model"]);

    // two that cannot be told apart are not told, and others still are
    cold(&two.join("model"), MIB);
    assert_eq!(number(&two.join("model")), number(&root.join("top")));
    suite(root, &["one/model"]);
    let Some(mut source) = perf(Want::Misses, |options| options.root = Some(root.clone())) else {
        return;
    };
    for alone in [false, true] {
        let [top, model] = [root.join("top"), two.join("model")];
        let watched = [inode(&model), inode(&top)];
        source.watch(&watched[..2 - usize::from(alone)]).unwrap();
        for path in [&top, &model] {
            disk::chill(path);
        }
        other(Do::Read(MIB), &model, 0, MIB);
        assert_eq!(
            told(&mut source).first().map(|event| event.inode),
            alone.then_some(watched[0])
        );
    }

    // who does not say where they are hears nothing of them
    let Some(mut source) = perf(Want::Misses, |_| {}) else {
        return;
    };
    source.watch(&[inode(&one.join("model"))]).unwrap();
    disk::chill(&one.join("model"));
    other(Do::Read(MIB), &one.join("model"), 0, MIB);
    assert_eq!(told(&mut source), []);
}

#[test]
fn files_of_overlays_are_told_whatever_layer_they_are_in() {
    let Some(dir) = dir() else { return };
    let below = btrfs(dir.path());
    let plain = dir.path().join("lower");
    fs::create_dir(&plain).unwrap();
    // layers of one file system, and of two
    for (name, lower) in [
        ("one", Some(&plain)),
        ("two", below.as_ref().map(|mounted| &mounted.0)),
    ] {
        let Some(lower) = lower else { continue };
        cold(&lower.join("low"), MIB);
        cold(&lower.join("changed"), MIB);
        let top = dir.path().join(name);
        fs::create_dir(&top).unwrap();
        let Some(mounted) = overlay(&top, lower) else {
            return;
        };
        let root = &mounted.0;
        cold(&root.join("up"), MIB);
        // copied to the upper layer
        File::options()
            .append(true)
            .open(root.join("changed"))
            .unwrap()
            .sync_all()
            .unwrap();
        assert!(top.join("upper/changed").exists());
        suite(root, &["low", "up", "changed"]);
    }
}
