//! Building, comparing (`coverage`, `order`, `diff`) and merging templates. The oracle is the list of all bytes that each
//! worker reads, in order, on which the operations are naive.

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_template::{
    ByteRange, ErrorKind, File, StridedFileRange, StridedRange, Template, TemplateBuilder,
    coverage, diff, merge, order,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::random_templates::small_template;

/// The bytes in the order in which a worker reads them.
fn bytes_read(template: &Template, rank: u32) -> Vec<(String, u64)> {
    let accesses = template
        .group(rank)
        .map_or(&[][..], |group| group.accesses());
    let runs = accesses.iter().flat_map(|access| access.range().runs());
    let path = |file: u32| template.files()[file as usize].path.to_string();
    runs.flat_map(|run| (run.start..run.end()).map(move |byte| (path(run.file), byte)))
        .collect()
}

/// The bytes that any worker reads.
fn bytes_of_all_workers(template: &Template) -> BTreeSet<(String, u64)> {
    template
        .groups()
        .iter()
        .flat_map(|group| bytes_read(template, group.rank()))
        .collect()
}

/// The position of each byte's first read among the worker's reads.
fn first_reads(template: &Template, rank: u32) -> BTreeMap<(String, u64), usize> {
    let mut first_reads = BTreeMap::new();
    for (i, byte) in bytes_read(template, rank).into_iter().enumerate() {
        first_reads.entry(byte).or_insert(i);
    }
    first_reads
}

/// Kendall's τ of the first reads of common bytes, from all pairs.
fn naive_order(a: &Template, b: &Template) -> Option<f64> {
    let (mut pairs, mut sum) = (0i64, 0i64);
    for group in a.groups() {
        let (in_a, in_b) = (first_reads(a, group.rank()), first_reads(b, group.rank()));
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

fn nearly_equal(a: Option<f64>, b: Option<f64>) -> bool {
    a.is_some() == b.is_some() && a.zip(b).is_none_or(|(a, b)| (a - b).abs() < 1e-9)
}

/// Builds a template of one file of 4096 bytes with one worker from accesses (start, length, count, stride minus length).
/// Returns it, and the bytes in the order of the accesses.
fn build(builder: TemplateBuilder, runs: &[(u64, u64, u32, u64)]) -> (Template, Vec<u64>) {
    let mut builder = builder;
    let file = builder.file(File::new("f", 4096).unwrap()).unwrap();
    let mut requested = Vec::new();
    for &(start, len, count, between) in runs {
        let bytes = StridedRange {
            start,
            len,
            count: count.into(),
            stride: len + between,
        };
        let range = StridedFileRange { file, bytes };
        if builder.access(0, range, None).is_ok() && len > 0 {
            requested.extend(range.runs().flat_map(|run| run.start..run.end()));
        }
    }
    builder.group(0, "");
    (builder.finish(), requested)
}

fn bytes_of_worker_0(template: &Template) -> Vec<u64> {
    bytes_read(template, 0)
        .into_iter()
        .map(|(_, byte)| byte)
        .collect()
}

fn random_runs() -> impl Strategy<Value = Vec<(u64, u64, u32, u64)>> {
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
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 800 }))]

    #[test]
    fn the_builder_keeps_every_byte(runs in random_runs(), lookback in 1..4usize) {
        let (template, requested) = build(TemplateBuilder::new().lookback(lookback), &runs);
        let found: BTreeSet<u64> = bytes_of_worker_0(&template).into_iter().collect();
        prop_assert_eq!(found, requested.into_iter().collect::<BTreeSet<_>>());
        prop_assert!(template.groups()[0].accesses().len() <= runs.len());
    }

    /// Ranges of a permutation: every byte is read once, so the order must be kept to the byte.
    #[test]
    fn the_builder_keeps_the_order_of_distinct_bytes(order in Just((0..60u64).collect::<Vec<_>>()).prop_shuffle(), len in 1..20u64, keep in 1..60usize) {
        let runs: Vec<_> = order[..keep].iter().map(|i| (i * 20, len, 1, 0)).collect();
        let (template, requested) = build(TemplateBuilder::new(), &runs);
        prop_assert_eq!(bytes_of_worker_0(&template), requested);
    }

    #[test]
    fn a_gap_joins_ranges_at_most_that_far_apart(runs in random_runs(), gap in 0..12u64) {
        let (template, requested) = build(TemplateBuilder::new().gap(gap), &runs);
        let found: BTreeSet<u64> = bytes_of_worker_0(&template).into_iter().collect();
        let requested: BTreeSet<u64> = requested.into_iter().collect();
        prop_assert!(found.is_superset(&requested));
        for byte in found.difference(&requested) {
            let (below, above) = (requested.range(..byte).next_back(), requested.range(byte..).next());
            prop_assert!(below.is_some() && above.is_some());
            prop_assert!(requested.contains(byte) || byte - below.unwrap() <= gap, "byte {byte} is more than {gap} bytes into a gap");
        }
        prop_assert!(template.accesses().all(|(_, a)| a.bytes.count == 1 || a.bytes.gap() > gap));
    }

    #[test]
    fn once_keeps_the_first_read_of_each_byte(runs in random_runs()) {
        let (template, requested) = build(TemplateBuilder::new().once(true), &runs);
        let mut seen = BTreeSet::new();
        let expected: Vec<u64> = requested.into_iter().filter(|byte| seen.insert(*byte)).collect();
        prop_assert_eq!(bytes_of_worker_0(&template), expected);
    }

    #[test]
    fn coverage_is_the_intersection_of_the_bytes(a in small_template(), b in small_template()) {
        let (in_a, in_b) = (bytes_of_all_workers(&a), bytes_of_all_workers(&b));
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
    fn order_is_kendalls_tau_of_the_first_reads(a in small_template(), b in small_template()) {
        let (fast, naive) = (order(&a, &b), naive_order(&a, &b));
        prop_assert!(nearly_equal(fast, naive), "{:?} {:?}", fast, naive);
        prop_assert!(nearly_equal(order(&a, &b), order(&b, &a)));
        prop_assert!(order(&a, &a).is_none_or(|tau| tau == 1.0));
    }

    #[test]
    fn diff_counts_the_bytes_of_one_side_and_of_both(a in small_template(), b in small_template()) {
        let found = diff(&a, &b);
        let paths = |t: &Template| t.files().iter().map(|file| file.path.to_string()).collect::<BTreeSet<_>>();
        let strings = |paths: &[Box<str>]| paths.iter().map(|path| path.to_string()).collect::<BTreeSet<_>>();
        prop_assert_eq!(strings(&found.only_a), &paths(&a) - &paths(&b));
        prop_assert_eq!(strings(&found.only_b), &paths(&b) - &paths(&a));
        for group in &found.groups {
            let of = |t: &Template| bytes_read(t, group.rank).into_iter().collect::<BTreeSet<_>>();
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
    fn merge_appends_the_bytes_that_the_first_template_lacks(a in small_template(), b in small_template(), c in small_template()) {
        let merged = merge(&[a.clone(), b.clone(), c.clone()]).unwrap();
        for group in merged.groups() {
            let mut expected = bytes_read(&a, group.rank());
            if a.group(group.rank()).is_none() {
                expected = bytes_read(&b, group.rank());
            }
            let mut seen: BTreeSet<_> = expected.iter().cloned().collect();
            for byte in bytes_read(&b, group.rank()).into_iter().chain(bytes_read(&c, group.rank())) {
                if seen.insert(byte.clone()) {
                    expected.push(byte);
                }
            }
            let found: BTreeSet<_> = bytes_read(&merged, group.rank()).into_iter().collect();
            prop_assert_eq!(&found, &seen);
            if b.group(group.rank()).is_some() {
                prop_assert_eq!(first_reads(&merged, group.rank()).len(), seen.len());
            }
        }
        prop_assert_eq!(merge(std::slice::from_ref(&a)).unwrap(), a.clone());
        prop_assert_eq!(merge(&[a.clone(), a.clone()]).unwrap(), a);
    }

    #[test]
    fn run_at_gives_the_first_run_that_ends_after_the_offset(start in 0..50u64, len in 1..9u64, count in 1..6u64, between in 1..9u64) {
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
    let (template, requested) = build(TemplateBuilder::new(), &rows);
    assert_eq!(template.groups()[0].accesses().len(), 1);
    assert_eq!(bytes_of_worker_0(&template), requested);
    // Tiles of rows, as in the plan of a matrix.
    let (template, _) = build(
        TemplateBuilder::new(),
        &[(0, 8, 10, 32), (400, 8, 10, 32), (800, 8, 1, 0)],
    );
    assert_eq!(template.groups()[0].accesses()[0].bytes.count, 21);
    // The order of descending offsets is kept.
    let (template, requested) = build(
        TemplateBuilder::new(),
        &[(80, 8, 1, 0), (72, 8, 1, 0), (64, 8, 1, 0)],
    );
    assert_eq!(bytes_of_worker_0(&template), requested);
}

#[test]
fn the_builder_refuses_invalid_files_and_accesses() {
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
    let three_runs = |stride| StridedFileRange {
        file,
        bytes: StridedRange { stride, ..bytes },
    };
    let one_run = |start| StridedFileRange {
        file,
        bytes: StridedRange {
            start,
            count: 1,
            ..bytes
        },
    };
    for range in [
        three_runs(9),
        three_runs(46),
        three_runs(u64::MAX),
        StridedFileRange {
            file: 1,
            ..three_runs(10)
        },
        one_run(91),
        one_run(u64::MAX),
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
    assert!(builder.access(0, three_runs(45), Some(1 << 62)).is_err());
    builder.access(0, three_runs(45), None).unwrap();
    builder.access(0, three_runs(10), None).unwrap();
    assert_eq!(builder.finish().nbytes(), 60);
}

#[test]
fn merge_refuses_files_of_different_length() {
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
    // A file of the same name and another length is reported as changed.
    assert_eq!(diff(&of(1), &of(2)).changed.len(), 1);
}

/// Few accesses of very many bytes: a comparison has as many units at most as for small files.
#[test]
#[cfg_attr(
    miri,
    ignore = "compares order in tens of thousands of units, which takes an interpreter many minutes"
)]
fn files_of_maximal_length_can_be_compared() {
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

#[test]
fn merge_keeps_the_parameters_on_which_templates_agree() {
    let template = |parameters: &[(&str, &str)]| {
        let mut builder = TemplateBuilder::new();
        for (key, value) in parameters {
            builder.parameter(key, value);
        }
        builder.finish()
    };
    let merged = merge(&[
        template(&[("a", "1"), ("b", "1"), ("c", "1")]),
        template(&[("b", "1"), ("c", "2")]),
        template(&[("c", "1"), ("d", "1")]),
    ]);
    let merged = merged.unwrap();
    assert_eq!(
        merged.parameters().collect::<Vec<_>>(),
        [("a", "1"), ("b", "1"), ("d", "1")]
    );
}

#[test]
fn merge_takes_time_in_proportion_to_the_parameters() {
    let mut builder = TemplateBuilder::new();
    // an interpreter takes hours for the number that tells a quadratic merge from a linear one
    let count = if cfg!(miri) { 100 } else { 100_000 };
    for number in 0..count {
        builder.parameter(&format!("parameter {number}"), "the same value");
    }
    let template = builder.finish();
    let started = std::time::Instant::now();
    let merged = merge(&[template.clone(), template]).unwrap();
    assert_eq!(merged.parameters().count(), count);
    // a comparison of each with each takes minutes
    assert!(
        started.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}
