//! Simulated loads of a model: how often a reader misses, and how often the device reads a block.

use anamnesis_maio::MaioPhase;
use anamnesis_ppc::Policy;

use super::simulation::{
    BLOCK, FileRead, MIB, SimulatedReader, Simulation, create_model, create_template, whole_files,
};

const LENS: [u64; 4] = [128 * MIB, 100 * MIB + 4096, 156 * MIB, 128 * MIB];

/// Number of blocks of all files.
fn block_count(lens: &[u64]) -> u64 {
    lens.iter().map(|len| len.div_ceil(BLOCK)).sum()
}

fn reader(pid: u32, reads: &[FileRead], blocks_per_step: u64) -> SimulatedReader {
    SimulatedReader {
        pid,
        reads: reads.into(),
        blocks_per_step,
        threads: 1,
        start_step: 0,
    }
}

/// A simulation whose policy follows the template of these workers, and the directory of the model.
fn following(
    lens: &[u64],
    workers: &[Vec<FileRead>],
    options: &str,
    memory: u64,
    device_rate: u64,
) -> (tempfile::TempDir, Simulation) {
    let dir = create_model(lens);
    let templates = tempfile::tempdir().unwrap();
    let path = templates.path().join("t.iot");
    create_template(dir.path(), lens, workers)
        .save(&path, false)
        .unwrap();
    let config = format!("{},{options}", path.display());
    let simulation = Simulation::new(dir.path(), lens, &config, memory, device_rate);
    (dir, simulation)
}

fn whole_model() -> Vec<FileRead> {
    whole_files(&LENS, |_| true)
}

/// The blocks of a read, by file.
fn blocks(&(file, start, len): &FileRead) -> impl Iterator<Item = (usize, u64)> {
    (start / BLOCK..(start + len).div_ceil(BLOCK)).map(move |block| (file, block))
}

/// The reads of each of four workers: two headers, a contiguous quarter of three files, a part of the fourth file that all
/// read, and a strided quarter of the rest.
fn four_workers() -> Vec<Vec<FileRead>> {
    (0..4u64)
        .map(|worker| {
            let mut reads = vec![(0, 0, 4096), (1, 0, 4096)];
            for (file, len) in LENS.iter().enumerate().take(3) {
                let part = len / 4 / BLOCK * BLOCK;
                reads.push((file, worker * part, part));
            }
            reads.push((3, 0, 64 * MIB));
            // every fourth piece of 128 KiB
            reads.extend((0..128).map(|i| (3, 64 * MIB + (i * 4 + worker) * 2 * BLOCK, 2 * BLOCK)));
            reads
        })
        .collect()
}

#[test]
fn with_sufficient_memory_no_read_misses_and_each_block_is_loaded_once() {
    for (threads, options) in [
        (1, ""),
        (8, ""),
        (1, "touch=yes"),
        (8, "touch=yes,window=64M"),
    ] {
        let (_dir, mut simulation) = following(&LENS, &[whole_model()], options, 1 << 40, 16);
        simulation.start();
        simulation.idle(20);
        simulation.run(vec![SimulatedReader {
            threads,
            ..reader(1, &whole_model(), 8)
        }]);
        assert_eq!(
            (
                simulation.misses,
                simulation.max_loads_of_a_block(),
                simulation.loads()
            ),
            (0, 1, block_count(&LENS)),
            "{options}"
        );
        assert_eq!(simulation.state().phase, MaioPhase::Following);
    }
}

#[test]
fn without_a_prefetch_at_start_the_first_miss_starts_it() {
    for threads in [1, 8] {
        let (_dir, mut simulation) = following(&LENS, &[whole_model()], "start=no", 1 << 40, 16);
        simulation.start();
        simulation.run(vec![SimulatedReader {
            threads,
            ..reader(1, &whole_model(), 8)
        }]);
        // the other threads miss only within their first megabyte
        assert!(
            simulation.misses <= 16 * threads as u64,
            "{} misses",
            simulation.misses
        );
        assert_eq!(
            (simulation.max_loads_of_a_block(), simulation.loads()),
            (1, block_count(&LENS))
        );
    }
}

#[test]
fn a_miss_of_the_chunk_that_is_being_prefetched_does_not_restart_the_prefetch() {
    let (_dir, mut simulation) = following(&LENS, &[whole_model()], "", 1 << 40, 16);
    simulation.start();
    let requests = simulation.requests;
    (simulation.now, simulation.device_rate) = (3_600_000, 1);
    simulation.idle(1);
    assert!(simulation.read(1, 0, 15));
    assert_eq!((simulation.misses, simulation.requests), (1, requests));
}

