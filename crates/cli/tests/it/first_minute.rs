//! A newcomer's first lines: a bare path, the words of other programs, mistyped verbs, and `inspect` on a terminal.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::process::{command, path_str, run, safetensors, stdout_of};

const GGUF: &str = "fixtures/model/scribe-Q8_0.gguf";

/// Standard output of a run on a terminal of this size.
fn on_terminal(columns: u16, lines: u16, args: &[&str]) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = Winsize {
        ws_row: lines,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let terminal = File::options()
        .read(true)
        .write(true)
        .open(OsStr::from_bytes(name.as_bytes()))
        .unwrap();
    let mut run = command(args);
    run.env("NO_COLOR", "1").stderr(Stdio::inherit());
    let mut child = run.stdout(terminal).spawn().unwrap();
    // it has the other end too
    drop(run);
    let (mut shown, mut master) = (Vec::new(), File::from(master));
    // the error that a terminal without a program gives is its end
    let _ = master.read_to_end(&mut shown);
    assert!(child.wait().unwrap().success());
    String::from_utf8(shown).unwrap().replace("\r\n", "\n")
}

/// A model of 40 layers with 9 tensors each, whose last layer is another one, and its path.
fn model(directory: &std::path::Path) -> String {
    let names: Vec<String> = (0..40)
        .flat_map(|layer| {
            ["q", "k", "v", "o", "gate", "up", "down", "norm_1", "norm_2"]
                .map(|part| format!("model.layers.{layer}.block.{part}.weight"))
        })
        .chain(["embed.weight".to_owned(), "head.weight".to_owned()])
        .collect();
    let tensors: Vec<(&str, &[usize])> = names
        .iter()
        .map(|name| {
            let wide: &[usize] = &[4, 8];
            let shape = if name.contains(".39.") {
                &[8][..]
            } else {
                wide
            };
            (name.as_str(), shape)
        })
        .collect();
    let path = directory.join("model.safetensors");
    safetensors(&path, "", &tensors);
    path_str(&path).to_owned()
}

#[test]
fn a_bare_path_is_inspected() {
    let inspected = stdout_of(&["inspect", GGUF]);
    assert_eq!(stdout_of(&[GGUF]), inspected);
    assert_eq!(stdout_of(&["--color=never", GGUF]), inspected);
    let json = stdout_of(&["inspect", "--json", GGUF]);
    assert_eq!(stdout_of(&[GGUF, "--json"]), json);
    // a folder has no ending
    let directory = tempfile::tempdir().unwrap();
    model(directory.path());
    let folder = path_str(directory.path());
    assert_eq!(stdout_of(&[folder]), stdout_of(&["inspect", folder]));
    // a path that does not exist is a file that cannot be read, and no unknown verb
    let absent = run(&["absent.gguf"]);
    assert_eq!(absent.code, 1, "{}", absent.stderr);
    assert!(absent.stderr.contains("absent.gguf"), "{}", absent.stderr);
}

#[test]
fn words_of_other_programs_lead_to_the_verb() {
    for (line, meant) in [
        (&["info", "m.gguf"][..], "anamnesis inspect m.gguf"),
        (
            &["show", "m.gguf", "--json"],
            "anamnesis inspect m.gguf --json",
        ),
        (&["cat", "a b.gguf"], "anamnesis inspect 'a b.gguf'"),
        (&["verify", "llama/"], "anamnesis check llama/"),
        (&["validate"], "anamnesis check PATH"),
        (
            &["dequantize", "m.gguf"],
            "anamnesis remember m.gguf -o OUT.safetensors",
        ),
        (
            &["dequantize", "m.gguf", "-o", "x.safetensors"],
            "anamnesis remember m.gguf -o x.safetensors",
        ),
        (
            &["unpack", "m.npz"],
            "anamnesis convert m.npz -o OUT.safetensors",
        ),
        (&["compare", "a", "b"], "anamnesis diff a b"),
        (
            &["--color", "never", "vram", "a"],
            "anamnesis --color never fit a",
        ),
    ] {
        let guessed = run(line);
        assert_eq!((guessed.code, &*guessed.stdout), (2, ""), "{line:?}");
        let named = format!("\n  {meant}\n");
        assert!(
            guessed.stderr.contains(&named),
            "{line:?}: {}",
            guessed.stderr
        );
    }
    // as for every argument
    let secret = run(&["info", "https://user:secret@host/m.gguf"]);
    assert!(!secret.stderr.contains("secret"), "{}", secret.stderr);
}

#[test]
fn suggestions_name_no_letters() {
    for (line, near) in [
        (&["inspct", "m"][..], Some("'inspect'")),
        (&["fitt", "m"], Some("'fit'")),
        (&["ppc", "stats"], Some("'status'")),
        (&["frobnicate"], None),
    ] {
        let mistyped = run(line);
        assert_eq!(mistyped.code, 2, "{line:?}");
        let text = mistyped.stderr;
        assert_eq!(text.contains("similar"), near.is_some(), "{text}");
        assert!(near.is_none_or(|near| text.contains(near)), "{text}");
        let is_letter = |word: &str| word.len() == 1;
        let letters = text.split('\'').skip(1).step_by(2).any(is_letter);
        assert!(!letters, "{text}");
    }
}

#[test]
fn a_terminal_shows_a_tree_that_fits() {
    let directory = tempfile::tempdir().unwrap();
    let model = model(directory.path());
    for (columns, lines) in [(80, 24), (120, 40), (80, 100)] {
        let shown = on_terminal(columns, lines, &["inspect", &model]);
        // the prompt has the last line
        assert!(shown.lines().count() < usize::from(lines), "{shown}");
        let widest = shown.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(usize::from(columns)), "{shown}");
        assert!(shown.contains("{0..38}.block ×39"), "{shown}");
        // nine tensors of two kinds of layers fit on the large ones
        let all = lines > 24;
        assert_eq!(shown.contains("norm_2.weight"), all, "{shown}");
        assert_eq!(shown.contains("--list"), !all, "{shown}");
    }
    let listed = on_terminal(80, 24, &["inspect", "--list", &model]);
    assert!(listed.lines().count() > 362, "{listed}");
    let ordered = on_terminal(80, 24, &["inspect", "--sort", "size", &model]);
    assert!(ordered.lines().count() > 362, "{ordered}");
    // a pipe has the list, whatever the option
    let piped = stdout_of(&["inspect", &model]);
    assert_eq!(piped, stdout_of(&["inspect", "--list", &model]));
    assert!(piped.contains("model.layers.17.block.q.weight"), "{piped}");
}

/// The first command of the README.
#[test]
fn the_first_command_has_no_warning() {
    let shown = on_terminal(80, 50, &["inspect", GGUF]);
    assert!(shown.contains("blk.{0,1} ×2"), "{shown}");
    let text = shown + &run(&["inspect", GGUF]).stderr;
    assert!(
        !text.contains("warning") && !text.contains("note"),
        "{text}"
    );
}
