//! A pattern of names that matches nothing is an error of the arguments in every verb that has one: status 2, with the nearest
//! names, and without an output.

use serde_json::Value;

use crate::process::{path_str, run, safetensors, workspace};

const MODEL: &str = "fixtures/model/scribe.safetensors";

/// Every verb with patterns: its arguments, where `OUT` stands for a file in an empty directory, and its options that take
/// patterns.
pub(crate) const VERBS: &[(&[&str], &[&str])] = &[
    (&["inspect", MODEL], &["--filter"]),
    (&["inspect", "--hash", MODEL], &["--filter"]),
    (&["inspect", "--tree", MODEL, MODEL], &["--filter"]),
    (&["plan", MODEL], &["--filter", "--exclude"]),
    (
        &["remember", MODEL, "-o", "OUT.safetensors"],
        &["--filter", "--exclude"],
    ),
    (
        &["convert", MODEL, "-o", "OUT.safetensors"],
        &["--filter", "--exclude"],
    ),
    (&["load", MODEL], &["--filter"]),
    (&["diff", MODEL, MODEL], &["--filter", "--exclude"]),
    (
        &["diff", "--quick", "--quiet", MODEL, MODEL],
        &["--filter", "--exclude"],
    ),
    (&["check", MODEL], &["--filter"]),
    (&["check", "--headers", MODEL], &["--filter"]),
    (&["check", "--stats", MODEL, MODEL], &["--filter"]),
    (
        &["template", "predict", MODEL, "-o", "OUT.iot"],
        &["--filter", "--rule"],
    ),
    #[cfg(target_os = "linux")]
    (&["warm", MODEL], &["--filter", "--rule"]),
];

/// The options of all verbs that take patterns of names, by their help: a new one has to be in [`VERBS`].
#[test]
fn every_option_with_a_pattern_is_tried() {
    let page = run(&["man", "--markdown"]).stdout;
    let mut verb = String::new();
    let mut options = 0;
    for line in page.lines() {
        if let Some(title) = line.trim_start_matches('#').strip_prefix(' ')
            && line.starts_with("##")
        {
            title.clone_into(&mut verb);
        }
        let Some((option, _)) = line
            .strip_prefix("| `")
            .and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        // `ls` searches: a model without a match is left out, and none at all is the status 1
        let is_search = verb == "ls";
        if !is_search && (line.contains("GLOB`") || line.contains("PATTERN=RULE`")) {
            options += 1;
            let words: Vec<&str> = verb.split(' ').collect();
            let tried = VERBS
                .iter()
                .any(|(args, names)| args.starts_with(&words) && names.contains(&option));
            assert!(tried, "`{verb}` has {option}, which no test tries");
        }
    }
    assert!(options >= 10, "only {options} options were found");
}