#[test]
fn a_reader_faster_than_the_device_keeps_the_device_busy() {
    let (_dir, mut simulation) = following(&LENS, &[whole_model()], "start=no", 1 << 40, 8);
    let steps = simulation.run(vec![reader(1, &whole_model(), 32)]);
    assert_eq!(simulation.loads(), block_count(&LENS));
    assert!(
        steps <= block_count(&LENS) / 8 + 20,
        "{steps} steps; the device needs {}",
        block_count(&LENS) / 8
    );
    assert!(simulation.state().groups[0].restarts <= block_count(&LENS) / 16 + 1);
}

#[test]
fn with_memory_for_half_of_the_model_no_block_is_loaded_twice() {
    for threads in [1, 8] {
        let memory = block_count(&LENS) / 2 * BLOCK;
        let (_dir, mut simulation) = following(&LENS, &[whole_model()], "", memory, 16);
        assert!(simulation.interests.touch && simulation.interests.evict);
        let window = simulation.state().window;
        simulation.start();
        simulation.idle(500);
        simulation.run(vec![SimulatedReader {
            threads,
            ..reader(1, &whole_model(), 8)
        }]);
        assert_eq!(
            (
                simulation.max_loads_of_a_block(),
                simulation.misses_after_eviction,
                simulation.reclaimed
            ),
            (1, 0, 0),
            "{threads} threads"
        );
        assert!(simulation.misses <= 16, "{} misses", simulation.misses);
        let watch = simulation.policy.watch();
        assert!(watch.state().groups[0].position > 0);
        simulation.policy.exit();
        assert_eq!(watch.state(), simulation.state());
        let group = &simulation.state().groups[0];
        assert_eq!(simulation.state().window, window, "the window has shrunk");
        assert!(
            group.position == group.nbytes && group.evicted > group.nbytes / 2,
            "{group:?}"
        );
    }
}

#[test]
fn without_eviction_and_window_the_kernel_reclaims_blocks_before_they_are_read() {
    // the control of the test above
    let memory = block_count(&LENS) / 2 * BLOCK;
    let (_dir, mut simulation) = following(
        &LENS,
        &[whole_model()],
        "evict=no,window=all,touch=no",
        memory,
        16,
    );
    simulation.start();
    simulation.idle(500);
    simulation.run(vec![reader(1, &whole_model(), 8)]);
    assert!(
        simulation.reclaimed > 0 && simulation.misses > 500,
        "{} misses",
        simulation.misses
    );
}

#[test]
fn memory_that_the_service_uses_shrinks_the_window() {
    let memory = block_count(&LENS) / 2 * BLOCK;
    let (_dir, mut simulation) = following(&LENS, &[whole_model()], "", memory, 16);
    let window = simulation.state().window;
    // the service uses three tenths of memory and the prefetcher does not pause: with the initial window the device would
    // read the model one and a half times
    (simulation.memory, simulation.pauses_at_limit) = (simulation.memory / 10 * 7, false);
    simulation.run(vec![reader(1, &whole_model(), 8)]);
    assert!(simulation.state().window < window);
    assert!(
        simulation.loads() < block_count(&LENS) * 11 / 10,
        "{} of {}",
        simulation.loads(),
        block_count(&LENS)
    );
    assert_eq!(simulation.misses_after_eviction, 0);
}

#[test]
fn four_workers_with_limited_memory_load_each_block_once() {
    let workers = four_workers();
    for options in ["workers=bytes", "workers=auto", "workers=order"] {
        let memory = block_count(&LENS) / 2 * BLOCK;
        let (_dir, mut simulation) = following(&LENS, &workers, options, memory, 32);
        simulation.start();
        let readers = (0..).zip(&workers).map(|(worker, reads)| SimulatedReader {
            start_step: u64::from(worker) * 3,
            ..reader(10 + worker, reads, 4)
        });
        simulation.run(readers.collect());
        assert_eq!(simulation.misses_after_eviction, 0, "{options}");
        assert_eq!(simulation.max_loads_of_a_block(), 1, "{options}");
        let state = simulation.state();
        assert_eq!(state.off_template, 0);
        for (worker, group) in (0..).zip(&state.groups) {
            assert_eq!(group.pid, Some(10 + worker), "{options}");
            assert!(group.position + MIB >= group.nbytes, "{options}: {group:?}");
        }
    }
}

