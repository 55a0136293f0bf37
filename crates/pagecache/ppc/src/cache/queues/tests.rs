//! Claims of pieces from several queues: turns, remainders, replaced lists and unreadable files.

use super::*;
use crate::FileRange;

const MIB: u64 = 1 << 20;

/// A namespace of two sparse files of 64 MiB.
fn namespace() -> (tempfile::TempDir, Arc<Namespace>) {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::File::create(dir.path().join(name))
            .unwrap()
            .set_len(64 * MIB)
            .unwrap();
    }
    let namespace = Arc::new(Namespace::scan(dir.path()).unwrap());
    (dir, namespace)
}

/// The range that covers the file called `name`.
fn whole_file(name: &str) -> RangeList {
    vec![FileRange {
        path: Path::new(name).into(),
        start: 0,
        len: 64 * MIB,
        device: None,
    }]
    .into()
}

/// Claims a piece of at most 8 MiB.
fn claim(queues: &mut PrefetchQueues) -> Option<PieceClaim> {
    queues.claim(PieceLimits::exact(8 * MIB))
}

#[test]
fn queues_are_served_in_turn_and_remainders_before_the_rest_of_their_list() {
    let (_dir, namespace) = namespace();
    let mut queues = PrefetchQueues::default();
    assert!(
        !queues.submit(&namespace, 0, 1, whole_file("a"))
            && !queues.submit(&namespace, 1, 2, whole_file("b"))
    );
    let (first, second) = (claim(&mut queues).unwrap(), claim(&mut queues).unwrap());
    assert_eq!((first.queue, second.queue), (0, 1));
    // queue 0 is read by one thread at a time, queue 1 by two
    assert!(queues.has_work());
    let third = claim(&mut queues).unwrap();
    assert_eq!((third.queue, third.piece.start), (1, 8 * MIB));
    assert!(claim(&mut queues).is_none() && !queues.has_work());
    queues.finish(second, ClaimOutcome::Done);
    let remainder = PrefetchPiece {
        start: 5 * MIB,
        ..first.piece.clone()
    };
    queues.finish(first, ClaimOutcome::Remainder(remainder));
    let claimed = |claim: PieceClaim| (claim.queue, claim.piece.start, claim.piece.end);
    let one_mib = PieceLimits {
        max_len: MIB,
        ..PieceLimits::exact(8 * MIB)
    };
    assert_eq!(
        queues.claim(one_mib).map(claimed),
        Some((0, 5 * MIB, 6 * MIB))
    );
    assert_eq!(
        queues.claim(one_mib).map(claimed),
        Some((1, 16 * MIB, 17 * MIB))
    );
}

#[test]
fn remainders_of_a_replaced_list_are_dropped() {
    let (_dir, namespace) = namespace();
    let mut queues = PrefetchQueues::default();
    queues.submit(&namespace, 0, 1, whole_file("a"));
    let old = claim(&mut queues).unwrap();
    assert!(queues.submit(&namespace, 0, 1, whole_file("b")));
    assert!(old.cancelled.load(SeqCst));
    let new = claim(&mut queues).unwrap();
    assert!(*new.piece.path == *Path::new("b") && !new.cancelled.load(SeqCst));
    let piece = old.piece.clone();
    queues.finish(old, ClaimOutcome::Remainder(piece));
    assert!(claim(&mut queues).is_none());
    queues.finish(new, ClaimOutcome::Done);
    assert_eq!(claim(&mut queues).unwrap().piece.start, 8 * MIB);
    assert_eq!((queues.interrupt(|_, _| true), queues.len()), (1, 0));
}

#[test]
fn later_pieces_of_an_unreadable_file_are_skipped() {
    let (_dir, namespace) = namespace();
    let mut queues = PrefetchQueues::default();
    let both = whole_file("a")
        .iter()
        .chain(whole_file("b").iter())
        .cloned()
        .collect::<Vec<_>>()
        .into();
    queues.submit(&namespace, 0, 1, both);
    let unreadable = claim(&mut queues).unwrap();
    queues.finish(unreadable, ClaimOutcome::Unreadable);
    let mut pieces = 0;
    while let Some(claim) = claim(&mut queues) {
        assert_eq!(*claim.piece.path, *Path::new("b"));
        queues.finish(claim, ClaimOutcome::Done);
        pieces += 1;
    }
    // 64 MiB of the other file; a finished list is removed
    assert_eq!((pieces, queues.len()), (8, 0));
}
