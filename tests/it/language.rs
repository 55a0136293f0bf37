//! The tracked files contain no rejected word of the glossary in `CONVENTIONS.md` and no sentence that it rejects, the pages of
//! modules have an example, and each type name is defined once.

mod prose;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use self::prose::Sentence;
use crate::support::rust_code::crates;
use crate::support::skip;

/// Type names that are defined more than once on purpose.
static SHARED_TYPE_NAMES: &[&str] = &[
    // one error type per crate, as in `std` and most published crates; no crate exports another's
    "Error",
    "ErrorKind",
    // runs the examples of a crate's README
    "Readme",
    // the names of `parking_lot` in a crate that a model checker runs
    "Mutex",
    "Condvar",
];

/// Words that fit too many things to be the whole name of a type.
static UNQUALIFIED: &[&str] = &[
    "Place", "Kind", "Part", "Piece", "Order", "Memory", "Stream", "Facts", "Cut", "Choice",
    "Slot", "Config", "State", "Inner",
];

/// Words that begin no sentence: they put a relation before its subject.
static REJECTED_BEGINNINGS: &[&str] = &["Of", "What", "As [", "As `"];

/// Phrases with a pronoun where a noun is clearer. Whole words, in lower case.
static REJECTED_PHRASES: &[&str] = &[
    "what of",
    "that of",
    "those of",
    "of which this",
    "in the place of a",
    "nothing of nothing",
];

/// Paths whose sentences are held to these rules; a folder stands for everything below it.
static HELD_TO_SENTENCES: &[&str] = &[
    "CHANGELOG.md",
    "CLAUDE.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benches",
    "crates/cli",
    "crates/kernel",
    "crates/os",
    "crates/pagecache",
    "crates/python",
    "crates/remote",
    "crates/template",
    "crates/zeropool",
    "docs",
    "examples",
    "fixtures",
    "src",
    "tests",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The words in italics in the left column of the glossary.
fn rejected_words() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("CONVENTIONS.md")).unwrap();
    let table = text.split("| not | but |").nth(1).expect("a glossary");
    let rows = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    let left = rows.filter_map(|row| row.split('|').nth(1));
    left.flat_map(|cell| cell.split('*').skip(1).step_by(2))
        .map(str::to_lowercase)
        .collect()
}

/// The tracked text files; `None` outside of a git checkout.
fn tracked_files() -> Option<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args([
            "ls-files", "-z", "--", "*.rs", "*.md", "*.toml", "*.h", "*.py", "*.sh",
        ])
        .current_dir(root())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let names = String::from_utf8(listed.stdout).unwrap();
    let names = names
        .split('\0')
        .filter(|name| !name.is_empty() && *name != "CONVENTIONS.md");
    Some(names.map(PathBuf::from).collect())
}

/// The words of a line in lower case, separated and surrounded by spaces: `ReadAhead_x` gives ` read ahead x `.
fn words(line: &str) -> String {
    let (mut out, mut lower) = (String::from(" "), false);
    for c in line.chars() {
        if c.is_alphanumeric() {
            if lower && c.is_uppercase() {
                out.push(' ');
            }
            out.extend(c.to_lowercase());
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
        lower = c.is_lowercase();
    }
    out.push(' ');
    out
}

#[test]
fn tracked_files_contain_no_rejected_word() {
    let rejected = rejected_words();
    assert!(rejected.len() > 20, "{rejected:?}");
    let Some(files) = tracked_files() else {
        return skip("tracked files can be listed in a git checkout only");
    };
    let (mut hits, mut counts) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for name in &files {
        let Ok(text) = std::fs::read_to_string(root().join(name)) else {
            continue; // deleted, not yet committed
        };
        let is_changelog = name.ends_with("CHANGELOG.md");
        for (number, line) in (1..).zip(text.lines()) {
            // the sections of released versions are not changed
            if is_changelog && line.starts_with("## [") && !line.contains("Unreleased") {
                break;
            }
            let line = words(line);
            for word in &rejected {
                if line.contains(&format!(" {word} ")) {
                    hits.push(format!("{}:{number}: {word}", name.display()));
                    *counts.entry(word).or_default() += 1;
                }
            }
        }
    }
    println!("{} hits: {counts:?}", hits.len());
    assert!(hits.is_empty(), "{} hits\n{}", hits.len(), hits.join("\n"));
}

/// The rules that a sentence breaks.
fn broken_rules(sentence: &Sentence) -> Vec<&'static str> {
    let beginning = sentence.text.trim_start_matches(['"', '(', '*', '_', '[']);
    let begins = |with: &str| {
        let is_word = |rest: &str| {
            with.ends_with(['[', '`'])
                || !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-')
        };
        let starts = |with: &str| beginning.strip_prefix(with).is_some_and(is_word);
        // in Markdown, fragments in lists and tables begin with a small letter
        starts(with) || sentence.begins_comment && starts(&with.to_lowercase())
    };
    let text = words(&sentence.text);
    let beginnings = REJECTED_BEGINNINGS.iter().filter(|with| begins(with));
    let phrases = REJECTED_PHRASES
        .iter()
        .filter(|phrase| text.contains(&format!(" {phrase} ")));
    beginnings.chain(phrases).copied().collect()
}

