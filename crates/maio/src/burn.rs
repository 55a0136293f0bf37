//! Burn after reading: what may be let go.

use std::ops::Range;

use anamnesis_ppc::{Io, Ios};

use crate::group::Group;
use crate::pieces::Range as Bytes;
use crate::share::Share;

/// What lies between each group's cursor and its front, less the distance, in the groups' order; without what a group
/// will still read. What is shared goes when the last group has passed it. Moves the cursors. If there is none, what
/// is left from before a worker went back, without what a group will read soon.
pub(crate) fn burn(groups: &mut [Group], share: &Share) -> Option<Ios> {
    let present = present(groups);
    let mut needs: Vec<Need> = groups
        .iter()
        .zip(present)
        .map(|(group, present)| {
            if present {
                group.passed(share)..u64::MAX
            } else {
                0..0
            }
        })
        .collect();
    let mut ios = Vec::new();
    for g in 0..groups.len() {
        let pieces = groups[g].cursor..groups[g].route.whole(groups[g].passed(share));
        if !pieces.is_empty() {
            groups[g].cursor = pieces.end;
            let_go(g, pieces, groups, &needs, &mut ios);
        }
    }
    if ios.is_empty() {
        for (need, group) in needs.iter_mut().zip(&*groups) {
            need.end = need.end.min(group.soon(share));
        }
        for g in 0..groups.len() {
            let pieces = std::mem::take(&mut groups[g].leftover);
            let_go(g, pieces, groups, &needs, &mut ios);
        }
    }
    (!ios.is_empty()).then(|| ios.into())
}

/// The positions of a group that it will read.
type Need = Range<u64>;

/// Adds what nobody needs of a group's pieces, neighbours merged.
fn let_go(g: usize, pieces: Range<usize>, groups: &mut [Group], needs: &[Need], ios: &mut Vec<Io>) {
    let mut nbytes = 0;
    for i in pieces {
        let io = groups[g].route.io(i);
        for bytes in unneeded(&groups[g].route.range(i), groups, needs) {
            nbytes += bytes.len();
            match ios.last_mut() {
                Some(last) if last.path == io.path && last.start + last.len == bytes.start => {
                    last.len += bytes.len()
                }
                _ => ios.push(Io {
                    start: bytes.start,
                    len: bytes.len(),
                    ..io.clone()
                }),
            }
        }
    }
    groups[g].evicted = groups[g].evicted.saturating_add(nbytes);
}

/// Which groups are there. One that nobody has read while another is through with a quarter of its own is not:
/// a template may be for more workers than run here.
fn present(groups: &[Group]) -> Vec<bool> {
    let under_way = groups
        .iter()
        .any(|group| group.front.at() > group.route.nbytes() / 4);
    groups
        .iter()
        .map(|group| group.pid.is_some() || !under_way)
        .collect()
}

/// What of a piece no group needs.
fn unneeded(piece: &Bytes, groups: &[Group], needs: &[Need]) -> Vec<Bytes> {
    let mut left = vec![*piece];
    for (group, need) in groups
        .iter()
        .zip(needs)
        .filter(|(_, need)| !need.is_empty())
    {
        let needed =
            |&i: &usize| group.route.begin(i + 1) > need.start && group.route.begin(i) < need.end;
        for i in group.route.overlaps(piece).filter(needed) {
            let needed = group.route.range(i);
            left = left
                .into_iter()
                .flat_map(|bytes| without(bytes, &needed))
                .collect();
            if left.is_empty() {
                return left;
            }
        }
    }
    left
}

/// A range without another: what is left before and behind it.
fn without(bytes: Bytes, other: &Bytes) -> impl Iterator<Item = Bytes> {
    let before = Bytes {
        end: bytes.end.min(other.start),
        ..bytes
    };
    let behind = Bytes {
        start: bytes.start.max(other.end),
        ..bytes
    };
    [before, behind]
        .into_iter()
        .filter(|part| part.start < part.end)
}
