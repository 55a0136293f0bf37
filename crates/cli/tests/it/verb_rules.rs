//! Which verb is tried by the test of which rule: the table of docs/untrusted.md. A verb that is not in it is one that a rule cannot
//! be about, for a reason.

use crate::process::run;

/// A rule, the test that runs verbs against it, and those that it runs.
struct RuleTest {
    name: &'static str,
    test: &'static str,
    verbs: fn() -> Vec<String>,
    /// Verbs that the rule is not about, and why.
    others: &'static [(&'static [&'static str], &'static str)],
}

fn joined(verbs: &[&[&str]]) -> Vec<String> {
    verbs.iter().map(|words| words.join(" ")).collect()
}

const NO_MODEL: (&[&str], &str) = (
    &[
        "ppc status",
        "ppc reg",
        "ppc rm",
        "template show",
        "template diff",
        "template coverage",
        "template merge",
        "completions",
        "man",
    ],
    "read no model",
);

static RULES: &[RuleTest] = &[
    RuleTest {
        name: "outputs",
        test: "written_files.rs",
        verbs: crate::written_files::verbs,
        others: &[
            (
                &[
                    "inspect",
                    "plan",
                    "fit",
                    "diff",
                    "warm",
                    "ppc status",
                    "ppc reg",
                    "ppc rm",
                    "template show",
                    "template diff",
                    "template coverage",
                    "completions",
                ],
                "write to standard output",
            ),
            (
                &["edit"],
                "changes a file where it is, by the rules of Edited files",
            ),
            (&["ls", "man"], "write by the function of `report`"),
        ],
    },
    RuleTest {
        name: "beside writers",
        test: "beside_writers.rs",
        verbs: crate::beside_writers::verbs,
        others: &[
            NO_MODEL,
            (&["edit"], "waits for the lock of the directory"),
            (
                &["record", "ppc run"],
                "open models as guesses, and go on without",
            ),
        ],
    },
    RuleTest {
        name: "links",
        test: "foreign_links.rs",
        verbs: || joined(crate::foreign_links::VERBS),
        others: &[
            NO_MODEL,
            (
                &["record", "ppc run"],
                "open models as guesses, and show nothing of them",
            ),
        ],
    },
    RuleTest {
        name: "patterns",
        test: "name_filters.rs",
        verbs: || {
            let verbs = crate::name_filters::VERBS.iter();
            let edit = std::iter::once("edit".to_owned());
            verbs
                .map(|(words, _)| words.join(" "))
                .chain(edit)
                .collect()
        },
        others: &[
            NO_MODEL,
            (&["ls"], "searches: no match is the status 1"),
            (
                &["fit", "report", "record", "ppc run"],
                "have no pattern of names",
            ),
        ],
    },
    RuleTest {
        name: "interrupts",
        test: "interrupted_verbs.rs",
        verbs: || {
            let busy = crate::interrupted_verbs::busy_verbs("", "", "", "");
            let busy = busy.iter().map(|words| words.join(" "));
            busy.chain(joined(crate::interrupted_verbs::READERS))
                .collect()
        },
        others: &[(NO_MODEL.0, "end in milliseconds")],
    },
    #[cfg(feature = "remote")]
    RuleTest {
        name: "shown paths",
        test: "secrets.rs",
        verbs: || {
            let runs = crate::secrets::runs("", std::path::Path::new(""));
            runs.iter().map(|words| words.join(" ")).collect()
        },
        others: &[(&["ppc status"], "shows what the others have given")],
    },
    #[cfg(feature = "remote")]
    RuleTest {
        name: "caches",
        test: "trusted_places.rs",
        verbs: || joined(crate::trusted_places::VERBS),
        others: &[
            NO_MODEL,
            (&["edit"], "refuses files of a cache"),
            (&["ls"], "lists what there is, and trusts none of it"),
            (&["record"], "reads nothing of a cache"),
        ],
    },
    RuleTest {
        name: "counts",
        test: "numbers.rs",
        verbs: || joined(crate::numbers::VERBS),
        others: &[(
            &[
                "ls",
                "convert",
                "edit",
                "ppc status",
                "ppc reg",
                "ppc rm",
                "template diff",
                "template coverage",
                "completions",
                "man",
            ],
            "have no count, or no greater one than threads",
        )],
    },
    RuleTest {
        name: "output per byte",
        test: "output_size.rs",
        verbs: || {
            let views = joined(crate::output_size::VIEWS);
            let answers = joined(crate::output_size::ANSWERS);
            views.into_iter().chain(answers).collect()
        },
        others: &[
            NO_MODEL,
            (
                &[
                    "ls",
                    "convert",
                    "edit",
                    "remember",
                    "load",
                    "warm",
                    "record",
                    "ppc run",
                    "template predict",
                ],
                "print a few lines for each model",
            ),
        ],
    },
];

/// The verbs of the command that do something, by its manual.
fn all_verbs() -> Vec<String> {
    let page = run(&["man", "--markdown"]).stdout;
    let titles = page.lines().filter_map(|line| {
        let title = line.strip_prefix("## ").or(line.strip_prefix("### "))?;
        (title == title.to_lowercase()).then(|| title.to_owned())
    });
    let titles: Vec<String> = titles.collect();
    let has_verbs = |verb: &String| {
        titles.iter().any(|other| {
            other
                .strip_prefix(&**verb)
                .is_some_and(|rest| rest.starts_with(' '))
        })
    };
    titles
        .iter()
        .filter(|verb| !has_verbs(verb))
        .cloned()
        .collect()
}

fn is_of(words: &str, verb: &str) -> bool {
    words
        .strip_prefix(verb)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

#[test]
#[cfg_attr(
    not(all(feature = "remote", target_os = "linux")),
    ignore = "the table has all verbs"
)]
fn every_verb_is_tried_by_every_rule_or_has_a_reason() {
    let verbs = all_verbs();
    assert!(verbs.len() > 20, "{verbs:?}");
    let names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
    let mut table = format!("| verb | {} |\n", names.join(" | "));
    table.push_str(&format!("|---|{}\n", "---|".repeat(names.len())));
    let tried: Vec<Vec<String>> = RULES.iter().map(|rule| (rule.verbs)()).collect();
    let mut wrong = Vec::new();
    for verb in &verbs {
        let mut row = Vec::new();
        for (rule, tried) in RULES.iter().zip(&tried) {
            let is_tried = tried.iter().any(|words| is_of(words, verb));
            let is_other = rule
                .others
                .iter()
                .any(|(verbs, _)| verbs.contains(&&**verb));
            row.push(if is_tried { "yes" } else { "–" });
            if is_tried == is_other {
                wrong.push(format!("{verb}, {}: tried: {is_tried}", rule.name));
            }
        }
        table.push_str(&format!("| `{verb}` | {} |\n", row.join(" | ")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    table.push('\n');
    for rule in RULES {
        let reasons: Vec<String> = rule
            .others
            .iter()
            .map(|(verbs, why)| {
                let verbs: Vec<String> = verbs.iter().map(|verb| format!("`{verb}`")).collect();
                format!("{} ({why})", verbs.join(", "))
            })
            .collect();
        table.push_str(&format!(
            "- {} (`{}`): not {}\n",
            rule.name,
            rule.test,
            reasons.join("; ")
        ));
    }
    println!("{table}");
    crate::documents::compare_with_untrusted("verbs and rules", &table);
}
