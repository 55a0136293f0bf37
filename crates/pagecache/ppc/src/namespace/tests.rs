//! Scans of a namespace: symbolic links, replaced files, named pipes, and files that are still being written.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use super::*;

fn names(namespace: &Namespace) -> Vec<&str> {
    namespace
        .entries()
        .iter()
        .map(|entry| entry.path.to_str().unwrap())
        .collect()
}

/// A model in the layout of a hub's cache; returns the directory of its snapshot.
fn hub_layout(root: &Path) -> PathBuf {
    let snapshot = root.join("snapshots/main");
    fs::create_dir_all(root.join("blobs")).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(root.join("blobs/abc"), b"weights").unwrap();
    symlink("../../blobs/abc", snapshot.join("model.safetensors")).unwrap();
    snapshot
}

#[test]
fn links_below_the_root_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    hub_layout(root);
    symlink("..", root.join("blobs/loop")).unwrap();
    symlink("/proc/self/exe", root.join("magic")).unwrap();
    symlink("/dev/null", root.join("device")).unwrap();
    symlink("/etc", root.join("directory")).unwrap();
    let namespace = Namespace::scan(root).unwrap();
    assert_eq!(names(&namespace), ["blobs/abc"]);
    let linked = namespace
        .get(Path::new("snapshots/main/model.safetensors"))
        .unwrap();
    assert_eq!((&*linked.path, linked.len), (Path::new("blobs/abc"), 7));
    assert_eq!(namespace.find(linked.inode), Some(linked));
    assert_eq!(namespace.outside().len(), 0);
    namespace.open(linked).unwrap();
}

#[test]
fn links_to_files_outside_are_followed_and_stated() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let snapshot = hub_layout(&root);
    let name = Path::new("model.safetensors");
    for namespace in [
        Namespace::scan(&snapshot).unwrap(),
        Namespace::of_files(&snapshot, [name]).unwrap(),
    ] {
        assert_eq!(names(&namespace), ["model.safetensors"]);
        let blob = root.join("blobs/abc");
        assert_eq!(
            namespace.outside().collect::<Vec<_>>(),
            [(name, blob.as_path())]
        );
        // changes of the blobs are watched
        assert!(namespace.dirs().any(|dir| dir == root.join("blobs")));
        let entry = namespace.get(name).unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut namespace.open(entry).unwrap(), &mut text).unwrap();
        assert_eq!(text, "weights");
        // the link leads to another file of the same length by now, and then to a device
        let link = snapshot.join(name);
        fs::write(root.join("blobs/other"), b"stolen!").unwrap();
        for target in ["../../blobs/other", "/dev/zero", "../../blobs/abc"] {
            fs::remove_file(&link).unwrap();
            symlink(target, &link).unwrap();
            assert_eq!(
                namespace.open(entry).is_ok(),
                target.ends_with("abc"),
                "{target}"
            );
        }
    }
    assert!(Namespace::of_files(&snapshot, ["absent"]).is_err());
    assert!(Namespace::of_files(&snapshot, ["."]).is_err());
}

/// A process with more rights than the owner of a directory opens no file of another user because of a link in it.
#[test]
fn links_of_a_user_to_files_of_another_are_not_followed() {
    use std::os::unix::fs::lchown;
    let dir = tempfile::tempdir().unwrap();
    let snapshot = hub_layout(dir.path());
    let link = snapshot.join("model.safetensors");
    if let Err(error) = lchown(&link, Some(12_345), None) {
        return println!("SKIPPED: a link of another user: {error}");
    }
    assert!(names(&Namespace::scan(&snapshot).unwrap()).is_empty());
    let blob = dir.path().join("blobs/abc");
    lchown(&blob, Some(12_345), None).unwrap();
    assert_eq!(
        names(&Namespace::scan(&snapshot).unwrap()),
        ["model.safetensors"]
    );
}

#[test]
fn a_file_that_was_replaced_since_the_scan_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, b"one").unwrap();
    let namespace = Namespace::scan(dir.path()).unwrap();
    let entry = namespace.get(Path::new("model.gguf")).unwrap();
    fs::write(dir.path().join("other"), b"two").unwrap();
    fs::rename(dir.path().join("other"), &path).unwrap();
    let error = namespace.open(entry).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Stale(_)), "{error}");
    // the same for a file that was replaced by a link out of the root
    fs::remove_file(&path).unwrap();
    symlink("/etc/hostname", &path).unwrap();
    assert!(namespace.open(entry).is_err());
}

#[test]
fn named_pipes_are_skipped_without_waiting_for_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("pipe"),
        FileType::Fifo,
        Mode::from(0o600),
        0,
    )
    .unwrap();
    fs::write(dir.path().join("file"), b"").unwrap();
    assert_eq!(names(&Namespace::scan(dir.path()).unwrap()), ["file"]);
    assert!(Namespace::scan(&dir.path().join("file")).is_err());
}

#[test]
fn a_rescan_skips_new_and_changed_files_that_are_still_being_written() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, len: u64, modified: SystemTime| {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_len(len).unwrap();
        file.set_modified(modified).unwrap();
    };
    let (second, now) = (Duration::from_secs(1), SystemTime::now);
    for name in ["growing", "unchanged", "removed"] {
        write(name, 10, now() - 2 * second);
    }
    let before = Namespace::scan(dir.path()).unwrap();
    assert!(matches!(before.rescan(), Ok((None, false))));
    fs::remove_file(dir.path().join("removed")).unwrap();
    write("complete", 10, now() - 2 * second);
    write("from the future", 10, now() + 3600 * second);
    // repeated, because on a stalled machine a second may pass between the write and the scan
    let skipped = (0..20).any(|_| {
        write("growing", 20, now());
        write("unchanged", 10, now());
        write("created", 10, now());
        let (rescanned, incomplete) = before.rescan().unwrap();
        incomplete && names(&rescanned.unwrap()) == ["complete", "from the future", "unchanged"]
    });
    assert!(skipped);
    for name in ["growing", "created"] {
        write(name, 20, now() - 2 * second);
    }
    let (rescanned, incomplete) = before.rescan().unwrap();
    assert_eq!(
        names(&rescanned.unwrap()),
        [
            "complete",
            "created",
            "from the future",
            "growing",
            "unchanged"
        ]
    );
    assert!(!incomplete);
    // an empty directory is a change too: files may be created in it, so it has to be watched
    let before = Namespace::scan(dir.path()).unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let (rescanned, _) = before.rescan().unwrap();
    let root = dir.path().canonicalize().unwrap();
    assert!(
        rescanned
            .unwrap()
            .dirs()
            .eq([root.clone(), root.join("empty")])
    );
}
