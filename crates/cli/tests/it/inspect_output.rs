//! The text output of `inspect`: snapshots at 80 and 200 columns, output without a terminal, colours, escaping, `--hash`,
//! `--filter`, `--sort`, `--metadata` and `--tree`.

use sha2::{Digest, Sha256};

use crate::process::{Run, command, finish, path_str, run, safetensors, stdout_of};

const GGUF: &str = "fixtures/gguf/plain_v3.gguf";
const SHARDED: &str = "fixtures/safetensors/sharded";

fn stdout_at(width: &str, args: &[&str]) -> String {
    let mut command = command(args);
    command.env("COLUMNS", width);
    let run = finish(command);
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout
}

/// A safetensors file with names as models have them, some of them long; returns its path.
fn model_with_long_names(directory: &std::path::Path) -> String {
    let names: Vec<String> = (0..12)
        .flat_map(|layer| {
            [
                "self_attn.q_proj.weight",
                "self_attn.q_proj.bias",
                "mlp.experts.shared_expert.down_proj.weight",
            ]
            .map(|part| format!("model.vision_tower.transformer.encoder.layers.{layer}.{part}"))
        })
        .chain([
            "lm_head.weight".to_owned(),
            "norm".to_owned() + &".x".repeat(100),
        ])
        .collect();
    let wide: &[usize] = &[16, 8];
    let tensors: Vec<(&str, &[usize])> = names
        .iter()
        .map(|name| {
            (
                name.as_str(),
                if name.contains(".11.") || name.ends_with("bias") {
                    &[16][..]
                } else {
                    wide
                },
            )
        })
        .collect();
    let path = directory.join("model.safetensors");
    safetensors(&path, r#"{"format":"pt"}"#, &tensors);
    path.to_str().unwrap().to_owned()
}

#[test]
fn tables_and_trees_match_their_snapshots() {
    let directory = tempfile::tempdir().unwrap();
    let model = model_with_long_names(directory.path());
    let show =
        |width: &str, args: &[&str]| stdout_at(width, args).replace(&model, "model.safetensors");
    for width in ["80", "200"] {
        insta::assert_snapshot!(format!("gguf_{width}"), show(width, &["inspect", GGUF]));
        insta::assert_snapshot!(
            format!("sharded_{width}"),
            show(width, &["inspect", SHARDED])
        );
        insta::assert_snapshot!(format!("model_{width}"), show(width, &["inspect", &model]));
        insta::assert_snapshot!(
            format!("tree_{width}"),
            show(width, &["inspect", "--tree", &model])
        );
        insta::assert_snapshot!(
            format!("metadata_{width}"),
            show(width, &["inspect", "--metadata", GGUF])
        );
    }
}

#[test]
fn lines_are_no_wider_than_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let model = model_with_long_names(directory.path());
    for width in [60, 80, 100, 200] {
        for args in [
            &["inspect", &model][..],
            &["inspect", "--tree", &model],
            &["inspect", "--metadata", GGUF],
        ] {
            let text = stdout_at(&width.to_string(), args);
            for line in text.lines().skip(1).filter(|line| !line.starts_with("  ")) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
}

#[test]
fn without_a_terminal_names_are_complete_and_unstyled() {
    let directory = tempfile::tempdir().unwrap();
    let model = model_with_long_names(directory.path());
    let text = stdout_of(&["inspect", &model]);
    assert!(text.contains(&("norm".to_owned() + &".x".repeat(100))));
    assert!(!text.contains('…') && !text.contains('\u{1b}'));
}

#[test]
fn colours_follow_the_option_and_the_environment() {
    let with = |name: &str, value: &str, args: &[&str]| {
        let mut command = command(args);
        command.env(name, value);
        finish(command).stdout.contains('\u{1b}')
    };
    assert!(!run(&["inspect", GGUF]).stdout.contains('\u{1b}'));
    assert!(
        run(&["inspect", "--color", "always", GGUF])
            .stdout
            .contains('\u{1b}')
    );
    assert!(with("CLICOLOR_FORCE", "1", &["inspect", GGUF]));
    assert!(!with(
        "CLICOLOR_FORCE",
        "1",
        &["inspect", "--color=never", GGUF]
    ));
    assert!(!with("NO_COLOR", "1", &["inspect", GGUF]));
}

#[test]
fn control_characters_of_a_file_are_escaped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control_characters.safetensors");
    safetensors(
        &path,
        r#"{"key\u001b[2J":"value\u001b]0;title\u0007\u202e"}"#,
        &[
            ("w\u{1b}[31m\u{202e}\u{9b}1A\r\n.\u{200b}", &[2]),
            ("a\u{7f}", &[1]),
        ],
    );
    let path = path.to_str().unwrap();
    for view in ["--summary", "--tree", "--metadata", "--sort=name"] {
        let text = stdout_of(&["inspect", view, path]);
        let is_harmless =
            |c: char| c == '\n' || !(c.is_control() || ('\u{200b}'..'\u{2070}').contains(&c));
        assert!(text.chars().all(is_harmless), "{text:?}");
    }
    assert!(
        stdout_of(&["inspect", path]).contains("w\\u{1b}[31m\\u{202e}\\u{9b}1A\\r\\n.\\u{200b}")
    );
    let refused = run(&["inspect", "no\u{1b}[31m"]);
    assert!(
        refused.stderr.contains("no\\u{1b}[31m: "),
        "{}",
        refused.stderr
    );
}

/// A PyTorch file of one stored element: tensor `a` is that element, `b` is a view that repeats it 2³⁰ times.
fn expanded_view() -> Vec<u8> {
    let storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x01NtQ";
    let tensor = |name: u8, size: &[u8], stride: &[u8]| {
        let name = [&b"X\x01\0\0\0"[..], &[name]].concat();
        let rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n(";
        [
            &name[..],
            rebuild,
            storage,
            b"K\0",
            size,
            stride,
            b"\x89}tR",
        ]
        .concat()
    };
    let pickles: [&[u8]; 5] = [
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", // the magic number
        b"\x80\x02M\xe9\x03.",
        b"\x80\x02}.",
        &[
            b"\x80\x02}(",
            &tensor(b'a', b")", b")")[..],
            &tensor(b'b', b"J\0\0\0\x40\x85", b"K\0\x85"),
            b"u.",
        ]
        .concat(),
        b"\x80\x02]X\x01\0\0\x000a.",
    ];
    [
        &pickles.concat()[..],
        &1u64.to_le_bytes(),
        &1f32.to_le_bytes(),
    ]
    .concat()
}

#[test]
fn hash_leaves_out_the_tensor_that_is_over_a_limit() {
    let path = std::env::temp_dir().join(format!("anamnesis-expanded-{}.pth", std::process::id()));
    std::fs::write(&path, expanded_view()).unwrap();
    let Run {
        code,
        stdout: out,
        stderr: err,
    } = run(&["inspect", "--hash", path_str(&path)]);
    std::fs::remove_file(&path).unwrap();
    // SHA-256 of the bytes 00 00 80 3f
    assert!(out.contains("e00e5eb9"), "{out}{err}");
    assert!(
        err.contains("tensor `b`") && err.contains("`expansion` of 1032"),
        "{err}"
    );
    assert_eq!(code, 1);
}

#[test]
fn hash_is_the_sha256_of_the_values() {
    let text = stdout_of(&["inspect", "--hash", "--filter", "t.f32", GGUF]);
    let bytes = std::fs::read(crate::process::workspace().join(GGUF)).unwrap();
    let expected: String = Sha256::digest(&bytes[1440..1440 + 28])
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert!(text.contains(&expected), "{text}");
    assert_eq!(
        stdout_at(
            "80",
            &["inspect", "--hash", "--no-map", "--filter", "t.f32", GGUF]
        )
        .lines()
        .last()
        .unwrap()
        .trim(),
        expected
    );
}

#[test]
fn filter_and_sort_select_and_order_rows() {
    let rows = |args: &[&str]| -> Vec<String> {
        let text = stdout_of(&[&["inspect", GGUF][..], args].concat());
        let table = text
            .lines()
            .skip_while(|line| !line.starts_with("name"))
            .skip(1);
        table
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        rows(&["--filter", "t.{f32,i*}", "--sort", "name"]),
        ["t.f32", "t.i8", "t.i16", "t.i32", "t.i64"]
    );
    assert_eq!(
        rows(&["-f", "*16", "-f", "t.i8", "--sort", "size"]),
        ["t.i8", "t.bf16", "t.f16", "t.i16"]
    );
    assert_eq!(
        rows(&["-f", "*16", "--sort", "size", "--reverse"]),
        ["t.i16", "t.f16", "t.bf16"]
    );
    assert_eq!(
        rows(&["-f", "*f*", "--sort", "dtype"]),
        ["t.bf16", "t.f16", "t.f32", "t.f64"]
    );
    assert_eq!(rows(&["--sort", "offset"]), rows(&[]));
    assert!(
        stdout_of(&["inspect", "--filter", "*f16", GGUF])
            .contains("tensors       2 of 8 pass the filter, 33 elements")
    );
    let nothing = run(&["inspect", "--filter", "nothing", GGUF]);
    assert!(
        nothing
            .stdout
            .contains("tensors       0 of 8 pass the filter")
    );
    assert_eq!(nothing.code, 2, "{}", nothing.stderr);
}

#[test]
fn metadata_key_prints_only_its_value() {
    for args in [
        &["--metadata=general.architecture", GGUF][..],
        &[GGUF, "--metadata=general.architecture"],
        &["--metadata", "general.architecture", GGUF],
        &[GGUF, "--metadata", "general.architecture"],
    ] {
        assert_eq!(
            stdout_of(&[&["inspect"], args].concat()),
            "llama\n",
            "{args:?}"
        );
    }
    assert_eq!(run(&["inspect", "--metadata=general.architecture"]).code, 2);
    let missing = run(&["inspect", "--metadata=nope", GGUF]);
    assert_eq!(missing.code, 1);
    assert!(
        missing.stderr.contains("no metadata key `nope`"),
        "{}",
        missing.stderr
    );
    // the only word after --metadata is a PATH
    assert!(stdout_of(&["inspect", "--metadata", GGUF]).contains("general.architecture"));
}

#[test]
fn patterns_and_directories_are_accepted_and_literal_names_come_first() {
    let text = stdout_of(&["inspect", "--summary", "fixtures/gguf/plain_v[23].gguf"]);
    assert!(
        text.contains("plain_v2.gguf\n") && text.contains("\nfixtures/gguf/plain_v3.gguf\n"),
        "{text}"
    );
    assert!(stdout_of(&["inspect", SHARDED]).starts_with("fixtures/safetensors/sharded\n"));
    let directory = tempfile::tempdir().unwrap();
    let literal = directory.path().join("w[1].safetensors");
    safetensors(&literal, "", &[("here", &[1])]);
    safetensors(
        &directory.path().join("w1.safetensors"),
        "",
        &[("not.here", &[1])],
    );
    let text = stdout_of(&["inspect", literal.to_str().unwrap()]);
    assert!(
        text.contains("\nhere ") && !text.contains("not.here"),
        "{text}"
    );
}

#[test]
fn the_tree_joins_equal_layers_unless_all_is_set() {
    let directory = tempfile::tempdir().unwrap();
    let model = model_with_long_names(directory.path());
    let tree = stdout_of(&["inspect", "--tree", &model]);
    assert!(
        tree.contains("model.vision_tower.transformer.encoder.layers\n")
            || tree.contains("{0..10} ×11"),
        "{tree}"
    );
    assert!(!tree.contains("─ 3 "), "{tree}");
    let all = stdout_of(&["inspect", "--tree", "--all", &model]);
    assert!(all.contains("─ 3 ") && !all.contains('×'), "{all}");
}