#[test]
fn a_pattern_without_a_match_is_refused_with_the_nearest_names() {
    let mut seen = 0;
    for (args, options) in VERBS {
        for option in *options {
            for pattern in ["*.mlp.down_porj.*", "lm_head"] {
                let dir = tempfile::tempdir().unwrap();
                let args: Vec<String> = args
                    .iter()
                    .map(|arg| match arg.strip_prefix("OUT") {
                        Some(end) => path_str(&dir.path().join(format!("out{end}"))).to_owned(),
                        None => (*arg).to_owned(),
                    })
                    .collect();
                let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
                let value = match *option {
                    "--rule" => format!("{pattern}=column"),
                    _ => pattern.to_owned(),
                };
                args.extend([*option, &value]);
                let found = run(&args);
                assert_eq!(found.code, 2, "{args:?}: {}{}", found.stdout, found.stderr);
                let message =
                    format!("no tensor matches `{pattern}` of {option}; the nearest names");
                assert!(
                    found.stderr.contains(&message),
                    "{args:?}: {}",
                    found.stderr
                );
                if pattern.contains("porj") {
                    let name = "layers.0.mlp.down_proj.weight`";
                    assert!(found.stderr.contains(name), "{args:?}: {}", found.stderr);
                }
                for word in ["same", "sound"] {
                    assert!(!found.stdout.contains(word), "{args:?}: {}", found.stdout);
                }
                let left = std::fs::read_dir(dir.path()).unwrap().count();
                assert_eq!(left, 0, "{args:?} left an output");
                // the same pattern next to one that matches
                if *option == "--filter" {
                    let both = run(&[&args[..], &["--filter", "*norm*"]].concat());
                    assert_eq!(both.code, 2, "{args:?}: {}", both.stdout);
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

/// Every option that changes names, on its verb, and one change that matches.
const CHANGES: &[(&[&str], &str, &str)] = &[
    (
        &["remember", MODEL, "-o", "OUT.safetensors"],
        "--strip-prefix",
        "model",
    ),
    (
        &["remember", MODEL, "-o", "OUT.safetensors"],
        "--rename",
        "model.layers=model.blocks",
    ),
    (
        &["remember", MODEL, "-o", "OUT/"],
        "--rename",
        "*.mlp.*=*.ffn.*",
    ),
    (
        &["convert", MODEL, "-o", "OUT.safetensors"],
        "--strip-prefix",
        "model",
    ),
    (
        &["convert", MODEL, "-o", "OUT.gguf"],
        "--rename",
        "model=net",
    ),
    (&["edit", "COPY"], "--rename", "model=net"),
    (
        &["edit", "COPY", "--set", "a=b"],
        "--rename",
        "*.mlp.*=*.ffn.*",
    ),
    (&["diff", MODEL, MODEL], "--rename", "model.=model."),
    (
        &["diff", "--quick", MODEL, MODEL],
        "--rename",
        "*.mlp.*=*.mlp.*",
    ),
];

/// A new option that changes names has to be in [`CHANGES`].
#[test]
fn every_option_that_changes_names_is_tried() {
    let page = run(&["man", "--markdown"]).stdout;
    let is_change = |line: &&str| line.contains("FROM=TO`") || line.contains("PREFIX`");
    let options: Vec<&str> = page.lines().filter(is_change).collect();
    assert_eq!(options.len(), 7, "{options:?}");
}

#[test]
fn a_change_of_names_without_a_match_is_refused_with_the_nearest_names() {
    for (args, option, right) in CHANGES {
        for wrong in [
            format!("typo{right}"),
            "layers.0.mlp.down_porj=x".to_owned(),
        ] {
            let dir = tempfile::tempdir().unwrap();
            // a model that may be edited
            let copied = tempfile::tempdir().unwrap();
            let copy = copied.path().join("copy.safetensors");
            std::fs::copy(workspace().join(MODEL), &copy).unwrap();
            let path = |arg: &&str| match (*arg, arg.strip_prefix("OUT")) {
                (_, Some(end)) => path_str(&dir.path().join("out")).to_owned() + end,
                ("COPY", _) => path_str(&copy).to_owned(),
                (arg, None) => arg.to_owned(),
            };
            let args: Vec<String> = args.iter().map(path).collect();
            let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
            args.extend([*option, &wrong]);
            let refused = run(&args);
            let from = match *option {
                "--rename" => wrong.split_once('=').unwrap().0,
                _ => &*wrong,
            };
            let said = format!("no tensor matches `{from}` of {option}; the nearest names");
            assert_eq!(refused.code, 2, "{args:?}: {}", refused.stdout);
            assert!(
                refused.stderr.contains(&said),
                "{args:?}: {}",
                refused.stderr
            );
            assert!(!refused.stdout.contains("same"), "{args:?}");
            let left = std::fs::read_dir(dir.path()).unwrap().count();
            assert_eq!(left, 0, "{args:?} left an output");
            // a change that matches does not excuse the other
            let last = args.len() - 1;
            args[last] = right;
            assert_ne!(run(&args).code, 2, "{args:?}");
            if *option == "--rename" {
                args.extend([*option, &wrong, "--json"]);
                let refused = run(&args);
                assert_eq!(refused.code, 2, "{args:?}: {}", refused.stdout);
                let document: Value = serde_json::from_str(&refused.stdout).unwrap();
                assert_eq!(document["error"]["kind"], "no_match", "{args:?}");
            }
        }
    }
}

/// Layers that differ in their number alone are one proposal, and several names.
#[test]
fn the_only_name_is_said_of_one_name_alone() {
    let dir = tempfile::tempdir().unwrap();
    for (count, said) in [(1, "the only name is"), (3, "the nearest name is")] {
        let names: Vec<String> = (0..count).map(|n| format!("layers.{n}.w")).collect();
        let tensors: Vec<(&str, &[usize])> = names.iter().map(|n| (&**n, &[2][..])).collect();
        let model = dir.path().join("m.safetensors");
        safetensors(&model, "", &tensors);
        let refused = run(&["check", path_str(&model), "--filter", "typo*"]);
        let stderr = refused.stderr;
        assert!(stderr.contains(&format!("{said} `layers.0.w`")), "{stderr}");
    }
}

#[test]
fn documents_have_the_error() {
    for args in [
        &["inspect", "--json", MODEL][..],
        &["load", "--json", MODEL],
        &["check", "--json", MODEL],
        &["diff", "--json", MODEL, MODEL],
    ] {
        let found = run(&[args, &["--filter", "typo.*"]].concat());
        let document: Value = serde_json::from_str(&found.stdout).unwrap();
        assert_eq!(
            (found.code, &document["error"]["kind"]),
            (2, &Value::from("no_match")),
            "{args:?}"
        );
    }
}

#[test]
fn a_pattern_for_one_of_several_models_is_no_mistake() {
    let shards = [
        "fixtures/ask/check/shards-ok/model-00001-of-00003.safetensors",
        "fixtures/ask/check/shards-ok/model-00003-of-00003.safetensors",
    ];
    for verb in ["inspect", "check"] {
        for order in [[0, 1], [1, 0]] {
            let paths = order.map(|i| shards[i]);
            let found = run(&[&[verb], &paths[..], &["--filter", "lm_head.weight"]].concat());
            assert_eq!(found.code, 0, "{verb}: {}{}", found.stdout, found.stderr);
        }
    }
}

/// Filters that leave nothing are no success of any verb that plans.
#[test]
fn filters_that_leave_nothing_are_arguments() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("o.safetensors");
    let out = path_str(&out);
    for args in [
        &["plan", MODEL][..],
        &["plan", "--json", MODEL],
        &["remember", MODEL, "-o", out],
        &["convert", MODEL, "-o", out],
    ] {
        let done = run(&[args, &["--exclude", "*"]].concat());
        assert_eq!(done.code, 2, "{args:?}: {}{}", done.stdout, done.stderr);
        assert!(
            done.stderr.contains("left by the filters"),
            "{}",
            done.stderr
        );
    }
}
