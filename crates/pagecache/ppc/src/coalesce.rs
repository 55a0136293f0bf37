//! Merging of adjacent accesses.

use std::collections::HashMap;

use crate::{Event, EventKind};

/// The length of the union of two ranges, given as `(start, len)`, if `next` begins within `before` or at its end.
pub(crate) fn merged_len(before: (u64, u64), next: (u64, u64)) -> Option<u64> {
    let end = before.0.saturating_add(before.1);
    (before.0 <= next.0 && next.0 <= end).then(|| end.max(next.0.saturating_add(next.1)) - before.0)
}

/// Merges each event into the previous event of the same thread if it continues that one: same kind, same file, and a
/// start within or at the end of its range. Merged events keep the position and the time of their first. Events without
/// a length count as one page.
pub(crate) fn coalesce(events: &mut Vec<Event>) {
    let page = rustix::param::page_size() as u64;
    let mut last_of_thread: HashMap<u32, usize> = HashMap::new();
    let mut kept = 0;
    for at in 0..events.len() {
        let mut event = events[at];
        // an open without a length maps nothing
        if event.kind != EventKind::Open {
            event.len = event.len.max(page);
        }
        let previous = last_of_thread.get(&event.tid).map(|&at| &mut events[at]);
        if let Some(previous) =
            previous.filter(|previous| previous.kind == event.kind && previous.inode == event.inode)
            && let Some(len) = merged_len((previous.start, previous.len), (event.start, event.len))
        {
            previous.len = len;
            continue;
        }
        last_of_thread.insert(event.tid, kept);
        events[kept] = event;
        kept += 1;
    }
    events.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Inode;

    #[test]
    fn adjacent_events_of_a_thread_are_merged() {
        let event = |ino, tid, page: u64, pages: u64| Event {
            kind: EventKind::Miss,
            inode: Inode { dev: 1, ino },
            start: page * 4096,
            len: pages * 4096,
            pid: 1,
            tid,
            time: page,
        };
        let mut events = vec![
            event(1, 1, 0, 2),
            event(1, 2, 7, 1),
            event(1, 1, 1, 3), // overlaps the first
            event(1, 1, 4, 0), // length unknown: counts as one page
            event(1, 3, 5, 1), // another thread
            Event {
                kind: EventKind::Touch,
                ..event(1, 1, 5, 1)
            },
            event(1, 1, 8, 1),
            event(2, 1, 9, 1), // another file
            event(2, 1, 10, u64::MAX / 4096),
        ];
        coalesce(&mut events);
        let found: Vec<_> = events
            .iter()
            .map(|e| (e.inode.ino, e.tid, e.start / 4096, e.len / 4096))
            .collect();
        let end = u64::MAX / 4096;
        assert_eq!(
            found,
            [
                (1, 1, 0, 5),
                (1, 2, 7, 1),
                (1, 3, 5, 1),
                (1, 1, 5, 1),
                (1, 1, 8, 1),
                (2, 1, 9, end - 9)
            ]
        );
    }
}
