//! The Rust code of the workspace as text, without comments, literals and tests: for tests about imports and names.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A crate of the workspace.
pub struct CrateSource {
    pub name: String,
    pub src: PathBuf,
}

/// A source file that is not test code.
pub struct CodeFile {
    /// The module path within the crate, empty for the root.
    pub module: Vec<String>,
    pub path: PathBuf,
    /// The text without comments, literals and items under `cfg(test)`.
    pub code: String,
    /// The literals of this code that are text, without their quotes.
    pub literals: Vec<String>,
}

/// The root crate, every crate below `crates/`, and the fuzz targets. A folder without `src` contains crates.
pub fn crates() -> Vec<CrateSource> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![CrateSource {
        name: "anamnesis".to_owned(),
        src: root.join("src"),
    }];
    let mut folders = vec![root.join("crates"), root.join("tests/hostile/fuzz")];
    while let Some(folder) = folders.pop() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let src = folder.join("src");
        if src.is_dir() {
            found.push(CrateSource { name, src });
        } else {
            folders.extend(folders_in(&folder));
        }
    }
    found[1..].sort_by(|a, b| a.src.cmp(&b.src));
    found
}

fn folders_in(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
}

impl CrateSource {
    /// The source files, without those that are compiled only for tests.
    pub fn files(&self) -> Vec<CodeFile> {
        let mut tests = BTreeSet::new();
        let mut files = Vec::new();
        for path in super::files_below(&self.src) {
            if path.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let (code, test_modules, removed) = without_tests(&without_comments(&text));
            let is_kept = |at: &usize| !removed.iter().any(|range| range.contains(at));
            let literals = string_literals(&text).into_iter();
            let literals = literals.filter(|literal| is_kept(&literal.at));
            let literals = literals.map(|literal| literal.text).collect();
            let module = module_of(path.strip_prefix(&self.src).unwrap());
            for name in test_modules {
                let mut test = module.clone();
                test.push(name);
                tests.insert(test);
            }
            files.push(CodeFile {
                module,
                path,
                code,
                literals,
            });
        }
        let is_test = |module: &[String]| {
            (1..=module.len()).any(|n| tests.contains(&module[..n]))
                || module
                    .iter()
                    .any(|part| part == "tests" || part.ends_with("_tests"))
        };
        files.retain(|file| !is_test(&file.module));
        files
    }
}

fn module_of(path: &Path) -> Vec<String> {
    let mut module: Vec<String> = path
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if module
        .last()
        .is_some_and(|last| ["mod", "lib", "main"].contains(&&**last))
    {
        module.pop();
    }
    module
}

/// A part of a source text: code, a comment or a literal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    Code,
    Comment,
    Literal,
}

/// The text with comments and the contents of literals replaced by spaces; line breaks stay.
pub fn without_comments(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
    let mut out = String::with_capacity(text.len());
    for (piece, range) in pieces(&chars) {
        let part = chars[range].iter();
        match piece {
            Piece::Code => out.extend(part),
            Piece::Comment | Piece::Literal => out.extend(part.map(|c| blank(*c))),
        }
    }
    out
}

/// The text in pieces: every comment, every literal, and each character of code on its own.
pub fn pieces(chars: &[char]) -> Vec<(Piece, Range<usize>)> {
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let from = i;
        let mut piece = Piece::Literal;
        if at(i) == '/' && at(i + 1) == '/' {
            piece = Piece::Comment;
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if at(i) == '/' && at(i + 1) == '*' {
            piece = Piece::Comment;
            let mut depth = 0;
            loop {
                match (at(i), at(i + 1)) {
                    ('/', '*') => (depth, i) = (depth + 1, i + 2),
                    ('*', '/') => (depth, i) = (depth - 1, i + 2),
                    _ => i += 1,
                }
                if depth == 0 || i >= chars.len() {
                    break;
                }
            }
        } else if at(i) == 'r'
            && (at(i + 1) == '"' || at(i + 1) == '#' && "\"#".contains(at(i + 2)))
        {
            let hashes = (i + 1..).take_while(|j| at(*j) == '#').count();
            i += hashes + 2;
            while i < chars.len() && !(at(i) == '"' && (1..=hashes).all(|j| at(i + j) == '#')) {
                i += 1;
            }
            i += hashes + 1;
        } else if at(i) == '"' {
            i += 1;
            while i < chars.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if at(i) == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            i += 2; // past the character or the backslash
            if at(i - 1) == '\\' {
                i += 1;
            }
            while i < chars.len() && at(i) != '\'' {
                i += 1;
            }
            i += 1;
        } else {
            piece = Piece::Code;
            i += 1;
        }
        out.push((piece, from..i.min(chars.len())));
    }
    out
}

/// A literal that is text.
pub struct StringLiteral {
    /// Its place in the text without comments. Code is ASCII, and every other character became one blank: places are bytes.
    at: usize,
    /// The number of the line on which it begins.
    pub line: usize,
    /// Without its quotes.
    pub text: String,
}

/// The string literals of a text, in order.
pub fn string_literals(text: &str) -> Vec<StringLiteral> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut line) = (Vec::new(), 1);
    for (piece, range) in pieces(&chars) {
        let part = &chars[range.clone()];
        let whole: String = part.iter().collect();
        let own = whole.trim_start_matches('r').trim_matches('#');
        let inside = own.strip_prefix('"').and_then(|own| own.strip_suffix('"'));
        if let (Piece::Literal, Some(inside)) = (piece, inside) {
            found.push(StringLiteral {
                at: range.start,
                line,
                text: inside.to_owned(),
            });
        }
        line += part.iter().filter(|c| **c == '\n').count();
    }
    found
}

/// The code without items under `cfg(test)`, the names of the modules among those items, and where the items were.
fn without_tests(code: &str) -> (String, Vec<String>, Vec<Range<usize>>) {
    let (mut out, mut modules, mut rest) = (String::new(), Vec::new(), code);
    let mut removed = Vec::new();
    while let Some(start) = ["#[cfg(test)]", "#[cfg(all(test"]
        .iter()
        .filter_map(|attribute| rest.find(attribute))
        .min()
    {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let attribute = rest.find(']').unwrap() + 1;
        let item = &rest[attribute..];
        let end = match (item.find('{'), item.find(';')) {
            (Some(open), semicolon) if semicolon.is_none_or(|semicolon| open < semicolon) => {
                let mut depth = 0;
                let close = item[open..].char_indices().find(|(_, c)| {
                    depth += i32::from(*c == '{') - i32::from(*c == '}');
                    depth == 0
                });
                close.map_or(item.len(), |(at, _)| open + at + 1)
            }
            (_, semicolon) => semicolon.map_or(item.len(), |semicolon| semicolon + 1),
        };
        let words: Vec<&str> = item[..end]
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .filter(|word| !word.is_empty())
            .collect();
        if let Some(at) = words.iter().position(|word| *word == "mod") {
            modules.extend(words.get(at + 1).map(|name| (*name).to_owned()));
        }
        let start = code.len() - rest.len();
        rest = &item[end..];
        removed.push(start..code.len() - rest.len());
    }
    out.push_str(rest);
    (out, modules, removed)
}
