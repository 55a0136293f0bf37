//! Several runs of `remember --overwrite` into one directory at the same time, killed and not, and readers beside them: no
//! checkpoint is lost, and every opening finds one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anamnesis::Checkpoint;

use crate::killed::{TENSORS, source, value};
use crate::process::{command, finish, path_str};

const ROUNDS: u64 = 60;

struct Directories {
    scratch: tempfile::TempDir,
    out: PathBuf,
}

impl Directories {
    /// Checkpoints of the values 1 to 4, of which the first is in the directory that is written to.
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        for number in 1..=4u8 {
            source(&scratch.path().join(number.to_string()), f32::from(number));
        }
        let out = scratch.path().join("parent/out/");
        fs::create_dir(scratch.path().join("parent")).unwrap();
        let this = Self { scratch, out };
        assert_eq!(finish(this.remember(1)).code, 0);
        this
    }

    fn remember(&self, from: u64) -> std::process::Command {
        // shards and a single file, so that indexes appear and disappear
        let shard_size = if from == 3 { "1GB" } else { "200KB" };
        let mut command = command(&["remember", "--overwrite", "--shard-size", shard_size]);
        command.arg(self.scratch.path().join(from.to_string()));
        command.args(["-o", path_str(&self.out)]);
        command
    }

    fn start(&self, from: u64) -> Child {
        let mut command = self.remember(from);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// Opens the directory until the flag is set; how often. The files are read too, by the caller's `value`.
fn read_until(out: &Path, end: &AtomicBool) -> u64 {
    let mut opened = 0;
    while !end.load(Ordering::Relaxed) {
        let checkpoint = Checkpoint::open(out);
        let checkpoint = checkpoint.unwrap_or_else(|e| panic!("opening {opened}: {e}"));
        assert_eq!(checkpoint.tensors().len(), TENSORS);
        opened += 1;
    }
    opened
}

fn rounds(writers: u64) {
    let directories = Directories::new();
    let out = &directories.out;
    let end = AtomicBool::new(false);
    let mut random = 7 * writers;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let (mut done, mut refused, mut killed) = (0, 0, 0);
    let opened = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(out, &end));
        for round in 0..ROUNDS {
            let mut children: Vec<Child> = (0..writers)
                .map(|writer| {
                    std::thread::sleep(Duration::from_micros(next(20_000)));
                    directories.start(1 + (round + writer) % 4)
                })
                .collect();
            if round % 2 == 1 {
                std::thread::sleep(Duration::from_micros(next(90_000)));
                let victim = usize::try_from(next(writers)).unwrap();
                children[victim].kill().unwrap();
            }
            let mut any_done = false;
            for child in children {
                let output = child.wait_with_output().unwrap();
                let text = String::from_utf8_lossy(&output.stderr);
                match output.status.code() {
                    Some(0) => (done, any_done) = (done + 1, true),
                    Some(_) => {
                        assert!(text.contains("another run is writing"), "{text}");
                        assert!(text.contains("wait until it has ended"), "{text}");
                        refused += 1;
                    }
                    None => killed += 1,
                }
            }
            assert!(
                any_done || round % 2 == 1,
                "round {round}: all were refused"
            );
            assert!(value(out).is_some(), "round {round}: no checkpoint");
        }
        end.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    println!(
        "{writers} writers: {done} done, {refused} refused, {killed} killed, {opened} openings"
    );
    assert!(opened > ROUNDS);
    // the next run removes the files of killed ones
    assert_eq!(finish(directories.remember(2)).code, 0);
    assert_eq!(value(out), Some(2.0));
    let names = fs::read_dir(out).unwrap().count();
    assert_eq!(names, TENSORS / 2 + 3, "files are left");
    let beside = fs::read_dir(out.parent().unwrap()).unwrap();
    assert_eq!(beside.count(), 1, "a directory is left");
}

#[test]
fn two_writers_lose_nothing() {
    rounds(2);
}

#[test]
fn three_writers_lose_nothing() {
    rounds(3);
}
