//! The C compiler, where there is one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source` to `dir/name` with these arguments. `None`, aloud, where there is no gcc.
pub(crate) fn gcc(dir: &Path, name: &str, source: &str, arguments: &[&str]) -> Option<PathBuf> {
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
            eprintln!("SKIPPED: no gcc, policies in C are not tested");
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
