//! Runs into one directory at the same time, a reader beside them, and runs that are killed: the operations of all of them in
//! many orders. The reader finds a complete checkpoint each time, and no run takes the checkpoint of another one away.
//!
//! It is the code of the product, on a real directory. One thread runs at a time, and each operation on files and each look
//! of the reader is a step before which another thread may go on. All schedules of one switch are tried, each kill of each
//! run, and schedules of several switches that a generator chooses.

use std::borrow::Cow;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::changed_companions::config;
use super::turns::{ReaderTurns, ThreadNumber, TurnSchedule, Turns, WriterTurns};
use super::{CONFIG, Form, OLD, TestDirectory, found_values, no_companions, write};
use crate::base::error::{Error, ErrorKind, Result};
use crate::engine::companions::{CompanionContent, CompanionFile};
use crate::engine::sink::files::operations::SystemFiles;
use crate::read::checkpoint::{Checkpoint, OpenOptions};
use crate::read::source::files::Files;

/// The writers of one test, and the checkpoint that they find.
#[derive(Clone, Copy)]
struct RunSetting {
    old: Form,
    /// The form of each writer's output; the value of its tensors is 2 and its number.
    writers: &'static [Form],
    companions: fn(u8) -> Vec<CompanionFile>,
    /// Whether there is a directory in the directory, so that it cannot be exchanged for another one.
    has_directory: bool,
    /// Whether each run locks the directory, and not one of its own.
    locks: bool,
}

/// How a setting ended under one schedule.
struct RunEnding {
    root: TestDirectory,
    /// The outcome of each writer.
    outcomes: Vec<Result<()>>,
    /// The values that the reader found.
    found: Vec<Result<u8>>,
    steps: usize,
    operations: Vec<usize>,
}

fn value_of(writer: ThreadNumber) -> u8 {
    2 + u8::try_from(writer).unwrap()
}

const DIRECTORY: &str = "out/directory";

/// How often the reader opens the directory.
const OPENINGS: usize = 2;

impl RunSetting {
    fn run(&self, schedule: &TurnSchedule) -> RunEnding {
        let root = TestDirectory::new();
        let system = Arc::new(SystemFiles { unnamed: true });
        write(
            &root.0,
            self.old,
            OLD,
            false,
            system,
            (self.companions)(OLD),
        )
        .unwrap();
        if self.has_directory {
            fs::create_dir(root.0.join(DIRECTORY)).unwrap();
        }
        let count = self.writers.len();
        let turns = Turns::new(count + 1, schedule.clone());
        let outcomes: Mutex<Vec<Option<Result<()>>>> =
            Mutex::new(self.writers.iter().map(|_| None).collect());
        let found: Vec<_> = std::thread::scope(|scope| {
            for (thread, form) in self.writers.iter().enumerate() {
                let (turns, root, outcomes) = (&turns, &root.0, &outcomes);
                scope.spawn(move || {
                    let _turn = turns.begin(thread);
                    let system = Arc::new(WriterTurns {
                        turns: Arc::clone(turns),
                        thread,
                        // as each run of another process does
                        system: SystemFiles { unnamed: true },
                        wrong_lock: (!self.locks).then(TestDirectory::new),
                    });
                    let value = value_of(thread);
                    let companions = (self.companions)(value);
                    let outcome = write(root, *form, value, true, system, companions);
                    outcomes.lock().unwrap()[thread] = Some(outcome);
                });
            }
            let reader = scope.spawn(|| -> Vec<_> {
                let _turn = turns.begin(count);
                let out = root.0.join("out");
                let found = (0..OPENINGS).map(|_| opened_value(&turns, count, &out));
                found.collect()
            });
            reader.join().unwrap()
        });
        let (steps, operations) = turns.counts();
        let outcomes = outcomes.into_inner().unwrap();
        RunEnding {
            root,
            outcomes: outcomes.into_iter().map(Option::unwrap).collect(),
            found,
            steps,
            operations,
        }
    }

    /// The first rule that a schedule breaks, and how it ended.
    fn violation(&self, schedule: &TurnSchedule) -> (RunEnding, Option<String>) {
        let ending = self.run(schedule);
        let broken = self.broken_rule(schedule, &ending);
        let broken = broken.map(|what| format!("{what}, under {schedule:?}"));
        (ending, broken)
    }

