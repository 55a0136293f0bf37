//! Compares two safetensors files tensor by tensor, by name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

/// Bytes compared at a time. Small: a forked child starts with its parent's peak memory, which is reported.
const CHUNK: usize = 256 << 10;

struct Tensor {
    dtype: String,
    shape: Value,
    offset: u64,
    len: u64,
}

/// Describes how the peer's tensors differ from ours. A difference is noted, not an error.
pub fn differences(ours: &Path, peer: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    let (mut ours, mut peer) = (open(ours), open(peer));
    let missing = |a: &BTreeMap<String, Tensor>, b: &BTreeMap<String, Tensor>| {
        a.keys()
            .filter(|name| !b.contains_key(*name))
            .cloned()
            .collect::<Vec<_>>()
    };
    let (only_ours, only_peer) = (missing(&ours.1, &peer.1), missing(&peer.1, &ours.1));
    let mut equal = 0;
    for (name, our) in &ours.1 {
        let Some(their) = peer.1.get(name) else {
            continue;
        };
        if (&our.dtype, &our.shape) != (&their.dtype, &their.shape) {
            notes.push(format!(
                "{name}: ours is {} {}, the peer's {} {}",
                our.dtype, our.shape, their.dtype, their.shape
            ));
        } else if our.len != their.len || !equal_bytes(&mut ours.0, our, &mut peer.0, their) {
            notes.push(format!("{name}: different bytes"));
        } else {
            equal += 1;
        }
    }
    notes.push(format!(
        "{equal} tensors are identical; only in ours: {only_ours:?}; only in the peer's: {only_peer:?}"
    ));
    notes
}

fn open(path: &Path) -> (File, BTreeMap<String, Tensor>) {
    let mut file = File::open(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let mut len = [0; 8];
    file.read_exact(&mut len)
        .expect("the file has a header length");
    let len = u64::from_le_bytes(len);
    let header: BTreeMap<String, Value> =
        serde_json::from_reader((&file).take(len)).expect("the header is JSON");
    let tensors = header
        .into_iter()
        .filter(|(name, _)| name != "__metadata__")
        .map(|(name, tensor)| {
            let offset = |i: usize| {
                tensor["data_offsets"][i]
                    .as_u64()
                    .expect("data_offsets holds integers")
            };
            let dtype = tensor["dtype"]
                .as_str()
                .expect("dtype is a string")
                .to_owned();
            let tensor = Tensor {
                dtype,
                shape: tensor["shape"].clone(),
                offset: 8 + len + offset(0),
                len: offset(1) - offset(0),
            };
            (name, tensor)
        });
    let tensors = tensors.collect();
    (file, tensors)
}

fn equal_bytes(a: &mut File, of_a: &Tensor, b: &mut File, of_b: &Tensor) -> bool {
    let read = |file: &mut File, from: u64, into: &mut [u8]| {
        file.seek(SeekFrom::Start(from))
            .and_then(|_| file.read_exact(into))
            .expect("the tensor's bytes can be read");
    };
    let (mut from_a, mut from_b) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut done = 0;
    while done < of_a.len {
        let n = (of_a.len - done).min(CHUNK as u64) as usize;
        read(a, of_a.offset + done, &mut from_a[..n]);
        read(b, of_b.offset + done, &mut from_b[..n]);
        if from_a[..n] != from_b[..n] {
            return false;
        }
        done += n as u64;
    }
    true
}
