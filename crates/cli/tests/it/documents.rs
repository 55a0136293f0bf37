//! The documents agree with the command: the console examples of the README and of `docs/` are run and must print the documented output, and
//! `docs/command.md` must be what `anamnesis man --markdown` prints. `UPDATE=1 cargo test -p anamnesis-tensors-cli --test it documents`
//! rewrites both.

use std::fmt::Write;

use crate::process::{command, finish, workspace};

/// Splits a line at spaces, except between single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    for (i, piece) in line.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(piece.to_owned());
        } else {
            words.extend(piece.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// The document with the current output of its examples, of at most this many lines each, and their number.
fn with_current_output(text: &str, most: usize) -> (String, usize) {
    let mut out = String::new();
    let mut examples = 0;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if line != "```console" {
            continue;
        }
        while let Some(line) = lines.next_if(|line| *line != "```") {
            let Some(example) = line.strip_prefix("$ anamnesis ") else {
                continue;
            };
            writeln!(out, "{line}").unwrap();
            let args = words(example);
            let mut command = command(&args.iter().map(String::as_str).collect::<Vec<_>>());
            command.env("COLUMNS", "80");
            let run = finish(command);
            assert!(run.code < 2, "{example}: {}", run.stderr);
            let printed = run.stdout + &run.stderr;
            let mut lines = printed.split_inclusive('\n');
            out.extend(lines.by_ref().take(most));
            if lines.next().is_some() {
                out.push_str("…\n");
            }
            examples += 1;
        }
    }
    (out, examples)
}

#[test]
fn console_examples_print_the_documented_output() {
    // where examples write; builds may have another target directory
    std::fs::create_dir_all(workspace().join("target")).unwrap();
    for name in [
        "README.md",
        "docs/guide.md",
        "docs/json.md",
        "docs/fit.md",
        "docs/diff.md",
        "docs/check.md",
        "docs/convert.md",
        "docs/edit.md",
        "docs/ls.md",
    ] {
        let path = workspace().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        // the first page shows beginnings
        let most = if name == "README.md" { 5 } else { usize::MAX };
        let (updated, examples) = with_current_output(&text, most);
        assert!(examples > 0, "{name} has no examples");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, updated).unwrap();
        } else {
            assert_eq!(
                text, updated,
                "{name}: run with UPDATE=1 and review the difference"
            );
        }
    }
}

/// The table between the comments `<!-- name -->` and `<!-- /name -->` of docs/untrusted.md is the one that a test has printed.
/// `UPDATE=1` writes it there.
#[cfg(target_os = "linux")]
pub(crate) fn compare_with_untrusted(name: &str, table: &str) {
    let path = workspace().join("docs/untrusted.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let (before, rest) = page.split_once(&begin).unwrap();
    let (found, after) = rest.split_once(&end).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, format!("{before}{begin}{table}{end}{after}")).unwrap();
    } else {
        assert_eq!(found, table, "docs/untrusted.md: run with UPDATE=1");
    }
}

/// Other systems, and builds without URLs, have fewer verbs and options than the page.
#[cfg(all(target_os = "linux", feature = "remote"))]
#[test]
fn the_command_page_is_generated_from_the_flags() {
    let path = workspace().join("docs/command.md");
    let page = finish(command(&["man", "--markdown"])).stdout;
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, page).unwrap();
    } else {
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, page, "docs/command.md: run with UPDATE=1");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn every_option_of_maio_is_in_the_help_and_in_the_command_page() {
    let text = std::fs::read_to_string(workspace().join("docs/command.md")).unwrap();
    let help = finish(command(&["ppc", "run", "--help"])).stdout;
    for option in anamnesis_maio::MaioConfig::OPTIONS {
        let item = format!("{}={}", option.key, option.values);
        let row = format!(
            "| `{}` | {} | {} |",
            item.replace('|', "\\|"),
            option.meaning,
            option.default
        );
        assert!(text.contains(&row), "{row} is not in docs/command.md");
        assert!(help.contains(&item), "{item}: {help}");
    }
}

#[test]
fn every_flag_of_the_help_is_in_the_command_page() {
    let text = std::fs::read_to_string(workspace().join("docs/command.md")).unwrap();
    let mut subcommands = vec![
        "inspect",
        "convert",
        "edit",
        "ls",
        "remember",
        "plan",
        "load",
        "fit",
        "diff",
        "check",
        "report",
        "template predict",
        "template show",
        "template diff",
        "template coverage",
        "template merge",
        "completions",
        "man",
    ];
    if cfg!(target_os = "linux") {
        subcommands.extend([
            "warm",
            "record",
            "ppc run",
            "ppc status",
            "ppc reg",
            "ppc rm",
        ]);
    }
    for subcommand in subcommands {
        let args: Vec<&str> = subcommand.split(' ').chain(["--help"]).collect();
        let help = finish(command(&args)).stdout;
        for flag in help
            .split_whitespace()
            .filter(|word| word.starts_with("--") && word.len() > 2)
        {
            let flag = flag
                .split(['[', '=', ':', ','])
                .next()
                .unwrap()
                .trim_end_matches([']', '.', '\'', '`', ';']);
            assert!(
                text.contains(flag),
                "{flag} of {subcommand} is not in docs/command.md"
            );
        }
    }
}
