//! The bytes of files that are no tensor's, and the checksums of those that are, while a run writes them.

use std::sync::{Mutex, PoisonError};

use crc32fast::Hasher;

use crate::base::error::Result;
use crate::engine::sink::container::{CompleteFile, FileForm, Gap};
use crate::plan::TensorSpec;

/// The forms of the files that are written, and what has to be written beside the outputs.
#[derive(Debug)]
pub(super) struct WrittenFiles {
    forms: Vec<FileForm>,
    /// Each output's file, by index, and its offset in it.
    places: Vec<(usize, u64)>,
    /// The bytes in front of each output, behind the one before: they are written with its first byte, so that the bytes of a
    /// file arrive in order where outputs do.
    before: Vec<Vec<Gap>>,
    /// The bytes behind the last outputs, by file.
    behind: Vec<(usize, Gap)>,
    checksums: Option<Checksums>,
}

/// The checksums of the pieces of each output.
#[derive(Debug)]
struct Checksums {
    complete: CompleteFile,
    outputs: Vec<TensorSpec>,
    pieces: Vec<Mutex<Vec<(u64, Hasher)>>>,
}

impl WrittenFiles {
    pub(super) fn new(
        mut forms: Vec<FileForm>,
        outputs: &[TensorSpec],
        complete: Option<CompleteFile>,
    ) -> Self {
        let mut places = vec![(0, 0); outputs.len()];
        let mut before: Vec<Vec<Gap>> = vec![Vec::new(); outputs.len()];
        let mut behind = Vec::new();
        for (file, form) in forms.iter_mut().enumerate() {
            let mut gaps = std::mem::take(&mut form.gaps).into_iter().peekable();
            for &(output, start) in &form.outputs {
                places[output] = (file, start);
                // an output without bytes is never put
                if outputs[output].nbytes() == Some(0) {
                    continue;
                }
                while let Some(gap) = gaps.next_if(|(at, _)| *at < start) {
                    before[output].push(gap);
                }
            }
            behind.extend(gaps.map(|gap| (file, gap)));
        }
        let checksums = complete.map(|complete| Checksums {
            complete,
            outputs: outputs.to_vec(),
            pieces: outputs.iter().map(|_| Mutex::default()).collect(),
        });
        Self {
            forms,
            places,
            before,
            behind,
            checksums,
        }
    }

    pub(super) fn places(&self) -> &[(usize, u64)] {
        &self.places
    }

    /// Passes on the bytes of an output, with what is in front of it.
    pub(super) fn put(
        &self,
        output: usize,
        start: u64,
        bytes: &[u8],
        mut write: impl FnMut(usize, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (file, base) = self.places[output];
        if start == 0 {
            for (at, gap) in self.before(output) {
                write(file, *at, gap)?;
            }
        }
        if self.has_checksums() {
            let mut piece = Hasher::new();
            piece.update(bytes);
            self.add_checksum(output, start, piece);
        }
        write(file, base + start, bytes)
    }

    /// The bytes in front of an output.
    pub(super) fn before(&self, output: usize) -> &[Gap] {
        &self.before[output]
    }

    /// Whether checksums of the outputs are needed.
    pub(super) fn has_checksums(&self) -> bool {
        self.checksums.is_some()
    }

    /// Keeps the checksum of a piece of an output that begins at `start`.
    pub(super) fn add_checksum(&self, output: usize, start: u64, piece: Hasher) {
        if let Some(checksums) = &self.checksums {
            let pieces = checksums.pieces[output].lock();
            let mut pieces = pieces.unwrap_or_else(PoisonError::into_inner);
            pieces.push((start, piece));
        }
    }

    /// Passes on what is behind the outputs, once they are complete, and what follows from their checksums.
    pub(super) fn finish(
        &mut self,
        mut write: impl FnMut(usize, u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        for (file, (at, gap)) in std::mem::take(&mut self.behind) {
            write(file, at, &gap)?;
        }
        let Some(checksums) = &mut self.checksums else {
            return Ok(());
        };
        for (file, form) in self.forms.iter().enumerate() {
            let sums = form.outputs.iter().map(|&(output, _)| {
                let pieces = checksums.pieces[output].get_mut();
                let pieces = pieces.unwrap_or_else(PoisonError::into_inner);
                pieces.sort_by_key(|(start, _)| *start);
                let mut whole = Hasher::new();
                pieces.iter().for_each(|(_, piece)| whole.combine(piece));
                whole
            });
            let sums: Vec<Hasher> = sums.collect();
            for (at, bytes) in (checksums.complete)(form, &checksums.outputs, &sums) {
                write(file, at, &bytes)?;
            }
        }
        Ok(())
    }
}
