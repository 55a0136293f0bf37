//! NPZ archives: as numpy writes them (fixtures) and as the `zip` crate writes them (generated), and how little of one is read
//! when it is opened.

use std::io::{Cursor, Write};
use std::sync::{Arc, Mutex};

use crate::support::fixture;
use crate::support::random::random_bytes;
use crate::support::recording_source::RecordingSource;
use crate::support::writers::npy_counting_up;
use anamnesis::Checkpoint;
use proptest::prelude::*;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

#[test]
fn object_arrays_are_refused_and_the_others_are_listed() {
    let checkpoint = Checkpoint::open(fixture("npz/object.npz")).expect("opens");
    assert_eq!(checkpoint.catalog().tensors().len(), 1);
    let refused = checkpoint.catalog().refused();
    assert_eq!((refused.len(), &*refused[0].name), (1, "obj"));
    assert!(refused[0].reason.contains("pickle"));
}

#[test]
fn members_that_are_not_arrays_have_one_warning() {
    let checkpoint = Checkpoint::open(fixture("npz/extra_members.npz")).expect("opens");
    assert_eq!(
        checkpoint.catalog().warnings(),
        ["member `README.txt` is not an array and is not listed"]
    );
    assert_eq!(checkpoint.catalog().details().integer("members"), Some(4));
    assert_eq!(checkpoint.catalog().details().integer("deflated"), Some(0));
    let deflated = Checkpoint::open(fixture("npz/all_le_compressed.npz")).expect("opens");
    assert!(deflated.catalog().details().integer("deflated") > Some(10));
}

/// One array of an archive.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    shape: Vec<u64>,
    fortran_order: bool,
    deflated: bool,
    /// Written with 64-bit sizes.
    zip64: bool,
}

fn any_member() -> impl Strategy<Value = Member> {
    let shape = proptest::collection::vec(0..9u64, 0..4);
    (
        "\\PC{0,12}",
        shape,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(name, shape, fortran_order, deflated, zip64)| Member {
            name,
            shape,
            fortran_order,
            deflated,
            zip64,
        })
}

/// The archive as the `zip` crate writes it.
fn npz(members: &[Member]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for member in members {
        let method = if member.deflated {
            CompressionMethod::Deflated
        } else {
            CompressionMethod::Stored
        };
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .large_file(member.zip64);
        zip.start_file(format!("{}.npy", member.name), options)
            .expect("a member");
        let elements: u64 = member.shape.iter().product();
        let nbytes = usize::try_from(elements * 4).expect("small");
        zip.write_all(&npy_counting_up(
            "'<u4'",
            member.fortran_order,
            &member.shape,
            nbytes,
        ))
        .expect("its content");
    }
    zip.finish().expect("an archive").into_inner()
}

/// The oracle: the bytes of the array in row-major order, selected element by element.
fn in_c_order(member: &Member) -> Vec<u8> {
    let elements: u64 = member.shape.iter().product();
    let stored: Vec<u8> = (0..elements * 4)
        .map(|i| u8::try_from(i % 251).expect("below 251"))
        .collect();
    if !member.fortran_order {
        return stored;
    }
    let mut out = Vec::new();
    for mut i in 0..elements {
        let mut index = vec![0; member.shape.len()];
        for (i_of_axis, d) in index.iter_mut().zip(&member.shape).rev() {
            *i_of_axis = i % d;
            i /= d;
        }
        let mut stride = 1;
        let mut from = 0;
        for (i_of_axis, d) in index.iter().zip(&member.shape) {
            from += i_of_axis * stride;
            stride *= d;
        }
        let from = usize::try_from(from * 4).expect("small");
        out.extend_from_slice(&stored[from..from + 4]);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn archives_of_the_zip_crate_are_read(mut members in proptest::collection::vec(any_member(), 0..8)) {
        let mut seen = std::collections::HashSet::new();
        members.retain(|m| seen.insert(m.name.clone()));
        let bytes = npz(&members);
        let mapped = Checkpoint::from_bytes(bytes.clone()).expect("opens");
        let read = Checkpoint::from_reader(Cursor::new(bytes)).expect("opens");
        for checkpoint in [mapped, read] {
            assert_eq!(checkpoint.catalog().tensors().len(), members.len());
            for member in &members {
                let tensor = checkpoint.tensor(&member.name).expect("listed");
                assert_eq!(tensor.info().shape[..], member.shape[..]);
                assert_eq!(tensor.bytes().expect("reads")[..], in_c_order(member)[..]);
            }
        }
    }
}

#[test]
fn opening_an_archive_does_not_read_its_data() {
    const MEMBERS: u64 = 20;
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for i in 0..MEMBERS {
        let method = if i % 2 == 0 {
            CompressionMethod::Stored
        } else {
            CompressionMethod::Deflated
        };
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .large_file(true);
        zip.start_file(format!("layer.{i}.npy"), options)
            .expect("a member");
        let mut bytes = npy_counting_up("'<f4'", false, &[512, 256], 512 * 256 * 4);
        // random data, which deflates badly
        let data = random_bytes(i, bytes.len() - 128);
        bytes[128..].copy_from_slice(&data);
        zip.write_all(&bytes).expect("its content");
    }
    let reads = Arc::new(Mutex::default());
    let checkpoint = Checkpoint::from_source(RecordingSource {
        bytes: zip.finish().expect("an archive").into_inner(),
        reads: Arc::clone(&reads),
    })
    .expect("opens");
    assert_eq!(checkpoint.catalog().tensors().len() as u64, MEMBERS);
    let reads = reads.lock().unwrap();
    // one header per member, the start of the file, and the directory at its end
    assert!(reads.len() as u64 <= MEMBERS + 2, "{reads:?}");
    let nbytes: u64 = reads.iter().map(|(_, len)| len).sum();
    assert!(nbytes <= (MEMBERS + 2) * 4096, "{nbytes} bytes");
}
