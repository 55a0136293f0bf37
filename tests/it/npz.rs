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

/// An archive of `good` and `odd`, with the content and the method of `odd`.
fn with_odd_member(method: CompressionMethod, odd: &[u8]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    zip.start_file("odd.npy", stored.compression_method(method))
        .unwrap();
    zip.write_all(odd).unwrap();
    zip.start_file("good.npy", stored).unwrap();
    zip.write_all(&npy_counting_up("'<u4'", false, &[3], 12))
        .unwrap();
    zip.finish().unwrap().into_inner()
}

/// Replaces bytes behind the first occurrence of others.
fn patch(mut bytes: Vec<u8>, after: &[u8], skip: usize, with: &[u8]) -> Vec<u8> {
    let at = bytes.windows(after.len()).position(|part| part == after);
    let at = at.unwrap() + skip;
    bytes[at..at + with.len()].copy_from_slice(with);
    bytes
}

#[test]
fn one_odd_member_refuses_itself_only() {
    let array = |descr: &str| npy_counting_up(descr, false, &[3], 12);
    let (stored, deflated) = (CompressionMethod::Stored, CompressionMethod::Deflated);
    let good = with_odd_member(stored, &array("'<u4'"));
    let large = npy_counting_up("'<u4'", false, &[3000], 12_000);
    // flags are 8 bytes into an entry of the directory, the method 10
    let directory = b"PK\x01\x02";
    for (what, bytes, reason) in [
        (
            "object dtype",
            with_odd_member(stored, &array("'|O'")),
            "pickle",
        ),
        (
            "unknown dtype",
            with_odd_member(stored, &array("'<q9'")),
            "unknown numpy dtype",
        ),
        (
            "cut off",
            with_odd_member(stored, &array("'<u4'")[..120]),
            "ends inside",
        ),
        (
            "too short",
            with_odd_member(stored, &array("'<u8'")),
            "needs 24",
        ),
        (
            "version",
            with_odd_member(deflated, b"\x93NUMPY\x09\x00\x76\x00      "),
            "version 9.0",
        ),
        ("no magic", with_odd_member(stored, b"text"), "magic number"),
        (
            "checksum",
            patch(good.clone(), b"'<u4'", 2, b"i"),
            "checksum",
        ),
        (
            "encrypted",
            patch(good.clone(), directory, 8, &[1]),
            "encrypted",
        ),
        ("method", patch(good.clone(), directory, 10, &[12]), "bzip2"),
        (
            "damaged deflate",
            patch(with_odd_member(deflated, &large), b"odd.npy", 7, &[0xff; 8]),
            "does not inflate",
        ),
    ] {
        let checkpoint = Checkpoint::from_bytes(bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
        let catalog = checkpoint.catalog();
        let [refused] = catalog.refused() else {
            panic!("{what}: {:?}", catalog.refused())
        };
        assert_eq!(&*refused.name, "odd", "{what}");
        assert!(refused.reason.contains(reason), "{what}: {refused:?}");
        let [tensor] = catalog.tensors() else {
            panic!("{what}: {:?}", catalog.tensors())
        };
        assert_eq!(&*tensor.name, "good");
        let loaded = anamnesis::load(&checkpoint).tensor("good").unwrap();
        let expected: Vec<u8> = (0..12).collect();
        assert_eq!(*loaded.bytes(), *expected, "{what}");
        for error in [
            anamnesis::load(&checkpoint).tensor("odd").unwrap_err(),
            anamnesis::load(&checkpoint)
                .tensor_into("odd", &mut [])
                .unwrap_err(),
            anamnesis::remember(&checkpoint).tensor("odd").unwrap_err(),
        ] {
            assert!(error.to_string().contains(reason), "{what}: {error}");
        }
        let summary = checkpoint.inspect().unwrap();
        assert_eq!(&*summary.refused[0].name, "odd", "{what}");
    }
    // a file in which two readers see two archives is refused as a whole
    for (what, bytes) in [
        (
            "another name",
            patch(good.clone(), b"PK\x03\x04", 30, b"o00"),
        ),
        (
            "another method",
            patch(good.clone(), b"PK\x03\x04", 8, &[8]),
        ),
        ("sizes that differ", patch(good, directory, 24, &[1])),
    ] {
        let error = Checkpoint::from_bytes(bytes).expect_err(what);
        assert_eq!(error.kind().name(), "malformed", "{what}: {error}");
    }
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
