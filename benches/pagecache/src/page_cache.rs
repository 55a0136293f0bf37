//! The same state of the machine before each run: files cached or evicted, and memory backed by the host.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::Failure;

/// The files of a directory, sorted by name.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files: Vec<_> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, Failure>>()?;
    files.sort();
    Ok(files)
}

/// Evicts the files of a directory from the page cache and verifies it. Up to 64 MiB may remain: pages that are mapped or
/// busy cannot be evicted.
pub fn evict(dir: &Path) -> Result<(), Failure> {
    let mut remaining = 0;
    for _ in 0..5 {
        remaining = 0;
        for path in files(dir)? {
            let file = File::open(&path)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            remaining +=
                anamnesis_ppc::cache::FileResidency::of(&file, 0, file.metadata()?.len())?.cached;
        }
        if remaining == 0 {
            return Ok(());
        }
    }
    if remaining < 64 << 20 {
        Ok(())
    } else {
        Err(format!(
            "{remaining} bytes of {} remain in the page cache",
            dir.display()
        )
        .into())
    }
}

/// Reads the files of a directory into the page cache.
pub fn populate(dir: &Path) -> Result<(), Failure> {
    let mut buffer = vec![0; 1 << 20];
    for path in files(dir)? {
        let mut file = File::open(path)?;
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

/// Touches as much memory as a run will use, because a virtual machine may have returned it to its host.
pub fn touch_memory(bytes: usize) {
    // freed at the end: it is enough that the host has backed the pages
    let mut memory = vec![0u8; bytes];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}
