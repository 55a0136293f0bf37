//! The documents lead to each other: every link and every path in them exists, and every page of `docs/` is linked from the README or
//! the index.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Markdown files of the repository, outside of build outputs and hidden folders.
fn pages() -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![root().to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let (name, path) = (entry.file_name(), entry.path());
            let skipped = name == "target" || name.as_encoded_bytes().starts_with(b".");
            // links are not followed
            if entry.file_type().unwrap().is_dir() && !skipped {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The lines of a page outside of blocks of code.
fn prose(page: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut is_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.map(str::to_owned).collect()
}

/// The targets of a page's links: `](TARGET)`.
fn links(page: &Path) -> Vec<String> {
    let text = prose(page).join("\n");
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let headings = prose(page).into_iter().filter(|line| line.starts_with('#'));
    let anchors = headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    });
    anchors.collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        for link in links(&page) {
            count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => page.clone(),
                path => page.parent().unwrap().join(path),
            };
            let shown = page.strip_prefix(root()).unwrap().display();
            if !target.exists() {
                wrong.push(format!("{shown}: {link} does not exist"));
            } else if !anchor.is_empty() && target.is_file() && !anchors(&target).contains(anchor) {
                wrong.push(format!("{shown}: {link} has no such heading"));
            }
        }
    }
    assert!(count > 100, "only {count} links were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_page_is_linked_from_the_readme_or_the_index() {
    let linked: BTreeSet<PathBuf> = ["README.md", "docs/README.md"]
        .iter()
        .flat_map(|page| {
            let page = root().join(page);
            let folder = page.parent().unwrap().to_owned();
            links(&page).into_iter().filter_map(move |link| {
                folder
                    .join(link.split('#').next().unwrap())
                    .canonicalize()
                    .ok()
            })
        })
        .collect();
    let entries = std::fs::read_dir(root().join("docs")).unwrap();
    let unlinked: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path().canonicalize().unwrap())
        .filter(|path| path.extension().is_some_and(|e| e == "md") && !linked.contains(path))
        .collect();
    assert!(unlinked.is_empty(), "linked from nowhere: {unlinked:?}");
}

#[test]
fn every_path_that_a_document_names_exists() {
    static FOLDERS: &[&str] = &[
        "src/",
        "crates/",
        "tests/",
        "benches/",
        "docs/",
        "fixtures/",
        ".ci/",
    ];
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        // a crate's pages name its own files
        let own = page.parent().unwrap().to_owned();
        for line in prose(&page) {
            for name in line.split('`').skip(1).step_by(2) {
                // without arguments and line numbers; capitals, `x`, and the type of a recipe stand for another name
                let name = name.split([' ', ':']).next().unwrap();
                let is_placeholder = |part: &str| {
                    let stem = part.split('.').next().unwrap();
                    ["x", "q3_0"].contains(&stem) || stem.len() > 1 && stem == stem.to_uppercase()
                };
                let is_path = FOLDERS.iter().any(|folder| name.starts_with(folder));
                if !is_path || name.contains(['*', '<', '…']) || name.split('/').any(is_placeholder)
                {
                    continue;
                }
                count += 1;
                for name in alternatives(name) {
                    if !root().join(&name).exists() && !own.join(&name).exists() {
                        let shown = page.strip_prefix(root()).unwrap().display();
                        wrong.push(format!("{shown}: {name} does not exist"));
                    }
                }
            }
        }
    }
    assert!(count > 100, "only {count} paths were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The paths of `a/{b,c}.rs`.
fn alternatives(name: &str) -> Vec<String> {
    match name
        .split_once('{')
        .and_then(|(a, rest)| Some((a, rest.split_once('}')?)))
    {
        None => vec![name.to_owned()],
        Some((before, (list, after))) => list
            .split(',')
            .flat_map(|one| alternatives(&format!("{before}{one}{after}")))
            .collect(),
    }
}

#[test]
fn the_crates_page_lists_every_module() {
    let page = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let (comment, code): (Vec<&str>, Vec<&str>) =
        page.lines().partition(|line| line.starts_with("//!"));
    let rows: BTreeSet<&str> = comment
        .iter()
        .filter_map(|line| line.strip_prefix("//! | [`")?.split('`').next())
        .map(|name| name.trim_start_matches("mod@"))
        .collect();
    let code = code.join(" ");
    let storeys = ["analysis", "base", "engine", "quant", "read"];
    let mut modules: BTreeSet<&str> = BTreeSet::from(["plan"]);
    for storey in storeys {
        let begin = format!("pub use {storey}::");
        // the first such line of a storey lists its modules, the others name their items
        let (_, rest) = code.split_once(&format!("{begin}{{")).unwrap_or(("", ""));
        let list = match rest.split_once('}') {
            Some((list, _)) => list,
            None => code
                .split_once(&begin)
                .unwrap()
                .1
                .split(';')
                .next()
                .unwrap(),
        };
        modules.extend(
            list.split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty()),
        );
    }
    assert!(modules.len() > 15, "{modules:?}");
    let missing: Vec<_> = modules.difference(&rows).collect();
    assert!(
        missing.is_empty(),
        "the table of modules in src/lib.rs lacks {missing:?}"
    );
}
