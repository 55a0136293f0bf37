//! What the kernel writes into a ring.

use crate::source::bytes::{take_u16, take_u32, take_u64};

const LOST: u32 = 2;
const SAMPLE: u32 = 9;

/// A record that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A sample.
    Sample(Sample<'a>),
    /// The ring was full, and this many samples were not written.
    Lost(u64),
}

/// A sample, as [`Attr`](super::attr::Attr) asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample<'a> {
    /// Of which event.
    pub(crate) id: u64,
    /// The process.
    pub(crate) pid: u32,
    /// The thread.
    pub(crate) tid: u32,
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) time: u64,
    /// The trace point's own bytes.
    pub(crate) raw: &'a [u8],
}

/// The records in the bytes of a ring; stops at what is none.
#[derive(Debug)]
pub(crate) struct Records<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        loop {
            let mut header = self.0;
            let kind = take_u32(&mut header)?;
            let _misc = take_u16(&mut header)?;
            let size = usize::from(take_u16(&mut header)?);
            let body = self.0.get(8..size)?;
            self.0 = &self.0[size..];
            match kind {
                SAMPLE => {
                    if let Some(sample) = sample(body) {
                        return Some(Record::Sample(sample));
                    }
                }
                LOST => {
                    let mut body = body;
                    if let (Some(_id), Some(lost)) = (take_u64(&mut body), take_u64(&mut body)) {
                        return Some(Record::Lost(lost));
                    }
                }
                _ => {}
            }
        }
    }
}

fn sample(mut body: &[u8]) -> Option<Sample<'_>> {
    let id = take_u64(&mut body)?;
    let pid = take_u32(&mut body)?;
    let tid = take_u32(&mut body)?;
    let time = take_u64(&mut body)?;
    let size = usize::try_from(take_u32(&mut body)?).ok()?;
    Some(Sample {
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
        let size = u16::try_from(body.len() + 8).unwrap();
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
    fn samples_and_losses_are_read_and_others_passed_over() {
        let lost = [&7u64.to_ne_bytes()[..], &42u64.to_ne_bytes()].concat();
        let bytes = [
            record(SAMPLE, &sample_body(b"raw")),
            record(5, b"12345678"),
            record(LOST, &lost),
        ]
        .concat();
        let records: Vec<_> = Records(&bytes).collect();
        let sample = Sample {
            id: 7,
            pid: 1,
            tid: 2,
            time: 3,
            raw: b"raw",
        };
        assert_eq!(records, [Record::Sample(sample), Record::Lost(42)]);
    }

    #[test]
    fn whatever_the_bytes_are_nothing_panics_and_it_ends() {
        // every cut of a good stream
        let good = [
            record(SAMPLE, &sample_body(b"12345678")),
            record(LOST, &[1; 16]),
        ]
        .concat();
        for end in 0..good.len() {
            assert!(Records(&good[..end]).count() < 2);
        }
        // every byte of it bent, and noise
        for at in 0..good.len() {
            for value in [0, 1, 7, 8, 0x7f, 0xff] {
                let mut bent = good.clone();
                bent[at] = value;
                let _ = Records(&bent).count();
            }
        }
        let mut seed = 1u64;
        for len in 0..2000 {
            let mut noise = Vec::with_capacity(len);
            for _ in 0..len {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // small numbers, so that kinds and sizes are often right
                noise.push(if seed >> 62 == 0 {
                    (seed >> 40 & 15) as u8
                } else {
                    0
                });
            }
            assert!(Records(&noise).count() <= len / 8);
        }
    }
}
