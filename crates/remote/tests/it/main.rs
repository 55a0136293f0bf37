//! Remote files against a server on the loopback interface.

mod bucket;
mod faults;
mod header_cache;
mod hub;
mod known;
mod modelscope;
mod mutated_answers;
mod offline;
mod reads;
mod registry;
mod server;
mod uploads;

use std::time::Duration;

use anamnesis_remote::{OpenedUrl, RemoteFile, RemoteOptions, Store};

/// Bytes that differ at each place.
fn content(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 2_654_435_761_usize).to_le_bytes()[2])
        .collect()
}

/// Bounds that end within a second, for a program that would rather fail early.
fn impatient() -> RemoteOptions {
    let mut options = RemoteOptions::default();
    options.first_byte = Duration::from_millis(500);
    options.idle = Duration::from_millis(500);
    options.slow = Duration::from_millis(500);
    options.least_rate = 4 << 20;
    options.pause = Duration::from_millis(10);
    options
}

fn open(url: &str, options: RemoteOptions, variables: &[(&str, &str)]) -> Store {
    let get = |name: &str| {
        let own = variables.iter().find(|(known, _)| *known == name);
        own.map(|(_, value)| (*value).to_owned())
            .or_else(|| (name == "HF_HOME").then(|| "/nowhere".to_owned()))
    };
    match Store::open_with(url, options, &get).unwrap() {
        OpenedUrl::Store(store) => *store,
        OpenedUrl::Local(path) => panic!("{} is local", path.display()),
    }
}

fn store_with(url: &str, variables: &[(&str, &str)]) -> Store {
    open(url, RemoteOptions::default(), variables)
}

fn store(url: &str) -> Store {
    store_with(url, &[])
}

fn file(url: &str) -> RemoteFile {
    let store = store(url);
    store.file(store.path()).unwrap()
}

/// Like [`file`], with bounds that end within a second.
fn impatient_file(url: &str) -> RemoteFile {
    let store = open(url, impatient(), &[]);
    store.file(store.path()).unwrap()
}

/// The bytes from `start` on.
fn read(file: &RemoteFile, start: u64, len: usize) -> anamnesis_remote::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let n = file.read_at(start, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}
