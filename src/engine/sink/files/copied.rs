//! Outputs that are copied from file to file: which of their bytes follow one another in both, and how a run of them is copied.
//!
//! The system copies them where it can (`anamnesis_os::range_copier`): one copy instead of two, which takes three quarters of the
//! processor time. Checksums, other systems and files that it does not copy need the bytes in memory: they are read into a buffer that
//! stays in the second-level cache, and written.

use std::path::Path;

#[cfg(target_os = "linux")]
use anamnesis_os::range_copier::{CopiedRange, RangeCopier};
use crc32fast::Hasher;

use crate::base::error::{Error, Result};
use crate::base::progress::FirstError;
use crate::base::threads::{NumberQueue, on_threads, work_off};
use crate::engine::sink::{StoredCopies, StoredOutput};
use crate::read::source::{Source, read_exact_at};

use super::FileSink;
use super::file::Shard;

/// Bytes that go through the buffer at a time. 512 KiB and more take 1.5 times as long, 64 KiB 1.1 times (experiment 60).
const PIECE: usize = 256 << 10;

/// Bytes that the system copies at a time, between two checks for cancellation.
#[cfg(target_os = "linux")]
const SYSTEM_PIECE: u64 = 4 << 20;

/// Bytes of a source that are prefetched at a time, once those before are being copied.
const AHEAD: u64 = 8 << 20;

/// A pipe and a buffer, kept from one copy to the next.
#[derive(Default)]
pub(super) struct CopyTools {
    #[cfg(target_os = "linux")]
    copier: RangeCopier,
    buffer: Vec<u8>,
}

/// Bytes of a source that are bytes of a new file.
#[derive(Clone, Copy)]
pub(super) struct CopiedRun<'s> {
    pub(super) source: &'s dyn Source,
    /// The path of the source, for errors.
    pub(super) path: Option<&'s Path>,
    /// Offset of the first byte in the source.
    pub(super) start: u64,
    /// Offset of the first byte in the file.
    pub(super) at: u64,
    pub(super) len: u64,
}

impl CopiedRun<'_> {
    /// Copies the run to a file. A checksum makes all bytes pass through memory, and `copied` is called as by [`StoredCopies::copy`].
    pub(super) fn copy_to(
        &self,
        file: &Shard,
        tools: &mut CopyTools,
        mut checksum: Option<&mut Hasher>,
        copied: &dyn Fn(u64) -> Result<()>,
    ) -> Result<()> {
        let mut within_system = checksum.is_none();
        let (mut done, mut ahead) = (0, 0);
        while done < self.len {
            // the window behind the one that is copied: a device works on it meanwhile
            while ahead < self.len.min(done.saturating_add(AHEAD)) {
                let len = AHEAD.min(self.len - ahead);
                self.source.will_need(self.start + ahead, len);
                ahead += len;
            }
            let rest = self.behind(done);
            let mut len = 0;
            if within_system {
                len = rest.copy_within_system(file, tools)?;
                within_system = len > 0;
            }
            if len == 0 {
                len = rest.copy_through(file, &mut tools.buffer, checksum.as_deref_mut())?;
            }
            done += len;
            copied(len)?;
        }
        Ok(())
    }

    /// The run without its first `done` bytes.
    fn behind(&self, done: u64) -> Self {
        Self {
            start: self.start + done,
            at: self.at + done,
            len: self.len - done,
            ..*self
        }
    }

    /// Copies the first bytes of the run without reading them. Returns how many; 0 where this is not possible.
    #[cfg(target_os = "linux")]
    fn copy_within_system(&self, file: &Shard, tools: &mut CopyTools) -> Result<u64> {
        use std::os::fd::AsFd;

        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let Some(from) = self.source.as_fd() else {
            return Ok(0);
        };
        let range = CopiedRange {
            from: from.as_fd(),
            start: self.start,
            at: self.at,
            // later pieces begin at blocks, which files can share
            len: self.len.min(SYSTEM_PIECE - self.at % SYSTEM_PIECE),
        };
        match file.copy(&mut tools.copier, range) {
            Ok(copied) => Ok(copied.min(range.len)),
            Err(e) if matches!(e.kind(), FileTooLarge | QuotaExceeded | StorageFull) => {
                Err(file.error(e))
            }
            // other file systems, other kinds of files, a filter of system calls; or one of the two files fails, and reading or writing
            // it tells which
            Err(_) => Ok(0),
        }
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as on Linux")]
    fn copy_within_system(&self, _file: &Shard, _tools: &mut CopyTools) -> Result<u64> {
        Ok(0)
    }

    /// Reads and writes the first bytes of the run, and returns how many.
    fn copy_through(
        &self,
        file: &Shard,
        buffer: &mut Vec<u8>,
        checksum: Option<&mut Hasher>,
    ) -> Result<u64> {
        buffer.resize(PIECE, 0);
        // writes begin at pages
        let within = usize::try_from(self.at % PIECE as u64).expect("less than a piece");
        let longest = PIECE - within;
        let len = usize::try_from(self.len).map_or(longest, |len| len.min(longest));
        let piece = &mut buffer[..len];
        read_exact_at(self.source, self.start, piece).map_err(|e| {
            let error = Error::from(e).at(self.start);
            match self.path {
                Some(path) => error.in_file(path),
                None => error,
            }
        })?;
        if let Some(checksum) = checksum {
            checksum.update(piece);
        }
        file.write(self.at, piece)?;
        Ok(len as u64)
    }
}

