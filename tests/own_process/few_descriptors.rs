//! Checkpoints of many more files than the process may have open, through every loader, and a file that is replaced meanwhile.

use std::fs;
use std::path::Path;

use anamnesis::load::load;
use anamnesis::{Checkpoint, ErrorKind, OpenOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::in_own_process;
use crate::support::loaders::all_loaders;
use crate::support::random::random_bytes;
use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};

const SHARDS: usize = 1000;
/// More than what a source keeps of a small file, so that each is read again.
const LEN: usize = 20_000;
const LIMIT: u64 = 256;

fn name(shard: usize) -> String {
    format!("model-{:05}-of-{SHARDS:05}.safetensors", shard + 1)
}

fn content(shard: usize) -> Vec<u8> {
    random_bytes(shard as u64, LEN)
}

fn shard(shard: usize) -> Vec<u8> {
    let tensor = StoredTensor::new(&format!("t{shard}"), "U8", &[LEN as u64], content(shard));
    safetensors(&[tensor], &[])
}

fn write_checkpoint(directory: &Path) {
    let mut map = serde_json::Map::new();
    for number in 0..SHARDS {
        fs::write(directory.join(name(number)), shard(number)).unwrap();
        map.insert(format!("t{number}"), name(number).into());
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map});
    let path = directory.join("model.safetensors.index.json");
    fs::write(path, serde_json::to_vec(&index).unwrap()).unwrap();
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn limit_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(LIMIT);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

#[test]
fn ten_checkpoints_of_a_thousand_shards_are_open_under_a_limit_of_256() {
    in_own_process!();
    let scratch = ScratchDir::new("few-descriptors");
    let directory = scratch.path("model");
    fs::create_dir(&directory).unwrap();
    write_checkpoint(&directory);
    limit_descriptors();
    let opened: Vec<Checkpoint> = (0..10)
        .map(|number| {
            let options = OpenOptions::new().mmap(number % 2 == 0);
            options.open(&directory).unwrap()
        })
        .collect();
    let open = open_descriptors();
    assert!(open < 128, "{open}");
    for (number, (described, loader)) in all_loaders().into_iter().enumerate() {
        let checkpoint = &opened[number % opened.len()];
        let loaded = load(checkpoint).loader(loader).run().unwrap();
        assert_eq!(loaded.tensors().len(), SHARDS, "{described}");
        for tensor in loaded.tensors() {
            let shard: usize = tensor.name().trim_start_matches('t').parse().unwrap();
            assert!(tensor.bytes() == content(shard), "{described}: {shard}");
        }
        let open = open_descriptors();
        assert!(open < 128, "{described}: {open}");
    }
    // borrowed, from a map of each file
    let borrowed = load(&opened[0]).borrow_mapped().run().unwrap();
    assert_eq!(borrowed.tensors().len(), SHARDS);
    // in memory of the caller, chosen by itself, from several threads
    std::thread::scope(|scope| {
        for checkpoint in &opened[..4] {
            scope.spawn(move || load(checkpoint).run().unwrap());
        }
    });
    // the descriptors are the program's again
    drop(opened);
    assert!(open_descriptors() < 128);
}

#[test]
fn a_file_that_is_replaced_while_it_is_closed_is_an_error() {
    in_own_process!();
    let scratch = ScratchDir::new("replaced-descriptors");
    let directory = scratch.path("model");
    fs::create_dir(&directory).unwrap();
    write_checkpoint(&directory);
    limit_descriptors();
    let checkpoint = OpenOptions::new().mmap(false).open(&directory).unwrap();
    // the middle ones are closed: neither the first, which stay open, nor the last
    let (replaced, removed, renamed) = (500, 600, 700);
    let other = scratch.path("other");
    fs::write(&other, shard(501)).unwrap();
    fs::rename(&other, directory.join(name(replaced))).unwrap();
    fs::remove_file(directory.join(name(removed))).unwrap();
    fs::rename(directory.join(name(renamed)), scratch.path("elsewhere")).unwrap();
    for number in [replaced, removed, renamed] {
        let error = checkpoint.tensor(&format!("t{number}")).unwrap().bytes();
        let error = error.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Replaced(_)), "{error}");
        assert!(error.to_string().contains(&name(number)), "{error}");
        let error = load(&checkpoint).names([format!("t{number}")]).run();
        let error = error.map(drop).unwrap_err();
        assert!(error.is_replaced(), "{error}");
    }
    // the others are read as before
    for number in (0..SHARDS).filter(|n| ![replaced, removed, renamed].contains(n)) {
        let found = checkpoint.tensor(&format!("t{number}")).unwrap().bytes();
        assert_eq!(found.unwrap(), content(number));
    }
    // one that changed where it is
    let path = directory.join(name(300));
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
    let error = checkpoint.tensor("t300").unwrap().bytes().unwrap_err();
    assert!(error.is_replaced(), "{error}");
}

#[test]
fn unused_files_are_closed_when_the_program_has_used_all_descriptors() {
    in_own_process!();
    let scratch = ScratchDir::new("no-descriptors");
    let directory = scratch.path("model");
    fs::create_dir(&directory).unwrap();
    write_checkpoint(&directory);
    limit_descriptors();
    let checkpoint = OpenOptions::new().mmap(false).open(&directory).unwrap();
    let mut own = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        own.push(file);
    }
    // a file that is closed is opened in the place of another one
    for number in [0, 500, 999, 400, 999] {
        let found = checkpoint.tensor(&format!("t{number}")).unwrap().bytes();
        assert_eq!(found.unwrap(), content(number));
    }
    let again = Checkpoint::open(directory.join(name(7))).unwrap();
    assert_eq!(again.tensor("t7").unwrap().bytes().unwrap(), content(7));
}
