//! The host process of one policy. It is started by the process that registers the policy; see `anamnesis_ppc::host`.

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
