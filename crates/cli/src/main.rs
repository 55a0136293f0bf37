//! The `anamnesis` program: the command of the library, with the handlers of signals that a process of its own has.

use std::process::ExitCode;

use anamnesis_cli::{Interrupt, report_bus_errors, report_size_limits, run_with};

fn main() -> ExitCode {
    // before any file is mapped
    report_bus_errors();
    report_size_limits();
    ExitCode::from(run_with(std::env::args_os(), &Interrupt::by_signals()))
}
