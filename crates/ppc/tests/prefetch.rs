//! The prefetcher, on files of a real disk.

mod disk;

use std::fs::{self, OpenOptions};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anamnesis_ppc::Prefetch;
use anamnesis_ppc::cache::{Accelerator, Fill, Node, Options, Prefetcher, Topology};
use disk::{LONG, MIB, all, brought, cached, disk, drop_all, io, is_here, list, slack, until};

/// Bytes per second at which a list is under way for long, and a read that was booked not.
const SLOW: u64 = 8 * MIB;

fn prefetcher() -> Prefetcher {
    Prefetcher::new(Options::default()).unwrap()
}

/// Waits until so much was read.
fn under_way(prefetcher: &Prefetcher, bytes: u64) {
    until("it is under way", || {
        prefetcher.progress().bytes_read >= bytes
    });
}

#[test]
fn brings_what_was_asked_and_little_more() {
    let Some((dir, namespace)) = disk("prefetch", &[64, 64]) else {
        return;
    };
    let prefetcher = prefetcher();
    let (one, two) = (dir.path().join("0"), dir.path().join("1"));
    // out of order, small and large, in two files
    let ios = vec![
        io("0", 40 * MIB + 5, 3 * MIB),
        io("1", 7, 1),
        io("0", 100, 2 * MIB),
        io("1", 100, 4000),
    ];
    prefetcher.submit(&namespace, &list(3, ios)).unwrap();
    assert!(prefetcher.wait(LONG));
    let page = rustix::param::page_size() as u64;
    assert!(is_here(&one, 40 * MIB, 3 * MIB + page));
    assert!(is_here(&one, 0, 2 * MIB + page));
    assert!(is_here(&two, 0, page));
    let slack = slack(dir.path());
    assert!(brought(&one, 0, 64 * MIB) <= 5 * MIB + 2 * page + 2 * slack);
    assert!(brought(&two, 0, 64 * MIB) <= page + slack);
    // nothing before a range
    assert_eq!(
        brought(
            &one,
            2 * MIB + page + slack,
            (38 * MIB).saturating_sub(slack + page).max(1)
        ),
        0
    );
    let progress = prefetcher.progress();
    assert!(
        progress.bytes_read > 0 && progress.bytes_read <= 5 * MIB + 3 * page,
        "{progress:?}"
    );
    assert_eq!(
        (progress.bytes_read + progress.bytes_skipped) / MIB,
        5,
        "{progress:?}"
    );
    assert_eq!(
        (
            progress.errors,
            progress.stale,
            progress.interrupts,
            progress.lanes.len()
        ),
        (0, 0, 0, 0)
    );
    // the second time there is nothing to do, unless the kernel took something back meanwhile
    until("nothing is read", || {
        let before = prefetcher.progress();
        prefetcher
            .submit(&namespace, &list(3, vec![io("0", 40 * MIB, 3 * MIB)]))
            .unwrap();
        assert!(prefetcher.wait(LONG));
        let after = prefetcher.progress();
        let skipped = after.bytes_skipped - before.bytes_skipped;
        (after.reads, after.bytes_read, skipped) == (before.reads, before.bytes_read, 3 * MIB)
    });
}

#[test]
fn populates_without_reading_ahead() {
    let Some((dir, namespace)) = disk("populate", &[64, 16]) else {
        return;
    };
    let path = dir.path().join("0");
    let options = Options {
        fill: Fill::Populate,
        per_lane: Some(2),
        ..Options::default()
    };
    let prefetcher = Prefetcher::new(options).unwrap();
    prefetcher
        .submit(
            &namespace,
            &list(0, vec![io("0", 4 * MIB, 20 * MIB), io("0", 41 * MIB, 4000)]),
        )
        .unwrap();
    assert!(prefetcher.wait(LONG));
    assert!(is_here(&path, 4 * MIB, 20 * MIB) && is_here(&path, 41 * MIB, 4000));
    // large folios, or at least nothing but those
    let all_of = brought(&path, 0, 64 * MIB);
    if brought(&path, 40 * MIB, 2 * MIB) == 2 * MIB {
        assert_eq!(all_of, 22 * MIB);
    } else {
        eprintln!("SKIPPED: populate: this kernel or file system makes no large folios");
    }
    let progress = prefetcher.progress();
    assert_eq!((progress.errors, progress.past_end), (0, 0), "{progress:?}");
    // nothing is mapped once it is there
    drop_all(fs::File::open(&path).unwrap());
    assert_eq!(cached(&path, 0, 64 * MIB), 0);
    // a file that becomes shorter is no signal
    prefetcher.set_bandwidth(Some(SLOW / 4));
    let before = prefetcher.progress().bytes_read;
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "1"),
                lane: 0,
            },
        )
        .unwrap();
    under_way(&prefetcher, before + 1);
    OpenOptions::new()
        .write(true)
        .open(dir.path().join("1"))
        .unwrap()
        .set_len(5000)
        .unwrap();
    prefetcher.set_bandwidth(None);
    assert!(prefetcher.wait(LONG));
    let progress = prefetcher.progress();
    assert!(
        progress.past_end + progress.stale > 0 && progress.errors == 0,
        "{progress:?}"
    );
}

