//! Completing a recorded template from the catalog.

use std::collections::HashMap;

use anamnesis_template::{Access, ByteRange, StridedFileRange, Template, TemplateBuilder};

use crate::base::error::Result;
use crate::read::checkpoint::Checkpoint;
use crate::read::checkpoint::TemplateFiles;

/// Page faults of mapped files are recorded, and one fault maps up to 2 MiB, so that touches near the ends of a tensor may
/// be missing. A tensor that was touched within this distance of an end counts as read up to that end.
const FAULT_REACH: u64 = 2 << 20;
/// Fewer recorded bytes than this at the beginning of a tensor belong to the last page of the tensor before it.
const PAGE: u64 = 4096;
/// Touches of one reader are at most this far apart, also where the kernel maps memory in large folios and reports one
/// page of each.
const MAX_TOUCH_GAP: u64 = 32 << 20;

/// Completes a template that was recorded from page-cache events: a tensor counts as read from the first of its recorded
/// pages to the last, unless they are far apart. Accesses outside of tensors are kept. The order is the order of the first
/// access to each tensor.
///
/// ```
/// use anamnesis::predict::complete;
/// use anamnesis::template::{TemplateBuilder, coverage};
/// use anamnesis::{ByteRange, Checkpoint, predict};
///
/// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
/// let predicted = predict(&checkpoint).template()?;
/// // of the first file, every other KiB was recorded
/// let mut builder = TemplateBuilder::new();
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
/// The checkpoint was not opened from a path, or a file of the template has changed its length.
pub fn complete(checkpoint: &Checkpoint, recorded: &Template) -> Result<Template> {
    let files = TemplateFiles::of(checkpoint)?;
    let catalog = checkpoint.catalog();
    let mut tensors: Vec<ByteRange> = catalog
        .tensors
        .iter()
        .map(|tensor| tensor.bytes)
        .filter(|t| t.len > 0)
        .collect();
    // in file order for the binary search of `Touches::add`
    tensors.sort_unstable_by_key(|bytes| (bytes.file, bytes.start));
    tensors.dedup(); // tied weights
    let mut builder = TemplateBuilder::new().gap(PAGE - 1).lookback(8).once(true);
    recorded.parameters().for_each(|(key, value)| {
        builder.parameter(key, value);
    });
    if let Some(service) = recorded.service() {
        builder.service(service);
    }
    for file in recorded.files() {
        builder.file(file.clone())?;
    }
    // the index in the catalog of each of the template's files
    let known: Vec<Option<u32>> = recorded
        .files()
        .iter()
        .map(|file| files.position(&file.path))
        .collect();
    for group in recorded.groups() {
        builder.group(group.rank(), group.name());
        let mut touches = Touches {
            tensors: &tensors,
            touched: HashMap::new(),
            order: Vec::new(),
        };
        for access in group.accesses() {
            match known[access.file as usize].filter(|_| access.bytes.count == 1) {
                Some(file) => touches.add(file, access),
                None => touches
                    .order
                    .push((Touched::Other(access.range()), access.at)),
            }
        }
        let Touches {
            mut touched, order, ..
        } = touches;
        for (what, at) in order {
            match what {
                // headers, and files that are not of the checkpoint
                Touched::Other(range) => builder.access(group.rank(), range, at)?,
                Touched::Tensor { number, file } => {
                    let ranges = touched.remove(&number).unwrap_or_default();
                    for (start, end) in ranges_read(tensors[number], ranges) {
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

/// The accesses of one worker, by tensor.
struct Touches<'t> {
    /// All tensors, in file order.
    tensors: &'t [ByteRange],
    /// Ranges of tensors that were accessed, by the index of the tensor.
    touched: HashMap<usize, Vec<(u64, u64)>>,
    /// Tensors and other ranges in the order of their first access, with its time.
    order: Vec<(Touched, Option<u64>)>,
}

enum Touched {
    /// A tensor, and the index of its file in the template.
    Tensor { number: usize, file: u32 },
    /// A range outside of tensors, or a strided access: kept unchanged.
    Other(StridedFileRange),
}

impl Touches<'_> {
    /// Assigns an access to the tensors that it overlaps. `file` is the file's index in the catalog.
    fn add(&mut self, file: u32, access: &Access) {
        let (range, time) = (access.bytes, access.at);
        let (mut at, end) = (range.start, range.end());
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
                    file: access.file,
                    start: at,
                    len: begin - at,
                };
                self.order.push((Touched::Other(between.into()), time));
            }
            let Some(tensor) = tensor else { break };
            let stop = end.min(tensor.start + tensor.len);
            if stop <= begin {
                next += 1; // a tensor within another
                continue;
            }
            // an access that begins before the tensor and ends within its first page was made for the tensor before
            // it
            let came_along =
                begin == tensor.start && stop - begin < PAGE && at > range.start && stop == end;
            if !came_along || tensor.len < PAGE {
                let ranges = self.touched.entry(next).or_default();
                if ranges.is_empty() {
                    self.order.push((
                        Touched::Tensor {
                            number: next,
                            file: access.file,
                        },
                        time,
                    ));
                }
                ranges.push((begin, stop));
            }
            at = stop.max(at);
            next += 1;
        }
    }
}

/// The ranges of a tensor that count as read: ranges that are at most [`MAX_TOUCH_GAP`] apart are joined, and extended to
/// the ends of the tensor within [`FAULT_REACH`].
fn ranges_read(tensor: ByteRange, mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match all.last_mut() {
            // further apart, the worker read two parts of the tensor and not what is between
            Some(last) if start <= last.1.saturating_add(MAX_TOUCH_GAP) => last.1 = last.1.max(end),
            _ => all.push((start, end)),
        }
    }
    let end = tensor.start + tensor.len;
    if let Some(first) = all
        .first_mut()
        .filter(|first| first.0 - tensor.start < FAULT_REACH)
    {
        first.0 = tensor.start;
    }
    if let Some(last) = all.last_mut().filter(|last| end - last.1 < FAULT_REACH) {
        last.1 = end;
    }
    all
}
