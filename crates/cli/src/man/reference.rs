//! The page `docs/command.md`: every verb and option as Markdown, from the clap definitions in [`crate::args`].

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::{Arg, Command};

/// The heading of the options by which every verb opens files. They are listed once.
const SHARED_HEADING: &str = "Opening";

const HEAD: &str = "\
<!-- Generated from crates/cli/src/args: UPDATE=1 cargo test -p anamnesis-tensors-cli --test it documents -->

# The command

All verbs and options, as `anamnesis man --markdown` prints them. [guide.md](guide.md) explains them with examples.
`-h` prints one line per option, `--help` the full text.

";

/// The page. `command` is built and has no verb `help`.
pub(super) fn page(command: &Command) -> String {
    let mut page = HEAD.to_owned();
    let verbs: Vec<&Command> = shown(command).collect();
    page += "| verb | |\n|---|---|\n";
    for verb in &verbs {
        let name = verb.get_name();
        let names = verb
            .get_visible_aliases()
            .map(|alias| format!(", `{alias}`"));
        let about = verb.get_about().map(ToString::to_string);
        line(
            &mut page,
            format_args!(
                "| [`{name}`](#{name}){} | {} |",
                names.collect::<String>(),
                about.as_deref().map(prose).unwrap_or_default()
            ),
        );
    }
    let mut global = String::new();
    options(&mut global, command.get_arguments());
    page += &format!("\nOptions of every verb:\n\n{global}");

    // by name, as some verbs lack one of them
    let mut shared = BTreeMap::new();
    for verb in verbs {
        section(&mut page, verb, verb.get_name(), 2, &mut shared);
        for inner in shown(verb) {
            let path = format!("{} {}", verb.get_name(), inner.get_name());
            section(&mut page, inner, &path, 3, &mut shared);
        }
    }
    page += "\n## Opening\n\nThe verbs that open checkpoints name which of these options they have.\n\n";
    options(&mut page, shared.into_values());
    page
}

/// The verbs of a command, without hidden ones.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set())
}

/// A verb: text, usage, arguments, examples. Adds its shared options to `shared`.
fn section<'c>(
    page: &mut String,
    verb: &'c Command,
    path: &str,
    level: usize,
    shared: &mut BTreeMap<String, &'c Arg>,
) {
    line(page, format_args!("\n{} {path}\n", "#".repeat(level)));
    let about = verb.get_long_about().or_else(|| verb.get_about());
    line(
        page,
        format_args!(
            "{}",
            prose(&about.map(ToString::to_string).unwrap_or_default())
        ),
    );
    // the verbs in it have the options
    if verb.has_subcommands() {
        return;
    }
    // clap renders a usage only of a command that it may change
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    line(page, format_args!("\n```\n{usage}\n```\n"));
    let is_shared = |arg: &&Arg| arg.get_help_heading() == Some(SHARED_HEADING);
    options(
        page,
        verb.get_arguments()
            .filter(|arg| !is_shared(arg) && !arg.is_global_set()),
    );
    let opening: Vec<&Arg> = verb.get_arguments().filter(is_shared).collect();
    if !opening.is_empty() {
        let names: Vec<String> = opening
            .iter()
            .map(|arg| format!("`{}`", long(arg)))
            .collect();
        line(
            page,
            format_args!("\nOptions of [opening](#opening): {}.", names.join(", ")),
        );
        shared.extend(
            opening
                .into_iter()
                .map(|arg| (arg.get_id().to_string(), arg)),
        );
    }
    if let Some(text) = verb.get_after_help() {
        line(page, format_args!("\n```text\n{text}\n```"));
    }
    #[cfg(target_os = "linux")]
    if path == "ppc run" {
        page.push_str(&options_of_maio());
    }
}

/// A table of arguments: those without a heading first, the others in the order of their headings.
fn options<'c>(page: &mut String, args: impl Iterator<Item = &'c Arg>) {
    let mut args: Vec<&Arg> = args
        .filter(|arg| !is_built_in(arg) && !arg.is_hide_set())
        .collect();
    let mut headings: Vec<Option<&str>> = vec![None];
    for arg in &args {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    args.sort_by_key(|arg| {
        headings
            .iter()
            .position(|heading| *heading == arg.get_help_heading())
    });
    if args.is_empty() {
        return;
    }
    page.push_str("| | default | |\n|---|---|---|\n");
    let mut under = None;
    for arg in args {
        let heading = arg
            .get_help_heading()
            .filter(|heading| *heading != SHARED_HEADING);
        if heading != under {
            line(
                page,
                format_args!("| **{}** | | |", heading.unwrap_or_default()),
            );
            under = heading;
        }
        line(page, format_args!("{}", row(arg)));
    }
}

fn is_built_in(arg: &Arg) -> bool {
    ["help", "version"].contains(&arg.get_id().as_str())
}

/// The name of an option, or of a positional argument.
fn long(arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => format!("--{long}"),
        None => arg.get_id().to_string(),
    }
}