#[test]
fn keeps_the_order() {
    let Some((dir, namespace)) = disk("order", &[32, 32]) else {
        return;
    };
    let options = Options {
        threads: 1,
        bandwidth: Some(SLOW),
        ..Options::default()
    };
    let prefetcher = Prefetcher::new(options).unwrap();
    prefetcher
        .submit(
            &namespace,
            &list(0, vec![io("1", 0, 16 * MIB), io("0", 0, 16 * MIB)]),
        )
        .unwrap();
    let (one, two) = (dir.path().join("0"), dir.path().join("1"));
    // under way for certain, however late this thread looks
    under_way(&prefetcher, 1);
    prefetcher.pause();
    prefetcher.quiesce(LONG).unwrap();
    assert_eq!(
        (brought(&one, 0, 16 * MIB), brought(&two, 0, 16 * MIB) > 0),
        (0, true)
    );
    prefetcher.set_bandwidth(Some(64 * MIB));
    prefetcher.resume();
    while !prefetcher.wait(Duration::from_millis(10)) {
        // the second is looked at first, since it may begin between the two looks
        let begun = brought(&one, 0, 16 * MIB) > 0;
        assert!(!begun || is_here(&two, 0, 16 * MIB));
    }
    assert!(is_here(&one, 0, 16 * MIB));
}

#[test]
fn a_newer_list_ends_the_older() {
    let Some((dir, namespace)) = disk("newer list", &[256, 64]) else {
        return;
    };
    // slow enough to be interrupted
    let prefetcher = Prefetcher::new(Options {
        bandwidth: Some(SLOW),
        ..Options::default()
    })
    .unwrap();
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "0"),
                lane: 1,
            },
        )
        .unwrap();
    under_way(&prefetcher, 1);
    let lanes = prefetcher.progress().lanes;
    assert_eq!((lanes.len(), lanes[0].lane, lanes[0].of), (1, 1, 1));
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "1"),
                lane: 1,
            },
        )
        .unwrap();
    prefetcher.set_bandwidth(None);
    assert!(prefetcher.wait(LONG));
    assert_eq!(prefetcher.progress().interrupts, 1);
    assert!(is_here(&dir.path().join("1"), 0, 64 * MIB));
    let first = brought(&dir.path().join("0"), 0, 256 * MIB);
    assert!(
        first < 200 * MIB,
        "{first} bytes of the list that was superseded"
    );
}

#[test]
fn lanes_take_turns() {
    let Some((dir, namespace)) = disk("turns", &[128, 128]) else {
        return;
    };
    let options = Options {
        threads: 1,
        bandwidth: Some(200 * MIB),
        ..Options::default()
    };
    let prefetcher = Prefetcher::new(options).unwrap();
    for lane in 0..2 {
        prefetcher
            .submit(
                &namespace,
                &Prefetch {
                    ios: all(&namespace, &lane.to_string()),
                    lane,
                },
            )
            .unwrap();
    }
    under_way(&prefetcher, 40 * MIB);
    prefetcher.interrupt_all();
    prefetcher.quiesce(LONG).unwrap();
    let slack = slack(dir.path());
    let [one, two] = ["0", "1"].map(|file| brought(&dir.path().join(file), 0, 128 * MIB));
    assert!(
        one > 0 && two > 0 && one.abs_diff(two) <= slack + 8 * MIB,
        "{one} and {two}"
    );
}

