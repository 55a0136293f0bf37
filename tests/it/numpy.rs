//! NPY arrays, and the NPY and NPZ files of the manifests: dtypes, shapes, order and bytes equal what numpy reads.

use std::io::Cursor;

use crate::support;
use crate::support::corpus::manifest_entries;
use crate::support::fixture;
use crate::support::valid_files::{check_corpus_set, check_entries};
use crate::support::writers::npy_counting_up;
use anamnesis::{Checkpoint, Encoding, ErrorKind, OpenOptions, Remedy};
use proptest::prelude::*;

fn hash(checkpoint: &Checkpoint, name: &str) -> String {
    support::sha256(&checkpoint.tensor(name).expect("it was listed")).expect("reads")
}

#[test]
fn fixtures_equal_what_numpy_reads() {
    check_entries(
        "fixtures",
        &manifest_entries(&fixture("numpy.json"), &fixture(""), &["npy", "npz"]),
        80,
    );
}

#[test]
fn public_files_equal_what_numpy_reads() {
    check_corpus_set("public", &["npy", "npz"], 80);
}

#[test]
fn real_files_equal_what_numpy_reads() {
    check_corpus_set("real", &["npy", "npz"], 90);
}

#[test]
fn void_items_have_the_dtype_that_the_caller_gives() {
    let path = fixture("npz/ml_dtypes.npz");
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
    let is_of_raw_items =
        |w: &&anamnesis::Note| matches!(w.remedy(), Some(Remedy::ReadItems { dtype: _ }));
    let warnings_with = |text: &str| {
        raw.catalog()
            .warnings()
            .iter()
            .filter(|w| w.contains(text))
            .count()
    };
    assert_eq!(
        (
            raw.catalog()
                .warnings()
                .iter()
                .filter(is_of_raw_items)
                .count(),
            warnings_with("'f1'")
        ),
        (1, 1),
        "{:?}",
        raw.catalog().warnings()
    );

    let options = OpenOptions::new()
        .void_as(anamnesis::Dtype::BF16)
        .void_as(anamnesis::Dtype::F8_E4M3);
    let typed = options.open(&path).expect("opens");
    assert_eq!(
        typed
            .catalog()
            .get("bfloat16")
            .expect("listed")
            .encoding
            .name(),
        "BF16"
    );
    assert_eq!(
        typed
            .catalog()
            .get("float8_e4m3fn")
            .expect("listed")
            .encoding
            .name(),
        "F8_E4M3"
    );
    assert!(
        !typed
            .catalog()
            .warnings()
            .iter()
            .any(|w| is_of_raw_items(&w))
    );
    assert_eq!(hash(&raw, "bfloat16"), hash(&typed, "bfloat16"));
}

#[test]
fn big_endian_void_items_are_byte_swapped() {
    let bytes = npy_counting_up("'>V2'", false, &[2], 4);
    let raw = Checkpoint::from_bytes(bytes.clone()).expect("opens");
    assert_eq!(
        raw.tensor("").expect("the array").bytes().expect("reads")[..],
        [0, 1, 2, 3]
    );
    let options = OpenOptions::new().void_as(anamnesis::Dtype::BF16);
    let source = anamnesis::source::MemorySource::new(bytes);
    let typed = options.from_source(source).expect("opens");
    assert_eq!(
        typed.tensor("").expect("the array").bytes().expect("reads")[..],
        [1, 0, 3, 2]
    );
}

#[test]
fn an_npy_file_is_listed_from_a_stream() {
    let listed = |bytes: Vec<u8>| Checkpoint::from_stream(Cursor::new(bytes));
    for name in [
        "v1.npy",
        "v3.npy",
        "hdr_trailing_data.npy",
        "hdr_big_v2.npy",
    ] {
        let bytes = std::fs::read(fixture("npy").join(name)).expect("a fixture");
        let checkpoint = listed(bytes.clone()).expect("listed");
        assert_eq!(checkpoint.catalog().tensors()[0].name, "".into());
        assert_eq!(checkpoint.catalog().details().text("order"), Some("c"));
        let data = checkpoint.catalog().tensors()[0].bytes;
        let truncated_len = usize::try_from(data.end() - 1).expect("small");
        assert!(
            listed(bytes[..truncated_len].to_vec()).is_err(),
            "{name}, truncated"
        );
    }
    let zip = std::fs::read(fixture("npz/all_le.npz")).expect("a fixture");
    assert!(matches!(
        listed(zip).expect_err("a zip").kind(),
        ErrorKind::Unsupported(_)
    ));
}

#[test]
fn a_truncated_array_is_refused() {
    let bytes = std::fs::read(fixture("npy/v1.npy")).expect("a fixture");
    let error = Checkpoint::from_bytes(bytes[..bytes.len() - 3].to_vec()).expect_err("truncated");
    assert!(error.to_string().contains("cut off"), "{error}");
    assert_eq!(error.offset(), Some(128));
}

#[test]
fn structured_items_keep_their_fields_and_are_little_endian() {
    let bytes = npy_counting_up(
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
    let little_endian = [
        1, 0, 2, 3, 4, 8, 7, 6, 5, 12, 11, 10, 9, 14, 13, 15, 16, 17, 21, 20, 19, 18, 25, 24, 23,
        22,
    ];
    assert_eq!(tensor.bytes().expect("reads")[..], little_endian);
}

#[test]
fn headers_longer_than_numpys_limit_are_read_and_bounded() {
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
    let too_long = format!("{text}{}", " ".repeat(1 << 20));
    assert!(matches!(
        Checkpoint::from_bytes(file(&too_long))
            .expect_err("a header over 1 MiB")
            .kind(),
        ErrorKind::Unsupported(_)
    ));
    let limits = anamnesis::Limits {
        memory: 1 << 14,
        ..Default::default()
    };
    let source = anamnesis::source::MemorySource::new(file(&text));
    let error = OpenOptions::new()
        .limits(limits)
        .from_source(source)
        .expect_err("over the memory limit");
    assert_eq!(error.kind().name(), "limit");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_read_or_refused(
        name in proptest::sample::select(vec![
            "npz/all_le.npz", "npz/all_le_compressed.npz", "npz/odd_dtypes.npz", "npz/fortran.npz", "npy/v1.npy",
            "npy/v3.npy", "npy/be_c16.npy", "npz/data_descriptor.npz",
        ]),
        replaced in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        truncated in proptest::option::weighted(0.2, any::<proptest::sample::Index>()),
    ) {
        let mut bytes = std::fs::read(fixture(name)).expect("a fixture");
        for (index, byte) in replaced {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        if let Some(len) = truncated {
            bytes.truncate(len.index(bytes.len()));
        }
        if let Ok(checkpoint) = Checkpoint::from_bytes(bytes) {
            for tensor in checkpoint.tensors() {
                let _ = tensor.bytes();
                let _ = tensor.stored();
            }
        }
    }
}
