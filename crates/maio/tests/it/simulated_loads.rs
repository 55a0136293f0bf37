//! Simulated loads of a model: when blocks are read from the device, and how often.

mod world;

use anamnesis_maio::MaioPhase;
use anamnesis_ppc::Policy;
use world::{BLOCK, M, Read, SimulatedReader, World, files_of, model, template};

const LENS: [u64; 4] = [128 * M, 100 * M + 4096, 156 * M, 128 * M];

fn total(lens: &[u64]) -> u64 {
    lens.iter().map(|len| len.div_ceil(BLOCK)).sum()
}

fn reader(pid: u32, reads: &[Read], pace: u64) -> SimulatedReader {
    SimulatedReader {
        pid,
        reads: reads.into(),
        pace,
        threads: 1,
        begins: 0,
    }
}

/// A simulation whose policy follows the template of these workers.
fn world(
    lens: &[u64],
    workers: &[Vec<Read>],
    options: &str,
    memory: u64,
    device: u64,
) -> (tempfile::TempDir, World) {
    let dir = model(lens);
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("t.iot");
    template(dir.path(), lens, workers)
        .save(&path, false)
        .unwrap();
    let world = World::new(
        dir.path(),
        lens,
        &format!("{},{options}", path.display()),
        memory,
        device,
    );
    (dir, world)
}

fn whole() -> Vec<Read> {
    files_of(&LENS, |_| true)
}

/// The blocks of a read, by file.
fn blocks(&(file, start, len): &Read) -> impl Iterator<Item = (usize, u64)> {
    (start / BLOCK..(start + len).div_ceil(BLOCK)).map(move |block| (file, block))
}

/// A header, a contiguous quarter of every file, then a part that all workers read.
fn quarters() -> Vec<Vec<Read>> {
    (0..4u64)
        .map(|worker| {
            let mut reads = vec![(0, 0, 4096), (1, 0, 4096)];
            for (file, len) in LENS.iter().enumerate().take(3) {
                let part = len / 4 / BLOCK * BLOCK;
                reads.push((file, worker * part, part));
            }
            reads.push((3, 0, 64 * M));
            // strided: every fourth piece of 128 KiB
            reads.extend((0..128).map(|i| (3, 64 * M + (i * 4 + worker) * 2 * BLOCK, 2 * BLOCK)));
            reads
        })
        .collect()
}

#[test]
fn with_memory_every_block_is_loaded_once_and_in_time() {
    for (threads, options) in [
        (1, ""),
        (8, ""),
        (1, "touch=yes"),
        (8, "touch=yes,window=64M"),
    ] {
        let (_dir, mut world) = world(&LENS, &[whole()], options, 1 << 40, 16);
        world.start();
        world.idle(20);
        world.run(vec![SimulatedReader {
            threads,
            ..reader(1, &whole(), 8)
        }]);
        assert_eq!(
            (world.misses, world.most_loads(), world.loads()),
            (0, 1, total(&LENS)),
            "{options}"
        );
        assert_eq!(world.state().phase, MaioPhase::Following);
    }
}

#[test]
fn without_a_start_the_first_miss_begins_prefetching() {
    for threads in [1, 8] {
        let (_dir, mut world) = world(&LENS, &[whole()], "start=no", 1 << 40, 16);
        world.start();
        world.run(vec![SimulatedReader {
            threads,
            ..reader(1, &whole(), 8)
        }]);
        // the prefetch begins at the first miss; the other threads miss within their first megabyte
        assert!(
            world.misses <= 16 * threads as u64,
            "{} misses",
            world.misses
        );
        assert_eq!((world.most_loads(), world.loads()), (1, total(&LENS)));
    }
}

#[test]
fn a_miss_at_the_prefetch_does_not_interrupt_it() {
    let (_dir, mut world) = world(&LENS, &[whole()], "", 1 << 40, 16);
    world.start();
    let requests = world.requests;
    (world.now, world.device) = (3_600_000, 1);
    world.idle(1);
    assert!(world.read(1, 0, 15));
    assert_eq!((world.misses, world.requests), (1, requests));
}

