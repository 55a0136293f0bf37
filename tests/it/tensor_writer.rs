//! Tensors that a program writes one by one: the file has them as they were given, and there is none before it is complete.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::fixtures;
use crate::support::random::Random;
use crate::support::scratch_dir::ScratchDir;
use anamnesis::catalog::Shape;
use anamnesis::plan::TensorSpec;
use anamnesis::sink::{Container, FileSink, GGUF, NPZ, SAFETENSORS, Sharding, TensorWriter};
use anamnesis::{Checkpoint, Dtype, Encoding, ErrorKind};

const CONTAINERS: [&Container; 3] = [&SAFETENSORS, &GGUF, &NPZ];

/// A description that a writer takes, for what is stored in a file.
fn spec(tensor: &anamnesis::Tensor<'_>) -> TensorSpec {
    let info = tensor.info();
    let (dtype, block) = match &info.encoding {
        Encoding::Plain(dtype) => (*dtype, None),
        Encoding::Block(block) => (Dtype::U8, Some(*block)),
        other => panic!("{other:?}"),
    };
    TensorSpec {
        block,
        ..TensorSpec::new(&*info.name, info.shape.clone(), dtype)
    }
}

/// The tensors of a checkpoint, by name.
fn all(checkpoint: &Checkpoint) -> BTreeMap<String, (String, Shape, Vec<u8>)> {
    let tensors = checkpoint.tensors().filter_map(|tensor| {
        let info = tensor.info();
        let bytes = tensor.bytes().ok()?.into_owned();
        let dtype = info.encoding.name().to_owned();
        Some((info.name.to_string(), (dtype, info.shape.clone(), bytes)))
    });
    tensors.collect()
}

/// Writes the tensors in a random order, in pieces of random lengths or from readers.
fn write(
    writer: &mut TensorWriter,
    tensors: &BTreeMap<String, (String, Shape, Vec<u8>)>,
    random: &mut Random,
) {
    let mut left: Vec<(&str, &[u8])> = tensors
        .iter()
        .map(|(name, (.., bytes))| (&**name, &**bytes))
        .collect();
    while !left.is_empty() {
        let at = random.below(u32::try_from(left.len()).unwrap()) as usize;
        let (name, bytes) = &mut left[at];
        let len = random.below(u32::try_from(bytes.len()).unwrap() + 1) as usize;
        if random.below(8) == 0 {
            writer.write_from(name, bytes).unwrap();
        } else {
            let piece = bytes.split_off(..len).unwrap();
            writer.write(name, piece).unwrap();
        }
        if bytes.is_empty() {
            left.swap_remove(at);
        }
    }
}

#[test]
fn tensors_of_every_fixture_are_written_as_they_are_given() {
    let scratch = ScratchDir::new("tensor-writer");
    let mut random = Random(3);
    let mut written = BTreeMap::new();
    for (number, (path, _)) in fixtures().into_iter().enumerate() {
        let Ok(checkpoint) = Checkpoint::open(&path) else {
            continue;
        };
        let tensors = all(&checkpoint);
        let specs: Vec<TensorSpec> = checkpoint
            .tensors()
            .filter(|tensor| tensors.contains_key(&*tensor.info().name))
            .filter(|tensor| {
                matches!(
                    tensor.info().encoding,
                    Encoding::Plain(_) | Encoding::Block(_)
                )
            })
            .map(|tensor| spec(&tensor))
            .collect();
        if specs.is_empty() || specs.len() < tensors.len() {
            continue;
        }
        for container in CONTAINERS {
            let file = scratch.path(&format!("{number}.{}", container.name));
            let sink = FileSink::new(&file, Sharding::SingleFile).container(container);
            let mut writer = match TensorWriter::begin(sink, specs.clone()) {
                Ok(writer) => writer,
                // the container cannot hold it
                Err(error) => {
                    assert!(!file.exists(), "{error}");
                    continue;
                }
            };
            let order: Vec<String> = writer.order().map(str::to_owned).collect();
            write(&mut writer, &tensors, &mut random);
            assert!(!file.exists());
            assert_eq!(writer.finish().unwrap(), [&*file]);
            let made = Checkpoint::open(&file).unwrap();
            assert!(
                all(&made) == tensors,
                "{} to {}",
                path.display(),
                container.name
            );
            let mut places: Vec<_> = made.catalog().tensors().iter().collect();
            places.sort_by_key(|info| (info.bytes.start, info.bytes.len));
            if places.iter().all(|info| info.bytes.len > 0) {
                assert!(
                    places
                        .iter()
                        .map(|info| &*info.name)
                        .eq(order.iter().map(String::as_str))
                );
            }
            *written.entry(container.name).or_insert(0) += 1;
        }
    }
    assert!(
        CONTAINERS
            .iter()
            .all(|container| written[container.name] > 40),
        "{written:?}"
    );
}

