use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::*;
use crate::answer::FileVersion;

fn file(ranges: &[(u64, &[u8])]) -> CacheEntry {
    CacheEntry::File(CachedFile {
        version: FileVersion {
            len: 1000,
            etag: Some("\"tag\"".to_owned()),
            modified: None,
        },
        commit: Some("c0ffee".to_owned()),
        ranges: ranges
            .iter()
            .map(|(start, bytes)| (*start, bytes.to_vec()))
            .collect(),
    })
}

fn names(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn an_entry_is_what_was_stored() {
    for entry in [
        file(&[(0, b"abc"), (10, b"defgh")]),
        file(&[]),
        CacheEntry::Absent,
    ] {
        let bytes = entry::encode("https://h/a", &entry);
        assert_eq!(entry::decode("https://h/a", &bytes), Some(entry));
        // an entry that was renamed
        assert_eq!(entry::decode("https://h/b", &bytes), None);
    }
}

#[test]
fn a_damaged_entry_is_none() {
    let whole = entry::encode("key", &file(&[(0, b"abc"), (10, b"defgh")]));
    for len in 0..whole.len() {
        assert_eq!(entry::decode("key", &whole[..len]), None, "{len}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        assert_eq!(entry::decode("key", &damaged), None, "{at}");
    }
    let longer = [&whole[..], b"x"].concat();
    assert_eq!(entry::decode("key", &longer), None);
}

/// With a checksum that is right, as a hostile entry has.
#[test]
fn an_entry_that_contradicts_itself_is_none() {
    for ranges in [
        &[(0u64, &b"abc"[..]), (2, b"x")][..], // overlapping
        &[(0, b"abc"), (3, b"x")],             // one range in two
        &[(5, b"abc"), (0, b"x")],             // descending
        &[(0, b"")],
        &[(999, b"ab")], // behind the end
        &[(u64::MAX, b"ab")],
    ] {
        let bytes = entry::encode("key", &file(ranges));
        assert_eq!(entry::decode("key", &bytes), None, "{ranges:?}");
    }
    let signed = |body: &[u8]| {
        let mut bytes = b"ANMHDR1\n".to_vec();
        bytes.extend(entry::checksum("key", body));
        bytes.extend(body);
        bytes
    };
    let good = entry::encode("key", &file(&[(0, b"abc")]));
    let body = &good[8 + 32..];
    assert!(entry::decode("key", &signed(body)).is_some());
    // lengths of texts, numbers of ranges and lengths of ranges that the entry has not
    for at in 0..body.len() {
        for value in [0, 0x7f, 0xff] {
            let mut wrong = body.to_vec();
            wrong[at] = value;
            if let Some(CacheEntry::File(file)) = entry::decode("key", &signed(&wrong)) {
                let nbytes: usize = file.ranges.iter().map(|(_, bytes)| bytes.len()).sum();
                assert!(nbytes <= 3, "{at}: {file:?}");
            }
        }
    }
}

#[test]
fn entries_are_for_one_user_and_replaced_as_a_whole() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("a/b");
    let cache = HeaderCache::open(&directory, 1 << 20).unwrap();
    cache.store("key", &file(&[(0, b"abc")]));
    cache.store("key", &file(&[(0, b"abcd")]));
    cache.store("other", &CacheEntry::Absent);
    let len = entry::encode("key", &file(&[(0, b"abcd")])).len() as u64;
    // its file and what is made of it
    assert_eq!(cache.load("key", 2 * len), Some(file(&[(0, b"abcd")])));
    assert_eq!(cache.load("key", 2 * len - 1), None);
    assert_eq!(cache.load("other", 2 * len), Some(CacheEntry::Absent));
    assert_eq!(cache.load("third", 2 * len), None);
    let found = names(&directory);
    assert_eq!(found.len(), 2, "{found:?}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700);
        assert!(found.iter().all(|path| mode(path) == 0o600));
        // another user could put a header there
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o722)).unwrap();
        let error = HeaderCache::open(&directory, 1 << 20).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("chmod go-w"), "{error}");
    }
    let in_file = HeaderCache::open(&found[0].join("x"), 1 << 20);
    assert_eq!(in_file.err().unwrap().kind(), ErrorKind::Invalid);
}

#[cfg(unix)]
#[test]
fn links_and_directories_are_no_entries() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = HeaderCache::open(scratch.path(), 1 << 20).unwrap();
    cache.store("key", &file(&[(0, b"abc")]));
    let entry = &names(scratch.path())[0];
    let moved = scratch.path().join("moved");
    fs::rename(entry, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, entry).unwrap();
    assert_eq!(cache.load("key", 1000), None);
    // the link is replaced, and what it leads to is not written
    let before = fs::read(&moved).unwrap();
    cache.store("key", &file(&[(0, b"new")]));
    assert_eq!(cache.load("key", 1000), Some(file(&[(0, b"new")])));
    assert_eq!(fs::read(&moved).unwrap(), before);
    fs::remove_file(entry).unwrap();
    fs::create_dir(entry).unwrap();
    assert_eq!(cache.load("key", 1000), None);
    cache.store("key", &file(&[(0, b"new")]));
    assert_eq!(names(scratch.path()).len(), 2, "nothing unfinished is left");
}

#[test]
fn what_was_used_longest_ago_is_evicted() {
    let scratch = tempfile::tempdir().unwrap();
    let entry = file(&[(0, &[7; 400])]);
    let len = entry::encode("key 0", &entry).len() as u64;
    let cache = HeaderCache::open(scratch.path(), 4 * len).unwrap();
    let set_age = |key: &str, seconds: u64| {
        let path = scratch.path().join(name_of(key));
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds))
            .unwrap();
    };
    for (key, age) in [("key 0", 50), ("key 1", 40), ("key 2", 30), ("key 3", 20)] {
        cache.store(key, &entry);
        set_age(key, age);
    }
    cache.touch("key 0");
    fs::write(scratch.path().join("other file"), [0; 5000]).unwrap();
    fs::write(scratch.path().join(".1-1.part"), [0; 5000]).unwrap();
    let abandoned = scratch.path().join(".1-2.part");
    fs::write(&abandoned, [0; 5000]).unwrap();
    let file = fs::File::options().append(true).open(&abandoned).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(2 * 3600))
        .unwrap();
    cache.store("key 4", &entry);
    let kept = |key: &str| cache.load(key, 2000).is_some();
    let found: Vec<bool> = (0..5).map(|i| kept(&format!("key {i}"))).collect();
    assert_eq!(found, [true, false, true, true, true]);
    // files of others are left alone, and those that are being written
    assert!(scratch.path().join("other file").exists());
    assert!(scratch.path().join(".1-1.part").exists() && !abandoned.exists());
    // one that is larger than the cache is not kept, and evicts nothing
    let small = HeaderCache::open(scratch.path(), len - 1).unwrap();
    small.store("key 5", &entry);
    assert!(!kept("key 5") && kept("key 4"));
}

#[test]
fn a_cache_that_cannot_be_written_to_is_no_failure() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("cache");
    let cache = HeaderCache::open(&directory, 1 << 20).unwrap();
    fs::remove_dir(&directory).unwrap();
    cache.store("key", &CacheEntry::Absent);
    cache.touch("key");
    assert_eq!(cache.load("key", 0), None);
}