#[test]
fn a_reader_that_is_faster_than_the_device_loses_nothing() {
    let (_dir, mut world) = world(&LENS, &[whole()], "start=no", 1 << 40, 8);
    let steps = world.run(vec![reader(1, &whole(), 32)]);
    assert_eq!(world.loads(), total(&LENS));
    assert!(
        steps <= total(&LENS) / 8 + 20,
        "{steps} steps for {} of the device",
        total(&LENS) / 8
    );
    assert!(world.state().groups[0].restarts <= total(&LENS) / 16 + 1);
}

#[test]
fn with_half_the_memory_no_block_is_loaded_twice() {
    for threads in [1, 8] {
        let memory = total(&LENS) / 2 * BLOCK;
        let (_dir, mut world) = world(&LENS, &[whole()], "", memory, 16);
        assert!(world.wants.touch && world.wants.evict);
        let window = world.state().window;
        world.start();
        world.idle(500);
        world.run(vec![SimulatedReader {
            threads,
            ..reader(1, &whole(), 8)
        }]);
        assert_eq!(
            (world.most_loads(), world.reread, world.reclaimed),
            (1, 0, 0),
            "{threads} threads"
        );
        assert!(world.misses <= 16, "{} misses", world.misses);
        let watch = world.policy.watch();
        assert!(watch.state().groups[0].position > 0);
        world.policy.exit();
        assert_eq!(watch.state(), world.state());
        let group = &world.state().groups[0];
        assert_eq!(world.state().window, window, "there was room");
        assert!(
            group.position == group.nbytes && group.evicted > group.nbytes / 2,
            "{group:?}"
        );
    }
}

#[test]
fn without_eviction_or_window_half_the_memory_thrashes() {
    // the control: without eviction or window the test above fails
    let memory = total(&LENS) / 2 * BLOCK;
    let (_dir, mut world) = world(
        &LENS,
        &[whole()],
        "evict=no,window=all,touch=no",
        memory,
        16,
    );
    world.start();
    world.idle(500);
    world.run(vec![reader(1, &whole(), 8)]);
    assert!(
        world.reclaimed > 0 && world.misses > 500,
        "{} misses",
        world.misses
    );
}

#[test]
fn memory_used_by_others_shrinks_the_window() {
    let memory = total(&LENS) / 2 * BLOCK;
    let (_dir, mut world) = world(&LENS, &[whole()], "", memory, 16);
    let window = world.state().window;
    // the service uses three tenths of memory and the prefetcher does not pause: with the first window
    // the model would be read one and a half times
    (world.memory, world.waits) = (world.memory / 10 * 7, false);
    world.run(vec![reader(1, &whole(), 8)]);
    assert!(world.state().window < window);
    assert!(
        world.loads() < total(&LENS) * 11 / 10,
        "{} of {}",
        world.loads(),
        total(&LENS)
    );
    assert_eq!(world.reread, 0);
}

#[test]
fn four_workers_share_memory() {
    let workers = quarters();
    for options in ["workers=bytes", "workers=auto", "workers=order"] {
        let memory = total(&LENS) / 2 * BLOCK;
        let (_dir, mut world) = world(&LENS, &workers, options, memory, 32);
        world.start();
        let readers = (0..).zip(&workers).map(|(worker, reads)| SimulatedReader {
            begins: u64::from(worker) * 3,
            ..reader(10 + worker, reads, 4)
        });
        world.run(readers.collect());
        assert_eq!(world.reread, 0, "{options}: read again after eviction");
        assert_eq!(world.most_loads(), 1, "{options}");
        let state = world.state();
        assert_eq!(state.off_template, 0);
        for (worker, group) in (0..).zip(&state.groups) {
            assert_eq!(group.pid, Some(10 + worker), "{options}");
            assert!(group.position + M >= group.nbytes, "{options}: {group:?}");
        }
    }
}