fn pair(path: &Path) -> TensorWriter {
    let sink = FileSink::new(path, Sharding::SingleFile).overwrite(true);
    let tensor =
        |name: &str, shape: &[u64]| TensorSpec::new(name, Shape::from_slice(shape), Dtype::F32);
    TensorWriter::begin(sink, vec![tensor("a", &[2]), tensor("b", &[0])]).unwrap()
}

#[test]
fn an_incomplete_file_is_none() {
    let scratch = ScratchDir::new("tensor-writer-part");
    let path = scratch.path("out.safetensors");
    fs::write(&path, "old").unwrap();
    let mut writer = pair(&path);
    writer.write("a", &[1; 5]).unwrap();
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("`a`: 5 of 8 bytes were written"), "{error}");
    // too many, of another name, a reader that ends: what was written before is as it was
    let mut writer = pair(&path);
    let error = writer.write("a", &[1; 9]).unwrap_err().to_string();
    assert!(
        error.contains("8 bytes are missing, and 9 were given"),
        "{error}"
    );
    let error = writer.write("c", &[]).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotFound { .. }),
        "{error}"
    );
    let error = writer
        .write_from("a", &mut &[7; 3][..])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the reader ended with 5 bytes missing"),
        "{error}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"old");
    writer.write_from("a", &mut &[8; 5][..]).unwrap();
    writer.finish().unwrap();
    let made = Checkpoint::open(&path).unwrap();
    assert_eq!(
        *made.tensor("a").unwrap().bytes().unwrap(),
        [7, 7, 7, 8, 8, 8, 8, 8]
    );
    // dropped
    let mut writer = pair(&path);
    writer.write("a", &[0; 8]).unwrap();
    drop(writer);
    assert_eq!(
        *made.tensor("a").unwrap().bytes().unwrap(),
        [7, 7, 7, 8, 8, 8, 8, 8]
    );
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_name_twice_is_refused() {
    let scratch = ScratchDir::new("tensor-writer-twice");
    let sink = FileSink::new(scratch.path("out.npz"), Sharding::SingleFile).container(&NPZ);
    let tensor = TensorSpec::new("a", Shape::from_slice(&[1]), Dtype::F32);
    let error = TensorWriter::begin(sink, vec![tensor.clone(), tensor]).unwrap_err();
    assert!(
        error.to_string().contains("its name is there twice"),
        "{error}"
    );
}

#[test]
fn shards_are_written_one_by_one() {
    let scratch = ScratchDir::new("tensor-writer-shards");
    let tensors: Vec<_> = (0..9)
        .map(|i| TensorSpec::new(format!("t{i}"), Shape::from_slice(&[100]), Dtype::U8))
        .collect();
    let sink = FileSink::new(scratch.path("out"), Sharding::Shards(250));
    let mut writer = TensorWriter::begin(sink, tensors).unwrap();
    for i in 0..9u8 {
        writer.write(&format!("t{i}"), &[i; 100]).unwrap();
    }
    assert_eq!(writer.finish().unwrap().len(), 5);
    let made = Checkpoint::open(scratch.path("out")).unwrap();
    for i in 0..9u8 {
        let tensor = made.tensor(&format!("t{i}")).unwrap();
        assert_eq!(*tensor.bytes().unwrap(), [i; 100]);
    }
}