    fn broken_rule(&self, schedule: &TurnSchedule, ending: &RunEnding) -> Option<String> {
        let values = || (0..self.writers.len()).map(value_of);
        for found in &ending.found {
            match found {
                Ok(value) if *value == OLD || values().any(|written| written == *value) => {}
                Ok(value) => return Some(format!("a reader found {value}")),
                Err(error) => return Some(format!("a reader found nothing: {error}")),
            }
        }
        let killed = schedule.kill.map(|(thread, _)| thread);
        let mut done = Vec::new();
        for (writer, outcome) in ending.outcomes.iter().enumerate() {
            match outcome {
                Ok(()) => done.push(value_of(writer)),
                Err(_) if killed == Some(writer) => {}
                Err(error) if is_busy(error) => {}
                Err(error) => return Some(format!("run {writer} failed: {error}")),
            }
        }
        // the killed one may have ended after its commit
        done.extend(killed.map(value_of));
        if killed.is_none()
            && let Some(what) = self.foreign_configuration(&ending.root)
        {
            return Some(what);
        }
        // a reader of this library, and one that prefers the single file
        for last in found_values(&ending.root.0) {
            match last {
                None => return Some(format!("no checkpoint is left: {:?}", ending.outcomes)),
                Some(OLD)
                    if done
                        .iter()
                        .all(|value| killed.map(value_of) == Some(*value)) => {}
                Some(value) if done.contains(&value) => {}
                Some(value) => return Some(format!("{value} is left after {done:?}")),
            }
        }
        if schedule.kill.is_none() && done.is_empty() {
            return Some("all runs were refused".to_owned());
        }
        self.left_over(&ending.root, killed.is_some())
    }

    /// Tensors beside the configuration of others, or without one.
    fn foreign_configuration(&self, root: &TestDirectory) -> Option<String> {
        let value = found_values(&root.0)[0]?;
        let [own] = &(self.companions)(value)[..] else {
            return None;
        };
        let CompanionContent::Bytes(own) = &own.content else {
            return None;
        };
        let found = fs::read(root.0.join(CONFIG)).ok();
        (found.as_ref() != Some(own)).then(|| format!("{found:?} beside {value}"))
    }

    /// Files that are left, after a further run where one was killed.
    fn left_over(&self, root: &TestDirectory, was_killed: bool) -> Option<String> {
        let last = self.writers[0];
        if was_killed {
            let system = Arc::new(SystemFiles { unnamed: true });
            let (value, companions) = (9, (self.companions)(9));
            if let Err(error) = write(&root.0, last, value, true, system, companions) {
                return Some(format!("the next run failed: {error}"));
            }
            if found_values(&root.0) != [Some(9); 2] {
                return Some("the next run was lost".to_owned());
            }
            if let Some(what) = self.foreign_configuration(root) {
                return Some(what);
            }
        }
        let names = root.tree().into_keys();
        let names: Vec<String> = names.map(|name| name.display().to_string()).collect();
        let tensors: Vec<String> = names
            .iter()
            .filter(|name| !name.ends_with("/config.json") && *name != DIRECTORY)
            .cloned()
            .collect();
        let forms = [self.old].into_iter().chain(self.writers.iter().copied());
        let complete = forms.into_iter().any(|form| form.is_complete(&tensors));
        (!complete).then(|| format!("files are left: {names:?}"))
    }
}

/// Whether a run was refused because another one has the lock.
fn is_busy(error: &Error) -> bool {
    let ErrorKind::Io(error) = error.kind() else {
        return false;
    };
    error.kind() == std::io::ErrorKind::ResourceBusy
}

/// Opens a directory step by step, as `Checkpoint::open` does; the one value of its tensors.
fn opened_value(turns: &Arc<Turns>, thread: ThreadNumber, out: &Path) -> Result<u8> {
    let files = Files::from_system(Arc::new(ReaderTurns {
        turns: Arc::clone(turns),
        thread,
        files: Files::default(),
    }));
    let checkpoint = OpenOptions::new().open_in(files, Cow::Borrowed(out))?;
    one_value(&checkpoint)
}

fn one_value(checkpoint: &Checkpoint) -> Result<u8> {
    let mut values = std::collections::BTreeSet::new();
    for name in ["a", "b", "c"] {
        let tensor = checkpoint.tensor(name);
        let tensor = tensor.ok_or_else(|| Error::malformed(format!("{name} is missing")))?;
        values.extend(tensor.bytes()?.iter().copied());
    }
    let first = values.pop_first();
    let only = first.filter(|_| values.is_empty());
    only.ok_or_else(|| Error::malformed("tensors of two checkpoints"))
}

/// Schedules of one switch at every step to every other thread; in each, a second switch back at the step that `again` says
/// after it. Returns how many were tried, and the first violation.
fn one_switch(setting: &RunSetting, again: Option<usize>) -> (usize, Option<String>) {
    let threads = setting.writers.len() + 1;
    let (ending, broken) = setting.violation(&TurnSchedule::default());
    if broken.is_some() {
        return (1, broken);
    }
    let mut tried = 1;
    for step in 0..ending.steps {
        for to in 0..threads {
            let mut switches = vec![(step, to)];
            // on to the thread behind it, which may be the one that was left
            switches.extend(again.map(|after| (step + after, (to + 1) % threads)));
            let schedule = TurnSchedule {
                switches,
                kill: None,
            };
            tried += 1;
            let (_, broken) = setting.violation(&schedule);
            if broken.is_some() {
                return (tried, broken);
            }
        }
    }
    (tried, None)
}

/// A generator, so that each run of the test tries the same schedules.
struct Generator(u64);

impl Generator {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % end.max(1)
    }
}

