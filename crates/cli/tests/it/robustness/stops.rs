//! Runtimes that are stopped, that lose events, and that are not alone.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::process::Signal;

use super::model::{RandomModel, wait_until};
use crate::process::path_str;
use crate::runtime_process::RuntimeProcess;

#[test]
fn a_stopped_runtime_delays_no_load_and_goes_on() {
    let Some(model) = RandomModel::new(8) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let policy = format!("maio:{},start=no", model.template(scratch.path()).display());
    let args = ["--dir", path_str(&model.root), "--policy", &policy];
    // a prefetch of 16 MiB takes 40 ms at least, and is under way when the runtime is stopped
    let limited = [&args[..], &["--bandwidth", "400MB"]].concat();
    let runtime = RuntimeProcess::start(&limited);
    for _ in 0..3 {
        model.evict();
        let load = model.start_load();
        std::thread::sleep(std::time::Duration::from_millis(5));
        runtime.signal(Signal::STOP);
        // it ends although the runtime does nothing
        let loaded = load.wait_with_output().unwrap().stdout;
        assert_eq!(String::from_utf8(loaded).unwrap(), model.expected);
        model.evict();
        assert_eq!(model.load(), model.expected);
        runtime.signal(Signal::CONT);
        runtime.wait_for("a policy that is registered", |status| {
            status["policies"][0]["failure"].is_null()
        });
    }
    assert_receives_misses(&runtime, &model);
}

#[test]
fn events_that_are_lost_while_a_runtime_is_stopped_are_counted_and_change_no_byte() {
    // each page a miss: twice as many as the rings of two processors hold
    let Some(model) = RandomModel::new(32) else {
        return;
    };
    let args = ["--dir", path_str(&model.root), "--policy", "eager"];
    let mut runtime = RuntimeProcess::start(&args);
    runtime.signal(Signal::STOP);
    let mut expected = vec![0; 4096];
    let mut read = expected.clone();
    for number in 0..2 {
        let file = File::open(model.path(number)).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        for page in 0..8192 {
            file.read_exact_at(&mut read, page * 4096).unwrap();
        }
        file.read_exact_at(&mut expected, 8191 * 4096).unwrap();
        assert_eq!(read, expected);
    }
    runtime.signal(Signal::CONT);
    // the kernel reports a loss with the next event that it writes on the same processor
    wait_until("lost event in the status", || {
        model.evict();
        assert_eq!(model.load(), model.expected);
        let status = runtime.status().unwrap();
        status["events"]["lost"].as_u64().unwrap() > 0
    });
    let status = runtime.status().unwrap();
    let count = |name: &str| status["events"][name].as_u64().unwrap();
    eprintln!("{} events, {} lost", count("received"), count("lost"));
    assert!(count("received") > 1000, "{status}");
    // merged events count once, and what is lost is not merged
    assert!(count("received") + count("lost") > 8192, "{status}");
    assert!(status["policies"][0]["failure"].is_null(), "{status}");
    // and stated at the end
    runtime.signal(Signal::TERM);
    let mut printed = String::new();
    let mut errors = runtime.0.stderr.take().unwrap();
    std::io::Read::read_to_string(&mut errors, &mut printed).unwrap();
    let lost = printed.split("; ").last().unwrap();
    assert!(
        lost.contains("events lost") && !lost.starts_with("0 "),
        "{printed}"
    );
}

#[test]
fn two_runtimes_on_one_directory_load_the_same_bytes() {
    let Some(model) = RandomModel::new(8) else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let policy = format!("maio:{}", model.template(scratch.path()).display());
    let start =
        |policy: &str| RuntimeProcess::start(&["--dir", path_str(&model.root), "--policy", policy]);
    let both = [start("eager"), start(&policy)];
    for _ in 0..3 {
        model.evict();
        assert_eq!(model.load(), model.expected);
    }
    let misses = |runtime: &RuntimeProcess| {
        let status = runtime.wait_for("misses", |status| {
            status["events"]["misses"].as_u64().unwrap() > 0
        });
        assert!(status["policies"][0]["failure"].is_null(), "{status}");
    };
    both.iter().for_each(misses);
    // one goes on when the other is killed
    let [first, second] = both;
    drop(first);
    assert_receives_misses(&second, &model);
}

/// The events of a load that begins now are received.
fn assert_receives_misses(runtime: &RuntimeProcess, model: &RandomModel) {
    let received = || {
        runtime.status().unwrap()["events"]["misses"]
            .as_u64()
            .unwrap()
    };
    let before = received();
    model.evict();
    assert_eq!(model.load(), model.expected);
    wait_until("further miss", || received() > before);
}
