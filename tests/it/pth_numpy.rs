//! Values of numpy in the object of a PyTorch file: descriptors and bytes, and hostile dtypes that end in a refusal or an error.

use std::time::Duration;

use crate::pth_objects::{stream, value};
use crate::support;
use crate::support::testing::ThreadTime;
use anamnesis::objects::ObjectNode;
use anamnesis::{ErrorKind, OpenOptions};

#[test]
fn values_of_numpy_are_nodes() {
    let path = support::fixture("pth/values").join("arrays4.pth");
    let objects = OpenOptions::new().objects(path).unwrap().unwrap();
    let tree = objects.tree();
    let ObjectNode::NumpyArray(names) = value(tree, "names") else {
        panic!("{:?}", value(tree, "names"));
    };
    assert_eq!((&*names.dtype, &*names.shape), ("<U1", &[2][..]));
    assert_eq!(&*names.bytes, b"a\0\0\0b\0\0\0");
    let step = value(tree, "step");
    let half = ObjectNode::NumpyScalar {
        dtype: "<f8".into(),
        bytes: 0.5_f64.to_le_bytes().into(),
    };
    assert_eq!(*step, half);
    let ObjectNode::NumpyObjects { shape, items, .. } = value(tree, "objects") else {
        panic!("{:?}", value(tree, "objects"));
    };
    assert_eq!((&**shape, items.len()), (&[2][..], 2));
}

/// A dtype of numpy with this type code and state, in protocol 0.
fn numpy_dtype(code: &str, state: &str) -> String {
    format!("cnumpy\ndtype\n(V{code}\nI00\nI01\ntR({state}tb")
}

/// The dtype of a structure of `count` fields of `size` bytes each.
fn structure(field: &str, count: u64, size: u64) -> String {
    let names: String = (0..count).map(|i| format!("Vf{i}\n")).collect();
    let fields = (0..count).map(|i| format!("Vf{i}\n({field}I{}\nt", i * size));
    let fields: String = fields.collect();
    let nbytes = count * size;
    let state = format!("I3\nV|\nN({names}t({fields}dI{nbytes}\nI1\nI0\n");
    numpy_dtype(&format!("V{nbytes}"), &state)
}

#[test]
fn structures_of_numpy_have_padding_and_end() {
    let int = numpy_dtype("i4", "I3\nV>\nNNNI-1\nI-1\nI0\n");
    let of = |dtype: &str| {
        let object = format!("(dVa\n{dtype}s.");
        OpenOptions::new().objects_from_bytes(stream(object.as_bytes()))
    };
    let node = |dtype: &str| {
        let objects = of(dtype).unwrap().unwrap();
        value(objects.tree(), "a").clone()
    };
    let padded = structure(&int, 2, 6);
    let expected = "[('f0', '>i4'), ('', '|V2'), ('f1', '>i4'), ('', '|V2')]";
    assert_eq!(node(&padded), ObjectNode::NumpyDtype(expected.into()));
    for (dtype, why) in [
        (structure(&int, 2, 3), "overlap"),
        (numpy_dtype("O8", "I3\nV|\nNNNI-1\nI-1\nI63\n"), "object"),
        (
            numpy_dtype("z4", "I3\nV<\nNNNI-1\nI-1\nI0\n"),
            "unknown numpy dtype",
        ),
        (
            (0..20).fold(int.clone(), |inner, _| structure(&inner, 1, 4)),
            "levels",
        ),
    ] {
        let ObjectNode::Refused(reason) = node(&dtype) else {
            panic!("{why}: {:?}", node(&dtype));
        };
        assert!(reason.contains(why), "{reason}");
    }
    // each level has ten fields of the one below, which is one value of the pickle: 10^11 fields in a few kilobytes
    let start = ThreadTime::start();
    let mut wide = format!("{int}p0\n0");
    let mut size = 4;
    for level in 1..12 {
        let field = format!("g{}\n", level - 1);
        wide = format!("{wide}{}p{level}\n0", structure(&field, 10, size));
        size *= 10;
    }
    let object = format!("{wide}(dVa\ng8\ns.");
    let error = OpenOptions::new()
        .objects_from_bytes(stream(object.as_bytes()))
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}