/// The outputs of one file that are copied, in the order of their bytes.
struct CopiedFile<'o, 's> {
    file: usize,
    outputs: Vec<&'o StoredOutput<'s>>,
}

impl StoredCopies for FileSink {
    fn copy(
        &self,
        outputs: &[StoredOutput<'_>],
        threads: usize,
        copied: &(dyn Fn(u64) -> Result<()> + Sync),
    ) -> Result<()> {
        let files = self.copied_files(outputs);
        let numbers = NumberQueue::below(files.len() as u64);
        let failure = FirstError::default();
        // one thread for each file: writes to a file wait for each other
        on_threads("copy", threads.min(files.len()), &|| {
            let mut tools = CopyTools::default();
            work_off(
                &failure,
                || numbers.next(),
                |number| {
                    let file = &files[usize::try_from(number).expect("an index of a list")];
                    self.copy_file(file, &mut tools, copied)
                },
            );
        });
        failure.outcome()
    }
}

impl FileSink {
    /// Distributes outputs over the files that they belong to.
    fn copied_files<'o, 's>(&self, outputs: &'o [StoredOutput<'s>]) -> Vec<CopiedFile<'o, 's>> {
        let places = self.written.as_ref().expect("begun").places();
        let mut sorted: Vec<_> = outputs.iter().collect();
        sorted.sort_by_key(|output| places[output.output]);
        let of_one_file = |outputs: &[&'o StoredOutput<'s>]| CopiedFile {
            file: places[outputs[0].output].0,
            outputs: outputs.to_vec(),
        };
        let is_same_file =
            |a: &&StoredOutput<'_>, b: &&StoredOutput<'_>| places[a.output].0 == places[b.output].0;
        sorted.chunk_by(is_same_file).map(of_one_file).collect()
    }

    fn copy_file(
        &self,
        copied_file: &CopiedFile<'_, '_>,
        tools: &mut CopyTools,
        copied: &(dyn Fn(u64) -> Result<()> + Sync),
    ) -> Result<()> {
        let written = self.written.as_ref().expect("begun");
        let place = self.output.as_ref().expect("begun");
        let file = place
            .file(copied_file.file)
            .expect("a file that takes copies");
        let has_checksums = written.has_checksums();
        let follows = |a: &&StoredOutput<'_>, b: &&StoredOutput<'_>| {
            let places = written.places();
            !has_checksums
                && std::ptr::addr_eq(a.source, b.source)
                && a.start.checked_add(a.len) == Some(b.start)
                && places[a.output].1.checked_add(a.len) == Some(places[b.output].1)
        };
        for outputs in copied_file.outputs.chunk_by(follows) {
            let first = outputs[0];
            for (at, gap) in written.before(first.output) {
                file.write(*at, gap)?;
            }
            let run = CopiedRun {
                source: first.source,
                path: first.path,
                start: first.start,
                at: written.places()[first.output].1,
                len: outputs.iter().map(|output| output.len).sum(),
            };
            let mut checksum = has_checksums.then(Hasher::new);
            run.copy_to(file, tools, checksum.as_mut(), copied)?;
            if let Some(checksum) = checksum {
                written.add_checksum(first.output, 0, checksum);
            }
        }
        // for the end, when files are synchronised one after the other
        file.start_writeback();
        Ok(())
    }
}
