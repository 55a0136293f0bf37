//! Whether two safetensors files hold the same tensors, whatever their order.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

/// Bytes compared at a time; small, since a child's peak memory begins with its parent's.
const CHUNK: usize = 256 << 10;

struct Tensor {
    dtype: String,
    shape: Value,
    from: u64,
    len: u64,
}

/// Says how the peer's tensors differ from ours; that is not a failure.
pub fn report(ours: &Path, peer: &Path) -> Vec<String> {
    let mut said = Vec::new();
    let (mut ours, mut peer) = (open(ours), open(peer));
    let missing = |a: &BTreeMap<String, Tensor>, b: &BTreeMap<String, Tensor>| {
        a.keys()
            .filter(|name| !b.contains_key(*name))
            .cloned()
            .collect::<Vec<_>>()
    };
    let (only_ours, only_peer) = (missing(&ours.1, &peer.1), missing(&peer.1, &ours.1));
    let mut equal = 0;
    for (name, mine) in &ours.1 {
        let Some(theirs) = peer.1.get(name) else {
            continue;
        };
        if (&mine.dtype, &mine.shape) != (&theirs.dtype, &theirs.shape) {
            let theirs = format!("the peer's {} {}", theirs.dtype, theirs.shape);
            said.push(format!(
                "{name}: ours {} {}, {theirs}",
                mine.dtype, mine.shape
            ));
        } else if mine.len != theirs.len || !equal_bytes(&mut ours.0, mine, &mut peer.0, theirs) {
            said.push(format!("{name}: other bytes"));
        } else {
            equal += 1;
        }
    }
    said.push(format!(
        "{equal} tensors are equal; only ours: {only_ours:?}; only the peer's: {only_peer:?}"
    ));
    said
}

fn open(path: &Path) -> (File, BTreeMap<String, Tensor>) {
    let mut file = File::open(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let mut len = [0; 8];
    file.read_exact(&mut len).expect("a length");
    let len = u64::from_le_bytes(len);
    let header: BTreeMap<String, Value> =
        serde_json::from_reader((&file).take(len)).expect("a header");
    let tensors = header
        .into_iter()
        .filter(|(name, _)| name != "__metadata__")
        .map(|(name, tensor)| {
            let offset = |i: usize| tensor["data_offsets"][i].as_u64().expect("an offset");
            let dtype = tensor["dtype"].as_str().expect("a dtype").to_owned();
            let tensor = Tensor {
                dtype,
                shape: tensor["shape"].clone(),
                from: 8 + len + offset(0),
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
            .expect("the tensor's bytes");
    };
    let (mut from_a, mut from_b) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut done = 0;
    while done < of_a.len {
        let n = (of_a.len - done).min(CHUNK as u64) as usize;
        read(a, of_a.from + done, &mut from_a[..n]);
        read(b, of_b.from + done, &mut from_b[..n]);
        if from_a[..n] != from_b[..n] {
            return false;
        }
        done += n as u64;
    }
    true
}
