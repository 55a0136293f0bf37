//! Libraries with a policy in C.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::workspace;

/// Compiles a policy in C; `None`, with a message, without a compiler.
pub(crate) fn compile(source: &str, library: &Path) -> Option<()> {
    let file = library.with_extension("c");
    fs::write(&file, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-w", "-pthread", "-I"]);
    cc.arg(workspace().join("crates/pagecache/ppc/include"));
    cc.arg(&file).arg("-o").arg(library);
    match cc.stdin(Stdio::null()).status() {
        Ok(status) => {
            assert!(status.success());
            Some(())
        }
        Err(error) => {
            eprintln!("SKIPPED: policies in C: cc: {error}");
            None
        }
    }
}
