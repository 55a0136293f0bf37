//! Decodes fanotify events: `struct fanotify_event_metadata`, followed by information records.

use crate::source::native_endian::{take_u16, take_u32, take_u64};

/// Size of `struct fanotify_event_metadata`.
const METADATA_LEN: usize = 24;
/// `FANOTIFY_METADATA_VERSION`, the only version.
const VERSION: u8 = 3;
/// `FAN_EVENT_INFO_TYPE_RANGE`.
const INFO_TYPE_RANGE: u8 = 6;

/// A decoded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FanotifyEvent {
    pub(crate) mask: u64,
    /// A descriptor of the file, opened by the kernel for this process; negative if there is none.
    pub(crate) fd: i32,
    pub(crate) pid: u32,
    /// Offset and length of the access in bytes.
    pub(crate) range: Option<(u64, u64)>,
}

/// Iterates over the events in the bytes read from a group. Ends at the first malformed event.
#[derive(Debug)]
pub(crate) struct FanotifyEvents<'a>(pub(crate) &'a [u8]);

impl Iterator for FanotifyEvents<'_> {
    type Item = FanotifyEvent;

    fn next(&mut self) -> Option<FanotifyEvent> {
        let mut rest = self.0;
        let len = usize::try_from(take_u32(&mut rest)?).ok()?;
        if len < METADATA_LEN {
            return None;
        }
        let event = self.0.get(..len)?;
        let (&version, _) = rest.split_first()?;
        // the version, and a reserved byte
        rest = rest.get(2..)?;
        let metadata_len = usize::from(take_u16(&mut rest)?);
        let mask = take_u64(&mut rest)?;
        let fd = take_u32(&mut rest)?.cast_signed();
        let pid = take_u32(&mut rest)?;
        if version != VERSION {
            return None;
        }
        self.0 = &self.0[len..];
        Some(FanotifyEvent {
            mask,
            fd,
            pid,
            // the kernel states the length of the structure, which may grow
            range: event.get(metadata_len..).and_then(find_range),
        })
    }
}

/// Searches the information records of an event for one of a byte range.
fn find_range(mut records: &[u8]) -> Option<(u64, u64)> {
    loop {
        let mut record = records;
        // the type is the first byte, the second is padding
        let info_type = take_u16(&mut record)?.to_ne_bytes()[0];
        let len = usize::from(take_u16(&mut record)?);
        if info_type == INFO_TYPE_RANGE {
            let _padding = take_u32(&mut record)?;
            return Some((take_u64(&mut record)?, take_u64(&mut record)?));
        }
        // a record of length 0 would make the loop endless
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
        let len = u32::try_from(METADATA_LEN + records.len()).unwrap();
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
        let fields = [
            &[INFO_TYPE_RANGE, 0][..],
            &24u16.to_ne_bytes(),
            &0u32.to_ne_bytes(),
        ]
        .concat();
        [&fields[..], &4096u64.to_ne_bytes(), &100u64.to_ne_bytes()].concat()
    }

    #[test]
    fn events_and_their_ranges_are_decoded() {
        let other = [1, 0, 8, 0, 0, 0, 0, 0];
        let bytes = [
            event(32, &[]),
            event(64, &[&other[..], &range_record()].concat()),
        ]
        .concat();
        let decoded: Vec<_> = FanotifyEvents(&bytes).collect();
        let open = FanotifyEvent {
            mask: 32,
            fd: 7,
            pid: 8,
            range: None,
        };
        let read = FanotifyEvent {
            mask: 64,
            range: Some((4096, 100)),
            ..open
        };
        assert_eq!(decoded, [open, read]);
    }

    #[test]
    fn malformed_events_end_the_iteration_without_panics() {
        let good = [event(32, &[]), event(64, &range_record())].concat();
        for end in 0..good.len() {
            assert!(FanotifyEvents(&good[..end]).count() < 2);
        }
        for at in 0..good.len() {
            for value in 0..=255 {
                let mut corrupt = good.clone();
                corrupt[at] = value;
                assert!(FanotifyEvents(&corrupt).count() <= 2);
            }
        }
        assert_eq!(
            find_range(&[1, 0, 0, 0, 0, 0, 0, 0]),
            None,
            "a record of length 0"
        );
    }
}