#[test]
fn with_memory_the_first_miss_of_one_worker_loads_everything() {
    let workers = quarters();
    let wanted: std::collections::BTreeSet<_> = workers.iter().flatten().flat_map(blocks).collect();
    for options in ["start=no", "start=no,touch=yes"] {
        let (_dir, mut world) = world(&LENS, &workers, options, 1 << 40, 64);
        // the other three workers find the header in memory
        assert!(
            !world.read(10, 1, 0) && world.misses == 0,
            "no time has passed"
        );
        world.idle(1);
        assert!(world.read(10, 1, 0));
        world.idle(500);
        world.run(
            (0..)
                .zip(&workers)
                .map(|(worker, reads)| reader(10 + worker, reads, 4))
                .collect(),
        );
        assert_eq!(
            (world.misses, world.most_loads(), world.requests),
            (1, 1, 1),
            "{options}"
        );
        assert_eq!(world.loads(), wanted.len() as u64, "{options}");
    }
}

#[test]
fn workers_that_are_faster_than_the_device_stay_together() {
    let workers = quarters();
    let wanted: std::collections::BTreeSet<_> = workers.iter().flatten().flat_map(blocks).collect();
    let (_dir, mut world) = world(&LENS, &workers, "start=no", 1 << 40, 16);
    let steps = world.run(
        (0..)
            .zip(&workers)
            .map(|(worker, reads)| reader(10 + worker, reads, 16))
            .collect(),
    );
    assert_eq!(
        (world.most_loads(), world.loads()),
        (1, wanted.len() as u64)
    );
    let least = wanted.len() as u64 / 16;
    assert!(
        steps <= least + least / 8,
        "{steps} steps for {least} of the device"
    );
}

#[test]
fn processes_of_one_worker_are_followed_as_one() {
    let memory = total(&LENS) / 2 * BLOCK;
    let (_dir, mut world) = world(&LENS, &[whole()], "", memory, 16);
    world.start();
    world.idle(100);
    // even and odd megabytes, by two processes
    let half = |odd: u64| {
        (0..LENS[0] / M / 2)
            .map(|i| (0, (2 * i + odd) * M, M))
            .collect::<Vec<_>>()
    };
    world.run(vec![reader(1, &half(0), 4), reader(2, &half(1), 4)]);
    world.run(vec![reader(3, &whole()[1..], 8)]);
    assert_eq!(
        (world.most_loads(), world.reread, world.reclaimed),
        (1, 0, 0)
    );
    assert_eq!(world.state().groups[0].jumps, 0);
}

