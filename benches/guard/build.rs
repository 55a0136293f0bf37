//! Records the compiler version, target and flags: counts of instructions depend on them.

use std::env::var;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = var("RUSTC").expect("cargo sets it");
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .expect("rustc runs");
    let version = String::from_utf8_lossy(&version.stdout);
    let flags = var("CARGO_ENCODED_RUSTFLAGS")
        .unwrap_or_default()
        .replace('\u{1f}', " ");
    let target = var("TARGET").expect("cargo sets it");
    println!(
        "cargo::rustc-env=GUARD_RUSTC={}",
        format!("{} {target} {flags}", version.trim()).trim()
    );
}
