//! Builds, compares and merges templates, and checks the results against plain lists of bytes.

mod common;

use std::collections::BTreeSet;

use anamnesis_template::{
    ByteRange, ErrorKind, File, StridedFileRange, StridedRange, Template, TemplateBuilder,
    coverage, diff, merge, order,
};
use common::{bytes, firsts, set, small};
use proptest::collection::vec;
use proptest::prelude::*;

/// Kendall's τ from all pairs.
fn naive_order(a: &Template, b: &Template) -> Option<f64> {
    let (mut pairs, mut sum) = (0i64, 0i64);
    for group in a.groups() {
        let (in_a, in_b) = (firsts(a, group.rank()), firsts(b, group.rank()));
        let common: Vec<_> = in_a
            .iter()
            .filter_map(|(byte, at)| Some((*at, *in_b.get(byte)?)))
            .collect();
        for (i, (a1, b1)) in common.iter().enumerate() {
            for (a2, b2) in &common[..i] {
                pairs += 1;
                sum += if (a1 < a2) == (b1 < b2) { 1 } else { -1 };
            }
        }
    }
    (pairs > 0).then(|| sum as f64 / pairs as f64)
}

fn close(a: Option<f64>, b: Option<f64>) -> bool {
    a.is_some() == b.is_some() && a.zip(b).is_none_or(|(a, b)| (a - b).abs() < 1e-9)
}

/// Returns a template of one file of 4096 bytes with one worker, and the bytes in the order of the
/// accesses.
fn built(builder: TemplateBuilder, runs: &[(u64, u64, u32, u64)]) -> (Template, Vec<u64>) {
    let mut builder = builder;
    let file = builder.file(File::new("f", 4096).unwrap()).unwrap();
    let mut given = Vec::new();
    for &(start, len, count, between) in runs {
        let bytes = StridedRange {
            start,
            len,
            count: count.into(),
            stride: len + between,
        };
        let range = StridedFileRange { file, bytes };
        if builder.access(0, range, None).is_ok() && len > 0 {
            given.extend(range.runs().flat_map(|run| run.start..run.end()));
        }
    }
    builder.group(0, "");
    (builder.finish(), given)
}

fn plain(template: &Template) -> Vec<u64> {
    bytes(template, 0)
        .into_iter()
        .map(|(_, byte)| byte)
        .collect()
}