#[test]
fn an_interrupt_is_over_soon() {
    let Some((_dir, namespace)) = disk("interrupt", &[256]) else {
        return;
    };
    let threads = Options::default().threads as u64;
    let prefetcher = prefetcher();
    let file = namespace.open(&namespace.entries()[0]).unwrap();
    let mut times = Vec::new();
    for _ in 0..9 {
        drop_all(&file);
        let before = prefetcher.progress().reads;
        prefetcher
            .submit(
                &namespace,
                &Prefetch {
                    ios: all(&namespace, "0"),
                    lane: 0,
                },
            )
            .unwrap();
        while prefetcher.progress().reads < before + 5 {
            std::thread::yield_now();
        }
        prefetcher.interrupt(namespace.root(), 0);
        let asked = prefetcher.progress().reads;
        times.push(prefetcher.quiesce(LONG).unwrap());
        let read = prefetcher.progress().reads;
        // how long those take that were under way is the disk's affair
        assert!(
            read - asked <= threads,
            "{} reads of {threads} threads after an interrupt",
            read - asked
        );
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(prefetcher.progress().reads, read, "it reads on");
    }
    times.sort_unstable();
    eprintln!("interrupt to quiescent: {times:?}");
    assert!(prefetcher.wait(LONG));
}

#[test]
fn pauses_and_goes_on_where_it_was() {
    let Some((dir, namespace)) = disk("pause", &[128]) else {
        return;
    };
    let prefetcher = Prefetcher::new(Options {
        bandwidth: Some(SLOW),
        ..Options::default()
    })
    .unwrap();
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "0"),
                lane: 0,
            },
        )
        .unwrap();
    under_way(&prefetcher, 1);
    prefetcher.pause();
    prefetcher.quiesce(LONG).unwrap();
    let paused = prefetcher.progress();
    assert!(
        paused.paused && paused.bytes_read > 0 && paused.lanes.len() == 1,
        "{paused:?}"
    );
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(prefetcher.progress().reads, paused.reads);
    prefetcher.set_bandwidth(None);
    prefetcher.resume();
    assert!(prefetcher.wait(LONG));
    let done = prefetcher.progress();
    assert!(is_here(&dir.path().join("0"), 0, 128 * MIB));
    assert_eq!(done.bytes_read + done.bytes_skipped, 128 * MIB);
    assert_eq!(done.interrupts, 0);
}

#[test]
fn ends_promptly_when_dropped() {
    let Some((dir, namespace)) = disk("drop", &[256]) else {
        return;
    };
    let path = dir.path().join("0");
    // what is left would take a minute, and several
    for bandwidth in [4 * MIB, MIB] {
        drop_all(fs::File::open(&path).unwrap());
        let bandwidth = Some(bandwidth);
        let prefetcher = Prefetcher::new(Options {
            bandwidth,
            ..Options::default()
        })
        .unwrap();
        prefetcher
            .submit(
                &namespace,
                &Prefetch {
                    ios: all(&namespace, "0"),
                    lane: 0,
                },
            )
            .unwrap();
        under_way(&prefetcher, 1);
        let begun = Instant::now();
        drop(prefetcher);
        assert!(begun.elapsed() < LONG / 3, "{:?}", begun.elapsed());
        assert!(
            brought(&path, 0, 256 * MIB) < 200 * MIB,
            "it was read to its end"
        );
    }
}

