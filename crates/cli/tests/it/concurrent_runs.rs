//! Several runs of `remember --overwrite` into one directory at the same time, killed and not, and readers beside them: no
//! checkpoint is lost, every opening finds one, and no verb finds a fault in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anamnesis::Checkpoint;

use crate::killed::{TENSORS, source, tokenizer, value};
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

/// Runs the verbs that read the directory until the flag is set; how often. None of them finds a fault.
fn run_verbs_until(directories: &Directories, end: &AtomicBool) -> u64 {
    let out = path_str(&directories.out);
    let other = directories.scratch.path().join("4");
    let verbs: [&[&str]; 6] = [
        &["check", out],
        &["check", "--headers", out],
        &["diff", "--quick", "--no-config", out, path_str(&other)],
        &["inspect", "--summary", out],
        &["check", "--stats", out],
        &["load", out],
    ];
    let mut runs = 0;
    for verb in verbs.iter().cycle() {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let run = finish(command(verb));
        // `diff` compares with another model
        assert_eq!(run.code, 0, "{verb:?}: {}{}", run.stdout, run.stderr);
        let texts = [
            format!("{TENSORS} tensors"),
            format!("tensors       {TENSORS}"),
            "same headers".to_owned(),
        ];
        let is_whole = texts.iter().any(|text| run.stdout.contains(text));
        assert!(is_whole, "{verb:?}: {}", run.stdout);
        runs += 1;
    }
    runs
}

/// Copies the directory until the flag is set; how often. A copy is of one checkpoint, with the files beside it.
fn copy_until(directories: &Directories, end: &AtomicBool) -> u64 {
    let copy = directories.scratch.path().join("copies/of/");
    fs::create_dir_all(&copy).unwrap();
    let mut copied = 0;
    while !end.load(Ordering::Relaxed) {
        let (from, to) = (path_str(&directories.out), path_str(&copy));
        let run = finish(command(&["convert", "--overwrite", from, "-o", to]));
        assert_eq!(run.code, 0, "{}", run.stderr);
        let value = value(&copy).expect("a copy");
        let config = fs::read_to_string(copy.join("config.json")).unwrap();
        assert_eq!(config.trim(), format!("{{\"value\": {value}}}"));
        assert_eq!(
            fs::read(copy.join("tokenizer.json")).unwrap()[0],
            tokenizer(value)
        );
        copied += 1;
    }
    copied
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

/// The setting of the rounds.
#[derive(Clone, Copy)]
struct Rounds {
    writers: u64,
    /// Whether there is a directory in the output, so that no other one can take its place.
    has_directory: bool,
    /// Whether a writer is killed in every second round. Old shards that it leaves are another model to `check`.
    kills: bool,
}

fn rounds(setting: Rounds) {
    let Rounds {
        writers,
        has_directory,
        kills,
    } = setting;
    let directories = Directories::new();
    let out = &directories.out;
    if has_directory {
        fs::create_dir(out.join("onnx")).unwrap();
    }
    let end = AtomicBool::new(false);
    let mut random = 7 * writers;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let (mut done, mut refused, mut killed) = (0, 0, 0);
    let (opened, ran, copied) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(out, &end));
        let verbs = scope.spawn(|| match kills {
            true => 0,
            false => run_verbs_until(&directories, &end),
        });
        let copies = scope.spawn(|| match kills {
            true => 0,
            false => copy_until(&directories, &end),
        });
        // a reader that fails ends the rounds
        let _end = EndAtDrop(&end);
        for round in 0..ROUNDS {
            let mut children: Vec<Child> = (0..writers)
                .map(|writer| {
                    std::thread::sleep(Duration::from_micros(next(20_000)));
                    directories.start(1 + (round + writer) % 4)
                })
                .collect();
            let is_killed = kills && round % 2 == 1;
            if is_killed {
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
            assert!(any_done || is_killed, "round {round}: all were refused");
            assert!(value(out).is_some(), "round {round}: no checkpoint");
        }
        end.store(true, Ordering::Relaxed);
        let read = reader.join().unwrap();
        (read, verbs.join().unwrap(), copies.join().unwrap())
    });
    println!(
        "{writers} writers: {done} done, {refused} refused, {killed} killed, {opened} openings, {ran} verbs, \
         {copied} copies"
    );
    assert!(
        opened > ROUNDS && (kills || (ran > ROUNDS / 2 && copied > ROUNDS / 4)),
        "{opened}, {ran} and {copied}"
    );
    // the next run removes the files of killed ones
    assert_eq!(finish(directories.remember(2)).code, 0);
    assert_eq!(value(out), Some(2.0));
    let names = fs::read_dir(out).unwrap().count();
    let expected = TENSORS / 2 + 3 + usize::from(has_directory);
    assert_eq!(names, expected, "files are left");
    let config = fs::read_to_string(out.join("config.json")).unwrap();
    assert_eq!(config, "{\"value\": 2}");
    let beside = fs::read_dir(out.parent().unwrap()).unwrap();
    assert_eq!(beside.count(), 1, "a directory is left");
}

/// Lets the other threads end, also after a panic.
struct EndAtDrop<'e>(&'e AtomicBool);

impl Drop for EndAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn writers_lose_nothing() {
    for writers in [2, 3] {
        rounds(Rounds {
            writers,
            has_directory: false,
            kills: true,
        });
    }
}

/// Where no directory can be exchanged, the configuration has a moment without a name, and the tensors have none.
#[test]
fn writers_without_an_exchange_lose_nothing() {
    for writers in [2, 3] {
        rounds(Rounds {
            writers,
            has_directory: true,
            kills: true,
        });
    }
}

/// Verbs beside writers find one model, whole.
#[test]
fn verbs_beside_writers_find_no_fault() {
    for (writers, has_directory) in [(2, false), (2, true), (3, false), (3, true)] {
        rounds(Rounds {
            writers,
            has_directory,
            kills: false,
        });
    }
}
