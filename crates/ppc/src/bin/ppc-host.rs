//! A host process for one policy, started by whoever registers it; see `anamnesis_ppc::host`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match anamnesis_ppc::host::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ppc-host: {error}");
            ExitCode::FAILURE
        }
    }
}
