//! NPY and NPZ: what numpy wrote and says is in it, what another zip writer wrote, and bent files.

use std::io::{Cursor, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::support;
use crate::support::corpus::manifest_entries;
use crate::support::valid_files::{check_corpus_set, check_entries};
use anamnesis::source::FnSource;
use anamnesis::{Checkpoint, Encoding, ErrorKind, OpenOptions};
use proptest::prelude::*;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

fn fixtures() -> PathBuf {
    support::fixture("")
}

fn hash(checkpoint: &Checkpoint, name: &str) -> String {
    support::sha256(&checkpoint.tensor(name).expect("it was listed")).expect("reads")
}

#[test]
fn fixtures_are_listed_and_read_as_numpy_does() {
    check_entries(
        "fixtures",
        &manifest_entries(&fixtures().join("numpy.json"), &fixtures(), &["npy", "npz"]),
        80,
    );
}

#[test]
fn public_files_are_listed_and_read_as_numpy_does() {
    check_corpus_set("public", &["npy", "npz"], 80);
}

#[test]
fn real_files_are_listed_and_read_as_numpy_does() {
    check_corpus_set("real", &["npy", "npz"], 90);
}

#[test]
fn void_items_become_the_dtype_that_the_caller_knows() {
    let path = fixtures().join("npz/ml_dtypes.npz");
    let raw = Checkpoint::open(&path).expect("opens");
    assert_eq!(
        raw.catalog()
            .get("bfloat16")
            .expect("listed")
            .encoding
            .name(),
        "V2"
    );
    assert_eq!(
        raw.catalog()
            .get("float8_e5m2")
            .expect("listed")
            .encoding
            .name(),
        "F8_E5M2"
    );
    let said = |what: &str| {
        raw.catalog()
            .warnings()
            .iter()
            .filter(|w| w.contains(what))
            .count()
    };
    assert_eq!(
        (said("`OpenOptions::void_as`"), said("'f1'")),
        (1, 1),
        "{:?}",
        raw.catalog().warnings()
    );

    let options = OpenOptions::new()
        .void_as(anamnesis::Dtype::BF16)
        .void_as(anamnesis::Dtype::F8_E4M3);
    let known = options.open(&path).expect("opens");
    assert_eq!(
        known
            .catalog()
            .get("bfloat16")
            .expect("listed")
            .encoding
            .name(),
        "BF16"
    );
    assert_eq!(
        known
            .catalog()
            .get("float8_e4m3fn")
            .expect("listed")
            .encoding
            .name(),
        "F8_E4M3"
    );
    assert!(
        !known
            .catalog()
            .warnings()
            .iter()
            .any(|w| w.contains("`OpenOptions::void_as`"))
    );
    assert_eq!(hash(&raw, "bfloat16"), hash(&known, "bfloat16"));
}

#[test]
fn void_items_of_a_big_endian_machine_are_turned_around() {
    let bytes = npy("'>V2'", false, &[2], 4);
    let raw = Checkpoint::from_bytes(bytes.clone()).expect("opens");
    assert_eq!(
        raw.tensor("").expect("the array").bytes().expect("reads")[..],
        [0, 1, 2, 3]
    );
    let options = OpenOptions::new().void_as(anamnesis::Dtype::BF16);
    let source = anamnesis::source::MemorySource::new(bytes);
    let known = options.from_source(source).expect("opens");
    assert_eq!(
        known.tensor("").expect("the array").bytes().expect("reads")[..],
        [1, 0, 3, 2]
    );
}

#[test]
fn object_arrays_are_refused_beside_their_neighbours() {
    let checkpoint = Checkpoint::open(fixtures().join("npz/object.npz")).expect("opens");
    assert_eq!(checkpoint.catalog().tensors().len(), 1);
    let refused = checkpoint.catalog().refused();
    assert_eq!((refused.len(), &*refused[0].name), (1, "obj"));
    assert!(refused[0].reason.contains("pickle"));
}

#[test]
fn members_that_are_not_arrays_are_named_once() {
    let checkpoint = Checkpoint::open(fixtures().join("npz/extra_members.npz")).expect("opens");
    assert_eq!(
        checkpoint.catalog().warnings(),
        ["member `README.txt` is not an array and is not listed"]
    );
    assert_eq!(checkpoint.catalog().details().integer("members"), Some(4));
    assert_eq!(checkpoint.catalog().details().integer("deflated"), Some(0));
    let packed = Checkpoint::open(fixtures().join("npz/all_le_compressed.npz")).expect("opens");
    assert!(packed.catalog().details().integer("deflated") > Some(10));
}

#[test]
fn an_array_is_listed_from_a_stream() {
    let listed = |bytes: Vec<u8>| Checkpoint::from_stream(Cursor::new(bytes));
    for name in [
        "v1.npy",
        "v3.npy",
        "hdr_trailing_data.npy",
        "hdr_big_v2.npy",
    ] {
        let bytes = std::fs::read(fixtures().join("npy").join(name)).expect("a fixture");
        let checkpoint = listed(bytes.clone()).expect("listed");
        assert_eq!(checkpoint.catalog().tensors()[0].name, "".into());
        assert_eq!(checkpoint.catalog().details().text("order"), Some("c"));
        let data = checkpoint.catalog().tensors()[0].bytes;
        let short = usize::try_from(data.end() - 1).expect("small");
        assert!(listed(bytes[..short].to_vec()).is_err(), "{name} cut off");
    }
    let zip = std::fs::read(fixtures().join("npz/all_le.npz")).expect("a fixture");
    assert!(matches!(
        listed(zip).expect_err("a zip").kind(),
        ErrorKind::Unsupported(_)
    ));
}

/// An NPY file of this dtype and shape, its data counting up.
fn npy(descr: &str, fortran: bool, shape: &[u64], nbytes: usize) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let sizes: String = shape.iter().map(|d| format!("{d}, ")).collect();
    let mut text = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': ({sizes}), }}")
        .replace(" )", ")");
    if shape.is_empty() {
        text = text.replace("(,", "(").replace("(, ", "(");
    }
    while (10 + text.len() + 1) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend(u16::try_from(text.len()).expect("short").to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend((0..nbytes).map(|i| u8::try_from(i % 251).expect("below 251")));
    bytes
}

#[derive(Clone, Debug)]
struct Given {
    name: String,
    shape: Vec<u64>,
    fortran: bool,
    deflated: bool,
    large: bool,
}

fn given() -> impl Strategy<Value = Given> {
    let shape = proptest::collection::vec(0..9u64, 0..4);
    (
        "\\PC{0,12}",
        shape,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(name, shape, fortran, deflated, large)| Given {
            name,
            shape,
            fortran,
            deflated,
            large,
        })
}

fn npz(members: &[Given]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for member in members {
        let method = if member.deflated {
            CompressionMethod::Deflated
        } else {
            CompressionMethod::Stored
        };
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .large_file(member.large);
        zip.start_file(format!("{}.npy", member.name), options)
            .expect("a member");
        let elements: u64 = member.shape.iter().product();
        let nbytes = usize::try_from(elements * 4).expect("small");
        zip.write_all(&npy("'<u4'", member.fortran, &member.shape, nbytes))
            .expect("its content");
    }
    zip.finish().expect("an archive").into_inner()
}

/// What the bytes counting up are in C order.
fn in_c_order(member: &Given) -> Vec<u8> {
    let elements: u64 = member.shape.iter().product();
    let stored: Vec<u8> = (0..elements * 4)
        .map(|i| u8::try_from(i % 251).expect("below 251"))
        .collect();
    if !member.fortran {
        return stored;
    }
    let mut out = Vec::new();
    for mut i in 0..elements {
        let mut index = vec![0; member.shape.len()];
        for (at, d) in index.iter_mut().zip(&member.shape).rev() {
            *at = i % d;
            i /= d;
        }
        let mut step = 1;
        let mut from = 0;
        for (at, d) in index.iter().zip(&member.shape) {
            from += at * step;
            step *= d;
        }
        let from = usize::try_from(from * 4).expect("small");
        out.extend_from_slice(&stored[from..from + 4]);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn archives_of_another_writer_read_back(mut members in proptest::collection::vec(given(), 0..8)) {
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

    #[test]
    fn bent_files_end_in_an_answer(
        name in proptest::sample::select(vec![
            "npz/all_le.npz", "npz/all_le_compressed.npz", "npz/odd_dtypes.npz", "npz/fortran.npz", "npy/v1.npy",
            "npy/v3.npy", "npy/be_c16.npy", "npz/data_descriptor.npz",
        ]),
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in proptest::option::weighted(0.2, any::<proptest::sample::Index>()),
    ) {
        let mut bytes = std::fs::read(fixtures().join(name)).expect("a fixture");
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(checkpoint) = Checkpoint::from_bytes(bytes) {
            for tensor in checkpoint.tensors() {
                let _ = tensor.bytes();
                let _ = tensor.stored();
            }
        }
    }
}

#[test]
fn opening_reads_little_however_large_the_members() {
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
        let mut bytes = npy("'<f4'", false, &[512, 256], 512 * 256 * 4);
        // content that does not deflate
        let mut state = i + 1;
        bytes[128..].iter_mut().for_each(|byte| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = state.to_be_bytes()[0];
        });
        zip.write_all(&bytes).expect("its content");
    }
    let bytes = Arc::new(zip.finish().expect("an archive").into_inner());
    let (reads, total) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let fetch = {
        let (bytes, reads, total) = (bytes.clone(), reads.clone(), total.clone());
        move |offset: u64, out: &mut [u8]| {
            reads.fetch_add(1, Relaxed);
            total.fetch_add(out.len() as u64, Relaxed);
            let from = usize::try_from(offset).expect("small");
            out.copy_from_slice(&bytes[from..from + out.len()]);
            Ok(())
        }
    };
    let checkpoint =
        Checkpoint::from_source(FnSource::new(bytes.len() as u64, fetch)).expect("opens");
    assert_eq!(checkpoint.catalog().tensors().len() as u64, MEMBERS);
    let (reads, total) = (reads.load(Relaxed), total.load(Relaxed));
    assert!(reads <= MEMBERS + 2, "{reads} reads"); // the beginning, and the end with the directory
    assert!(total <= (MEMBERS + 2) * 4096, "{total} bytes");
}

#[test]
fn a_truncated_array_says_so() {
    let bytes = std::fs::read(fixtures().join("npy/v1.npy")).expect("a fixture");
    let error = Checkpoint::from_bytes(bytes[..bytes.len() - 3].to_vec()).expect_err("cut off");
    assert!(error.to_string().contains("cut off"), "{error}");
    assert_eq!(error.offset(), Some(128));
}

#[test]
fn structured_items_keep_their_fields_and_come_out_little_endian() {
    let bytes = npy(
        "[('a', '>i2'), ('s', '|S3'), ('b', '>f4', (2,))]",
        false,
        &[2],
        26,
    );
    let checkpoint = Checkpoint::from_bytes(bytes).expect("opens");
    let tensor = checkpoint.tensor("").expect("the array");
    let Encoding::Opaque(item) = &tensor.info().encoding else {
        panic!("structured")
    };
    assert_eq!((&*item.name, item.item_bytes), ("V13", 13));
    assert_eq!(
        &*item.fields,
        "[('a', '>i2'), ('s', '|S3'), ('b', '>f4', (2,))]"
    );
    let wanted = [
        1, 0, 2, 3, 4, 8, 7, 6, 5, 12, 11, 10, 9, 14, 13, 15, 16, 17, 21, 20, 19, 18, 25, 24, 23,
        22,
    ];
    assert_eq!(tensor.bytes().expect("reads")[..], wanted);
}

#[test]
fn headers_longer_than_numpy_reads_are_read_and_bounded() {
    let fields: String = (0..9000).map(|i| format!("('c{i}', '<f4'), ")).collect();
    let text = format!("{{'descr': [{fields}], 'fortran_order': False, 'shape': (0,), }}\n");
    let file = |text: &str| {
        let mut bytes = b"\x93NUMPY\x02\0".to_vec();
        bytes.extend(u32::try_from(text.len()).expect("short").to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    };
    let checkpoint = Checkpoint::from_bytes(file(&text)).expect("opens");
    assert_eq!(checkpoint.catalog().tensors()[0].encoding.name(), "V36000");
    let long = format!("{text}{}", " ".repeat(1 << 20));
    assert!(matches!(
        Checkpoint::from_bytes(file(&long))
            .expect_err("long")
            .kind(),
        ErrorKind::Unsupported(_)
    ));
    let tight = anamnesis::Limits {
        memory: 1 << 14,
        ..Default::default()
    };
    let source = anamnesis::source::MemorySource::new(file(&text));
    let error = OpenOptions::new()
        .limits(tight)
        .from_source(source)
        .expect_err("over");
    assert_eq!(error.kind().name(), "limit");
}
