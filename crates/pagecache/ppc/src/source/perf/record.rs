//! Decodes the records that the kernel writes into a ring: `struct perf_event_header` and a body.

use crate::source::native_endian::{take_u16, take_u32, take_u64};

/// `PERF_RECORD_LOST`.
const LOST: u32 = 2;
/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
/// Size of the header of a record.
const HEADER_LEN: usize = 8;

/// A decoded record. Other kinds are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingRecord<'a> {
    Sample(RawSample<'a>),
    /// This many samples were not written because the ring was full.
    Lost(u64),
}

/// A sample with the fields that [`PerfEventAttr`](super::sys::PerfEventAttr) requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawSample<'a> {
    /// The perf event, by its [`perf_id`](super::sys::perf_id).
    pub(crate) id: u64,
    /// The process.
    pub(crate) pid: u32,
    /// The thread.
    pub(crate) tid: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) time: u64,
    /// The trace point's own record.
    pub(crate) raw: &'a [u8],
}

/// Iterates over the records in bytes of a ring. Ends at the first malformed record.
#[derive(Debug)]
pub(crate) struct RingRecords<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for RingRecords<'a> {
    type Item = RingRecord<'a>;

    fn next(&mut self) -> Option<RingRecord<'a>> {
        loop {
            let mut header = self.0;
            let kind = take_u32(&mut header)?;
            let _misc = take_u16(&mut header)?;
            let size = usize::from(take_u16(&mut header)?);
            // `None` also for a size below the header's, by which nothing would advance
            let body = self.0.get(HEADER_LEN..size)?;
            self.0 = &self.0[size..];
            match kind {
                SAMPLE => {
                    if let Some(sample) = decode_sample(body) {
                        return Some(RingRecord::Sample(sample));
                    }
                }
                LOST => {
                    let mut body = body;
                    if let (Some(_id), Some(lost)) = (take_u64(&mut body), take_u64(&mut body)) {
                        return Some(RingRecord::Lost(lost));
                    }
                }
                _ => {}
            }
        }
    }
}

fn decode_sample(mut body: &[u8]) -> Option<RawSample<'_>> {
    let id = take_u64(&mut body)?;
    let pid = take_u32(&mut body)?;
    let tid = take_u32(&mut body)?;
    let time = take_u64(&mut body)?;
    let size = usize::try_from(take_u32(&mut body)?).ok()?;
    Some(RawSample {
        id,
        pid,
        tid,
        time,
        raw: body.get(..size)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(body.len() + HEADER_LEN).unwrap();
        [&kind.to_ne_bytes()[..], &[0, 0], &size.to_ne_bytes(), body].concat()
    }

    fn sample_body(raw: &[u8]) -> Vec<u8> {
        let size = u32::try_from(raw.len()).unwrap();
        [
            &7u64.to_ne_bytes()[..],
            &1u32.to_ne_bytes(),
            &2u32.to_ne_bytes(),
            &3u64.to_ne_bytes(),
            &size.to_ne_bytes(),
            raw,
        ]
        .concat()
    }

    #[test]
    fn samples_and_losses_are_decoded_and_other_records_skipped() {
        let lost = [&7u64.to_ne_bytes()[..], &42u64.to_ne_bytes()].concat();
        let bytes = [
            record(SAMPLE, &sample_body(b"raw")),
            record(5, b"12345678"),
            record(LOST, &lost),
        ]
        .concat();
        let records: Vec<_> = RingRecords(&bytes).collect();
        let sample = RawSample {
            id: 7,
            pid: 1,
            tid: 2,
            time: 3,
            raw: b"raw",
        };
        assert_eq!(records, [RingRecord::Sample(sample), RingRecord::Lost(42)]);
    }

    #[test]
    fn malformed_records_end_the_iteration_without_panics() {
        // a valid stream, truncated at every byte
        let good = [
            record(SAMPLE, &sample_body(b"12345678")),
            record(LOST, &[1; 16]),
        ]
        .concat();
        for end in 0..good.len() {
            assert!(RingRecords(&good[..end]).count() < 2);
        }
        // every byte of it changed, and noise
        for at in 0..good.len() {
            for value in [0, 1, 7, 8, 0x7f, 0xff] {
                let mut corrupt = good.clone();
                corrupt[at] = value;
                let _ = RingRecords(&corrupt).count();
            }
        }
        let mut seed = 1u64;
        for len in 0..2000 {
            let mut noise = Vec::with_capacity(len);
            for _ in 0..len {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // small numbers, so that kinds and sizes are often valid
                noise.push(if seed >> 62 == 0 {
                    (seed >> 40 & 15) as u8
                } else {
                    0
                });
            }
            assert!(RingRecords(&noise).count() <= len / 8);
        }
    }
}