fn row(arg: &Arg) -> String {
    let takes_value = arg.get_num_args().is_some_and(|range| range.takes_values());
    let value = arg.get_value_names().unwrap_or_default().join(" ");
    let many = arg.is_positional()
        && arg
            .get_num_args()
            .is_some_and(|range| range.max_values() > 1);
    let mut name = match (arg.is_positional(), takes_value) {
        (true, _) => format!("{value}{}", if many { "…" } else { "" }),
        (false, true) => format!("{} {value}", long(arg)),
        (false, false) => long(arg),
    };
    name = format!("`{}`", name.trim().replace('|', "\\|"));
    name.extend(arg.get_short().map(|short| format!(", `-{short}`")));
    name.extend(
        arg.get_visible_aliases()
            .unwrap_or_default()
            .into_iter()
            .map(|alias| format!(", `--{alias}`")),
    );

    let help = arg.get_long_help().or_else(|| arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let (mut help, default) = without_default(&help);
    let values: Vec<_> = arg
        .get_possible_values()
        .into_iter()
        .filter(|value| !value.is_hide_set())
        .collect();
    if takes_value && !values.is_empty() && !arg.is_hide_possible_values_set() {
        let values: Vec<String> = values
            .iter()
            .map(|value| match value.get_help() {
                Some(help) => {
                    format!(
                        "`{}`: {}",
                        value.get_name(),
                        help.to_string().trim_end_matches('.')
                    )
                }
                None => format!("`{}`", value.get_name()),
            })
            .collect();
        help.truncate(help.trim_end().len());
        help += if help.ends_with('.') { "" } else { "." };
        help += &format!(" Values: {}.", values.join("; "));
    }
    let default = match (default, takes_value && !arg.is_hide_default_value_set()) {
        (Some(default), _) => prose(&default),
        // a flag's default is that it is not given
        (None, true) => {
            let values = arg.get_default_values().iter();
            let values: Vec<String> = values
                .map(|value| format!("`{}`", value.to_string_lossy()))
                .collect();
            values.join(" ")
        }
        (None, false) => String::new(),
    };
    let default = if arg.is_required_set() && !arg.is_positional() {
        "required"
    } else {
        &default
    };
    format!("| {name} | {default} | {} |", prose(&help))
}

/// A help text without `[default: …]`, and the text of that.
fn without_default(help: &str) -> (String, Option<String>) {
    let mut out = help.to_owned();
    let mut defaults = Vec::new();
    while let Some((before, rest)) = out.split_once("[default: ") {
        let Some((default, after)) = rest.split_once(']') else {
            break;
        };
        defaults.push(default.split_whitespace().collect::<Vec<_>>().join(" "));
        out = format!("{}{after}", before.trim_end());
    }
    (out, (!defaults.is_empty()).then(|| defaults.join("; ")))
}

/// A help text in one line of Markdown: options are code, and other characters stand for themselves.
fn prose(text: &str) -> String {
    let mut out = String::new();
    // every second piece is between backticks
    for (i, piece) in text.split('`').enumerate() {
        let piece = piece.split_whitespace().collect::<Vec<_>>().join(" ");
        // the spaces that `split_whitespace` removed next to a backtick
        let raw = text.split('`').nth(i).unwrap_or_default();
        if i % 2 == 1 {
            out += &format!("`{}`", raw.replace('|', "\\|"));
            continue;
        }
        let space = |found: bool| if found { " " } else { "" };
        out += space(raw.starts_with(char::is_whitespace) && i > 0);
        for (j, word) in piece.split(' ').enumerate() {
            out += space(j > 0);
            let end = word.trim_end_matches([',', '.', ';', ':', ')', '?']).len();
            if word.starts_with("--") && end > 2 {
                out += &format!("`{}`{}", word[..end].replace('|', "\\|"), &word[end..]);
            } else {
                word.chars().for_each(|c| {
                    // outside of code these would end a cell, or begin emphasis or a tag
                    out += if "*_<|".contains(c) { "\\" } else { "" };
                    out.push(c);
                });
            }
        }
        out += space(raw.ends_with(char::is_whitespace) && !piece.is_empty());
    }
    out.trim().to_owned()
}

#[cfg(target_os = "linux")]
fn options_of_maio() -> String {
    let mut text = "\nThe options of `maio`, after commas. Sizes are bytes, with `K`, `M`, `G` or `T` in powers of 1024; \
                    times are seconds.\n\n| option | effect | default |\n|---|---|---|\n"
        .to_owned();
    for option in anamnesis_maio::MaioConfig::OPTIONS {
        let item = format!("{}={}", option.key, option.values).replace('|', "\\|");
        line(
            &mut text,
            format_args!("| `{item}` | {} | {} |", option.meaning, option.default),
        );
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // writing to a string cannot fail
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_becomes_markdown() {
        for (help, markdown) in [
            (
                "with --json, the `a|b` of\n__x__",
                "with `--json`, the `a\\|b` of \\_\\_x\\_\\_",
            ),
            ("`*` matches any text", "`*` matches any text"),
            ("(uring, `x`) [max: 4].", "(uring, `x`) [max: 4]."),
        ] {
            assert_eq!(prose(help), markdown);
        }
        let (help, default) = without_default("Threads [default: one\nper core]; as many.");
        assert_eq!(
            (&*help, default.as_deref()),
            ("Threads; as many.", Some("one per core"))
        );
    }
}
