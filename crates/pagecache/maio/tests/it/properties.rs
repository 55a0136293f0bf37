//! Properties for random templates and readers: requests contain only bytes of files, a reader in template order never
//! misses after its first read, and evicted bytes are not read again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anamnesis_maio::Maio;
use anamnesis_ppc::{EventKind, FileAccess, FileRange, Namespace, Policy, PolicyContext};
use anamnesis_template::{
    ByteRange, File, StridedFileRange, StridedRange, Template, TemplateBuilder,
};
use proptest::prelude::*;

const PAGE: u64 = 4096;
const LENS: [u64; 3] = [9 << 20, (5 << 20) + 77, 40_000];

/// A random access: file, first byte, length and number of runs, and bytes between them; clipped to the file.
type RandomAccess = (usize, u64, u64, u32, u64);

fn random_accesses() -> impl Strategy<Value = Vec<RandomAccess>> {
    prop::collection::vec(
        (
            0..3usize,
            any::<u64>(),
            1..3_000_000u64,
            1..20u32,
            1..200_000u64,
        ),
        1..12,
    )
}

/// The accesses of one worker, clipped to the files.
fn clipped(accesses: &[RandomAccess]) -> Vec<StridedFileRange> {
    let clip = |&(file, start, len, count, gap): &RandomAccess| {
        let start = start % LENS[file];
        let available = LENS[file] - start;
        let len = len.min(available);
        let count = ((available - len) / (len + gap)).min(u64::from(count) - 1) + 1;
        StridedFileRange {
            file: u32::try_from(file).unwrap(),
            bytes: StridedRange::strided(start, len, count, len + gap).unwrap(),
        }
    };
    accesses.iter().map(clip).collect()
}

/// A model of three sparse files, and a template for it.
struct ModelWithTemplate {
    dir: tempfile::TempDir,
    namespace: Arc<Namespace>,
    template: Template,
}

fn model_with_template(workers: &[Vec<RandomAccess>]) -> ModelWithTemplate {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = TemplateBuilder::new();
    for (i, len) in LENS.iter().enumerate() {
        let name = format!("{i}.gguf");
        std::fs::File::create(dir.path().join(&name))
            .unwrap()
            .set_len(*len)
            .unwrap();
        builder.file(File::new(name, *len).unwrap()).unwrap();
    }
    for (rank, accesses) in (0..).zip(workers) {
        clipped(accesses)
            .into_iter()
            .for_each(|range| builder.access(rank, range, None).unwrap());
    }
    let template = builder.finish();
    template.save(&dir.path().join("t.iot"), false).unwrap();
    ModelWithTemplate {
        namespace: Arc::new(Namespace::scan(dir.path()).unwrap()),
        dir,
        template,
    }
}

impl ModelWithTemplate {
    fn policy(&self, options: &str, memory: u64) -> Maio {
        let mut policy = Maio::new().root(self.dir.path());
        let config = format!("{},{options}", self.dir.path().join("t.iot").display());
        policy
            .init(&PolicyContext {
                namespace: Arc::clone(&self.namespace),
                config,
                memory,
            })
            .unwrap();
        policy
    }

    /// The pages that a worker reads, in order; a page shared by consecutive reads once.
    fn pages(&self, worker: u32) -> Vec<(usize, u64)> {
        let group = self.template.group(worker).unwrap();
        let runs = group
            .accesses()
            .iter()
            .flat_map(|access| access.range().runs());
        let pages = |run: ByteRange| {
            (run.start / PAGE..=(run.end() - 1) / PAGE).map(move |page| (run.file, page))
        };
        let mut pages: Vec<_> = runs
            .flat_map(pages)
            .map(|(file, page)| (file as usize, page))
            .collect();
        pages.dedup();
        pages
    }

    /// Checks that ranges start at a page and are bytes of files; returns their pages.
    fn checked_pages<'i>(
        &self,
        ranges: impl IntoIterator<Item = &'i FileRange>,
    ) -> Vec<(usize, u64)> {
        let mut pages = Vec::new();
        for range in ranges {
            let file = (0..3)
                .find(|i| range.path.to_str() == Some(&format!("{i}.gguf")))
                .expect("a file of the model");
            let end = range.start + range.len;
            assert!(range.len > 0 && end <= LENS[file], "{range:?}");
            assert!(range.start % PAGE == 0, "{range:?}");
            pages.extend((range.start / PAGE..end.div_ceil(PAGE)).map(|page| (file, page)));
        }
        pages
    }
}

fn access(kind: EventKind, file: usize, start: u64, len: u64, pid: u32, time: u64) -> FileAccess {
    let path: Arc<Path> = Path::new(&format!("{file}.gguf")).into();
    FileAccess {
        kind,
        path,
        start,
        len,
        pid,
        tid: pid,
        time,
    }
}

fn options() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "start=no,workers=order",
        "touch=yes,window=2M,distance=1M",
        "window=1M,distance=0",
        "touch=no",
        "evict=no,window=all",
        "prefetch=no,touch=yes",
        "ranks=1-2,devices=0-1",
    ])
}

/// A call of the policy by the runtime.
#[derive(Clone, Debug)]
enum PolicyCall {
    Miss,
    Touch,
    Evict,
    EvictAtMiss,
}