#[test]
fn files_that_are_gone_or_changed_are_reported_once() {
    let Some((dir, namespace)) = disk("stale", &[8, 8, 8]) else {
        return;
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let report = move |lane, error: &anamnesis_ppc::Error| {
        told.lock().unwrap().push((lane, error.to_string()))
    };
    let options = Options {
        report: Some(Arc::new(report)),
        threads: 1,
        ..Options::default()
    };
    let prefetcher = Prefetcher::new(options).unwrap();
    fs::rename(dir.path().join("1"), dir.path().join("0")).unwrap();
    let ios = vec![
        io("0", 0, MIB),
        io("2", 0, MIB),
        io("0", 4 * MIB, MIB),
        io("no such", 0, 1),
        io("1", 0, 1),
    ];
    prefetcher.submit(&namespace, &list(7, ios)).unwrap();
    assert!(prefetcher.wait(LONG));
    assert!(is_here(&dir.path().join("2"), 0, MIB));
    assert_eq!(cached(&dir.path().join("0"), 0, 8 * MIB), 0);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert!(
        seen.iter().all(|(lane, _)| *lane == 7) && seen[0].1.contains("stale"),
        "{seen:?}"
    );
    let progress = prefetcher.progress();
    assert_eq!((progress.stale, progress.errors), (2, 1), "{progress:?}");
}

#[test]
fn files_become_shorter_and_ranges_lie_past_the_end() {
    let Some((dir, namespace)) = disk("shorter", &[64, 8]) else {
        return;
    };
    let options = Options {
        threads: 1,
        bandwidth: Some(SLOW),
        ..Options::default()
    };
    let prefetcher = Prefetcher::new(options).unwrap();
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "0"),
                lane: 0,
            },
        )
        .unwrap();
    under_way(&prefetcher, 1);
    OpenOptions::new()
        .write(true)
        .open(dir.path().join("0"))
        .unwrap()
        .set_len(3 * MIB + 1)
        .unwrap();
    prefetcher.set_bandwidth(None);
    assert!(prefetcher.wait(LONG));
    let progress = prefetcher.progress();
    assert!(progress.past_end + progress.stale > 0, "{progress:?}");
    let ios = vec![
        io("1", 7 * MIB, 9 * MIB),
        io("1", 100 * MIB, MIB),
        io("1", u64::MAX - 1, u64::MAX),
        io("1", 8 * MIB, 1),
        io("1", 3, u64::MAX),
        io("1", 0, 0),
    ];
    prefetcher.submit(&namespace, &list(1, ios)).unwrap();
    assert!(prefetcher.wait(LONG));
    assert!(is_here(&dir.path().join("1"), 0, 8 * MIB));
    let progress = prefetcher.progress();
    assert_eq!(progress.errors, 0);
    assert!(progress.past_end >= 5, "{progress:?}");
}

#[test]
fn the_bandwidth_bound_holds() {
    let Some((_dir, namespace)) = disk("bandwidth", &[100]) else {
        return;
    };
    let rate = 100 * MIB;
    let prefetcher = Prefetcher::new(Options {
        bandwidth: Some(rate),
        ..Options::default()
    })
    .unwrap();
    let begun = Instant::now();
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "0"),
                lane: 0,
            },
        )
        .unwrap();
    assert!(prefetcher.wait(LONG));
    let took = begun.elapsed().as_secs_f64();
    let read = prefetcher.progress().bytes_read + prefetcher.progress().bytes_skipped;
    assert_eq!(read, 100 * MIB);
    // the bound is one from above: a busy machine or a slow disk may take longer, though not for ever
    assert!(
        (0.8..30.0).contains(&took),
        "{took} s for 100 MiB at 100 MiB/s"
    );
}

#[test]
fn there_is_never_more_than_there_is_room_for() {
    let Some((dir, namespace)) = disk("room", &[128]) else {
        return;
    };
    let path = dir.path().join("0");
    let allowed = Arc::new(AtomicU64::new(24 * MIB));
    let (limit, of) = (Arc::clone(&allowed), path.clone());
    let room = move || limit.load(SeqCst).saturating_sub(cached(&of, 0, 128 * MIB));
    let prefetcher = Prefetcher::new(Options {
        room: Some(Arc::new(room)),
        ..Options::default()
    })
    .unwrap();
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "0"),
                lane: 0,
            },
        )
        .unwrap();
    until("the room is used", || {
        prefetcher.progress().no_room > 0 && cached(&path, 0, 128 * MIB) >= 16 * MIB
    });
    assert!(!prefetcher.wait(Duration::from_millis(300)));
    let (now, slack) = (cached(&path, 0, 128 * MIB), slack(dir.path()));
    // the read-ahead takes part of the room
    assert!(
        now >= 16 * MIB && now <= 24 * MIB + 2 * slack,
        "{now} bytes"
    );
    assert!(prefetcher.progress().no_room > 0);
    allowed.store(u64::MAX, SeqCst);
    assert!(prefetcher.wait(LONG));
    assert!(is_here(&path, 0, 128 * MIB));
}

