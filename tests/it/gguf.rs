//! GGUF files generated from the specification: types of forks are refused by name, metadata arrays are read on demand in both
//! byte orders, nesting is bounded.

use crate::support::fn_sources::fn_source;
use anamnesis::{BlockFormat, Checkpoint, ErrorKind, Item, Limits, OpenOptions, Value};

/// Writes a GGUF file of version 3.
struct GgufBuilder {
    big_endian: bool,
    keys: Vec<Vec<u8>>,
    tensors: Vec<(Vec<u8>, u64)>,
    /// Where the next tensor begins, from the start of the data.
    offset: u64,
}

impl GgufBuilder {
    fn new(big_endian: bool) -> Self {
        Self {
            big_endian,
            keys: Vec::new(),
            tensors: Vec::new(),
            offset: 0,
        }
    }

    fn u32(&self, n: u32) -> Vec<u8> {
        if self.big_endian {
            n.to_be_bytes().to_vec()
        } else {
            n.to_le_bytes().to_vec()
        }
    }

    fn u64(&self, n: u64) -> Vec<u8> {
        if self.big_endian {
            n.to_be_bytes().to_vec()
        } else {
            n.to_le_bytes().to_vec()
        }
    }

    fn text(&self, text: &str) -> Vec<u8> {
        [self.u64(text.len() as u64), text.as_bytes().to_vec()].concat()
    }

    /// A key with a value of this type.
    fn key(mut self, name: &str, kind: u32, value: &[u8]) -> Self {
        self.keys
            .push([self.text(name), self.u32(kind), value.to_vec()].concat());
        self
    }

    /// An array: element type, count, elements.
    fn array(&self, kind: u32, elements: &[Vec<u8>]) -> Vec<u8> {
        [
            self.u32(kind),
            self.u64(elements.len() as u64),
            elements.concat(),
        ]
        .concat()
    }

    /// A one-dimensional tensor that takes `nbytes`.
    fn tensor(mut self, name: &str, kind: u32, elements: u64, nbytes: u64) -> Self {
        let head = [
            self.text(name),
            self.u32(1),
            self.u64(elements),
            self.u32(kind),
            self.u64(self.offset),
        ]
        .concat();
        self.offset += nbytes.next_multiple_of(32);
        self.tensors.push((head, nbytes));
        self
    }

    fn bytes(self) -> Vec<u8> {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(self.u32(3));
        bytes.extend(self.u64(self.tensors.len() as u64));
        bytes.extend(self.u64(self.keys.len() as u64));
        bytes.extend(self.keys.concat());
        self.tensors.iter().for_each(|(head, _)| bytes.extend(head));
        bytes.resize(
            bytes.len().next_multiple_of(32) + usize::try_from(self.offset).unwrap(),
            0,
        );
        bytes
    }
}

/// The kind and text of the error that opening returns.
fn refusal(bytes: Vec<u8>) -> (&'static str, String) {
    let error = Checkpoint::from_bytes(bytes).unwrap_err();
    assert!(error.offset().is_some(), "{error} has no offset");
    (error.kind().name(), error.to_string())
}

