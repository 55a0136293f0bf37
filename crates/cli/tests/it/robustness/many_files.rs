//! A directory of thousands of files, and a long stream of events.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::model::wait_until;
use crate::page_cache::resident;
use crate::process::path_str;
use crate::runtime_process::{RuntimeProcess, on_device};

const FILES: usize = 10_000;

/// Resident memory of a process in KiB, and its open descriptors.
fn usage(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = line.unwrap().trim().trim_end_matches(" kB");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    (resident.parse().unwrap(), descriptors)
}

#[test]
fn ten_thousand_files_are_watched_with_few_descriptors_and_prefetched() {
    let Some(dir) = on_device() else { return };
    let path = |number: usize| dir.path().join(format!("{}/{number}", number % 7));
    for number in 0..7 {
        fs::create_dir(dir.path().join(number.to_string())).unwrap();
    }
    for number in 0..FILES {
        fs::write(path(number), [7; 4096]).unwrap();
    }
    rustix::fs::syncfs(File::open(dir.path()).unwrap()).unwrap();
    for number in 0..FILES {
        let file = File::open(path(number)).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    let cached = || {
        let some = (0..FILES).step_by(97);
        some.filter(|&number| resident(&path(number)) > 0).count()
    };
    let before = cached();
    assert!(before < 10, "{before}");
    let begun = Instant::now();
    let runtime = RuntimeProcess::start(&["--dir", path_str(dir.path()), "--policy", "eager"]);
    let started = begun.elapsed();
    let status = runtime.status().unwrap();
    assert_eq!(status["policies"][0]["files"], FILES, "{status}");
    let (memory, descriptors) = usage(runtime.0.id());
    eprintln!("{FILES} files: {started:?} to start, {memory} KiB, {descriptors} descriptors");
    // 0.4 s on an idle machine, which waits for no file
    assert!(started < Duration::from_secs(20), "{started:?}");
    assert!(descriptors < 100, "{descriptors}");
    assert!(memory < 64 << 10, "{memory}");
    // one file is read, and the others are prefetched
    File::open(path(0)).unwrap().read_at(&mut [0], 0).unwrap();
    wait_until("prefetched files", || {
        runtime.assert_runs("it prefetched the files");
        cached() > FILES / 97 * 95 / 100
    });
    let (memory, descriptors) = usage(runtime.0.id());
    assert!(descriptors < 100, "{descriptors}");
    assert!(memory < 64 << 10, "{memory}");
}

#[test]
fn memory_and_descriptors_are_level_over_a_long_stream_of_events() {
    let Some(dir) = on_device() else { return };
    let path = dir.path().join("model");
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    let runtime = RuntimeProcess::start(&[
        "--dir",
        path_str(dir.path()),
        "--source",
        "accesses",
        "--policy",
        "eager",
    ]);
    let file = File::open(&path).unwrap();
    let pid = runtime.0.id();
    let received = || {
        let events = runtime.status().unwrap()["events"].clone();
        let count = |name: &str| events[name].as_u64().unwrap();
        (count("received") + count("lost"), count("lost"))
    };
    let mut usages = Vec::new();
    let mut page = [0; 4096];
    for round in 0..10_u64 {
        for read in 0..20_000 {
            file.read_exact_at(&mut page, read * 7 % 256 * 4096)
                .unwrap();
        }
        // files come and go, and the directory is scanned again
        let other = dir.path().join(format!("other-{round}"));
        fs::write(&other, [0; 5000]).unwrap();
        File::open(&other).unwrap().read_at(&mut page, 0).unwrap();
        if round % 2 == 0 {
            fs::remove_file(other).unwrap();
        }
        wait_until("all events", || received().0 >= 20_000 * (round + 1));
        usages.push(usage(pid));
    }
    let (received, lost) = received();
    eprintln!("{received} events, {lost} lost; KiB and descriptors after each tenth: {usages:?}");
    // after the first third, in which queues and tables reach their size
    let ((memory, descriptors), (last_memory, last_descriptors)) = (usages[3], usages[9]);
    assert!(last_memory < memory + 2048, "{usages:?}");
    assert!(last_descriptors <= descriptors + 2, "{usages:?}");
    assert!(
        lost < received / 2,
        "{lost} of {received} events are lost without a stop"
    );
}
