//! The perf source: page-cache trace points as misses, accesses and recordings.

use std::path::Path;
use std::time::Duration;

use anamnesis_ppc::source::perf::PerfOptions;
use anamnesis_ppc::source::{CaptureMode, PerfSource};
use anamnesis_ppc::{EventKind, EventSource};

use super::child_process::{self, ChildTask, run_child};
use super::events::{causes_no_events, collect_events, covered_bytes, lock_tracing, traceable_dir};
use crate::support::files::{HANG_TIMEOUT, MIB, drop_all_cached_pages, inode, write_uncached};

/// Creates a source with changed options. Prints a message and returns `None` where perf is not available.
pub(crate) fn perf_source(
    mode: CaptureMode,
    change: impl FnOnce(&mut PerfOptions),
) -> Option<PerfSource> {
    let mut options = PerfOptions::of(mode);
    change(&mut options);
    PerfSource::new(mode, options)
        .map_err(|error| eprintln!("SKIPPED: {error}"))
        .ok()
}

#[test]
fn uncached_reads_are_misses_and_cached_reads_are_not() {
    let (Some(dir), Some(mut source)) = (traceable_dir(), perf_source(CaptureMode::Misses, |_| {}))
    else {
        return;
    };
    let path = dir.path().join("model");
    write_uncached(&path, 16 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    let pid = run_child(ChildTask::Read(MIB), &path, 3 * MIB, 16 * MIB);
    let events = collect_events(&mut source);
    let first = events.first().expect("an uncached read misses");
    assert_eq!(
        (first.kind, first.inode, first.start, first.len),
        (EventKind::Miss, inode(&path), 3 * MIB, MIB),
        "{events:?}"
    );
    assert_eq!(first.pid, pid);
    assert!(events.is_sorted_by_key(|event| event.time));
    run_child(ChildTask::Read(MIB), &path, 0, 3 * MIB);
    let events = collect_events(&mut source);
    assert_eq!(
        covered_bytes(&events, 0, MIB),
        MIB,
        "the part that was not read before: {events:?}"
    );
    assert!(
        causes_no_events(&mut source, || _ =
            run_child(ChildTask::Read(MIB), &path, 0, 16 * MIB)),
        "the whole file is cached"
    );
    assert_eq!(source.lost(), 0);
}

#[test]
fn uncached_map_accesses_are_misses_and_cached_ones_are_not() {
    let _tracing = lock_tracing();
    let (Some(dir), Some(mut source)) = (traceable_dir(), perf_source(CaptureMode::Misses, |_| {}))
    else {
        return;
    };
    let path = dir.path().join("model");
    write_uncached(&path, 4 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    for task in [
        ChildTask::Map,
        ChildTask::MapSequential,
        ChildTask::MapRandom,
    ] {
        drop_all_cached_pages(&path);
        let pid = run_child(task, &path, MIB, 2 * MIB);
        let events = collect_events(&mut source);
        let first = events
            .first()
            .unwrap_or_else(|| panic!("{task:?}: an uncached access misses"));
        assert_eq!(
            (first.kind, first.start, first.len, first.pid),
            (EventKind::Miss, MIB, 4096, pid),
            "{task:?}: {events:?}"
        );
        if let ChildTask::MapRandom = task {
            assert_eq!(
                covered_bytes(&events, MIB, 2 * MIB),
                MIB,
                "nothing is read ahead: {}",
                events.len()
            );
        } else {
            assert!(events.len() < 10, "{task:?}: {events:?}");
        }
        run_child(ChildTask::Read(MIB), &path, 0, 4 * MIB); // caches the rest
        collect_events(&mut source);
        assert!(
            causes_no_events(&mut source, || _ = run_child(task, &path, 0, 4 * MIB)),
            "{task:?}, cached"
        );
    }
}

#[test]
fn a_miss_wakes_the_waiting_source() {
    let (Some(dir), Some(mut source)) = (traceable_dir(), perf_source(CaptureMode::Misses, |_| {}))
    else {
        return;
    };
    let path = dir.path().join("model");
    write_uncached(&path, MIB);
    source.watch(&[inode(&path)]).unwrap();
    for task in [ChildTask::Read(4096), ChildTask::Map] {
        let mut delays: Vec<_> = (0..5)
            .map(|_| report_delay(&mut source, task, &path))
            .collect();
        eprintln!("{task:?}: reported after {delays:?}");
        // A source that is not woken checks its rings once per second. On a busy machine this thread may be scheduled
        // late, so the median counts.
        delays.sort_unstable();
        assert!(
            delays[2] < Duration::from_millis(500),
            "the source is not woken by misses: {delays:?}"
        );
    }
}

/// Time from a miss until it is reported.
fn report_delay(source: &mut PerfSource, task: ChildTask, path: &Path) -> Duration {
    drop_all_cached_pages(path);
    let mut child = child_process::command(task, path, 0, 4096).spawn().unwrap();
    let mut events = Vec::new();
    source.wait(HANG_TIMEOUT, &mut events).unwrap();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap();
    assert!(child.wait().unwrap().success());
    let first = events.first().expect("a miss").time;
    collect_events(source); // the remaining events of the child
    Duration::from_nanos(now - first)
}

#[test]
fn accesses_report_cached_and_uncached_reads() {
    let (Some(dir), Some(mut source)) =
        (traceable_dir(), perf_source(CaptureMode::Accesses, |_| {}))
    else {
        return;
    };
    let path = dir.path().join("model");
    write_uncached(&path, 16 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    for state in ["uncached", "cached"] {
        run_child(ChildTask::Read(MIB), &path, 2 * MIB, 14 * MIB);
        let events = collect_events(&mut source);
        assert!(events.iter().all(|event| event.kind == EventKind::Touch));
        let share = covered_bytes(&events, 2 * MIB, 14 * MIB) * 100 / (12 * MIB);
        assert!(share >= 97, "{state}: {share} %");
        assert_eq!(
            covered_bytes(&events, 0, 2 * MIB),
            0,
            "{state}: read-ahead is not reported"
        );
    }
    run_child(ChildTask::Map, &path, 0, 16 * MIB);
    let share = covered_bytes(&collect_events(&mut source), 0, 16 * MIB) * 100 / (16 * MIB);
    eprintln!("mapped: {share} %");
    assert!(share >= 60, "mapped: {share} %");
    assert_eq!(source.lost(), 0);
}

#[test]
fn recording_reports_all_bytes_of_uncached_files() {
    let (Some(dir), Some(mut source)) =
        (traceable_dir(), perf_source(CaptureMode::Recording, |_| {}))
    else {
        return;
    };
    let path = dir.path().join("model");
    for task in [ChildTask::Read(16 * MIB), ChildTask::Map] {
        write_uncached(&path, 96 * MIB);
        source.watch(&[inode(&path)]).unwrap();
        run_child(task, &path, 0, 96 * MIB);
        let events = collect_events(&mut source);
        assert_eq!(covered_bytes(&events, 0, 96 * MIB), 96 * MIB, "{task:?}");
        assert!(events.len() < 20_000, "{task:?}: {} events", events.len());
    }
    assert_eq!(source.lost(), 0);
}

#[test]
fn only_watched_files_are_reported_and_no_event_is_lost_while_the_watched_files_change() {
    let (Some(dir), Some(mut source)) =
        (traceable_dir(), perf_source(CaptureMode::Accesses, |_| {}))
    else {
        return;
    };
    let paths: Vec<_> = (0..300).map(|n| dir.path().join(format!("{n}"))).collect();
    paths.iter().for_each(|path| write_uncached(path, 4096));
    let inodes: Vec<_> = paths.iter().map(|path| inode(path)).collect();
    run_child(ChildTask::Read(4096), &paths[7], 0, 4096);
    assert_eq!(collect_events(&mut source), [], "nothing is watched");
    // every second file, which is more than the kernel's filter has terms
    let every_second: Vec<_> = inodes.iter().copied().step_by(2).collect();
    source.watch(&every_second).unwrap();
    paths
        .iter()
        .for_each(|path| child_process::read(path, 4096, 0, 4096));
    assert_eq!(collect_events(&mut source), [], "reads of this process");
    run_child(ChildTask::Read(4096), &paths[7], 0, 4096);
    assert_eq!(collect_events(&mut source), [], "another file");
    run_child(ChildTask::Read(4096), &paths[8], 0, 4096);
    assert_eq!(
        collect_events(&mut source).first().map(|event| event.inode),
        Some(inodes[8])
    );

    // the watched files change repeatedly while a process reads one of them
    let big = dir.path().join("big");
    let (len, read_size) = (64 * MIB, 16 << 10);
    write_uncached(&big, len);
    source.watch(&[inode(&big)]).unwrap();
    let mut child = child_process::command(ChildTask::Read(read_size), &big, 0, len)
        .spawn()
        .unwrap();
    let (mut events, mut changes) = (Vec::new(), 0);
    while child.try_wait().unwrap().is_none() {
        let watched = [&[inode(&big)], &inodes[..changes % 5]].concat();
        source.watch(&watched).unwrap();
        source.wait(Duration::from_millis(1), &mut events).unwrap();
        changes += 1;
    }
    events.extend(collect_events(&mut source));
    assert!(changes > 1, "{changes}");
    assert_eq!(
        covered_bytes(&events, 0, len),
        len,
        "after {changes} changes"
    );
    let reads = usize::try_from(len / read_size).unwrap();
    assert!(
        events.len() < reads + reads / 4,
        "{} events of {reads} reads",
        events.len()
    );
    assert_eq!(source.lost(), 0);
}

#[test]
fn reads_of_the_own_process_are_reported_with_the_option_own() {
    let (Some(dir), Some(mut source)) = (
        traceable_dir(),
        perf_source(CaptureMode::Misses, |options| options.own = true),
    ) else {
        return;
    };
    let path = dir.path().join("model");
    write_uncached(&path, MIB);
    source.watch(&[inode(&path)]).unwrap();
    child_process::read(&path, 4096, 0, 4096);
    assert_eq!(
        collect_events(&mut source).first().map(|event| event.pid),
        Some(std::process::id())
    );
}

#[test]
fn events_that_a_full_ring_buffer_drops_are_counted_as_lost() {
    let (Some(dir), Some(mut source)) = (
        traceable_dir(),
        perf_source(CaptureMode::Accesses, |options| options.pages = 1),
    ) else {
        return;
    };
    let path = dir.path().join("model");
    write_uncached(&path, 4 * MIB);
    source.watch(&[inode(&path)]).unwrap();
    run_child(ChildTask::Read(4096), &path, 0, 4 * MIB); // 1024 samples of about 80 bytes into two rings of 4096
    let events = collect_events(&mut source);
    // the kernel reports lost samples with the next sample that it writes on the same CPU
    for _ in 0..20 {
        run_child(ChildTask::Read(4096), &path, 0, 4096);
        collect_events(&mut source);
    }
    assert!(
        source.lost() > 500,
        "{} reported, {} lost",
        events.len(),
        source.lost()
    );
    assert!(
        events.len() as u64 + source.lost() >= 1024,
        "{} reported, {} lost",
        events.len(),
        source.lost()
    );
}

#[test]
fn without_read_ahead_trace_points_insertions_into_the_page_cache_are_reported() {
    let older_kernel = |options: &mut PerfOptions| {
        options.without = [
            "readahead/page_cache_sync_ra",
            "filemap/mm_filemap_get_pages",
        ]
        .map(String::from)
        .into_iter()
        .collect();
    };
    for mode in [CaptureMode::Misses, CaptureMode::Accesses] {
        let (Some(dir), Some(mut source)) = (traceable_dir(), perf_source(mode, older_kernel))
        else {
            return;
        };
        assert!(source.capabilities().limitations.contains("read ahead"));
        let path = dir.path().join("model");
        write_uncached(&path, 2 * MIB);
        source.watch(&[inode(&path)]).unwrap();
        run_child(ChildTask::Read(MIB), &path, 0, 2 * MIB);
        assert_eq!(
            covered_bytes(&collect_events(&mut source), 0, 2 * MIB),
            2 * MIB
        );
        assert!(
            causes_no_events(&mut source, || _ =
                run_child(ChildTask::Read(MIB), &path, 0, 2 * MIB)),
            "cached"
        );
    }
}
