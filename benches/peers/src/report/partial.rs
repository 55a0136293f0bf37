//! Finished cases on disk, so that what is interrupted goes on where it was.

use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::options::Options;
use crate::results::{Outcome, machine::Run};

#[derive(Serialize, Deserialize)]
struct Finished {
    /// What must be as it was.
    of: String,
    outcome: Outcome,
}

/// A case that an earlier run of the same program finished.
pub fn finished(options: &Options, run: &Run, section: &str, case: &str) -> Option<Outcome> {
    if options.fresh {
        return None;
    }
    let kept: Finished =
        serde_json::from_slice(&fs::read(path(options, section, case)).ok()?).ok()?;
    (kept.of == key(options, run)).then_some(kept.outcome)
}

pub fn keep(options: &Options, run: &Run, section: &str, case: &str, outcome: &Outcome) {
    let path = path(options, section, case);
    let kept = Finished {
        of: key(options, run),
        outcome: outcome.clone(),
    };
    fs::create_dir_all(path.parent().expect("it has one")).expect("the work folder can be written");
    fs::write(path, serde_json::to_vec(&kept).expect("plain data"))
        .expect("the work folder can be written");
}

/// Once a section is written it begins anew the next time.
pub fn forget(options: &Options, section: &str) {
    let _ = fs::remove_dir_all(options.work.join("finished").join(section));
}

/// The commit, this program, its interpreter, and what was asked for.
fn key(options: &Options, run: &Run) -> String {
    let me = std::env::current_exe()
        .and_then(fs::metadata)
        .and_then(|me| me.modified())
        .ok();
    let built = me
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |time| time.as_millis());
    let Options { small, only, .. } = options;
    format!(
        "{} {built} {:?} {} {small} {only:?}",
        run.commit, run.python, run.rounds
    )
}

fn path(options: &Options, section: &str, case: &str) -> PathBuf {
    let plain: String = case
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { '-' })
        .collect();
    options
        .work
        .join("finished")
        .join(section)
        .join(plain + ".json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_finished_counts_until_something_differs() {
        let work = std::env::temp_dir().join(format!("peers-partial-{}", std::process::id()));
        let options = Options {
            work: work.clone(),
            ..Options::parse(&[]).unwrap()
        };
        let run = Run {
            commit: "a".to_owned(),
            ..Run::default()
        };
        keep(
            &options,
            &run,
            "load",
            "x y",
            &Outcome {
                seconds: 3.0,
                ..Outcome::default()
            },
        );
        assert_eq!(
            finished(&options, &run, "load", "x y").unwrap().seconds,
            3.0
        );
        assert!(finished(&options, &run, "load", "z").is_none());
        assert!(
            finished(
                &options,
                &Run {
                    commit: "b".to_owned(),
                    ..run.clone()
                },
                "load",
                "x y"
            )
            .is_none()
        );
        assert!(
            finished(
                &Options {
                    fresh: true,
                    ..options.clone()
                },
                &run,
                "load",
                "x y"
            )
            .is_none()
        );
        forget(&options, "load");
        assert!(finished(&options, &run, "load", "x y").is_none());
        fs::remove_dir_all(work).unwrap();
    }
}
