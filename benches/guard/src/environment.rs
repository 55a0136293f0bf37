//! The environment that counts depend on besides the code: compiler, C library, valgrind, instruction sets.

use std::path::Path;

use anamnesis::{BlockFormat, kernel};
use serde::{Deserialize, Serialize};

use crate::case::Counter;
use crate::{callgrind, process};

/// A case that prints the fastest kernel build that its process supports.
pub(crate) const PROBE: &str = "probe";
/// A case that does nothing.
pub(crate) const NOTHING: &str = "nothing";

/// Versions and instruction sets. Instruction counts are compared with the baseline only if these equal the baseline's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// The compiler version with target and flags.
    pub(crate) rustc: String,
    pub(crate) libc: String,
    pub(crate) valgrind: String,
    /// The fastest kernel build under valgrind.
    pub(crate) emulated: String,
    /// The fastest kernel build on this machine.
    pub(crate) native: String,
}

impl Environment {
    pub(crate) fn detect(files: &Path) -> Result<Self, String> {
        let mut libc = process::bare("getconf");
        libc.arg("GNU_LIBC_VERSION");
        let valgrind = callgrind::version().unwrap_or_default();
        let emulated = if valgrind.is_empty() {
            String::new()
        } else {
            process::output(callgrind::command(files, "callgrind.probe", PROBE))?
        };
        Ok(Self {
            rustc: env!("GUARD_RUSTC").to_owned(),
            libc: process::output(libc).unwrap_or_default(),
            valgrind,
            emulated,
            native: process::output(process::of(files, None, Counter::Steps, PROBE))?,
        })
    }

    /// The differences from `other` that make counts of `counter` incomparable.
    pub(crate) fn differs(&self, other: &Self, counter: Counter) -> Vec<String> {
        let rows = [
            (
                "rustc",
                &self.rustc,
                &other.rustc,
                counter != Counter::System,
            ),
            ("libc", &self.libc, &other.libc, counter != Counter::System),
            (
                "valgrind",
                &self.valgrind,
                &other.valgrind,
                counter == Counter::Callgrind,
            ),
            (
                "the instruction set under valgrind",
                &self.emulated,
                &other.emulated,
                counter == Counter::Callgrind,
            ),
            (
                "the instruction set",
                &self.native,
                &other.native,
                counter == Counter::Steps,
            ),
        ];
        let differing = rows
            .iter()
            .filter(|(_, ours, baseline, counts)| *counts && ours != baseline);
        differing
            .map(|(what, ours, baseline, _)| {
                format!("{what} is {ours:?}, in the baseline {baseline:?}")
            })
            .collect()
    }
}

/// Prints the fastest kernel build of this process.
pub(crate) fn print_best_build() -> Result<(), String> {
    let format = BlockFormat::from_name("Q4_0").ok_or("Q4_0 is unknown")?;
    println!("{}", kernel::builds(format).map_err(|e| e.to_string())?[0]);
    Ok(())
}