#[test]
fn workers_are_identified_by_their_bytes_in_any_order() {
    let workers = quarters();
    let (_dir, mut world) = world(&LENS, &workers, "touch=yes", 1 << 40, 32);
    world.start();
    let readers = [2, 0, 3, 1].map(|worker: u32| SimulatedReader {
        begins: u64::from(worker ^ 2) * 4,
        ..reader(worker, &workers[worker as usize], 4)
    });
    world.run(readers.into());
    assert_eq!(world.most_loads(), 1);
    let pids: Vec<_> = world.state().groups.iter().map(|group| group.pid).collect();
    assert_eq!(pids, [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn a_position_that_jumps_is_followed() {
    for options in [
        "start=no",
        "start=no,touch=yes",
        "start=no,touch=yes,window=32M",
    ] {
        let (_dir, mut world) = world(&LENS, &[whole()], options, 1 << 40, 16);
        world.run(vec![reader(1, &[(0, 0, 16 * M)], 8)]);
        let before = world.misses;
        world.run(vec![reader(1, &[(2, 16 * M, 140 * M), (3, 0, 128 * M)], 8)]);
        assert!(
            world.misses - before <= 8,
            "{options}: {} misses",
            world.misses - before
        );
        // and back again
        let before = world.misses;
        world.run(vec![reader(1, &[(1, 0, LENS[1])], 8)]);
        assert!(
            world.misses - before <= 64,
            "{options}: {} misses",
            world.misses - before
        );
        assert_eq!(world.most_loads(), 1, "{options}");
    }
}

#[test]
fn a_position_that_goes_back_among_resident_pages_is_followed() {
    let (_dir, mut world) = world(&LENS, &[whole()], "touch=yes,window=64M", 1 << 40, 16);
    world.start();
    world.idle(500);
    world.run(vec![reader(1, &[(0, 0, LENS[0]), (1, 0, LENS[1])], 8)]);
    world.run(vec![reader(1, &[(0, 64 * M, 64 * M)], 8)]);
    let state = world.state();
    assert_eq!(
        (
            state.groups[0].position,
            state.groups[0].jumps,
            world.misses
        ),
        (LENS[0], 1, 0)
    );
}

#[test]
fn a_second_load_is_followed_from_the_beginning() {
    let memory = total(&LENS) / 2 * BLOCK;
    let (_dir, mut world) = world(&LENS, &[whole()], "", memory, 16);
    world.run(vec![reader(1, &whole(), 8)]);
    let misses = world.misses;
    world.run(vec![reader(2, &whole(), 8)]);
    assert!(
        world.misses - misses <= 40,
        "{} misses",
        world.misses - misses
    );
    assert_eq!(world.most_loads(), 2);
}

#[test]
fn reads_of_headers_do_not_move_the_position() {
    let memory = total(&LENS) / 2 * BLOCK;
    let (_dir, mut world) = world(&LENS, &[whole()], "start=no", memory, 16);
    // every header is read first, as some loaders do
    world.run(vec![reader(
        1,
        &[(0, 0, 8), (1, 0, 8), (2, 0, 8), (3, 0, 8)],
        8,
    )]);
    assert_eq!(world.state().groups[0].position, BLOCK);
    world.run(vec![reader(1, &whole(), 8)]);
    assert_eq!((world.most_loads(), world.reread), (1, 0));
    // and again at the end
    world.run(vec![reader(1, &[(0, 0, 8), (1, 0, 8)], 8)]);
    assert_eq!(
        world.state().groups[0].position,
        world.state().groups[0].nbytes
    );
}

#[test]
fn a_service_that_deviates_from_its_template_is_reported() {
    let (_dir, mut world) = world(
        &LENS,
        &[files_of(&LENS, |file| file < 2)],
        "start=no",
        1 << 40,
        16,
    );
    world.run(vec![reader(1, &[(0, 0, 16 * M)], 8)]);
    assert_eq!(world.state().phase, MaioPhase::Following);
    let requests = world.requests;
    world.run(vec![reader(1, &[(2, 0, LENS[2])], 8)]);
    let state = world.state();
    assert_eq!(
        (state.phase, world.requests),
        (MaioPhase::OffTemplate, requests)
    );
    assert!(
        state.off_template_share > 0.5 && state.off_template > 64,
        "{state:?}"
    );
    // what the template has is still prefetched
    let misses = world.misses;
    world.run(vec![reader(1, &[(1, 0, LENS[1])], 8)]);
    assert!(world.misses - misses <= 4);
}

#[test]
fn misses_suffice_to_follow() {
    let memory = total(&LENS) / 2 * BLOCK;
    let (_dir, mut world) = world(&LENS, &[whole()], "touch=no", memory, 16);
    assert!(!world.wants.touch && world.wants.prefetch && world.wants.evict);
    world.start();
    world.run(vec![reader(1, &whole(), 8)]);
    assert_eq!(world.reread, 0);
    assert!(
        world.loads() <= total(&LENS) * 5 / 4,
        "{} of {}",
        world.loads(),
        total(&LENS)
    );
}
