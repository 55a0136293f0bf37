use super::*;
use crate::Io;

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

fn whole(name: &str) -> Ios {
    vec![Io {
        path: Path::new(name).into(),
        start: 0,
        len: 64 * MIB,
        device: None,
    }]
    .into()
}

fn claim(lanes: &mut Lanes) -> Option<Claim> {
    lanes.claim(Cut::exact(8 * MIB))
}

#[test]
fn turns() {
    let (_dir, namespace) = namespace();
    let mut lanes = Lanes::default();
    assert!(
        !lanes.submit(&namespace, 0, 1, whole("a")) && !lanes.submit(&namespace, 1, 2, whole("b"))
    );
    let (first, second) = (claim(&mut lanes).unwrap(), claim(&mut lanes).unwrap());
    assert_eq!((first.lane, second.lane), (0, 1));
    // one thread for a lane, and two for the other
    assert!(lanes.has_work());
    let third = claim(&mut lanes).unwrap();
    assert_eq!((third.lane, third.piece.start), (1, 8 * MIB));
    assert!(claim(&mut lanes).is_none() && !lanes.has_work());
    lanes.finish(second, End::Done);
    // what was given back comes first
    let rest = Piece {
        start: 5 * MIB,
        ..first.piece.clone()
    };
    lanes.finish(first, End::Rest(rest));
    let claimed = |claim: Claim| (claim.lane, claim.piece.start, claim.piece.end);
    let small = Cut {
        most: MIB,
        ..Cut::exact(8 * MIB)
    };
    assert_eq!(lanes.claim(small).map(claimed), Some((0, 5 * MIB, 6 * MIB)));
    assert_eq!(
        lanes.claim(small).map(claimed),
        Some((1, 16 * MIB, 17 * MIB))
    );
}

#[test]
fn a_list_that_was_superseded_gives_nothing_back() {
    let (_dir, namespace) = namespace();
    let mut lanes = Lanes::default();
    lanes.submit(&namespace, 0, 1, whole("a"));
    let old = claim(&mut lanes).unwrap();
    assert!(lanes.submit(&namespace, 0, 1, whole("b")));
    assert!(old.over.load(SeqCst));
    let new = claim(&mut lanes).unwrap();
    assert!(*new.piece.path == *Path::new("b") && !new.over.load(SeqCst));
    let piece = old.piece.clone();
    lanes.finish(old, End::Rest(piece));
    assert!(claim(&mut lanes).is_none());
    lanes.finish(new, End::Done);
    assert_eq!(claim(&mut lanes).unwrap().piece.start, 8 * MIB);
    assert_eq!((lanes.interrupt(|_, _| true), lanes.len()), (1, 0));
}

#[test]
fn a_file_that_is_refused_is_left_out() {
    let (_dir, namespace) = namespace();
    let mut lanes = Lanes::default();
    let both = whole("a")
        .iter()
        .chain(whole("b").iter())
        .cloned()
        .collect::<Vec<_>>()
        .into();
    lanes.submit(&namespace, 0, 1, both);
    let refused = claim(&mut lanes).unwrap();
    lanes.finish(refused, End::Refused);
    let mut pieces = 0;
    while let Some(claim) = claim(&mut lanes) {
        assert_eq!(*claim.piece.path, *Path::new("b"));
        lanes.finish(claim, End::Done);
        pieces += 1;
    }
    // a list that is done is gone
    assert_eq!((pieces, lanes.len()), (8, 0));
}