/// Schedules of several switches and, of some, a kill. Returns how many were tried, and the first violation.
fn several_switches(setting: &RunSetting, count: usize, kills: bool) -> (usize, Option<String>) {
    let threads = setting.writers.len() + 1;
    let plain = setting.run(&TurnSchedule::default());
    let mut generator = Generator(7 + u64::from(kills));
    for tried in 1..=count {
        let mut switches: Vec<(usize, usize)> = (0..2 + generator.below(10))
            .map(|_| {
                (
                    generator.below(plain.steps + plain.steps / 2),
                    generator.below(threads),
                )
            })
            .collect();
        switches.sort_unstable();
        let victim = generator.below(setting.writers.len());
        let at = generator.below(plain.operations[0] + 4);
        let schedule = TurnSchedule {
            switches,
            kill: kills.then_some((victim, at)),
        };
        let (_, broken) = setting.violation(&schedule);
        if broken.is_some() {
            return (tried, broken);
        }
    }
    (count, None)
}

/// Every kill of the first writer, with the second one and the reader before it, at the kill and after it.
fn every_kill(setting: &RunSetting) -> (usize, Option<String>) {
    let plain = setting.run(&TurnSchedule::default());
    let mut tried = 0;
    for at in 0..=plain.operations[0] {
        for switches in [
            vec![],
            vec![(at, setting.writers.len())],
            vec![(at, 1)],
            vec![(at / 2, setting.writers.len()), (at / 2 + 2, 0)],
        ] {
            tried += 1;
            let schedule = TurnSchedule {
                switches,
                kill: Some((0, at)),
            };
            let (_, broken) = setting.violation(&schedule);
            if broken.is_some() {
                return (tried, broken);
            }
        }
    }
    (tried, None)
}

fn own_config(value: u8) -> Vec<CompanionFile> {
    config([value])
}

fn same_config(_: u8) -> Vec<CompanionFile> {
    config("one for all")
}

/// Pairs of writers, and what they find: each form after each, by renames alone, with an exchange, with equal companions, and
/// with changed ones where no exchange is possible.
fn settings() -> Vec<RunSetting> {
    const TWO: [&[Form]; 3] = [
        &[Form::Shards, Form::Shards],
        &[Form::Shards, Form::OnlyFile],
        &[Form::OnlyFile, Form::Shards],
    ];
    let mut all = Vec::new();
    for (old, companions, has_directory) in [
        (
            Form::Shards,
            no_companions as fn(u8) -> Vec<CompanionFile>,
            false,
        ),
        (Form::OnlyFile, no_companions, false),
        (Form::Shards, own_config, false),
        (Form::OnlyFile, same_config, false),
        (Form::Shards, own_config, true),
        (Form::OnlyFile, own_config, true),
    ] {
        all.extend(TWO.map(|writers| RunSetting {
            old,
            writers,
            companions,
            has_directory,
            locks: true,
        }));
    }
    all
}

fn assert_none(what: &str, results: impl Iterator<Item = (usize, Option<String>)>) {
    let mut tried = 0;
    for (number, (count, broken)) in results.enumerate() {
        assert_eq!(broken, None, "{what}, setting {number}");
        tried += count;
    }
    println!("{what}: {tried} schedules");
    assert!(tried > 100, "{what}: only {tried} schedules");
}

#[test]
fn every_switch_between_two_writers_and_a_reader_leaves_a_checkpoint() {
    let settings = settings();
    let once = settings.iter().map(|setting| one_switch(setting, None));
    assert_none("one switch", once);
    // each way of replacing once: the rest of the pairs differ in their forms
    let some = settings.iter().step_by(4);
    let twice = some.map(|setting| one_switch(setting, Some(3)));
    assert_none("two switches", twice);
}

#[test]
fn every_kill_leaves_a_checkpoint() {
    let settings = settings();
    assert_none("every kill", settings.iter().map(every_kill));
    let several = settings.iter();
    let several = several.map(|setting| several_switches(setting, 40, true));
    assert_none("kills among several switches", several);
}

#[test]
fn three_writers_and_a_reader_leave_a_checkpoint() {
    let three = |old, companions, has_directory| RunSetting {
        old,
        writers: &[Form::Shards, Form::OnlyFile, Form::Shards],
        companions,
        has_directory,
        locks: true,
    };
    let none = no_companions as fn(u8) -> Vec<CompanionFile>;
    let settings = [
        three(Form::Shards, none, false),
        three(Form::OnlyFile, own_config, false),
        three(Form::OnlyFile, own_config, true),
    ];
    for kills in [false, true] {
        let all = settings.iter();
        let all = all.map(|setting| several_switches(setting, 200, kills));
        assert_none("three writers", all);
    }
}

/// The same search finds the checkpoint that two runs lose where each has a lock of its own.
#[test]
fn the_lock_is_needed() {
    let mut lost = 0;
    for mut setting in settings() {
        setting.locks = false;
        let (_, once) = one_switch(&setting, None);
        let (_, twice) = one_switch(&setting, Some(3));
        lost += usize::from(once.or(twice).is_some());
    }
    assert!(lost > 9, "{lost} of 18 settings");
}
