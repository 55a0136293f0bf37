//! The format of a file is detected from its first bytes and its extension; a file of another type is identified in the error.

use std::fs;

use crate::support::scratch_dir::ScratchDir;
use crate::support::writers::{StoredTensor, safetensors};
use anamnesis::{Checkpoint, ErrorKind};

#[test]
fn other_file_types_are_identified_in_the_error() {
    let scratch = ScratchDir::new("format-detection");
    for (name, bytes, description) in [
        ("a.safetensors", &b""[..], "empty"),
        ("b.gguf", b"<!DOCTYPE html>\n<html><head><title>404", "HTML"),
        (
            "c.bin",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4961\n",
            "Git LFS pointer for 4961",
        ),
        ("d.h5", b"\x89HDF\r\n\x1a\n0000", "HDF5"),
        ("e.npz", b"\x1f\x8b\x08\0\0\0\0\0", "gzip"),
        ("f.json", b"{\"error\":\"Not Found\"}", "JSON"),
        ("g.txt", b"Invalid username or password.", "text, \"Invalid"),
        ("h", b"\0\x01\x02\x03\xff\xfe", "00 01 02 03"),
        ("i.onnx", b"\x08\x07\x12\x07pytorch", "ONNX"),
        ("j.tflite", b"\x1c\0\0\0TFL3", "TFLite"),
        ("k.msgpack", b"\x81\xa6params\x82", "msgpack"),
        ("l.llamafile", b"MZqFpD='", "llamafile"),
        (
            "m",
            b"{\"mediaType\":\"application/vnd.docker.distribution.manifest.v2+json\"}",
            "manifest of Ollama",
        ),
    ] {
        let path = scratch.path(name);
        fs::write(&path, bytes).unwrap();
        let error = Checkpoint::open(&path).unwrap_err();
        let ErrorKind::UnknownFormat { looks_like } = error.kind() else {
            panic!("{name}: {error}")
        };
        assert!(looks_like.contains(description), "{name}: {looks_like}");
    }
}

/// The length of the header begins with the bytes of a DOS executable.
#[test]
fn a_truncated_header_is_malformed_safetensors() {
    let scratch = ScratchDir::new("format-detection-header");
    let path = scratch.path("in.safetensors");
    fs::write(&path, b"MZ\0\0\0\0\0\0{\"a\":{\"dtype\"").unwrap();
    let error = Checkpoint::open(&path).unwrap_err();
    assert_eq!(error.kind().name(), "malformed", "{error}");
}

/// The error comes from the reader of this format; it does not say that the format is unknown.
#[test]
fn an_extension_selects_the_reader_of_an_unknown_file() {
    let scratch = ScratchDir::new("format-detection-extension");
    let path = scratch.path("in.gguf");
    fs::write(&path, "GGUX and so on, long enough").unwrap();
    let error = Checkpoint::open(&path).unwrap_err();
    assert_eq!(error.kind().name(), "malformed");
    assert!(error.to_string().contains("magic"), "{error}");
}

/// A safetensors header of 640 bytes has the length 0x280: its first bytes begin a pickle as well, 0x80 0x02.
#[test]
fn a_header_length_that_looks_like_a_pickle_is_safetensors() {
    for len in [640usize, 0x1_0280] {
        let header = r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
        let header = header.to_owned() + &" ".repeat(len - header.len());
        let file = [&(len as u64).to_le_bytes(), header.as_bytes(), b"\x07"].concat();
        let checkpoint = Checkpoint::from_bytes(file).unwrap();
        assert_eq!(checkpoint.tensor("a").unwrap().bytes().unwrap()[..], [7]);
    }
}

/// Among these lengths are the first bytes of pickles and archives.
#[test]
fn safetensors_headers_of_any_length_are_recognised() {
    for padding in 0..1600 {
        let file = safetensors(
            &[StoredTensor::new("x", "U8", &[1], vec![7])],
            &[("padding", &"x".repeat(padding))],
        );
        let checkpoint = Checkpoint::from_bytes(file).unwrap_or_else(|e| panic!("{padding}: {e}"));
        assert_eq!(checkpoint.catalog().format(), "safetensors");
    }
}
