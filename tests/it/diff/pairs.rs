//! Options, and pairs that the corpus does not have.

use std::collections::BTreeMap;

use anamnesis::diff::DifferenceKind;
use anamnesis::{Checkpoint, Dtype, ErrorKind, Limits, OpenOptions, Usage, diff, remember};

use super::{found, row};
use crate::support::fixture;
use crate::support::scratch_dir::ScratchDir;

const BASE: &str = "diff/base/model.safetensors";

#[test]
fn renames_of_the_caller_are_no_differences() {
    let renamed = found(BASE, "diff/renamed.safetensors", |d| d.rename("model.", ""));
    assert!(renamed.same, "{renamed:#?}");
    assert_eq!(renamed.counts.equal, 21);
    let by_pattern = found(BASE, "diff/renamed.safetensors", |d| {
        d.rename("model.*", "*")
    });
    assert!(by_pattern.same);
    let wrong = found(BASE, "diff/renamed.safetensors", |d| {
        d.rename("lm_head.", "head.")
    });
    assert_eq!((wrong.counts.renamed, wrong.counts.equal), (21, 0));
    assert!(found(BASE, "diff/renamed.safetensors", |d| d.values(true)).same);
}

#[test]
fn headers_alone_read_no_tensor() {
    let quick = found(BASE, "diff/one-ulp.safetensors", |d| {
        d.headers_only(true).config(false)
    });
    assert!(quick.same);
    assert_eq!(quick.counts.equal, 21);
    assert_eq!(quick.notes, ["headers alone were compared"]);
    let renamed = found(BASE, "diff/renamed.safetensors", |d| d.headers_only(true));
    assert_eq!((renamed.counts.added, renamed.counts.removed), (20, 20));
    let retyped = found(BASE, "diff/retyped.safetensors", |d| d.headers_only(true));
    assert_eq!(retyped.counts.retyped, 21);
    assert!(retyped.tensors.iter().all(|row| row.equal_values.is_none()));
}

#[test]
fn a_filter_is_for_the_names_of_either_side() {
    let norms = found("diff/qwen2", "diff/qwen2-bf16.gguf", |d| {
        d.filter(|name| name.starts_with("blk.0.attn_q"))
    });
    let names: Vec<_> = norms
        .tensors
        .iter()
        .map(|row| row.a.as_deref().unwrap())
        .collect();
    let expected = ["weight", "bias"].map(|end| format!("model.layers.0.self_attn.q_proj.{end}"));
    assert_eq!(names.len(), 2);
    assert!(
        expected.iter().all(|name| names.contains(&&**name)),
        "{names:?}"
    );
    let without = found("diff/qwen2", "diff/qwen2-bf16.gguf", |d| {
        d.exclude(|name| name.starts_with("blk."))
    });
    assert_eq!(without.counts.renamed, 3);
    let none = found(BASE, "diff/one-ulp.safetensors", |d| {
        d.filter(|name| name == "?")
    });
    assert_eq!(none.counts, anamnesis::diff::DifferenceCounts::default());
    // nothing that was compared is equal
    assert!(!none.same && none.compared == 0);
}

#[test]
fn the_configuration_decides_unless_it_is_left_out() {
    assert!(!found("diff/base", "diff/config", |d| d).same);
    assert!(!found("diff/base", "diff/config", |d| d.values(true)).same);
    let without = found("diff/base", "diff/config", |d| d.config(false));
    assert!(without.same && without.config.is_none());
    // one side alone has one
    let alone = found("diff/base", "diff/one-ulp.safetensors", |d| d);
    assert_eq!(alone.notes, ["config.json: A alone has one"]);
}

#[test]
fn bits_and_values_are_counted_apart() {
    let found = found("diff/nan-a.safetensors", "diff/nan-b.safetensors", |d| d);
    let norm = row(&found, "model.norm.weight");
    assert_eq!(norm.kind, DifferenceKind::Changed);
    assert_eq!((norm.differing, norm.differing_bits), (Some(0), Some(2)));
    assert_eq!(norm.first.as_deref(), Some(&[0][..]));
    assert_eq!(norm.equal_values, Some(true));
}