fn calls() -> impl Strategy<Value = Vec<(PolicyCall, usize, u64, u64, u32)>> {
    let call = prop_oneof![
        4 => Just(PolicyCall::Miss),
        4 => Just(PolicyCall::Touch),
        1 => Just(PolicyCall::Evict),
        1 => Just(PolicyCall::EvictAtMiss)
    ];
    let len = prop_oneof![Just(0), 1..300_000u64, Just(u64::MAX)];
    prop::collection::vec(
        (
            call,
            0..4usize,
            prop_oneof![0..12_000_000u64, any::<u64>()],
            len,
            0..5u32,
        ),
        0..150,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_contain_only_bytes_of_files(
        workers in prop::collection::vec(random_accesses(), 1..4),
        options in options(),
        memory in prop::sample::select(vec![0, 1 << 20, 8 << 20, 1 << 40]),
        calls in calls(),
    ) {
        let model = model_with_template(&workers);
        let mut policy = model.policy(options, memory);
        for prefetch in policy.start() {
            model.checked_pages(prefetch.ranges.iter());
        }
        for (time, (call, file, start, len, pid)) in (0..).zip(calls) {
            let kind = if matches!(call, PolicyCall::Touch) { EventKind::Touch } else { EventKind::Miss };
            let access = access(kind, file, start, len, pid, time * 100_000_000);
            let prefetch = match call {
                PolicyCall::Miss => policy.prefetch(&access),
                PolicyCall::Touch => policy.touch(&access),
                PolicyCall::Evict | PolicyCall::EvictAtMiss => {
                    let miss = matches!(call, PolicyCall::EvictAtMiss).then_some(&access);
                    model.checked_pages(policy.evict(miss).iter().flat_map(|ranges| ranges.iter()));
                    None
                }
            };
            if let Some(prefetch) = prefetch {
                prop_assert!(!prefetch.ranges.is_empty());
                let is_merged = workers.len() > 1 && prefetch.queue == u32::MAX;
                prop_assert!(is_merged || model.template.group(prefetch.queue).is_some());
                model.checked_pages(prefetch.ranges.iter());
            }
        }
        let state = policy.state();
        prop_assert!(state.groups.iter().all(|group| group.position <= group.nbytes));
        policy.exit();
    }

    #[test]
    fn a_reader_in_template_order_misses_at_most_its_first_page(
        accesses in random_accesses(),
        options in prop::sample::select(vec!["", "touch=yes,window=4M,distance=1M", "window=all", "touch=yes"]),
        memory in prop::sample::select(vec![0, 6 << 20, 1 << 40]),
        start in any::<bool>(),
    ) {
        let model = model_with_template(&[accesses]);
        let options = format!("{options},start={}", if start { "yes" } else { "no" });
        let mut policy = model.policy(&options, memory);
        let interests = policy.interests();
        let mut resident = BTreeSet::new();
        for prefetch in policy.start() {
            resident.extend(model.checked_pages(prefetch.ranges.iter()));
        }
        prop_assert_eq!(resident.is_empty(), !start);
        for (i, (file, page)) in (0u64..).zip(model.pages(0)) {
            let mut request = None;
            if resident.insert((file, page)) {
                prop_assert!(i == 0 && !start, "page {page} of file {file} is not resident at read {i}");
                request = policy.prefetch(&access(EventKind::Miss, file, page * PAGE, PAGE, 1, i * 1000));
            }
            if interests.touch {
                request = policy.touch(&access(EventKind::Touch, file, page * PAGE, PAGE, 1, i * 1000)).or(request);
            }
            if let Some(prefetch) = request {
                resident.extend(model.checked_pages(prefetch.ranges.iter()));
            }
        }
    }

    #[test]
    fn evicted_bytes_are_not_read_again(
        workers in prop::collection::vec(random_accesses(), 1..4),
        turns in prop::collection::vec((0..4usize, 1..400usize), 1..40),
        distance in prop::sample::select(vec!["0", "64K", "1M", "3M"]),
    ) {
        let model = model_with_template(&workers);
        let mut policy = model.policy(&format!("touch=yes,workers=order,distance={distance}"), 6 << 20);
        let pages: Vec<_> = (0..).zip(&workers).map(|(worker, _)| model.pages(worker)).collect();
        let mut positions = vec![0usize; pages.len()];
        let mut evicted = BTreeSet::new();
        let first = (0..pages.len()).map(|worker| (worker, 1));
        let rest = (0..pages.len()).map(|worker| (worker, usize::MAX));
        for (worker, count) in first.chain(turns).chain(rest) {
            let worker = worker % pages.len();
            let end = positions[worker].saturating_add(count).min(pages[worker].len());
            for &(file, page) in &pages[worker][positions[worker]..end] {
                prop_assert!(!evicted.contains(&(file, page)), "page {page} of file {file} for worker {worker}");
                let pid = u32::try_from(worker).unwrap();
                policy.touch(&access(EventKind::Touch, file, page * PAGE, PAGE, pid, 0));
            }
            positions[worker] = end;
            if positions.contains(&0) {
                continue; // a worker that has not read yet may count as one that runs on another machine
            }
            evicted.extend(model.checked_pages(policy.evict(None).iter().flat_map(|ranges| ranges.iter())));
        }
    }
}

#[test]
fn a_miss_of_all_bytes_requests_nothing() {
    let model = model_with_template(&[vec![(2, 0, 4097, 1, 1)]]);
    let mut policy = model.policy("start=no,workers=order", 0);
    let miss = access(EventKind::Miss, 2, 0, 8192, 0, 0);
    assert!(policy.prefetch(&miss).is_none());
}
