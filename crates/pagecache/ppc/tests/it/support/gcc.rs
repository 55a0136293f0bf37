//! Compiles C programs and libraries against `include/ppc.h`.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source` to `dir/name` with these arguments. Prints a message and returns `None` without gcc.
pub(crate) fn compile(dir: &Path, name: &str, source: &str, arguments: &[&str]) -> Option<PathBuf> {
    let (input, output) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&input, source).unwrap();
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include");
    let compiled = Command::new("gcc")
        .arg(include)
        .args(arguments)
        .arg("-o")
        .arg(&output)
        .arg(&input)
        .output();
    let compiled = match compiled {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIPPED: gcc is not installed, which policies in C need");
            return None;
        }
        other => other.unwrap(),
    };
    assert!(
        compiled.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    Some(output)
}