/// The weights that quantised fixtures stand for equal what `remember` writes of them.
#[test]
fn a_remembered_checkpoint_has_the_values_of_its_source() {
    let directory = ScratchDir::new("diff-remembered");
    for (i, path) in [
        "quant/ct_written/w4a16_channel",
        "gguf/types/q4_k.gguf",
        "gguf/names/llama.gguf",
        "gguf/names/gemma2.gguf",
        "gguf/names/qwen3moe.gguf",
        "gguf/names/gpt2.gguf",
        "model/scribe-Q8_0.gguf",
    ]
    .into_iter()
    .enumerate()
    {
        let source = Checkpoint::open(fixture(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        let target = directory.path(&i.to_string());
        let names = anamnesis::Names::HuggingFace;
        let made = remember(&source).dtype(Dtype::F32).names(names).untie(true);
        made.to_dir(&target, 1 << 30).unwrap();
        let written = Checkpoint::open(&target).unwrap();
        for (a, b) in [(&source, &written), (&written, &source)] {
            let found = diff(a, b).values(true).config(false).run().unwrap();
            assert!(found.same, "{path}: {:#?}", found.tensors);
            let others = found.counts.renamed + found.counts.retyped;
            assert!(others > 0, "{path}: {:?}", found.counts);
        }
    }
}

#[test]
fn the_same_file_is_not_read() {
    let directory = ScratchDir::new("diff-same-file");
    let (path, link) = (directory.path("a.npz"), directory.path("b.npz"));
    std::fs::copy(fixture("ask/diff/f32.npz"), &path).unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    let (a, b) = (
        Checkpoint::open(&path).unwrap(),
        Checkpoint::open(&link).unwrap(),
    );
    let counted = std::sync::Mutex::new(0);
    let run = diff(&a, &b).progress(|progress| {
        let mut most = counted.lock().unwrap();
        *most = progress.total.max(*most);
    });
    assert!(run.run().unwrap().same);
    drop(run);
    if cfg!(unix) {
        assert_eq!(counted.into_inner().unwrap(), 0);
    }
}

#[test]
fn blobs_of_one_name_are_read() {
    let directory = ScratchDir::new("diff-blobs");
    let digest = "0f".repeat(32);
    let mut sides = Vec::new();
    // the name says what the bytes should be, and one of the two is damaged
    for (name, file) in [
        ("x", "base/model.safetensors"),
        ("y", "one-ulp.safetensors"),
    ] {
        let blobs = directory.path(name).join("blobs");
        std::fs::create_dir_all(&blobs).unwrap();
        let blob = blobs.join(&digest);
        std::fs::copy(fixture(&format!("ask/diff/{file}")), &blob).unwrap();
        sides.push(Checkpoint::open(&blob).unwrap());
    }
    let found = diff(&sides[0], &sides[1]).run().unwrap();
    assert!(!found.same && found.counts.changed > 0, "{found:?}");
}

#[test]
fn damaged_members_are_an_error() {
    let mut bytes = std::fs::read(fixture("ask/diff/f32.npz")).unwrap();
    let npz = |bytes: &[u8], mmap: bool, directory: &ScratchDir, name: &str| {
        let path = directory.path(name);
        std::fs::write(&path, bytes).unwrap();
        OpenOptions::new().mmap(mmap).open(&path).unwrap()
    };
    let directory = ScratchDir::new("diff-damaged");
    let whole = npz(&bytes, false, &directory, "whole.npz");
    let tensor = whole.catalog().tensors().last().unwrap();
    let at = usize::try_from(tensor.bytes.start).unwrap() + 8;
    bytes[at] ^= 1;
    let damaged = npz(&bytes, false, &directory, "damaged.npz");
    // a difference comes first where the other side is intact
    let against_itself = npz(&bytes, false, &directory, "copy.npz");
    let error = diff(&damaged, &against_itself).run().unwrap_err();
    assert!(error.to_string().contains("checksum"), "{error}");
}

#[test]
fn limits_and_cancellation_end_the_run() {
    let path = fixture("ask/diff/qwen2");
    let usage = Usage::new();
    let open = |limits: Limits| {
        let options = OpenOptions::new().limits(limits).usage(&usage);
        options.open(&path).unwrap()
    };
    let gguf = super::open("diff/qwen2-q8_0.gguf").unwrap();
    let opened = open(Limits::default());
    let before = usage.memory();
    diff(&opened, &gguf).run().unwrap();
    let needed = usage.memory();
    assert!(needed > before);
    let small = open(Limits {
        memory: before + (needed - before) / 2,
        ..Limits::default()
    });
    let error = diff(&small, &gguf).run().unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::Limit {
                limit: "memory",
                ..
            }
        ),
        "{error}"
    );
    let token = anamnesis::CancelToken::new();
    token.cancel();
    let error = diff(&opened, &gguf).cancel(&token).run().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled));
}

