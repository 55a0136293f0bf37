//! A recorded template, completed by what the catalog knows.

use std::collections::HashMap;

use anamnesis_template::{Access, Builder, ByteRange, Runs, Template};

use super::Files;
use crate::checkpoint::Checkpoint;
use crate::error::Result;

/// What is recorded of mapped memory is told as the kernel maps it: not the pages that came along in the same piece of
/// memory. So far from a tensor's end a reader is taken to have begun or ended there.
const PIECE: u64 = 2 << 20;
/// Less than this at a tensor's beginning came along with the page of the tensor before it.
const PAGE: u64 = 4096;
/// So far apart are touches of one reader at most: memory that is mapped in huge pieces tells one page of each.
const GAP: u64 = 32 << 20;

/// Adds to what was recorded from outside what must have been read with it: a tensor was read from the first of its
/// touched pages to the last, unless they are far apart. Headers and what was touched here and there stay as they are;
/// the order is that of first touches.
///
/// ```
/// use anamnesis::template::{Builder, ByteRange, File, coverage};
/// use anamnesis::{Checkpoint, complete, predict};
///
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// let predicted = predict(&checkpoint).template()?;
/// // of the first file every other KiB was seen
/// let mut builder = Builder::new();
/// let file = builder.file(predicted.files()[0].clone())?;
/// for start in (0..predicted.files()[0].nbytes - 512).step_by(1024) {
///     builder.access(0, ByteRange { file, start, len: 512 }, None)?;
/// }
/// let completed = complete(&checkpoint, &builder.finish())?;
/// let files = coverage(&predicted, &completed).files;
/// # assert!(files[0].share() > 0.9);
/// # Ok::<(), anamnesis::Error>(())
/// ```
///
/// # Errors
/// The checkpoint was opened from no path, or a file of the template has another length by now.
pub fn complete(checkpoint: &Checkpoint, recorded: &Template) -> Result<Template> {
    let files = Files::of(checkpoint)?;
    let catalog = checkpoint.catalog();
    let mut tensors: Vec<ByteRange> = catalog
        .tensors
        .iter()
        .map(|tensor| tensor.bytes)
        .filter(|t| t.len > 0)
        .collect();
    tensors.sort_unstable_by_key(|bytes| (bytes.file, bytes.start));
    tensors.dedup(); // tied
    let mut builder = Builder::new().gap(PAGE - 1).lookback(8).once(true);
    recorded.parameters().for_each(|(key, value)| {
        builder.parameter(key, value);
    });
    if let Some(service) = recorded.service() {
        builder.service(service);
    }
    for file in recorded.files() {
        builder.file(file.clone())?;
    }
    // the catalog's number of each of the template's files
    let known: Vec<Option<u32>> = recorded
        .files()
        .iter()
        .map(|file| files.position(&file.path))
        .collect();
    for group in recorded.groups() {
        builder.group(group.rank(), group.name());
        let mut seen = Seen {
            tensors: &tensors,
            touched: HashMap::new(),
            order: Vec::new(),
        };
        for Access { runs, at } in group.accesses().iter().copied() {
            match known[runs.file as usize].filter(|_| runs.count == 1) {
                Some(file) => seen.range(file, runs, at),
                None => seen.order.push((What::Other(runs), at)),
            }
        }
        let Seen {
            mut touched, order, ..
        } = seen;
        for (what, at) in order {
            match what {
                What::Other(runs) => builder.access(group.rank(), runs, at)?,
                What::Tensor { number, file } => {
                    let pieces = touched.remove(&number).unwrap_or_default();
                    for (start, end) in read(tensors[number], pieces) {
                        builder.access(
                            group.rank(),
                            ByteRange {
                                file,
                                start,
                                len: end - start,
                            },
                            at,
                        )?;
                    }
                }
            }
        }
    }
    Ok(builder.finish())
}

/// What a worker touched.
struct Seen<'t> {
    /// In the order of their bytes.
    tensors: &'t [ByteRange],
    /// Pieces of tensors, by their number.
    touched: HashMap<usize, Vec<(u64, u64)>>,
    /// What was touched, when it was touched first.
    order: Vec<(What, Option<u64>)>,
}

enum What {
    /// Of the template's file with this number.
    Tensor { number: usize, file: u32 },
    /// What is no tensor's, or strided: it stays as it is.
    Other(Runs),
}

impl Seen<'_> {
    /// One range, which is of the catalog's file with this number: what of it is whose.
    fn range(&mut self, file: u32, runs: Runs, time: Option<u64>) {
        let (mut at, end) = (runs.start, runs.start + runs.len);
        let mut next = self
            .tensors
            .partition_point(|t| (t.file, t.start.saturating_add(t.len)) <= (file, at));
        while at < end {
            let tensor = self
                .tensors
                .get(next)
                .filter(|t| t.file == file && t.start < end);
            let begin = tensor.map_or(end, |t| t.start.max(at));
            if begin > at {
                let between = ByteRange {
                    file: runs.file,
                    start: at,
                    len: begin - at,
                };
                self.order.push((What::Other(between.into()), time));
            }
            let Some(tensor) = tensor else { break };
            let stop = end.min(tensor.start + tensor.len);
            if stop <= begin {
                next += 1; // one within another
                continue;
            }
            let came_along =
                begin == tensor.start && stop - begin < PAGE && at > runs.start && stop == end;
            if !came_along || tensor.len < PAGE {
                let pieces = self.touched.entry(next).or_default();
                if pieces.is_empty() {
                    self.order.push((
                        What::Tensor {
                            number: next,
                            file: runs.file,
                        },
                        time,
                    ));
                }
                pieces.push((begin, stop));
            }
            at = stop.max(at);
            next += 1;
        }
    }
}

/// What must have been read of a tensor: its touched pieces, and what lies between those that are near each other. One
/// that was touched to within a piece of memory of the tensor's ends was read to the end.
fn read(tensor: ByteRange, mut pieces: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    pieces.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, end) in pieces {
        match all.last_mut() {
            Some(last) if start <= last.1.saturating_add(GAP) => last.1 = last.1.max(end),
            _ => all.push((start, end)),
        }
    }
    let end = tensor.start + tensor.len;
    if let Some(first) = all
        .first_mut()
        .filter(|first| first.0 - tensor.start < PIECE)
    {
        first.0 = tensor.start;
    }
    if let Some(last) = all.last_mut().filter(|last| end - last.1 < PIECE) {
        last.1 = end;
    }
    all
}