fn runs() -> impl Strategy<Value = Vec<(u64, u64, u32, u64)>> {
    vec(
        (
            0..300u64,
            0..30u64,
            prop_oneof![Just(1u32), 2..5u32],
            0..9u64,
        ),
        0..25,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn building_keeps_every_byte(runs in runs(), lookback in 1..4usize) {
        let (template, given) = built(TemplateBuilder::new().lookback(lookback), &runs);
        let made: BTreeSet<u64> = plain(&template).into_iter().collect();
        prop_assert_eq!(made, given.into_iter().collect::<BTreeSet<_>>());
        prop_assert!(template.groups()[0].accesses().len() <= runs.len());
    }

    /// Ranges of a permutation: every byte is read once, so the order must be kept to the byte.
    #[test]
    fn building_keeps_the_order(order in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle(), len in 1..20u64, keep in 1..60usize) {
        let runs: Vec<_> = order[..keep].iter().map(|i| (i * 20, len, 1, 0)).collect();
        let (template, given) = built(TemplateBuilder::new(), &runs);
        prop_assert_eq!(plain(&template), given);
    }

    #[test]
    fn a_gap_joins(runs in runs(), gap in 0..12u64) {
        let (template, given) = built(TemplateBuilder::new().gap(gap), &runs);
        let made: BTreeSet<u64> = plain(&template).into_iter().collect();
        let given: BTreeSet<u64> = given.into_iter().collect();
        prop_assert!(made.is_superset(&given));
        for byte in made.difference(&given) {
            let (below, above) = (given.range(..byte).next_back(), given.range(byte..).next());
            prop_assert!(below.is_some() && above.is_some());
            prop_assert!(given.contains(byte) || byte - below.unwrap() <= gap, "{byte} is further than {gap} in");
        }
        prop_assert!(template.accesses().all(|(_, a)| a.bytes.count == 1 || a.bytes.gap() > gap));
    }

    #[test]
    fn once_reads_once(runs in runs()) {
        let (template, given) = built(TemplateBuilder::new().once(true), &runs);
        let mut seen = BTreeSet::new();
        let expected: Vec<u64> = given.into_iter().filter(|byte| seen.insert(*byte)).collect();
        prop_assert_eq!(plain(&template), expected);
    }

    #[test]
    fn coverage_is_the_intersection(a in small(), b in small()) {
        let (in_a, in_b) = (set(&a), set(&b));
        let covered = coverage(&a, &b);
        prop_assert_eq!(covered.nbytes, in_a.len() as u64);
        prop_assert_eq!(covered.covered, in_a.intersection(&in_b).count() as u64);
        for file in &covered.files {
            let of = |set: &BTreeSet<(String, u64)>| set.iter().filter(|(path, _)| *path == *file.path).cloned().collect::<BTreeSet<_>>();
            prop_assert_eq!(file.nbytes, of(&in_a).len() as u64);
            prop_assert_eq!(file.covered, of(&in_a).intersection(&of(&in_b)).count() as u64);
        }
        prop_assert_eq!(coverage(&a, &a).share(), 1.0);
    }

    #[test]
    fn order_is_kendalls(a in small(), b in small()) {
        let (fast, naive) = (order(&a, &b), naive_order(&a, &b));
        prop_assert!(close(fast, naive), "{:?} {:?}", fast, naive);
        prop_assert!(close(order(&a, &b), order(&b, &a)));
        prop_assert!(order(&a, &a).is_none_or(|tau| tau == 1.0));
    }

    #[test]
    fn diff_is_the_difference(a in small(), b in small()) {
        let found = diff(&a, &b);
        let paths = |t: &Template| t.files().iter().map(|file| file.path.to_string()).collect::<BTreeSet<_>>();
        let strings = |paths: &[Box<str>]| paths.iter().map(|path| path.to_string()).collect::<BTreeSet<_>>();
        prop_assert_eq!(strings(&found.only_a), &paths(&a) - &paths(&b));
        prop_assert_eq!(strings(&found.only_b), &paths(&b) - &paths(&a));
        for group in &found.groups {
            let of = |t: &Template| bytes(t, group.rank).into_iter().collect::<BTreeSet<_>>();
            let (in_a, in_b) = (of(&a), of(&b));
            prop_assert_eq!(group.only_a, in_a.difference(&in_b).count() as u64);
            prop_assert_eq!(group.only_b, in_b.difference(&in_a).count() as u64);
            prop_assert_eq!(group.both, in_a.intersection(&in_b).count() as u64);
        }
        let same = diff(&a, &a);
        prop_assert!(same.is_empty() && same.to_string().is_empty());
        prop_assert_eq!(found.is_empty(), found.to_string().is_empty());
    }

    #[test]
    fn merging_adds_what_was_not_there(a in small(), b in small(), c in small()) {
        let merged = merge(&[a.clone(), b.clone(), c.clone()]).unwrap();
        for group in merged.groups() {
            let mut expected = bytes(&a, group.rank());
            if a.group(group.rank()).is_none() {
                expected = bytes(&b, group.rank());
            }
            let mut seen: BTreeSet<_> = expected.iter().cloned().collect();
            for byte in bytes(&b, group.rank()).into_iter().chain(bytes(&c, group.rank())) {
                if seen.insert(byte.clone()) {
                    expected.push(byte);
                }
            }
            let made: BTreeSet<_> = bytes(&merged, group.rank()).into_iter().collect();
            prop_assert_eq!(&made, &seen);
            if b.group(group.rank()).is_some() {
                prop_assert_eq!(firsts(&merged, group.rank()).len(), seen.len());
            }
        }
        prop_assert_eq!(merge(std::slice::from_ref(&a)).unwrap(), a.clone());
        prop_assert_eq!(merge(&[a.clone(), a.clone()]).unwrap(), a);
    }

    #[test]
    fn a_reader_is_found_in_its_runs(start in 0..50u64, len in 1..9u64, count in 1..6u64, between in 1..9u64) {
        let range = StridedRange::strided(start, len, count, len + between).unwrap();
        for offset in 0..150 {
            let naive = (0u64..).zip(range.starts()).find(|(_, start)| start + len > offset);
            let naive = naive.map(|(run, _)| run);
            prop_assert_eq!(range.run_at(offset), naive);
        }
    }
}

#[test]
fn regular_runs_become_one_access() {
    let rows: Vec<_> = (0..100).map(|i| (i * 40, 8, 1, 0)).collect();
    let (template, given) = built(TemplateBuilder::new(), &rows);
    assert_eq!(template.groups()[0].accesses().len(), 1);
    assert_eq!(plain(&template), given);
    // Tiles of rows, as the plan of a matrix has them.
    let (template, _) = built(
        TemplateBuilder::new(),
        &[(0, 8, 10, 32), (400, 8, 10, 32), (800, 8, 1, 0)],
    );
    assert_eq!(template.groups()[0].accesses()[0].bytes.count, 21);
    // The order of a reader that goes backwards is kept.
    let (template, given) = built(
        TemplateBuilder::new(),
        &[(80, 8, 1, 0), (72, 8, 1, 0), (64, 8, 1, 0)],
    );
    assert_eq!(plain(&template), given);
}

#[test]
fn invalid_accesses_are_refused() {
    let mut builder = TemplateBuilder::new();
    let file = builder.file(File::new("f", 100).unwrap()).unwrap();
    assert_eq!(builder.file(File::new("f", 100).unwrap()).unwrap(), file);
    let error = builder.file(File::new("f", 101).unwrap()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict(_)) && error.remedy().is_some());
    let bytes = StridedRange {
        start: 0,
        len: 10,
        count: 3,
        stride: 9,
    };
    let apart = |stride| StridedFileRange {
        file,
        bytes: StridedRange { stride, ..bytes },
    };
    let one = |start| StridedFileRange {
        file,
        bytes: StridedRange {
            start,
            count: 1,
            ..bytes
        },
    };
    for range in [
        apart(9),
        apart(46),
        apart(u64::MAX),
        StridedFileRange {
            file: 1,
            ..apart(10)
        },
        one(91),
        one(u64::MAX),
        StridedFileRange {
            file,
            bytes: StridedRange {
                len: 0,
                count: 1 << 32,
                stride: 0,
                ..bytes
            },
        },
    ] {
        let error = builder.access(0, range, None).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Invalid(_)),
            "{range}: {error}"
        );
    }
    assert!(builder.access(0, apart(45), Some(1 << 62)).is_err());
    builder.access(0, apart(45), None).unwrap();
    builder.access(0, apart(10), None).unwrap();
    assert_eq!(builder.finish().nbytes(), 60);
}

