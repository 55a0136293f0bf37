//! A command line whose first word is no verb: a path is inspected, and for the word of another program the verb is named.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::Cli;
use crate::paths::is_url;
use crate::shown_path::shown;

/// Words of other programs, the verb that does the same, and what its line has behind it: the outputs too, which the line of
/// another program may lack.
static GUESSES: &[(&[&str], &str, &str, &str)] = &[
    (
        &[
            "info", "show", "view", "dump", "print", "cat", "head", "describe", "stat", "header",
            "read", "open", "peek",
        ],
        "inspect",
        "PATH",
        "",
    ),
    (&["tree"], "inspect --tree", "PATH", ""),
    (&["metadata", "meta"], "inspect --metadata", "PATH", ""),
    (
        &["hash", "digest", "sha256", "sha256sum"],
        "inspect --hash",
        "PATH",
        "",
    ),
    (&["find", "search", "models", "scan"], "ls", "DIR", ""),
    (
        &["verify", "validate", "test", "lint", "doctor", "fsck"],
        "check",
        "PATH",
        "",
    ),
    (
        &[
            "dequantize",
            "dequantise",
            "dequant",
            "unquantize",
            "unquantise",
            "decode",
        ],
        "remember",
        "PATH",
        "-o OUT.safetensors",
    ),
    (
        &[
            "unpack", "extract", "split", "merge", "join", "copy", "cp", "shard", "export", "save",
        ],
        "convert",
        "PATH",
        "-o OUT.safetensors",
    ),
    (
        &["modify", "patch", "set"],
        "edit",
        "PATH --set KEY=VALUE",
        "",
    ),
    (&["compare", "cmp"], "diff", "A B", ""),
    (
        &["memory", "mem", "size", "vram", "ram", "estimate"],
        "fit",
        "PATH",
        "",
    ),
    (&["bench", "benchmark", "time", "speed"], "load", "PATH", ""),
    (
        &["preload", "prefetch", "cache", "warmup"],
        "warm",
        "PATH",
        "",
    ),
    (
        &["html", "page", "plot", "visualize", "visualise"],
        "report",
        "PATH",
        "-o OUT.html",
    ),
    (&["status"], "ppc status", "", ""),
    (&["predict"], "template predict", "PATH", "-o OUT.iot"),
];

/// Endings of files that are opened; a name with one of them is a path, also where nothing exists.
static ENDINGS: &[&str] = &[
    "gguf",
    "safetensors",
    "npy",
    "npz",
    "pt",
    "pth",
    "bin",
    "ckpt",
    "json",
];

/// Parses arguments whose first word may be a path instead of a verb.
pub(super) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(words).or_else(|error| {
        let at = verb_position(words);
        // an unknown word of `ppc` or `template` is behind a verb
        let unknown = match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(word)) if error.kind() == ErrorKind::InvalidSubcommand => {
                at.filter(|at| words[*at].to_str() == Some(word))
            }
            _ => None,
        };
        let Some(at) = unknown else {
            return Err(without_letters(error));
        };
        let word = &words[at];
        if let Some(line) = suggested_line(words, at) {
            let word = word.to_string_lossy();
            let message = format!("`{word}` is no verb; this line may do it:\n  {line}");
            return Err(Cli::command().error(ErrorKind::InvalidSubcommand, message));
        }
        if !is_path(Path::new(word)) {
            return Err(without_letters(error));
        }
        let verb = OsString::from("inspect");
        Cli::try_parse_from(words[..at].iter().chain([&verb]).chain(&words[at..]))
    })
}

/// The place of the first word that is no option of the whole command.
fn verb_position(words: &[OsString]) -> Option<usize> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match word.to_str() {
            Some("--color") => at += 2,
            // `-` is standard input
            Some(option) if option.len() > 1 && option.starts_with('-') => at += 1,
            _ => return Some(at),
        }
    }
    None
}

/// Whether the word is a path rather than a verb that was mistyped.
fn is_path(word: &Path) -> bool {
    let text = word.to_string_lossy();
    let ending = word.extension().unwrap_or_default().to_string_lossy();
    is_url(word)
        || text == "-"
        || text.contains(['/', '\\', '*', '?', '['])
        || ENDINGS.contains(&&*ending.to_lowercase())
        || word.symlink_metadata().is_ok()
}

/// The line with the verb that the guess at this place stands for.
fn suggested_line(words: &[OsString], at: usize) -> Option<String> {
    let word = words[at].to_str()?;
    let guess = |(guesses, ..): &&(&[&str], _, _, _)| guesses.contains(&word);
    let (_, verb, operands, output) = GUESSES.iter().find(guess)?;
    // some verbs exist on Linux only
    Cli::command().find_subcommand(verb.split(' ').next()?)?;
    let mut line = vec!["anamnesis".to_owned()];
    line.extend(words[1..at].iter().map(quoted));
    line.push((*verb).to_owned());
    let rest = &words[at + 1..];
    line.extend(rest.iter().map(quoted));
    let has_output = |word: &OsString| {
        let word = word.to_string_lossy();
        word.starts_with("-o") || word.starts_with("--out")
    };
    let missing = [
        (rest.is_empty(), operands),
        (!rest.iter().any(has_output), output),
    ];
    let missing = missing
        .iter()
        .filter(|(is_missing, text)| *is_missing && !text.is_empty());
    line.extend(missing.map(|(_, text)| (**text).to_owned()));
    Some(line.join(" "))
}

/// A word as a shell reads it; a URL without its secrets.
fn quoted(word: &OsString) -> String {
    let text = shown(Path::new(word));
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+~".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The error without suggestions that are one letter long: these are abbreviations for who knows them.
fn without_letters(mut error: clap::Error) -> clap::Error {
    let kind = ContextKind::SuggestedSubcommand;
    if let Some(ContextValue::Strings(found)) = error.get(kind) {
        let kept: Vec<String> = found
            .iter()
            .filter(|name| name.len() > 1)
            .cloned()
            .collect();
        match kept.is_empty() {
            true => error.remove(kind),
            false => error.insert(kind, ContextValue::Strings(kept)),
        };
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn each_suggested_line_is_valid() {
        let mut lines = 0;
        for (guesses, _, operands, _) in GUESSES {
            for guess in *guesses {
                assert!(
                    Cli::command().find_subcommand(guess).is_none(),
                    "{guess} is a verb"
                );
                let alone = suggested_line(&words(&format!("anamnesis {guess}")), 1);
                let behind = format!("anamnesis --color never {guess} {operands}");
                let behind = suggested_line(&words(behind.trim_end()), 3);
                for line in alone.into_iter().chain(behind) {
                    if let Err(error) = Cli::try_parse_from(words(&line)) {
                        panic!("{line}: {error}");
                    }
                    lines += 1;
                }
            }
        }
        assert!(lines > 60, "{lines}");
    }

    #[test]
    fn words_are_quoted_for_a_shell_and_urls_have_no_secrets() {
        let line = |line: &str| suggested_line(&words(line), 1).unwrap();
        assert_eq!(
            line("anamnesis verify it's*"),
            r"anamnesis check 'it'\''s*'"
        );
        let shown = line("anamnesis info https://user:secret@host/m.gguf?token=hidden");
        assert!(
            shown.starts_with("anamnesis inspect ") && !shown.contains("secret"),
            "{shown}"
        );
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
