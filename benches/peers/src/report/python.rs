//! The Python environment of the peers: finds or creates it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::options::Options;

const REQUIREMENTS: &str = include_str!("../../python/requirements.txt");
const TORCH: &str = include_str!("../../python/torch.txt");
/// Loaders of safetensors, and what they import: complete, as they would bring torch with its GPU libraries.
const LOADERS: &str = include_str!("../../python/loaders.txt");
/// A release to come of a package that is installed too: in a folder of its own.
const NEXT: &str = include_str!("../../python/next.txt");
/// The packages that the section `remote` compares.
const REMOTE: &str = include_str!("../../python/remote.txt");

/// Arguments of an interpreter.
const PIP_INSTALL: [&str; 5] = [
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
];

/// The interpreter: the one that `PEERS_PYTHON` names, else the prepared environment's; or why there is none.
pub fn interpreter(options: &Options) -> Result<String, String> {
    if let Ok(python) = std::env::var("PEERS_PYTHON") {
        return Ok(python);
    }
    let python = program(&environment(options));
    if python.exists() {
        return Ok(python.to_str().expect("a path in UTF-8").to_owned());
    }
    Err(
        "no Python environment: set PEERS_PYTHON, or let `cargo bench-peers` prepare one"
            .to_owned(),
    )
}

/// Creates the environment once and installs the peers. Returns an error as a note; the rows of what is missing are then
/// listed as missing.
pub fn prepare(options: &Options) -> Vec<String> {
    if std::env::var("PEERS_PYTHON").is_ok() {
        return Vec::new();
    }
    let folder = environment(options);
    let (stamp, wanted) = (
        folder.join("installed"),
        format!("{REQUIREMENTS}{TORCH}{LOADERS}{NEXT}{REMOTE}"),
    );
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Vec::new();
    }
    eprintln!(
        "preparing {} (once; about a minute and 2 GB)",
        folder.display()
    );
    match install(&folder) {
        Ok(()) => {
            fs::write(&stamp, wanted).expect("the environment can be written");
            Vec::new()
        }
        Err(error) => vec![error],
    }
}

fn install(folder: &Path) -> Result<(), String> {
    let python = program(folder);
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let pip = |args: &[&str], list: &str| {
        let file = folder.join("list.txt");
        fs::write(&file, list).map_err(|e| e.to_string())?;
        run(Command::new(&python)
            .args(PIP_INSTALL)
            .args(args)
            .arg("-r")
            .arg(&file))
    };
    pip(&[], REQUIREMENTS)?;
    // torch without its GPU libraries, which are four times as large as torch itself
    let (torch, dependencies): (Vec<&str>, Vec<&str>) =
        TORCH.lines().partition(|line| line.starts_with("torch=="));
    pip(&["--no-deps"], &torch.join("\n"))?;
    pip(&[], &dependencies.join("\n"))?;
    pip(&["--no-deps"], LOADERS)?;
    let next = folder.join("next");
    let next = next.to_str().ok_or("a path that is not UTF-8")?;
    pip(&["--no-deps", "--upgrade", "--target", next], NEXT)?;
    pip(&[], REMOTE)?;
    let stubs = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/torch_stubs.py");
    run(Command::new(&python).arg(stubs))?;
    run(Command::new(&python).args(["-c", "import torch"]))
}

/// Builds our Python package and installs it; `PEERS_PYTHON` has it already.
pub fn install_ours(options: &Options) -> Result<(), String> {
    if std::env::var("PEERS_PYTHON").is_ok() {
        return Ok(());
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/python");
    let command = &mut Command::new(interpreter(options)?);
    run(command
        .args(PIP_INSTALL)
        .args(["--no-deps", "--force-reinstall"])
        .arg(package))
}

/// Runs a script of `benches/peers/python`; fails with the last line of its standard error.
pub fn script(options: &Options, name: &str, args: &[&str]) -> Result<(), String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("python")
        .join(name);
    run(Command::new(interpreter(options)?).arg(script).args(args))
}

/// Runs the command; fails with the last line of its standard error.
fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| format!("{program}: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&out.stderr);
    let last = text
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .trim();
    let args: Vec<String> = command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned())
        .collect();
    Err(format!("{program} {}: {last}", args.join(" ")))
}

fn environment(options: &Options) -> PathBuf {
    options.work.join("python")
}

fn program(environment: &Path) -> PathBuf {
    environment.join("bin/python")
}