#[test]
fn with_sufficient_memory_the_first_miss_of_one_worker_prefetches_for_all() {
    let workers = four_workers();
    let distinct_blocks: std::collections::BTreeSet<_> =
        workers.iter().flatten().flat_map(blocks).collect();
    for options in ["start=no", "start=no,touch=yes"] {
        let (_dir, mut simulation) = following(&LENS, &workers, options, 1 << 40, 64);
        // the device reads nothing before the first step
        assert!(!simulation.read(10, 1, 0) && simulation.misses == 0);
        simulation.idle(1);
        assert!(simulation.read(10, 1, 0));
        simulation.idle(500);
        simulation.run(
            (0..)
                .zip(&workers)
                .map(|(worker, reads)| reader(10 + worker, reads, 4))
                .collect(),
        );
        assert_eq!(
            (
                simulation.misses,
                simulation.max_loads_of_a_block(),
                simulation.requests
            ),
            (1, 1, 1),
            "{options}"
        );
        assert_eq!(
            simulation.loads(),
            distinct_blocks.len() as u64,
            "{options}"
        );
    }
}

#[test]
fn workers_faster_than_the_device_share_one_merged_schedule() {
    let workers = four_workers();
    let distinct_blocks: std::collections::BTreeSet<_> =
        workers.iter().flatten().flat_map(blocks).collect();
    let (_dir, mut simulation) = following(&LENS, &workers, "start=no", 1 << 40, 16);
    let steps = simulation.run(
        (0..)
            .zip(&workers)
            .map(|(worker, reads)| reader(10 + worker, reads, 16))
            .collect(),
    );
    assert_eq!(
        (simulation.max_loads_of_a_block(), simulation.loads()),
        (1, distinct_blocks.len() as u64)
    );
    let device_steps = distinct_blocks.len() as u64 / 16;
    assert!(
        steps <= device_steps + device_steps / 8,
        "{steps} steps; the device needs {device_steps}"
    );
}

#[test]
fn two_processes_that_read_for_one_worker_are_followed_as_one() {
    let memory = block_count(&LENS) / 2 * BLOCK;
    let (_dir, mut simulation) = following(&LENS, &[whole_model()], "", memory, 16);
    simulation.start();
    simulation.idle(100);
    // even and odd megabytes, by two processes
    let half = |odd: u64| {
        (0..LENS[0] / MIB / 2)
            .map(|i| (0, (2 * i + odd) * MIB, MIB))
            .collect::<Vec<_>>()
    };
    simulation.run(vec![reader(1, &half(0), 4), reader(2, &half(1), 4)]);
    simulation.run(vec![reader(3, &whole_model()[1..], 8)]);
    assert_eq!(
        (
            simulation.max_loads_of_a_block(),
            simulation.misses_after_eviction,
            simulation.reclaimed
        ),
        (1, 0, 0)
    );
    assert_eq!(simulation.state().groups[0].jumps, 0);
}

