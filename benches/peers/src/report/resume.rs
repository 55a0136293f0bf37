//! Keeps finished cases on disk, so that an interrupted run can be resumed.

use std::fs;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::options::Options;
use crate::results::{Outcome, provenance::Provenance};

#[derive(Serialize, Deserialize)]
struct FinishedCase {
    /// See `key`.
    key: String,
    outcome: Outcome,
}

/// The outcome of a case that an earlier run with the same key finished.
pub fn finished(
    options: &Options,
    provenance: &Provenance,
    section: &str,
    case: &str,
) -> Option<Outcome> {
    if options.fresh {
        return None;
    }
    let kept: FinishedCase =
        serde_json::from_slice(&fs::read(path(options, section, case)).ok()?).ok()?;
    (kept.key == key(options, provenance)).then_some(kept.outcome)
}

pub fn keep(
    options: &Options,
    provenance: &Provenance,
    section: &str,
    case: &str,
    outcome: &Outcome,
) {
    let path = path(options, section, case);
    let kept = FinishedCase {
        key: key(options, provenance),
        outcome: outcome.clone(),
    };
    fs::create_dir_all(path.parent().expect("the path has a parent"))
        .expect("the work directory can be written");
    fs::write(
        path,
        serde_json::to_vec(&kept).expect("results serialise to JSON"),
    )
    .expect("the work directory can be written");
}

/// Deletes the finished cases of a section once its results are written.
pub fn forget(options: &Options, section: &str) {
    let _ = fs::remove_dir_all(options.work.join("finished").join(section));
}

/// A finished case is reused only by a run with the same commit, program, Python packages and options.
fn key(options: &Options, provenance: &Provenance) -> String {
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
        provenance.commit, provenance.python, provenance.rounds
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
    fn a_finished_case_is_reused_until_the_key_differs() {
        let work = std::env::temp_dir().join(format!("peers-partial-{}", std::process::id()));
        let options = Options {
            work: work.clone(),
            ..Options::parse(&[]).unwrap()
        };
        let provenance = Provenance {
            commit: "a".to_owned(),
            ..Provenance::default()
        };
        keep(
            &options,
            &provenance,
            "load",
            "x y",
            &Outcome {
                seconds: 3.0,
                ..Outcome::default()
            },
        );
        assert_eq!(
            finished(&options, &provenance, "load", "x y")
                .unwrap()
                .seconds,
            3.0
        );
        assert!(finished(&options, &provenance, "load", "z").is_none());
        assert!(
            finished(
                &options,
                &Provenance {
                    commit: "b".to_owned(),
                    ..provenance.clone()
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
                &provenance,
                "load",
                "x y"
            )
            .is_none()
        );
        forget(&options, "load");
        assert!(finished(&options, &provenance, "load", "x y").is_none());
        fs::remove_dir_all(work).unwrap();
    }
}
