//! The object of a PyTorch file as a graph: cycles and shared values are references, tensors refer to the catalog, and hostile
//! files end in an error.

use std::path::PathBuf;
use std::time::Duration;

use crate::support::corpus::corpus_entries;
use crate::support::testing::ThreadTime;
use crate::support::{self, amplifiers};
use anamnesis::objects::{DictClass, ObjectNode, ObjectTree};
use zip::CompressionMethod;

use anamnesis::{Checkpoint, Encoding, ErrorKind, Limits, Objects, OpenOptions};

fn files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(support::fixture(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == "pth" || e == "pt"))
        .collect()
}

/// A stream of PyTorch's older format without storages, with this pickle as its object.
pub(crate) fn stream(object: &[u8]) -> Vec<u8> {
    let parts: [&[u8]; 5] = [
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
        b"\x80\x02M\xe9\x03.",
        b"\x80\x02}.",
        object,
        b"\x80\x02].",
    ];
    parts.concat()
}

fn tree(object: &[u8]) -> ObjectTree {
    let objects = OpenOptions::new().objects_from_bytes(stream(object));
    objects.unwrap().unwrap().into_parts().0
}

pub(crate) fn value<'t>(tree: &'t ObjectTree, wanted: &str) -> &'t ObjectNode {
    let ObjectNode::Dict { entries, .. } = &tree.nodes[0] else {
        panic!("{:?} is not a dict", tree.nodes[0]);
    };
    let is_wanted =
        |key: u32| matches!(&tree.nodes[key as usize], ObjectNode::Text(text) if **text == *wanted);
    let entry = entries.iter().find(|&&(key, _)| is_wanted(key));
    &tree.nodes[entry.expect("the key exists").1 as usize]
}

