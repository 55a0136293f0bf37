//! `anamnesis ppc`: policies that prefetch and evict pages of model files.

mod change;
mod metrics_server;
mod policy;
pub(crate) mod run;
mod status;

use crate::args::{Color, PpcVerb};
use crate::exit::{Completion, RunError};
use crate::interrupt::Interrupt;
use crate::output::Stdout;
use crate::runtime_failure::failure;

pub(crate) fn run(
    args: &PpcVerb,
    color: Color,
    interrupt: &Interrupt,
    out: &mut Stdout,
) -> Result<Completion, RunError> {
    match args {
        PpcVerb::Run(args) => run::run(args, interrupt),
        PpcVerb::Status(args) => status::run(args, color, interrupt, out),
        PpcVerb::Reg(args) => change::register(args),
        PpcVerb::Rm(args) => change::unregister(args),
        PpcVerb::Host => match anamnesis_ppc::host::serve() {
            Ok(()) => Ok(Completion::Done),
            Err(error) => Err(failure(error).into()),
        },
    }
}