#[test]
fn sources_and_threads_do_not_matter() {
    let sources = |path: &str| {
        let path = fixture(&format!("ask/{path}"));
        let bytes = std::fs::read(&path).unwrap();
        [
            Checkpoint::open(&path).unwrap(),
            OpenOptions::new().mmap(false).open(&path).unwrap(),
            Checkpoint::from_reader(std::io::Cursor::new(bytes)).unwrap(),
        ]
    };
    for (a, b) in [
        (BASE, "diff/one-ulp.safetensors"),
        (BASE, "diff/renamed.safetensors"),
        (BASE, "diff/same.pth"),
        (BASE, "diff/f32.npz"),
        (BASE, "diff/llama-bf16.gguf"),
        ("diff/qwen2/model.safetensors", "diff/qwen2-q8_0.gguf"),
    ] {
        let mut first = None;
        for a in sources(a) {
            for b in sources(b) {
                for threads in [1, 3] {
                    let run = diff(&a, &b).config(false).threads(threads);
                    let mut found = run.run().unwrap();
                    (found.a.path, found.b.path) = (None, None);
                    let first = first.get_or_insert_with(|| found.clone());
                    assert_eq!(*first, found);
                }
            }
        }
    }
}

#[test]
fn both_directions_mirror_each_other() {
    let kinds = |a: &str, b: &str| {
        let found = found(a, b, |d| d);
        let rows = found.tensors.into_iter();
        rows.map(|row| ((row.a, row.b), row.kind))
            .collect::<BTreeMap<_, _>>()
    };
    for other in ["diff/added-removed.safetensors", "diff/renamed.safetensors"] {
        let back = kinds(other, BASE);
        for ((a, b), kind) in kinds(BASE, other) {
            let mirrored = match kind {
                DifferenceKind::Added => DifferenceKind::Removed,
                DifferenceKind::Removed => DifferenceKind::Added,
                kind => kind,
            };
            assert_eq!(back[&(b, a)], mirrored, "{other}");
        }
    }
}

#[test]
fn fixtures_are_the_same_as_themselves() {
    let mut compared = 0;
    for folder in [
        "safetensors",
        "gguf",
        "npy",
        "npz",
        "pth",
        "quant/gptq",
        "ask/diff",
    ] {
        for entry in std::fs::read_dir(fixture(folder)).unwrap() {
            let path = entry.unwrap().path();
            let (Ok(a), Ok(b)) = (Checkpoint::open(&path), read_apart(&path)) else {
                continue;
            };
            for values in [false, true] {
                let found = diff(&a, &b).values(values).run().unwrap();
                let other = found.tensors.first();
                // a checkpoint without tensors has nothing that could be equal, and an entry that cannot be read is not compared
                let catalog = a.catalog();
                let is_same = !catalog.tensors().is_empty() && catalog.refused().is_empty();
                assert_eq!(found.same, is_same, "{}: {other:?}", path.display());
            }
            compared += 1;
        }
    }
    assert!(compared > 60, "{compared}");
}

/// The checkpoint from memory, so that it is no file that is known to be the same.
fn read_apart(path: &std::path::Path) -> anamnesis::Result<Checkpoint> {
    Checkpoint::from_bytes(std::fs::read(path)?)
}
