//! The command, as `python -m anamnesis` and the script `anamnesis`.

use std::ffi::OsString;

use anamnesis_cli::{Interrupt, report_bus_errors, run_with};
use pyo3::prelude::*;

/// Runs the command with these arguments, of which the first is the program's name; its exit status. For a process that does
/// nothing else: signals are handled by the command from then on.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| {
        // a process of the command alone; in a program that imports the package, handlers are the program's
        report_bus_errors();
        run_with(arguments, &Interrupt::by_signals())
    })
}