#[test]
fn sentences_have_their_subject_first_and_nouns_for_pronouns() {
    let Some(mut files) = tracked_files() else {
        return skip("tracked files can be listed in a git checkout only");
    };
    files.retain(|name| HELD_TO_SENTENCES.iter().any(|held| name.starts_with(held)));
    let (mut hits, mut sentences) = (Vec::new(), 0);
    for name in &files {
        let Ok(text) = std::fs::read_to_string(root().join(name)) else {
            continue; // deleted, not yet committed
        };
        for sentence in prose::sentences(name, &text) {
            sentences += 1;
            for rule in broken_rules(&sentence) {
                let Sentence { line, text, .. } = &sentence;
                hits.push(format!("{}:{line}: {rule}: {text}", name.display()));
            }
        }
    }
    assert!(sentences > 10, "only {sentences} sentences were found");
    assert!(hits.is_empty(), "{} hits\n{}", hits.len(), hits.join("\n"));
}

#[test]
fn broken_rules_of_sentences_are_found() {
    let broken = |text: &str| -> Vec<&str> {
        let sentences = prose::sentences(Path::new("a.rs"), &format!("// {text}\n"));
        sentences.iter().flat_map(broken_rules).collect()
    };
    assert_eq!(broken("of a range, nothing"), ["Of"]);
    assert_eq!(broken("Reads. (Of a range, nothing.)"), ["Of"]);
    assert_eq!(
        broken("Reads: As [`read`], later. As `x`."),
        ["As [", "As `"]
    );
    assert_eq!(
        broken("the name is that of a file, or those of two"),
        ["that of", "those of"]
    );
    assert_eq!(
        broken("Of-the-shelf. Whatever is `that of`. As long as `x`"),
        [""; 0]
    );
}

#[test]
fn pages_of_storeys_and_crates_have_an_example() {
    let Some(mut files) = tracked_files() else {
        return skip("tracked files can be listed in a git checkout only");
    };
    files.retain(|name| {
        let depth = name.components().count();
        name.starts_with("src") && name.ends_with("mod.rs") && depth == 3
            || name.starts_with("crates") && name.ends_with("README.md")
    });
    assert!(files.len() > 12, "only {} pages were found", files.len());
    let has_example = |name: &PathBuf| {
        let text = std::fs::read_to_string(root().join(name)).unwrap();
        let mut lines = text
            .lines()
            .filter_map(|line| match name.ends_with("mod.rs") {
                true => line.strip_prefix("//!").map(str::trim),
                false => Some(line),
            });
        lines.any(|line| line.starts_with("```") || line.to_lowercase().contains("for example"))
    };
    files.retain(|name| !has_example(name));
    let without: Vec<&str> = files.iter().filter_map(|name| name.to_str()).collect();
    assert!(without.is_empty(), "pages without an example: {without:?}");
}

#[test]
fn a_type_name_is_defined_once() {
    let mut found = BTreeMap::<String, Vec<String>>::new();
    for krate in crates() {
        for file in krate.files() {
            let words: Vec<&str> = file.code.split_whitespace().collect();
            for pair in words.windows(2) {
                if !["struct", "enum", "trait", "union", "type"].contains(&pair[0]) {
                    continue;
                }
                let name = pair[1]
                    .split(|c: char| !c.is_alphanumeric())
                    .next()
                    .unwrap();
                // the associated types of a trait have one name in every implementation
                let counts = pair[0] != "type" || UNQUALIFIED.contains(&name);
                if counts
                    && name.starts_with(char::is_uppercase)
                    && !SHARED_TYPE_NAMES.contains(&name)
                {
                    let place = file.path.strip_prefix(root()).unwrap();
                    found
                        .entry(name.to_owned())
                        .or_default()
                        .push(place.display().to_string());
                }
            }
        }
    }
    assert!(found.len() > 300, "only {} types were found", found.len());
    let unqualified: Vec<String> = UNQUALIFIED
        .iter()
        .filter_map(|name| Some(format!("{name}: {}", found.get(*name)?.join(", "))))
        .collect();
    assert!(
        unqualified.is_empty(),
        "names that need another word:\n{}",
        unqualified.join("\n")
    );
    // one file may define a type once per platform
    found.values_mut().for_each(Vec::dedup);
    found.retain(|_, places| places.len() > 1);
    let lines: Vec<String> = found
        .iter()
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(
        lines.is_empty(),
        "{} names\n{}",
        lines.len(),
        lines.join("\n")
    );
}