#[test]
fn tensors_refer_to_entries_of_the_catalog_and_to_storages() {
    let mut tensors = 0;
    for path in files("pth").into_iter().chain(files("pth/dtype")) {
        if path.to_string_lossy().contains("whole_module") {
            continue;
        }
        let checkpoint = Checkpoint::open(&path).unwrap();
        let objects = checkpoint.objects().unwrap().unwrap();
        for node in &objects.tree().nodes {
            let ObjectNode::Tensor(tensor) = node else {
                continue;
            };
            tensors += 1;
            assert!(tensor.storage < objects.tree().storages);
            let storage = objects
                .storages()
                .tensor(&tensor.storage.to_string())
                .unwrap();
            let bytes = storage.bytes().unwrap();
            // parts of sparse and quantised tensors have no name of their own
            let Some(row) = tensor.entry else { continue };
            let info = &checkpoint.catalog().tensors()[row as usize];
            let Encoding::Plain(dtype) = info.encoding else {
                panic!("{info:?}")
            };
            if let Some(item) = dtype.item_bytes() {
                assert_eq!(*tensor.shape, *info.shape, "{}", path.display());
                let first = usize::try_from(tensor.offset * item).unwrap();
                let item = usize::try_from(item).unwrap();
                // the first element is at the offset; signs that a flag flips are not in the storage
                let whole = checkpoint.tensor(&info.name).unwrap().bytes().unwrap();
                if !whole.is_empty() && tensor.view_flags == Default::default() {
                    assert_eq!(
                        bytes[first..first + item],
                        whole[..item],
                        "{}",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(tensors > 200, "{tensors}");
}

#[test]
fn ties_and_gradients_are_kept() {
    let open = |name: &str| {
        let path = support::fixture("pth").join(name);
        OpenOptions::new().objects(path).unwrap().unwrap()
    };
    let numbers = |objects: &Objects| -> Vec<u32> {
        let tensors = objects.tree().nodes.iter().filter_map(|node| match node {
            ObjectNode::Tensor(tensor) => Some(tensor.storage),
            _ => None,
        });
        tensors.collect()
    };
    for name in ["tied.pth", "tied.legacy.pth"] {
        let objects = open(name);
        let storages = numbers(&objects);
        let distinct: std::collections::HashSet<_> = storages.iter().collect();
        assert!(distinct.len() < storages.len(), "{name}: {storages:?}");
    }
    let parameters = open("parameter_objs.pth");
    let grad = |node: &ObjectNode| {
        matches!(
            node,
            ObjectNode::Parameter {
                requires_grad: true,
                ..
            }
        )
    };
    assert!(parameters.tree().nodes.iter().any(grad));
}

#[test]
fn values_keep_their_classes() {
    // {"big": -2**200, "set": {1}, "counter": Counter({1: 2}), "ordered": OrderedDict() with attributes, "array": bytearray}
    let mut object = b"\x80\x05}(\x8c\x03big\x8a\x1a".to_vec();
    object.extend([0; 25]);
    object.extend(b"\xff");
    object.extend(b"\x8c\x03set\x8f(K\x01\x90\x8c\x06frozen(K\x01\x91\x8c\x07counterccollections\nCounter\n}K\x01K\x02s\x85R");
    object.extend(b"\x8c\x07orderedccollections\nOrderedDict\n)R}\x8c\x01aK\x01sb");
    object.extend(b"\x8c\x05array\x96\x02\x00\x00\x00\x00\x00\x00\x00ab\x8c\x07complexcbuiltins\ncomplex\nK\x01K\x02\x86Ru.");
    let tree = tree(&object);
    let expected = format!("-0x01{}", "0".repeat(50));
    assert_eq!(*value(&tree, "big"), ObjectNode::BigInt(expected.into()));
    assert!(matches!(value(&tree, "set"), ObjectNode::Set(items, false) if items.len() == 1));
    assert!(matches!(value(&tree, "frozen"), ObjectNode::Set(items, true) if items.len() == 1));
    assert!(matches!(
        value(&tree, "counter"),
        ObjectNode::Dict {
            class: DictClass::Counter,
            ..
        }
    ));
    assert!(matches!(
        value(&tree, "ordered"),
        ObjectNode::Dict {
            class: DictClass::Ordered,
            attributes: Some(_),
            ..
        }
    ));
    assert_eq!(
        *value(&tree, "array"),
        ObjectNode::Bytes((*b"ab").into(), true)
    );
    assert_eq!(*value(&tree, "complex"), ObjectNode::Complex(1.0, 2.0));
}

#[test]
fn a_list_that_contains_itself_is_one_node() {
    let tree = tree(b"\x80\x02]q\x00h\x00a.");
    assert_eq!(tree.nodes, [ObjectNode::List(Box::new([0]))]);
}

#[test]
fn shared_lists_are_nodes_and_not_expanded() {
    // 60 levels, each a list of two references to the level below: 2^60 paths
    let mut object = b"\x80\x02]q\x00".to_vec();
    for level in 0..60u8 {
        object.extend([b']', b'q', level + 1, b'(', b'h', level, b'h', level, b'e']);
    }
    object.push(b'.');
    assert_eq!(tree(&object).nodes.len(), 61);
    // the names of the catalog are paths, so that the file cannot be opened as a list of tensors
    let listed = OpenOptions::new().from_bytes(stream(&object)).unwrap_err();
    assert!(matches!(listed.kind(), ErrorKind::Limit { .. }), "{listed}");
}

#[test]
fn deep_nesting_does_not_recurse() {
    let mut object = b"\x80\x02".to_vec();
    object.extend([b']'; 200_000]);
    object.extend([b'a'; 199_999]);
    object.push(b'.');
    assert_eq!(tree(&object).nodes.len(), 200_000);
    let limits = Limits {
        memory: 1 << 20,
        ..Limits::default()
    };
    let limited = OpenOptions::new().limits(limits);
    let error = limited.objects_from_bytes(stream(&object)).unwrap_err();
    assert!(support::is_memory_limit(&error), "{error}");
}

/// A tensor of a device that is given as a tensor of a device, `count` times, and attributes that are set on the first and on
/// the last.
fn device_tensors(count: usize) -> Vec<u8> {
    let from_type = |attribute: u8| {
        let mut call = b"ctorch._tensor\n_rebuild_from_type_v2\n(h\x01ctorch\nTensor\n(h\x00h\x02U\x03cpu\x89t}U\x01".to_vec();
        call.extend([attribute, b'N']);
        call.extend(b"stRq\x000");
        call
    };
    let pickle = [
        b"\x80\x02".to_vec(),
        amplifiers::tensor(),
        b"q\x000ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\nq\x010ctorch\nfloat32\nq\x020".to_vec(),
        from_type(b'a'),
        b"h\x01(h\x00h\x02U\x03cpu\x89tRq\x000".repeat(count),
        from_type(b'z'),
        b"h\x00.".to_vec(),
    ];
    amplifiers::checkpoint(CompressionMethod::Stored, pickle.concat())
}

#[test]
fn a_value_that_calls_pass_on_is_found_without_recursion() {
    let objects = OpenOptions::new()
        .objects_from_bytes(device_tensors(50))
        .unwrap()
        .unwrap();
    let nodes = &objects.tree().nodes;
    let ObjectNode::Tensor(tensor) = &nodes[0] else {
        panic!("{:?} is not a tensor", nodes[0]);
    };
    let attributes = tensor.attributes.expect("they are set") as usize;
    let ObjectNode::Dict { entries, .. } = &nodes[attributes] else {
        panic!("{:?} is not a dict", nodes[attributes]);
    };
    // the entry that is set last counts
    assert_eq!(nodes[entries[0].0 as usize], ObjectNode::Text("z".into()));
    let refused = OpenOptions::new().objects_from_bytes(device_tensors(50_000));
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Limit { limit: "depth", .. }),
        "{refused}"
    );
    // the tensors of the catalog do not depend on the calls in between
    let listed = Checkpoint::from_bytes(device_tensors(50_000)).unwrap();
    assert_eq!(listed.catalog().tensors().len(), 1);
}

/// Before PyTorch 0.4 a state gave a tensor its storage, which can be younger than the tensor and than other storages.
#[test]
fn storages_are_those_of_their_tensors_in_any_order() {
    let id = |key: &str, numel: u8| {
        let parts = [
            &b"(X\x07\0\0\0storagectorch\nFloatStorage\n"[..],
            &amplifiers::spelt(key),
            b"NK",
            &[numel],
            b"tQ",
        ];
        parts.concat()
    };
    let pickle = [
        &b"\x80\x02](ctorch\nFloatTensor\n)Rq\x01ctorch._utils\n_rebuild_tensor\n("[..],
        &id("0", 1),
        b"K\0K\x01\x85K\x01\x85tRh\x01(",
        &id("1", 2),
        b"K\0K\x02\x85K\x01\x85tb0e.",
    ];
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let members = [
        ("a/data.pkl".to_owned(), pickle.concat()),
        ("a/data/0".to_owned(), bytes(&[1.0])),
        ("a/data/1".to_owned(), bytes(&[2.0, 3.0])),
    ];
    let file = amplifiers::zip(CompressionMethod::Stored, members.into_iter());
    let objects = OpenOptions::new()
        .objects_from_bytes(file)
        .unwrap()
        .unwrap();
    support::object_references::check(&objects, 0);
    let numbers = objects.tree().nodes.iter().filter_map(|node| match node {
        ObjectNode::Tensor(tensor) => {
            let name = tensor.storage.to_string();
            let storage = objects.storages().tensor(&name).unwrap();
            Some(storage.bytes().unwrap().into_owned())
        }
        _ => None,
    });
    let expected: [Vec<u8>; 2] = [bytes(&[2.0, 3.0]), bytes(&[1.0])];
    assert_eq!(numbers.collect::<Vec<_>>(), expected);
}

/// Each id looks up its storage, so that a long key would cost its length as often as the file likes.
#[test]
fn long_keys_of_storages_are_refused() {
    let file = |len: usize| {
        let key = "k".repeat(len);
        let pickle = [
            b"\x80\x02(X\x07\0\0\0storagectorch\nFloatStorage\n".to_vec(),
            amplifiers::spelt(&key),
            b"NK\x01tQ.".to_vec(),
        ];
        let members = [
            ("a/data.pkl".to_owned(), pickle.concat()),
            (format!("a/data/{key}"), vec![0; 4]),
        ];
        amplifiers::zip(CompressionMethod::Stored, members.into_iter())
    };
    let objects = OpenOptions::new().objects_from_bytes(file(256));
    let nodes = objects.unwrap().unwrap().into_parts().0.nodes;
    assert_eq!(nodes, [ObjectNode::Storage(0, Some("float32"))]);
    let refused = OpenOptions::new()
        .objects_from_bytes(file(257))
        .unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::Malformed(_)),
        "{refused}"
    );
}

#[test]
fn files_that_are_cut_at_any_byte_are_refused() {
    for name in ["tied.pth", "tied.legacy.pth"] {
        let bytes = std::fs::read(support::fixture("pth").join(name)).unwrap();
        assert!(
            OpenOptions::new()
                .objects_from_bytes(bytes.clone())
                .unwrap()
                .is_some()
        );
        for len in 0..bytes.len() {
            let cut = OpenOptions::new().objects_from_bytes(bytes[..len].to_vec());
            assert!(!matches!(cut, Ok(Some(_))), "{name} at {len}");
        }
    }
}

#[test]
fn files_with_a_changed_byte_end_in_an_error_or_in_references_that_exist() {
    let limits = Limits {
        memory: 64 << 20,
        ..Limits::default()
    };
    for name in ["nested.legacy.pth", "qint.legacy.pth", "sparse.legacy.pth"] {
        let bytes = std::fs::read(support::fixture("pth").join(name)).unwrap();
        for at in 0..bytes.len().min(1500) {
            for changed in [0, b'.', b'0', b'e', b'h', b'q', bytes[at] ^ 1, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = changed;
                let options = OpenOptions::new().limits(limits).opaque(at % 2 == 0);
                if let Ok(Some(objects)) = options.objects_from_bytes(bytes) {
                    support::object_references::check(&objects, 0);
                }
            }
        }
    }
}

/// The malformed files of the corpus: what is refused as a list of tensors has no object either.
#[test]
fn malformed_files_of_the_corpus_have_no_object_or_a_whole_one() {
    let Some(entries) = corpus_entries("malformed", &["pth"]) else {
        return;
    };
    let (mut refused, mut made) = (0, 0);
    for entry in entries {
        let opened = Checkpoint::open(&entry.path);
        for (mapped, opaque) in [(true, false), (false, false), (true, true)] {
            let options = OpenOptions::new().mmap(mapped).opaque(opaque);
            let began = ThreadTime::start();
            let objects = options.objects(&entry.path);
            let time = began.elapsed();
            assert!(time < Duration::from_secs(2), "{}: {time:?}", entry.name);
            match objects {
                Ok(Some(objects)) => {
                    support::object_references::check(&objects, 0);
                    // many names and deep ones are no limit of a graph
                    let is_limit =
                        |e: &anamnesis::Error| matches!(e.kind(), ErrorKind::Limit { .. });
                    let is_refused = opened.as_ref().is_err_and(|e| !is_limit(e));
                    assert!(opaque || !is_refused, "{} has an object", entry.name);
                    made += 1;
                }
                Ok(None) => {}
                Err(e) => {
                    assert!(!matches!(e.kind(), ErrorKind::Io(_)), "{}: {e}", entry.name);
                    refused += 1;
                }
            }
        }
        if let Ok(checkpoint) = opened
            && let Ok(Some(objects)) = checkpoint.objects()
        {
            let rows = checkpoint.catalog().tensors().len();
            support::object_references::check(&objects, rows);
        }
    }
    println!("{refused} are refused, {made} have an object");
    assert!(refused > 300 && made > 0, "{refused} {made}");
}

#[test]
fn pickles_that_run_code_have_no_tree() {
    for path in files("pth/evil") {
        let error = OpenOptions::new().objects(&path).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::RefusedGlobal { .. }),
            "{error}"
        );
        assert_eq!(error.path(), Some(&*path));
    }
    let path = support::fixture("pth/values/opaque.pth");
    let objects = OpenOptions::new()
        .opaque(true)
        .objects(path)
        .unwrap()
        .unwrap();
    let named = |node: &ObjectNode| matches!(node, ObjectNode::Opaque { class, .. } if **class == *"argparse.Namespace");
    assert!(objects.tree().nodes.iter().any(named));
}

#[test]
fn other_formats_have_no_tree() {
    let path = support::fixture("npy/bf16.npy");
    assert!(OpenOptions::new().objects(&path).unwrap().is_none());
    assert!(Checkpoint::open(path).unwrap().objects().unwrap().is_none());
    let directory = support::fixture("safetensors/sharded");
    assert!(OpenOptions::new().objects(directory).unwrap().is_none());
}
