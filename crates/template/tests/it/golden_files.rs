//! The format does not change: the stored files of `fixtures/template` must remain readable, and the bytes of a small
//! template are as specified.

use std::path::{Path, PathBuf};

use anamnesis_template::parallel::{Rules, Split};
use anamnesis_template::{
    ByteRange, ContentKey, File, StridedFileRange, StridedRange, Template, TemplateBuilder,
    TemplateLimits, service_id,
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/template")
        .join(name)
}

/// The content of `layers.iot` and `layers.json`: two workers, three layers, two files that are read alternately, times.
fn stored_template() -> Template {
    let mut builder = TemplateBuilder::new();
    let mut first = File::new("model-00001-of-00002.safetensors", 1 << 20).unwrap();
    first.mtime = Some(-1);
    first.key = Some(ContentKey::of(b"header"));
    let first = builder.file(first).unwrap();
    let second = builder
        .file(File::new("model-00002-of-00002.safetensors", 40).unwrap())
        .unwrap();
    let rules = Rules::default();
    for layer in 0..3 {
        for (i, name) in ["self_attn.q_proj", "self_attn.o_proj", "mlp.gate_up_proj"]
            .iter()
            .enumerate()
        {
            for rank in 0..2 {
                let split = Split {
                    rank,
                    world: 2,
                    ..Split::default()
                };
                let name = format!("model.layers.{layer}.{name}.weight");
                for runs in rules.slices(&name, &[64, 64], 2, &split).unwrap() {
                    let offset = 1000 + (layer * 3 + i as u64) * 8192;
                    builder
                        .access(
                            rank,
                            StridedFileRange {
                                file: first,
                                bytes: runs.shifted(offset).unwrap(),
                            },
                            None,
                        )
                        .unwrap();
                }
            }
        }
        builder
            .access(
                0,
                ByteRange {
                    file: second,
                    start: 30 - layer * 10,
                    len: 3,
                },
                Some(layer * 1000),
            )
            .unwrap();
    }
    builder.group(1, "worker 1").parameter("tp", "2");
    let id = service_id([], [("tp", "2")]);
    builder.service(id);
    builder.finish()
}

#[test]
#[cfg_attr(miri, ignore = "Miri opens no file with O_NONBLOCK")]
fn stored_files_give_the_same_template() {
    for name in ["layers.iot", "layers.json"] {
        assert_eq!(
            Template::load(&fixture(name), &TemplateLimits::default()).unwrap(),
            stored_template(),
            "{name}"
        );
    }
}

/// The bytes are written by hand from `docs/template-format.md`.
#[test]
fn the_binary_form_is_that_of_the_specification() {
    let mut builder = TemplateBuilder::new();
    builder.parameter("tp", "2");
    builder.file(File::new("ab", 300).unwrap()).unwrap();
    let mut second = File::new("ac", 7).unwrap();
    second.mtime = Some(-2);
    let second = builder.file(second).unwrap();
    builder.group(1, "w");
    builder.access(1, ByteRange::new(10, 20), None).unwrap();
    builder
        .access(
            1,
            StridedFileRange {
                file: 0,
                bytes: StridedRange {
                    start: 28,
                    len: 5,
                    count: 4,
                    stride: 8,
                },
            },
            Some(1),
        )
        .unwrap();
    builder
        .access(
            1,
            ByteRange {
                file: second,
                start: 0,
                len: 7,
            },
            Some(0),
        )
        .unwrap();
    builder.access(3, ByteRange::new(10, 20), None).unwrap();
    let mut bytes = b"\x89IOT\r\n\x1a\n\x01".to_vec();
    bytes.extend([0]); // no service
    bytes.extend(b"\x01\x02tp\x012");
    bytes.extend(b"\x02\x00\x00\x02ab\xac\x02\x01\x01\x01c\x07\x03");
    bytes.extend(b"\x02\x01\x01w\x03");
    bytes.extend([0, 20, 20]); // gap 10 from offset 0
    bytes.extend([4, 3, 5, 2, 2]); // gap -2 from 30, 4 runs of 5 bytes, 3 between
    bytes.extend([2, 2, 0, 7]); // the next file
    bytes.extend([1, 0, 3, 2]); // times: none, 1, 1 less than that
    bytes.extend([1, 0, 1, 3, 3, 0]); // rank 3, no name, 1 access: 1 token at distance 3, no times
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    assert_eq!(builder.finish().to_bytes(), bytes);
}

#[test]
#[ignore = "writes the fixtures; only for a new version of the format"]
fn write_fixtures() {
    std::fs::create_dir_all(fixture("")).unwrap();
    for name in ["layers.iot", "layers.json"] {
        stored_template().save(&fixture(name), false).unwrap();
    }
}
