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

#[test]
fn links_within_are_followed_and_links_out_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("blobs")).unwrap();
    fs::create_dir_all(root.join("snapshots/main")).unwrap();
    fs::write(root.join("blobs/abc"), b"weights").unwrap();
    symlink(
        "../../blobs/abc",
        root.join("snapshots/main/model.safetensors"),
    )
    .unwrap();
    symlink(outside.path().join("secret"), root.join("absolute")).unwrap();
    symlink(
        "../../../../../../etc/passwd",
        root.join("snapshots/main/passwd"),
    )
    .unwrap();
    symlink("..", root.join("blobs/loop")).unwrap();
    let namespace = Namespace::scan(root).unwrap();
    assert_eq!(names(&namespace), ["blobs/abc"]);
    let linked = namespace
        .get(Path::new("snapshots/main/model.safetensors"))
        .unwrap();
    assert_eq!((&*linked.path, linked.len), (Path::new("blobs/abc"), 7));
    assert_eq!(namespace.find(linked.inode), Some(linked));
    assert!(namespace.get(Path::new("absolute")).is_none());
    namespace.open(linked).unwrap();
}

#[test]
fn a_file_that_was_replaced_is_stale() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    fs::write(&path, b"one").unwrap();
    let namespace = Namespace::scan(dir.path()).unwrap();
    let entry = namespace.get(Path::new("model.gguf")).unwrap();
    fs::write(dir.path().join("other"), b"two").unwrap();
    fs::rename(dir.path().join("other"), &path).unwrap();
    let error = namespace.open(entry).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Stale(_)), "{error}");
    // as is one that became a link out
    fs::remove_file(&path).unwrap();
    symlink("/etc/hostname", &path).unwrap();
    assert!(namespace.open(entry).is_err());
}

#[test]
fn pipes_are_no_files_and_are_not_waited_for() {
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
fn what_is_being_written_is_no_file_yet() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, len: u64, written: SystemTime| {
        let file = File::create(dir.path().join(name)).unwrap();
        file.set_len(len).unwrap();
        file.set_modified(written).unwrap();
    };
    let (second, now) = (Duration::from_secs(1), SystemTime::now);
    for name in ["grows", "rests", "goes"] {
        write(name, 10, now() - 2 * second);
    }
    let before = Namespace::scan(dir.path()).unwrap();
    assert!(matches!(before.again(), Ok((None, false))));
    fs::remove_file(dir.path().join("goes")).unwrap();
    write("new", 10, now() - 2 * second);
    write("of another clock", 10, now() + 3600 * second);
    // a machine that stands still for a second makes everything old
    let found = (0..20).any(|_| {
        write("grows", 20, now());
        write("rests", 10, now());
        write("comes", 10, now());
        let (again, young) = before.again().unwrap();
        young && names(&again.unwrap()) == ["new", "of another clock", "rests"]
    });
    assert!(found);
    for name in ["grows", "comes"] {
        write(name, 20, now() - 2 * second);
    }
    let (again, young) = before.again().unwrap();
    assert_eq!(
        names(&again.unwrap()),
        ["comes", "grows", "new", "of another clock", "rests"]
    );
    assert!(!young);
    // an empty directory is something else too: files may come into it
    let before = Namespace::scan(dir.path()).unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let (again, _) = before.again().unwrap();
    let root = dir.path().canonicalize().unwrap();
    assert!(again.unwrap().dirs().eq([root.clone(), root.join("empty")]));
}
