//! What the machine remembers between runs: files in the page cache, and memory that was touched.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::Failure;

/// The files of a directory, by name.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut files: Vec<_> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_, Failure>>()?;
    files.sort();
    Ok(files)
}

/// Drops the files of a directory from the page cache, and makes sure of it.
pub fn cool(dir: &Path) -> Result<(), Failure> {
    let mut left = 0;
    for _ in 0..5 {
        left = 0;
        for path in files(dir)? {
            let file = File::open(&path)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            left += anamnesis_ppc::cache::Residency::of(&file, 0, file.metadata()?.len())?.cached;
        }
        if left == 0 {
            return Ok(());
        }
    }
    if left < 64 << 20 {
        Ok(())
    } else {
        Err(format!("{left} bytes of {} stay in the page cache", dir.display()).into())
    }
}

/// Reads the files of a directory into the page cache.
pub fn warm(dir: &Path) -> Result<(), Failure> {
    let mut piece = vec![0; 1 << 20];
    for path in files(dir)? {
        let mut file = File::open(path)?;
        while file.read(&mut piece)? > 0 {}
    }
    Ok(())
}

/// Touches as much memory as a run will use: a virtual machine may have given it back to its host.
pub fn heat(bytes: usize) {
    // dropped at once; what counts is that the host has backed it
    let mut memory = vec![0u8; bytes];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}
