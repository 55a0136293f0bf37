//! Turns the accesses of a template group into the chunks that are prefetched.
//!
//! `anamnesis_template::page_spans` rounds accesses to whole pages and merges neighbours; [`split`]
//! divides the result at multiples of a chunk length, so that each chunk lies in one aligned stretch of its
//! file. `schedule.rs` indexes the chunks. Everything here is arithmetic: no file is opened.

use anamnesis_template::FileSpan;

/// Smallest chunk length: two reads of the prefetcher, whose rate does not grow with longer ones
/// (crates/pagecache/ppc/EXPERIMENTS.md, "Reading" and "Interrupts").
const MIN_CHUNK: u64 = 1 << 20;
/// Number of chunks up to which a group keeps [`MIN_CHUNK`]; beyond it, chunks become longer. It
/// bounds the memory of a schedule: 64 Ki chunks of 1 MiB cover 64 GiB per worker.
const MAX_CHUNKS: u64 = 1 << 16;
/// Returns the chunk length for all groups of a template, whose largest group reads `most` bytes.
/// It is the same for all groups, so that chunks of different groups can be compared by their
/// number in the file.
pub(crate) fn chunk_length(most: u64) -> u64 {
    let mut chunk_len = MIN_CHUNK;
    // a power of two times 1 MiB, as the runtime's own pieces are: neither splits the other
    while most / chunk_len > MAX_CHUNKS {
        chunk_len *= 2;
    }
    chunk_len
}

/// Splits spans at multiples of `chunk_len`, so that each part lies in one aligned stretch of its
/// file.
pub(crate) fn split(ranges: &[FileSpan], chunk_len: u64) -> Vec<FileSpan> {
    let mut chunks = Vec::new();
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let end = range
                .end
                .min((start / chunk_len + 1).saturating_mul(chunk_len));
            chunks.push(FileSpan {
                start,
                end,
                ..*range
            });
            start = end;
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use anamnesis_template::{PAGE, footprint};

    use super::*;

    #[test]
    fn spans_are_split_at_multiples_of_the_chunk_length() {
        let chunks = split(
            &[FileSpan {
                file: 0,
                start: MIN_CHUNK - PAGE,
                end: 2 * MIN_CHUNK + 1,
            }],
            MIN_CHUNK,
        );
        assert_eq!(
            chunks.iter().map(FileSpan::len).collect::<Vec<_>>(),
            [PAGE, MIN_CHUNK, 1]
        );
        assert_eq!(
            (chunk_length(1 << 30), chunk_length(1 << 37)),
            (MIN_CHUNK, 2 * MIN_CHUNK)
        );
        assert_eq!(
            footprint(chunks.iter().chain(&chunks)),
            MIN_CHUNK + PAGE + 1
        );
    }
}