#[test]
fn workers_are_identified_by_the_bytes_that_they_read_in_any_order_of_start() {
    let workers = four_workers();
    let (_dir, mut simulation) = following(&LENS, &workers, "touch=yes", 1 << 40, 32);
    simulation.start();
    let readers = [2, 0, 3, 1].map(|worker: u32| SimulatedReader {
        start_step: u64::from(worker ^ 2) * 4,
        ..reader(worker, &workers[worker as usize], 4)
    });
    simulation.run(readers.into());
    assert_eq!(simulation.max_loads_of_a_block(), 1);
    let pids: Vec<_> = simulation
        .state()
        .groups
        .iter()
        .map(|group| group.pid)
        .collect();
    assert_eq!(pids, [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn the_prefetch_restarts_where_the_reader_jumps() {
    for options in [
        "start=no",
        "start=no,touch=yes",
        "start=no,touch=yes,window=32M",
    ] {
        let (_dir, mut simulation) = following(&LENS, &[whole_model()], options, 1 << 40, 16);
        simulation.run(vec![reader(1, &[(0, 0, 16 * MIB)], 8)]);
        let before = simulation.misses;
        simulation.run(vec![reader(
            1,
            &[(2, 16 * MIB, 140 * MIB), (3, 0, 128 * MIB)],
            8,
        )]);
        assert!(
            simulation.misses - before <= 8,
            "{options}: {} misses",
            simulation.misses - before
        );
        // back to a file that was skipped
        let before = simulation.misses;
        simulation.run(vec![reader(1, &[(1, 0, LENS[1])], 8)]);
        assert!(
            simulation.misses - before <= 64,
            "{options}: {} misses",
            simulation.misses - before
        );
        assert_eq!(simulation.max_loads_of_a_block(), 1, "{options}");
    }
}

#[test]
fn a_jump_back_to_resident_pages_moves_the_position_without_misses() {
    let (_dir, mut simulation) =
        following(&LENS, &[whole_model()], "touch=yes,window=64M", 1 << 40, 16);
    simulation.start();
    simulation.idle(500);
    simulation.run(vec![reader(1, &[(0, 0, LENS[0]), (1, 0, LENS[1])], 8)]);
    simulation.run(vec![reader(1, &[(0, 64 * MIB, 64 * MIB)], 8)]);
    let state = simulation.state();
    assert_eq!(
        (
            state.groups[0].position,
            state.groups[0].jumps,
            simulation.misses
        ),
        (LENS[0], 1, 0)
    );
}

#[test]
fn a_second_process_that_loads_the_model_again_is_followed_from_the_start() {
    let memory = block_count(&LENS) / 2 * BLOCK;
    let (_dir, mut simulation) = following(&LENS, &[whole_model()], "", memory, 16);
    simulation.run(vec![reader(1, &whole_model(), 8)]);
    let misses = simulation.misses;
    simulation.run(vec![reader(2, &whole_model(), 8)]);
    assert!(
        simulation.misses - misses <= 40,
        "{} misses",
        simulation.misses - misses
    );
    assert_eq!(simulation.max_loads_of_a_block(), 2);
}

#[test]
fn reads_of_headers_do_not_move_the_position() {
    let memory = block_count(&LENS) / 2 * BLOCK;
    let (_dir, mut simulation) = following(&LENS, &[whole_model()], "start=no", memory, 16);
    // as some loaders do: all headers are read first
    simulation.run(vec![reader(
        1,
        &[(0, 0, 8), (1, 0, 8), (2, 0, 8), (3, 0, 8)],
        8,
    )]);
    assert_eq!(simulation.state().groups[0].position, BLOCK);
    simulation.run(vec![reader(1, &whole_model(), 8)]);
    assert_eq!(
        (
            simulation.max_loads_of_a_block(),
            simulation.misses_after_eviction
        ),
        (1, 0)
    );
    // headers that are read at the end
    simulation.run(vec![reader(1, &[(0, 0, 8), (1, 0, 8)], 8)]);
    assert_eq!(
        simulation.state().groups[0].position,
        simulation.state().groups[0].nbytes
    );
}

#[test]
fn reads_that_the_template_lacks_are_reported_and_its_other_bytes_still_prefetched() {
    let (_dir, mut simulation) = following(
        &LENS,
        &[whole_files(&LENS, |file| file < 2)],
        "start=no",
        1 << 40,
        16,
    );
    simulation.run(vec![reader(1, &[(0, 0, 16 * MIB)], 8)]);
    assert_eq!(simulation.state().phase, MaioPhase::Following);
    let requests = simulation.requests;
    simulation.run(vec![reader(1, &[(2, 0, LENS[2])], 8)]);
    let state = simulation.state();
    assert_eq!(
        (state.phase, simulation.requests),
        (MaioPhase::OffTemplate, requests)
    );
    assert!(
        state.off_template_share > 0.5 && state.off_template > 64,
        "{state:?}"
    );
    // bytes of the template are still prefetched
    let misses = simulation.misses;
    simulation.run(vec![reader(1, &[(1, 0, LENS[1])], 8)]);
    assert!(simulation.misses - misses <= 4);
}

#[test]
fn a_reader_is_followed_by_its_misses_alone() {
    let memory = block_count(&LENS) / 2 * BLOCK;
    let (_dir, mut simulation) = following(&LENS, &[whole_model()], "touch=no", memory, 16);
    assert!(
        !simulation.interests.touch && simulation.interests.prefetch && simulation.interests.evict
    );
    simulation.start();
    simulation.run(vec![reader(1, &whole_model(), 8)]);
    assert_eq!(simulation.misses_after_eviction, 0);
    assert!(
        simulation.loads() <= block_count(&LENS) * 5 / 4,
        "{} of {}",
        simulation.loads(),
        block_count(&LENS)
    );
}
