//! Advice names flags, of the verb that shows it alone: `inspect`, `report`, `diff`, `check` and `fit` do not advise `remember`'s.

use crate::process::{path_str, run};

/// A GGUF whose outputs could have other names, an array of items without a type, and a file with a sparse tensor.
const MODELS: [&str; 3] = [
    "fixtures/model/scribe-Q8_0.gguf",
    "fixtures/npy/bf16.npy",
    "fixtures/pth/sparse.pth",
];

/// Flags of `remember` and `plan` that no other verb has.
const FLAGS_OF_REMEMBER: [&str; 4] = ["--names", "--rename", "--strip-prefix", "--untie"];

/// All that a verb prints and writes for a model.
fn shown(args: &[&str], out: Option<&std::path::Path>) -> String {
    let run = run(args);
    let file = out.and_then(|path| std::fs::read_to_string(path).ok());
    format!(
        "{}\n{}\n{}",
        run.stdout,
        run.stderr,
        file.unwrap_or_default()
    )
}

fn assert_names_no_rust(text: &str, args: &[&str]) {
    for part in [
        "OpenOptions::",
        "Remember::",
        "Names::",
        "Load::",
        "Limits::",
        "Sharding::",
        "Edit::",
    ] {
        assert!(!text.contains(part), "{args:?}: {part}");
    }
}

#[test]
fn verbs_do_not_advise_the_flags_of_others() {
    let dir = tempfile::tempdir().unwrap();
    for model in MODELS {
        let (page, template) = (
            dir.path().join("page.html"),
            dir.path().join("template.iot"),
        );
        let (page_out, template_out) = (path_str(&page), path_str(&template));
        for args in [
            &["inspect", model][..],
            &["inspect", "--json", model],
            &["inspect", "--summary", model],
            &["ls", model],
            &["ls", "--json", model],
            &["report", "--overwrite", "-o", page_out, model],
            &["diff", model, "fixtures/model/scribe.safetensors"],
            &["diff", "--json", model, model],
            &["check", model],
            &["check", "--json", "--stats", model],
            &["fit", model],
            &["fit", "--json", "--dtype", "bf16", model],
            &["load", model],
            // a key that no file has
            &["edit", model, "--unset", "no.such.key"],
            &[
                "template",
                "predict",
                "--overwrite",
                "-o",
                template_out,
                model,
            ],
        ] {
            let text = shown(args, (args[0] == "report").then_some(&*page));
            assert!(text.len() > 20, "{args:?}: {text}");
            assert_names_no_rust(&text, args);
            for flag in FLAGS_OF_REMEMBER {
                assert!(!text.contains(flag), "{args:?} advises {flag}: {text}");
            }
            // flags of `diff` and `remember` alone
            if args[0] != "diff" {
                assert!(!text.contains("--exclude"), "{args:?}: {text}");
            }
        }
    }
}

#[test]
fn remember_and_plan_advise_their_flags() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.safetensors");
    let out = path_str(&out);
    for (model, advice) in [
        (MODELS[0], "--names hf makes those of transformers"),
        (
            MODELS[1],
            "leave the tensor out with --exclude or --filter, or read its items as a dtype of their width with --void-as",
        ),
        (MODELS[2], "leave the tensor out with --exclude or --filter"),
    ] {
        for args in [
            &["plan", model][..],
            &["plan", "--json", model],
            &["remember", model, "-o", out],
        ] {
            let text = shown(args, None);
            assert!(text.contains(advice), "{args:?}: {text}");
            assert_names_no_rust(&text, args);
        }
    }
    // an option of opening is one of every verb
    for verb in ["inspect", "plan", "check", "fit"] {
        let text = shown(&[verb, MODELS[1]], None);
        assert_names_no_rust(&text, &[verb]);
    }
    let inspected = shown(&["inspect", MODELS[1]], None);
    let words: Vec<&str> = inspected.split_whitespace().collect();
    assert!(
        words.join(" ").contains("give BF16 to --void-as"),
        "{inspected}"
    );
}
