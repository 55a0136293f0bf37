//! `remember` to a directory, killed at random moments: what is left, and what the next run makes of it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anamnesis::Checkpoint;

use crate::process::{command, finish, path_str};

const KILLS: u64 = 40;
pub(crate) const TENSORS: usize = 12;
const ELEMENTS: usize = 20_000;

/// A checkpoint of F32 tensors of this value in shards, whose configuration names it.
pub(crate) fn source(directory: &Path, value: f32) {
    fs::create_dir(directory).unwrap();
    let mut header = String::from("{");
    for n in 0..TENSORS {
        let (start, end) = (4 * n * ELEMENTS, 4 * (n + 1) * ELEMENTS);
        let comma = if n > 0 { "," } else { "" };
        header.push_str(&format!(
            "{comma}\"t{n}\":{{\"dtype\":\"F32\",\"shape\":[{ELEMENTS}],\"data_offsets\":[{start},{end}]}}"
        ));
    }
    header.push('}');
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(std::iter::repeat_n(value.to_le_bytes(), TENSORS * ELEMENTS).flatten());
    fs::write(directory.join("model.safetensors"), bytes).unwrap();
    fs::write(
        directory.join("config.json"),
        format!("{{\"value\": {value}}}"),
    )
    .unwrap();
    fs::write(
        directory.join("tokenizer.json"),
        vec![tokenizer(value); 1 << 20],
    )
    .unwrap();
}

/// The first byte of the tokenizer beside tensors of this value.
pub(crate) fn tokenizer(value: f32) -> u8 {
    value.to_string().as_bytes()[0]
}

/// The value of all tensors of the checkpoint in a directory; `None` if none can be opened.
pub(crate) fn value(directory: &Path) -> Option<f32> {
    let checkpoint = Checkpoint::open(directory).ok()?;
    let mut found: Option<f32> = None;
    assert_eq!(checkpoint.tensors().len(), TENSORS);
    for tensor in checkpoint.tensors() {
        for element in tensor.bytes().unwrap().as_chunks::<4>().0 {
            let element = f32::from_le_bytes(*element);
            assert_eq!(
                *found.get_or_insert(element),
                element,
                "tensors of two checkpoints"
            );
        }
    }
    found
}

/// Also where the configuration changes with the tensors: the directory is exchanged for a new one.
#[test]
fn a_run_that_is_killed_leaves_the_old_checkpoint_or_the_new_one() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    source(&path("old"), 1.0);
    source(&path("new"), 2.0);
    fs::create_dir(path("parent")).unwrap();
    let out = path("parent/out/");
    let remember = |from: &str, shard_size: &str| {
        let mut command = command(&["remember", "--overwrite", "--shard-size", shard_size]);
        command.arg(path(from)).args(["-o", path_str(&out)]);
        command
    };
    let (mut ended, mut overwritten) = (0, 0);
    let mut random = 2311_u64;
    for kill in 0..KILLS {
        // into a new directory, over one file, and over shards
        match kill % 3 {
            0 => drop(fs::remove_dir_all(&out)),
            1 => assert_eq!(finish(remember("old", "1GB")).code, 0),
            _ => assert_eq!(finish(remember("old", "200KB")).code, 0),
        }
        let is_new = !out.exists();
        let mut child = remember("new", "200KB").spawn().unwrap();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // a whole run takes 40 to 100 ms
        std::thread::sleep(Duration::from_micros(2_000 + (random >> 33) % 90_000));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        ended += u64::from(status.success());
        let config = fs::read_to_string(out.join("config.json")).ok();
        let found = value(&out);
        match found {
            Some(value) => {
                // in a new directory files appear one by one
                let own = format!("{{\"value\": {value}}}");
                let is_own = config.as_ref().map_or(is_new, |config| *config == own);
                assert!(is_own, "kill {kill}: {config:?} and {value}");
            }
            // other systems exchange no directories
            None => assert!(
                is_new || cfg!(not(target_os = "linux")),
                "kill {kill}: no checkpoint"
            ),
        }
        overwritten += u64::from(!is_new && found == Some(2.0) && !status.success());
        let next = finish(remember("new", "200KB"));
        assert_eq!(next.code, 0, "kill {kill}: {}", next.stderr);
        assert_eq!(value(&out), Some(2.0), "kill {kill}");
        let names = fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name());
        // two tensors of 80 KB in each shard, the index, two companion files
        assert_eq!(
            names.count(),
            TENSORS / 2 + 3,
            "kill {kill}: files are left"
        );
        let beside = fs::read_dir(path("parent")).unwrap();
        assert_eq!(beside.count(), 1, "kill {kill}: a directory is left");
    }
    println!(
        "{ended} of {KILLS} runs ended before they were killed; {overwritten} were killed after the exchange"
    );
}

/// A shell stays in the directory that is its current one, also when that gets no name any more: it is not exchanged.
#[cfg(target_os = "linux")]
#[test]
fn the_current_directory_stays_itself() {
    use std::os::unix::fs::MetadataExt;
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    source(&path("old"), 1.0);
    source(&path("new"), 2.0);
    let out = path("out");
    let inode = || fs::metadata(&out).unwrap().ino();
    let remember = |from: &str, current: &Path| {
        let mut command = command(&["remember", "--overwrite", "--shard-size", "200KB"]);
        command
            .arg(path(from))
            .args(["-o", path_str(&path("out/"))])
            .current_dir(current);
        let run = finish(command);
        assert_eq!(run.code, 0, "{}", run.stderr);
    };
    remember("old", scratch.path());
    let before = inode();
    remember("new", &out);
    assert_eq!(inode(), before);
    assert_eq!(value(&out), Some(2.0));
    remember("old", scratch.path());
    assert_ne!(inode(), before);
    assert_eq!(value(&out), Some(1.0));
}
