//! Neighbouring events of a thread, as one.

use std::collections::HashMap;

use crate::{Event, Kind};

/// Events of one thread that go on where the one before it ended, in the same file, become one; the order is that of
/// their first. Events without a length are one page.
pub(super) fn merge(events: &mut Vec<Event>) {
    let page = rustix::param::page_size() as u64;
    let mut last: HashMap<u32, usize> = HashMap::new(); // of each thread
    let mut kept = 0;
    for at in 0..events.len() {
        let mut event = events[at];
        if event.kind != Kind::Open {
            event.len = event.len.max(page);
        }
        let before = last.get(&event.tid).map(|&before| &mut events[before]);
        if let Some(before) =
            before.filter(|before| before.kind == event.kind && before.inode == event.inode)
        {
            let end = before.start.saturating_add(before.len);
            if before.start <= event.start && event.start <= end {
                before.len = end.max(event.start.saturating_add(event.len)) - before.start;
                continue;
            }
        }
        last.insert(event.tid, kept);
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
    fn neighbours_of_a_thread_are_one() {
        let event = |ino, tid, page: u64, pages: u64| Event {
            kind: Kind::Miss,
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
            event(1, 1, 1, 3), // overlaps
            event(1, 1, 4, 0), // of unknown length: a page
            event(1, 3, 5, 1), // another thread's
            Event {
                kind: Kind::Touch,
                ..event(1, 1, 5, 1)
            },
            event(1, 1, 8, 1),
            event(2, 1, 9, 1), // another file's
            event(2, 1, 10, u64::MAX / 4096),
        ];
        merge(&mut events);
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
