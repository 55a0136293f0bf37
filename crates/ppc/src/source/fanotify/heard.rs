//! What fanotify writes: an event, and records about it.

use crate::source::bytes::{take_u16, take_u32, take_u64};

/// Bytes of `struct fanotify_event_metadata`.
const METADATA: usize = 24;
/// The only version there is.
const VERSION: u8 = 3;
/// `FAN_EVENT_INFO_TYPE_RANGE`.
const RANGE: u8 = 6;

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) mask: u64,
    /// A descriptor of the file that was opened for us, or a negative number.
    pub(crate) fd: i32,
    pub(crate) pid: u32,
    /// First byte and number of bytes.
    pub(crate) range: Option<(u64, u64)>,
}

/// The events in what was read from a group; stops at what is none.
#[derive(Debug)]
pub(crate) struct Events<'a>(pub(crate) &'a [u8]);

impl Iterator for Events<'_> {
    type Item = Heard;

    fn next(&mut self) -> Option<Heard> {
        let mut rest = self.0;
        let len = usize::try_from(take_u32(&mut rest)?).ok()?;
        if len < METADATA {
            return None;
        }
        let event = self.0.get(..len)?;
        let (&version, _) = rest.split_first()?;
        rest = rest.get(2..)?;
        let metadata = usize::from(take_u16(&mut rest)?);
        let mask = take_u64(&mut rest)?;
        let fd = take_u32(&mut rest)?.cast_signed();
        let pid = take_u32(&mut rest)?;
        if version != VERSION {
            return None;
        }
        self.0 = &self.0[len..];
        Some(Heard {
            mask,
            fd,
            pid,
            range: event.get(metadata..).and_then(range),
        })
    }
}

fn range(mut records: &[u8]) -> Option<(u64, u64)> {
    loop {
        let mut record = records;
        let kind = take_u16(&mut record)?.to_ne_bytes()[0];
        let len = usize::from(take_u16(&mut record)?);
        if kind == RANGE {
            let _padding = take_u32(&mut record)?;
            return Some((take_u64(&mut record)?, take_u64(&mut record)?));
        }
        if len == 0 {
            return None;
        }
        records = records.get(len..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(mask: u64, records: &[u8]) -> Vec<u8> {
        let len = u32::try_from(METADATA + records.len()).unwrap();
        let fields = [
            &len.to_ne_bytes()[..],
            &[VERSION, 0],
            &24u16.to_ne_bytes(),
            &mask.to_ne_bytes(),
        ]
        .concat();
        [
            &fields,
            &7i32.to_ne_bytes()[..],
            &8i32.to_ne_bytes(),
            records,
        ]
        .concat()
    }

    fn range_record() -> Vec<u8> {
        let fields = [&[RANGE, 0][..], &24u16.to_ne_bytes(), &0u32.to_ne_bytes()].concat();
        [&fields[..], &4096u64.to_ne_bytes(), &100u64.to_ne_bytes()].concat()
    }

    #[test]
    fn events_and_their_ranges_are_read() {
        let other = [1, 0, 8, 0, 0, 0, 0, 0];
        let bytes = [
            event(32, &[]),
            event(64, &[&other[..], &range_record()].concat()),
        ]
        .concat();
        let heard: Vec<_> = Events(&bytes).collect();
        let open = Heard {
            mask: 32,
            fd: 7,
            pid: 8,
            range: None,
        };
        assert_eq!(
            heard,
            [
                open,
                Heard {
                    mask: 64,
                    range: Some((4096, 100)),
                    ..open
                }
            ]
        );
    }

    #[test]
    fn whatever_the_bytes_are_nothing_panics_and_it_ends() {
        let good = [event(32, &[]), event(64, &range_record())].concat();
        for end in 0..good.len() {
            assert!(Events(&good[..end]).count() < 2);
        }
        for at in 0..good.len() {
            for value in 0..=255 {
                let mut bent = good.clone();
                bent[at] = value;
                assert!(Events(&bent).count() <= 2);
            }
        }
        assert_eq!(
            range(&[1, 0, 0, 0, 0, 0, 0, 0]),
            None,
            "a record without a length"
        );
    }
}