#[test]
fn templates_of_other_models_are_not_merged() {
    let of = |nbytes| {
        let mut builder = TemplateBuilder::new();
        builder.file(File::new("f", nbytes).unwrap()).unwrap();
        builder
            .parameter("tp", "4")
            .parameter("nodes", &nbytes.to_string());
        builder.finish()
    };
    assert!(matches!(
        merge(&[of(1), of(2)]).unwrap_err().kind(),
        ErrorKind::Conflict(_)
    ));
    assert_eq!(merge(&[of(1), of(1)]).unwrap().parameters().count(), 2);
    let mut other = TemplateBuilder::new();
    other.parameter("tp", "4").parameter("nodes", "7");
    let merged = merge(&[of(1), other.finish()]).unwrap();
    assert_eq!(merged.parameters().collect::<Vec<_>>(), [("tp", "4")]);
    // A different file of the same name covers nothing.
    assert_eq!(diff(&of(1), &of(2)).changed.len(), 1);
}

/// Few accesses of very many bytes: the cost of a comparison is bounded by the accesses.
#[test]
fn files_of_maximal_length_are_compared() {
    let mut builder = TemplateBuilder::new();
    for i in 0..4 {
        let file = builder
            .file(File::new(format!("f{i}"), u64::MAX).unwrap())
            .unwrap();
        for _ in 0..1000 {
            builder
                .access(
                    0,
                    ByteRange {
                        file,
                        start: 0,
                        len: u64::MAX,
                    },
                    None,
                )
                .unwrap();
            builder
                .access(
                    0,
                    ByteRange {
                        file: 0,
                        start: 7,
                        len: 1 << 40,
                    },
                    None,
                )
                .unwrap();
        }
    }
    let template = builder.finish();
    assert_eq!(
        (
            coverage(&template, &template).share(),
            order(&template, &template)
        ),
        (1.0, Some(1.0))
    );
    assert!(diff(&template, &template).is_empty());
}
