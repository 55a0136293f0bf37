//! The crates of the page cache (`crates/pagecache`) are imported by the command alone, besides each other, their benchmark and the
//! fuzz targets. So a reader of the library never needs to open them, and they stay free of tensors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The packages that may depend on a crate of the page cache, by folder.
static IMPORTERS: &[&str] = &[
    "benches/pagecache",
    "crates/cli",
    "crates/pagecache/maio",
    "tests/hostile/fuzz",
];

#[test]
fn only_the_command_imports_the_page_cache() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifests = manifests(root);
    let inside = root.join("crates/pagecache");
    let names: Vec<String> = manifests
        .iter()
        .filter(|(folder, _)| folder.starts_with(&inside))
        .map(|(_, text)| package_name(text).to_owned())
        .collect();
    assert_eq!(names.len(), 3, "crates of the page cache: {names:?}");
    let importers: BTreeSet<String> = manifests
        .iter()
        .filter(|(_, text)| names.iter().any(|name| imports(text, name)))
        .map(|(folder, _)| folder.strip_prefix(root).unwrap().display().to_string())
        .collect();
    let expected: BTreeSet<String> = IMPORTERS.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(importers, expected);
}

#[test]
fn a_dependency_is_found_in_each_form() {
    for text in [
        "anamnesis-ppc = { path = \"../ppc\" }",
        "anamnesis-ppc = \"0.1\"",
        "anamnesis-ppc.workspace = true",
        "[dependencies.anamnesis-ppc]",
        "[target.'cfg(unix)'.dependencies.\"anamnesis-ppc\"]",
        "cache = { package = \"anamnesis-ppc\", path = \"../ppc\" }",
    ] {
        assert!(imports(text, "anamnesis-ppc"), "{text}");
    }
    for text in [
        "name = \"anamnesis-ppc\"",
        "# not of anamnesis-ppc",
        "anamnesis-ppc-fork = \"1\"",
        "[profile.dev.package]\nanamnesis-ppc.opt-level = 0",
    ] {
        assert!(!imports(text, "anamnesis-ppc"), "{text}");
    }
}

/// The folder and the text of every `Cargo.toml` below `root`, build outputs and hidden folders left out.
fn manifests(root: &Path) -> Vec<(PathBuf, String)> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        if let Ok(text) = std::fs::read_to_string(folder.join("Cargo.toml")) {
            found.push((folder.clone(), text));
        }
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name();
            let skipped = name == "target" || name.as_encoded_bytes().starts_with(b".");
            // links are not followed
            if !skipped && entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
        }
    }
    found
}

/// The name in the section `[package]`.
fn package_name(manifest: &str) -> &str {
    let (_, package) = manifest.split_once("[package]").unwrap();
    let line = package
        .lines()
        .find(|line| line.starts_with("name ="))
        .unwrap();
    line.split('"').nth(1).unwrap()
}

/// Whether a manifest has a dependency on the package `name`, also a renamed one.
fn imports(manifest: &str, name: &str) -> bool {
    let mut section = "";
    manifest
        .lines()
        .filter(|line| {
            if line.starts_with('[') {
                section = line;
            }
            // a profile names packages, and imports none
            !line.starts_with('#') && !section.starts_with("[profile")
        })
        .any(|line| {
            let line = line.replace(['"', ' '], "");
            let key = line.split(['=', '.']).next().unwrap_or_default();
            let is_key = key == name && line.contains('=');
            is_key
                || line.contains(&format!("package={name},"))
                || line.contains(&format!("package={name}}}"))
                || line.contains(&format!("dependencies.{name}]"))
        })
}
