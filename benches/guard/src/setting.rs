//! What counts depend on, besides the code.

use std::path::Path;

use anamnesis::{BlockFormat, kernel};
use serde::{Deserialize, Serialize};

use crate::case::Way;
use crate::{callgrind, process};

/// The name of the case that says which builds of the kernels a process gets.
pub(crate) const PROBE: &str = "probe";
/// The name of a case that does nothing.
pub(crate) const NOTHING: &str = "nothing";

/// A compiler, a C library, a valgrind, and the instruction sets that processes see. Instructions are compared where
/// these are the baseline's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    /// With its target and flags.
    pub(crate) rustc: String,
    pub(crate) libc: String,
    pub(crate) valgrind: String,
    /// The fastest build under valgrind.
    pub(crate) emulated: String,
    /// The fastest build of this machine.
    pub(crate) native: String,
}

impl Setting {
    pub(crate) fn here(files: &Path) -> Result<Self, String> {
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
            native: process::output(process::of(files, None, Way::Steps, PROBE))?,
        })
    }

    /// Why counts of this kind are not to be compared with those of `other`: what differs, here and there.
    pub(crate) fn differs(&self, other: &Self, way: Way) -> Vec<String> {
        let rows = [
            ("rustc", &self.rustc, &other.rustc, way != Way::System),
            ("libc", &self.libc, &other.libc, way != Way::System),
            (
                "valgrind",
                &self.valgrind,
                &other.valgrind,
                way == Way::Callgrind,
            ),
            (
                "the instruction set under valgrind",
                &self.emulated,
                &other.emulated,
                way == Way::Callgrind,
            ),
            (
                "the instruction set",
                &self.native,
                &other.native,
                way == Way::Steps,
            ),
        ];
        let differing = rows
            .iter()
            .filter(|(_, here, there, counts)| *counts && here != there);
        differing
            .map(|(what, here, there, _)| format!("{what} is {here:?}, the baseline's {there:?}"))
            .collect()
    }
}

/// In a process: says its fastest build.
pub(crate) fn tell() -> Result<(), String> {
    let format = BlockFormat::from_name("Q4_0").ok_or("Q4_0 is not known")?;
    println!("{}", kernel::builds(format).map_err(|e| e.to_string())?[0]);
    Ok(())
}
