//! The report of [`StorageInfo`] on the files of a checkpoint, and the loader that [`choose`] selects from it.

use std::fs;

use crate::support::loaders::all_loaders;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::skip;
use crate::support::tensor_files::{large_tensors, tensor_bytes, write_and_open};
use anamnesis::Checkpoint;
use anamnesis::load::{StorageInfo, StorageKind, choose, load};
use anamnesis::slice::TensorSlice;

#[test]
fn resident_and_evicted_files_choose_different_loaders() {
    let scratch = ScratchDir::new("storage-info");
    let checkpoint = write_and_open(&scratch, &large_tensors());
    let info = StorageInfo::of(&checkpoint);
    assert!(info.is_borrowable == cfg!(feature = "mmap") && info.bytes > 50 << 20);
    if info.resident.is_none() {
        return skip("this kernel has no cachestat");
    }
    // written just now; read again if the kernel evicted some of it meanwhile
    let is_resident = (0..20).any(|_| {
        let is_resident = StorageInfo::of(&checkpoint).resident > Some(0.95);
        if !is_resident {
            fs::read(scratch.path("in.safetensors")).unwrap();
        }
        is_resident
    });
    assert!(is_resident, "{info:?}");
    if matches!(info.kind, StorageKind::Memory(_)) {
        return skip("the scratch directory is in memory");
    }
    let file = fs::File::open(scratch.path("in.safetensors")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let info = StorageInfo::of(&checkpoint);
    assert!(info.resident.unwrap() < 0.5, "{info:?}");
    let choice = choose(&info, false);
    assert!(choice.loader.name().ends_with("direct"), "{choice}");
    let loaded = load(&checkpoint).run().unwrap();
    assert!(
        loaded.choice().loader.name().ends_with("direct"),
        "{}",
        loaded.choice()
    );
    assert_eq!(loaded.tensors()[0].bytes(), random_bytes(0, 5 << 20));
    // direct reads leave the page cache as it was
    assert!(StorageInfo::of(&checkpoint).resident.unwrap() < 0.5);
}

/// A few rows are read at once: the pages of a file of gigabytes are not counted for them. One tensor decides by its own pages.
#[test]
fn a_load_of_one_tensor_looks_at_no_other() {
    let scratch = ScratchDir::new("storage-info-one");
    let checkpoint = write_and_open(&scratch, &large_tensors());
    let names: Vec<&str> = checkpoint
        .catalog()
        .tensors()
        .iter()
        .map(|tensor| &*tensor.name)
        .collect();
    let rows = load(&checkpoint).slice(|_| TensorSlice::Rows(0..1));
    let row = rows.names([names[0]]).run().unwrap();
    assert!(
        row.choice().to_string().contains("small: read at once"),
        "{}",
        row.choice()
    );
    if StorageInfo::of(&checkpoint).resident.is_none() {
        return skip("this kernel has no cachestat");
    }
    let info = StorageInfo::of(&checkpoint);
    if matches!(info.kind, StorageKind::Memory(_)) {
        return skip("the scratch directory is in memory");
    }
    let file = fs::File::open(scratch.path("in.safetensors")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    // the first tensor is in memory, and all others are not
    let first = checkpoint.tensor(names[0]).unwrap();
    first.chunks(|_| Ok(())).unwrap();
    let chosen = |name: &str| {
        let loaded = load(&checkpoint).names([name]).run().unwrap();
        loaded.choice().to_string()
    };
    let (warm, cold) = (chosen(names[0]), chosen(names[names.len() - 1]));
    assert!(warm.contains("100 % in the page cache"), "{warm}");
    assert!(!cold.contains("100 %"), "{cold}");
}

/// tmpfs accepts `O_DIRECT` since Linux 6.6 and refused it before; the bytes are the same.
#[test]
fn direct_reads_of_tmpfs_give_the_same_bytes() {
    let root = std::path::Path::new("/dev/shm");
    if !root.is_dir() {
        return skip("no tmpfs at /dev/shm");
    }
    let path = root.join(format!("anamnesis-load-{}.safetensors", std::process::id()));
    fs::write(&path, large_tensors()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    fs::remove_file(&path).unwrap(); // it stays open
    let expected = tensor_bytes(&checkpoint);
    for (name, loader) in all_loaders()
        .iter()
        .filter(|(name, _)| name.contains("direct"))
    {
        let loaded = load(&checkpoint)
            .loader(loader.clone())
            .borrow_mapped()
            .run()
            .unwrap();
        let found = loaded.tensors().iter().map(|tensor| tensor.bytes());
        assert!(found.eq(expected.iter().map(|bytes| &bytes[..])), "{name}");
    }
    let info = StorageInfo::of(&checkpoint);
    assert_eq!(info.kind, StorageKind::Memory("tmpfs"));
    assert_eq!(choose(&info, false).loader.name(), "pread");
}