#[test]
fn reads_beside_the_accelerator() {
    let Some((dir, namespace)) = disk("node", &[16]) else {
        return;
    };
    // two nodes as far as the prefetcher knows; the cores of the second are not ours
    let nodes = vec![
        Node {
            id: 0,
            cores: vec![0],
        },
        Node {
            id: 1,
            cores: vec![5000],
        },
    ];
    let accelerator = |node| Accelerator {
        address: String::new(),
        node: Some(node),
    };
    let topology = Arc::new(Topology {
        nodes,
        accelerators: vec![accelerator(0), accelerator(1)],
    });
    let prefetcher = Prefetcher::new(Options {
        topology,
        ..Options::default()
    })
    .unwrap();
    let ios = (0..16).map(|mib| anamnesis_ppc::Io {
        device: Some(mib % 3),
        ..io("0", u64::from(mib) * MIB, MIB)
    });
    prefetcher
        .submit(&namespace, &list(0, ios.collect()))
        .unwrap();
    assert!(prefetcher.wait(LONG));
    assert!(is_here(&dir.path().join("0"), 0, 16 * MIB));
}

/// What this thread has worked, whatever else runs.
fn clock() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)
        .try_into()
        .unwrap()
}

#[test]
fn long_lists_cost_nothing_to_submit_and_are_merged() {
    let Some((dir, namespace)) = disk("long lists", &[128]) else {
        return;
    };
    let prefetcher = prefetcher();
    // 1300 bytes every 1342
    let ios = (0..100_000)
        .map(|n| io("0", n * 1342, 1300))
        .collect::<Vec<_>>()
        .into();
    let begun = clock();
    for _ in 0..1000 {
        prefetcher
            .submit(
                &namespace,
                &Prefetch {
                    ios: anamnesis_ppc::Ios::clone(&ios),
                    lane: 0,
                },
            )
            .unwrap();
    }
    let took = clock() - begun;
    assert!(took < Duration::from_secs(1), "{took:?} for 1000 lists");
    assert!(prefetcher.wait(LONG));
    assert!(brought(&dir.path().join("0"), 0, 128 * MIB) >= 127 * MIB);
    let progress = prefetcher.progress();
    assert!(progress.reads < 2000, "{progress:?}");
    assert_eq!(progress.submitted, 1000);
}

#[test]
fn closures_that_panic_harm_nobody() {
    let Some((dir, namespace)) = disk("panics", &[8]) else {
        return;
    };
    let calls = AtomicU64::new(0);
    let room = move || {
        if calls.fetch_add(1, SeqCst) == 0 {
            panic!("no room")
        } else {
            u64::MAX
        }
    };
    let report = |_: u32, _: &anamnesis_ppc::Error| panic!("no report");
    let options = Options {
        room: Some(Arc::new(room)),
        report: Some(Arc::new(report)),
        threads: 1,
        ..Options::default()
    };
    let prefetcher = Prefetcher::new(options).unwrap();
    prefetcher
        .submit(
            &namespace,
            &list(0, vec![io("none", 0, MIB), io("0", 0, 8 * MIB)]),
        )
        .unwrap();
    assert!(prefetcher.wait(LONG));
    assert!(is_here(&dir.path().join("0"), 0, 8 * MIB));
}

#[test]
fn options_that_cannot_be_meant() {
    let with = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        Prefetcher::new(options).map(|_| ())
    };
    with(|_| ()).unwrap();
    with(|options| options.threads = 0).unwrap_err();
    with(|options| options.per_lane = Some(0)).unwrap_err();
    with(|options| options.read = 1000).unwrap_err();
    with(|options| options.piece = (1 << 20) + 1).unwrap_err();
    with(|options| options.piece = 0).unwrap_err();
}

#[test]
fn lanes_are_bounded() {
    let Some((_dir, namespace)) = disk("lanes", &[64]) else {
        return;
    };
    let prefetcher = prefetcher();
    prefetcher.pause();
    for lane in 0..1024 {
        prefetcher
            .submit(
                &namespace,
                &Prefetch {
                    ios: all(&namespace, "0"),
                    lane,
                },
            )
            .unwrap();
    }
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "0"),
                lane: 1024,
            },
        )
        .unwrap_err();
    prefetcher
        .submit(
            &namespace,
            &Prefetch {
                ios: all(&namespace, "0"),
                lane: 5,
            },
        )
        .unwrap();
    prefetcher.interrupt_namespace(namespace.root());
    assert_eq!(prefetcher.progress().interrupts, 1025);
    assert!(prefetcher.wait(LONG));
}