#[test]
fn every_ggml_type_is_read_or_refused_by_name() {
    for id in 0..200 {
        let block = BlockFormat::from_ggml(id);
        let nbytes = block.map_or(256 * 8, |b| b.nbytes(256).unwrap());
        let bytes = GgufBuilder::new(false).tensor("t", id, 256, nbytes).bytes();
        match Checkpoint::from_bytes(bytes.clone()) {
            Ok(checkpoint) => {
                assert!(id <= 42, "{id}");
                let info = &checkpoint.catalog().tensors()[0];
                assert!(
                    block.is_none_or(|b| b.name == info.encoding.name() && info.nbytes() == nbytes)
                );
            }
            Err(_) => {
                assert!(block.is_none());
                let (kind, text) = refusal(bytes);
                assert_eq!(kind, "unsupported", "{id}: {text}");
                assert!(
                    text.contains(&format!("ggml type {id} is ")) && text.contains("`t`"),
                    "{text}"
                );
            }
        }
    }
    for (id, words) in [
        (5, &["Q4_3", "removed"][..]),
        (36, &["IQ4_NL_4_4", "BitNet"]),
        (66, &["IQ1_XXXS", "Unsloth"]),
        (139, &["IQ4_K", "ik_llama.cpp"]),
        (142, &["PQ2_0", "PrismML"]),
        (199, &["is unknown"]),
    ] {
        let (_, text) = refusal(GgufBuilder::new(false).tensor("t", id, 256, 0).bytes());
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}

/// Upstream's Q2_0 has blocks of 64 elements in 18 bytes, PrismML's of 128 in 34, under the same id.
#[test]
fn q2_0_of_a_fork_is_refused_by_the_distance_of_tensors() {
    let two_tensors = |nbytes| {
        GgufBuilder::new(false)
            .tensor("a", 42, 4096, nbytes)
            .tensor("b", 42, 4096, nbytes)
            .bytes()
    };
    let upstream = Checkpoint::from_bytes(two_tensors(4096 / 64 * 18)).unwrap();
    assert_eq!(upstream.catalog().tensors()[1].encoding.name(), "Q2_0");
    let (kind, text) = refusal(two_tensors(4096 / 128 * 34));
    assert_eq!(kind, "unsupported");
    assert!(text.contains("PrismML"), "{text}");
}

#[test]
fn arrays_are_read_on_demand_in_both_byte_orders() {
    for big_endian in [false, true] {
        let file = GgufBuilder::new(big_endian);
        let words: Vec<_> = (0..1000).map(|i| file.text(&format!("word {i}"))).collect();
        let numbers: Vec<_> = (0..40).map(|i| file.u32(i)).collect();
        let inner = |from: u32| {
            file.array(
                5,
                &(from..from + 20).map(|i| file.u32(i)).collect::<Vec<_>>(),
            )
        };
        let (words, numbers) = (file.array(8, &words), file.array(4, &numbers));
        let nested = file.array(9, &[inner(0), inner(100), file.array(8, &[file.text("x")])]);
        let bytes = file
            .key("words", 9, &words)
            .key("numbers", 9, &numbers)
            .key("nested", 9, &nested)
            .bytes();
        let checkpoint = Checkpoint::from_bytes(bytes).unwrap();

        let Some(Value::Array(words)) = checkpoint.catalog().metadata().get("words") else {
            panic!("the array was read when the file was opened")
        };
        assert_eq!(
            (words.item, words.len, words.first.len()),
            (Item::Text, 1000, 16)
        );
        assert_eq!(words.first[15], Value::text("word 15"));
        let list = |key: &str| match checkpoint.metadata(key).unwrap().unwrap() {
            Value::List(list) => list,
            other => panic!("{other:?}"),
        };
        assert_eq!(list("words")[999], Value::text("word 999"));
        assert_eq!(list("numbers")[39], Value::U64(39));
        let nested = list("nested");
        let Value::List(second) = &nested[1] else {
            panic!("{nested:?}")
        };
        assert_eq!((second.len(), &second[19]), (20, &Value::I64(119)));
        assert_eq!(nested[2], Value::List([Value::text("x")].into()));
        assert!(checkpoint.metadata("none").unwrap().is_none());
    }
}

#[test]
fn nested_arrays_are_refused_with_and_without_limits() {
    let file = GgufBuilder::new(false);
    let mut value = file.array(0, &[]);
    for _ in 0..5000 {
        value = file.array(9, &[value]);
    }
    let bytes = file.key("deep", 9, &value).bytes();
    let error = Checkpoint::from_bytes(bytes.clone()).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Limit { limit: "depth", .. }),
        "{error}"
    );
    let options = OpenOptions::new().limits(Limits::none());
    let error = options.from_source(fn_source(bytes)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
}

/// Strings are scanned in a window of the file: no position of a string relative to the window's end changes the result.
#[test]
fn strings_across_the_end_of_the_read_window_are_scanned() {
    let file = GgufBuilder::new(false);
    let mut strings = Vec::new();
    for len in [
        0, 1, 7, 8, 9, 4095, 4096, 4097, 65_535, 65_536, 65_537, 200_000, 3, 0, 70_000,
    ] {
        strings.push(file.text(&"x".repeat(len)));
        strings.extend((0..200).map(|i| file.text(&"y".repeat(i % 23))));
    }
    let array = file.array(8, &strings);
    let bytes = file
        .key("a", 9, &array)
        .key("end", 8, &GgufBuilder::new(false).text("here"))
        .bytes();
    for shift in 0..64 {
        // the length of a first key shifts everything behind it
        let mut shifted = GgufBuilder::new(false);
        let pad = shifted.text(&"p".repeat(shift));
        shifted = shifted.key("pad", 8, &pad).key("a", 9, &array);
        let end = shifted.text("here");
        let bytes = shifted.key("end", 8, &end).bytes();
        let checkpoint = Checkpoint::from_reader(std::io::Cursor::new(bytes)).unwrap();
        assert_eq!(
            checkpoint.catalog().metadata().text("end"),
            Some("here"),
            "shift {shift}"
        );
    }
    assert_eq!(
        Checkpoint::from_bytes(bytes)
            .unwrap()
            .catalog()
            .metadata()
            .text("end"),
        Some("here")
    );
}
