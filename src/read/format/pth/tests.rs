//! Tests of the PyTorch reader on legacy streams that are assembled by hand.

use crate::base::error::{ErrorKind, Result};
use crate::base::limits::{Budget, Limits};
use crate::read::catalog::metadata::Value;
use crate::read::catalog::{Catalog, Endian, Layout};
use crate::read::format::pickle;
use crate::read::source::MemorySource;
use crate::read::source::cursor::Cursor;

/// A legacy stream of this pickled object, with storages of `f32`.
fn stream(object: &[u8], storages: &[(&str, &[f32])]) -> Vec<u8> {
    let mut bytes =
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}."
            .to_vec();
    bytes.extend(object);
    bytes.extend(b"\x80\x02](");
    for (key, _) in storages {
        bytes.extend(b"U");
        bytes.push(u8::try_from(key.len()).unwrap());
        bytes.extend(key.bytes());
    }
    bytes.extend(b"e.");
    for (_, elements) in storages {
        bytes.extend((elements.len() as u64).to_le_bytes());
        elements.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
    }
    bytes
}

fn list_with(bytes: Vec<u8>, limits: Limits) -> Result<Catalog> {
    let (memory, budget) = (MemorySource::new(bytes), Budget::new(limits));
    super::legacy::read(&mut Cursor::new(&memory, &budget), false)
}

fn list(bytes: Vec<u8>) -> Result<Catalog> {
    list_with(bytes, Limits::default())
}

/// A call of `_rebuild_tensor_v2` on storage `0` of six elements.
fn tensor(offset: &str, size: &str, stride: &str) -> Vec<u8> {
    let mut bytes =
        b"ctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x06NtQ".to_vec();
    bytes.extend(format!("{offset}({size}t({stride}tI00\nNtR").bytes());
    bytes
}

fn catalog_of_one(offset: &str, size: &str, stride: &str) -> Result<Catalog> {
    let object = [b"\x80\x02", &*tensor(offset, size, stride), b"."].concat();
    list(stream(&object, &[("0", &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])]))
}

#[test]
fn strides_become_layouts() {
    let layout = |offset, size, stride| {
        catalog_of_one(offset, size, stride).unwrap().tensors()[0]
            .layout
            .clone()
    };
    assert_eq!(layout("I0\n", "I2\nI3\n", "I3\nI1\n"), Layout::RowMajor);
    assert_eq!(
        layout("I0\n", "I2\nI1\nI3\n", "I3\nI99\nI1\n"),
        Layout::RowMajor
    );
    assert_eq!(
        layout("I0\n", "I3\nI2\n", "I1\nI3\n"),
        Layout::Strided([1, 3].into())
    );
    assert_eq!(layout("I5\n", "I4\n", "I0\n"), Layout::Strided([0].into()));
    assert_eq!(layout("I9\n", "I0\nI4\n", "I4\nI1\n"), Layout::RowMajor);
    assert_eq!(layout("I5\n", "", ""), Layout::RowMajor);
}

#[test]
fn byte_range_covers_the_strides() {
    let catalog = catalog_of_one("I1\n", "I2\nI2\n", "I1\nI2\n").unwrap();
    let info = &catalog.tensors()[0];
    let member = &catalog.members[0];
    assert_eq!(
        (info.bytes.start - member.bytes.start, info.bytes.len),
        (4, 16)
    );
    assert_eq!(&*info.name, "");
}

#[test]
fn views_outside_their_storage_are_malformed() {
    for (offset, size, stride) in [
        ("I1\n", "I6\n", "I1\n"),
        ("I6\n", "", ""),
        ("I-1\n", "I2\n", "I1\n"),
        ("I0\n", "I-2\n", "I1\n"),
        ("I0\n", "I2\n", "I-1\n"),
        ("I0\n", "I2\n", "I1\nI1\n"),
        ("I0\n", "I2\nI2\n", "I3\nI3\n"),
        ("I0\n", "I2\n", "I9223372036854775807\n"),
        ("I9223372036854775807\n", "I2\n", "I9223372036854775807\n"),
        ("I0\n", "I4294967296\nI4294967296\n", "I0\nI0\n"),
        ("I0\n", "I0\nI4294967296\nI4294967296\n", "I0\nI0\nI0\n"),
        ("I0\n", "I4611686018427387904\n", "I0\n"), // 2^62 elements of four bytes exceed 63 bits
        ("F1.0\n", "I2\n", "I1\n"),
    ] {
        let error = catalog_of_one(offset, size, stride).expect_err(size);
        assert!(
            matches!(error.kind(), ErrorKind::Malformed(_)),
            "{offset} {size} {stride}: {error}"
        );
    }
}

#[test]
fn names_join_dict_keys_and_list_positions() {
    let t = tensor("I0\n", "I2\n", "I1\n");
    let object = [
        b"\x80\x02}(U\x01a](",
        &*t,
        b"}K\x07",
        &t,
        b"sU\x01xeU\x01bK\x03U\x01c(K\x01K\x02tu.",
    ]
    .concat();
    let catalog = list(stream(&object, &[("0", &[0.0; 6])])).unwrap();
    let names: Vec<&str> = catalog.tensors().iter().map(|t| &*t.name).collect();
    assert_eq!(names, ["a.0", "a.1.7"]);
    assert_eq!(catalog.tensors()[0].member, catalog.tensors()[1].member);
    assert_eq!(catalog.metadata.text("a.2"), Some("x"));
    assert_eq!(catalog.metadata.integer("b"), Some(3));
    assert_eq!(
        catalog.metadata.get("c"),
        Some(&Value::List([Value::I64(1), Value::I64(2)].into()))
    );
    assert_eq!(catalog.details.text("container"), Some("legacy"));
}

#[test]
fn cycles_are_reported_and_not_followed() {
    let catalog = list(stream(b"\x80\x02}q\x00U\x01ah\x00s.", &[])).unwrap();
    assert!(catalog.tensors().is_empty());
    assert!(catalog.warnings[0].contains("contains itself"));
}

#[test]
fn shared_containers_exhaust_the_step_limit() {
    // each level contains the level below it ten times
    let mut object = b"\x80\x02".to_vec();
    object.extend(tensor("I0\n", "I2\n", "I1\n"));
    for _ in 0..12 {
        object.extend(b"q\x00](");
        object.extend(b"h\x00".repeat(10));
        object.extend(b"e");
    }
    object.extend(b".");
    let limits = Limits {
        memory: if cfg!(miri) { 64 << 10 } else { 4 << 20 },
        ..Limits::default()
    };
    let error = list_with(stream(&object, &[("0", &[0.0; 6])]), limits).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
}

#[test]
fn deep_nesting_exhausts_the_depth_limit() {
    let deep = [
        b"\x80\x02N".to_vec(),
        b"\x85".repeat(if cfg!(miri) { 200 } else { 100_000 }),
        b".".to_vec(),
    ]
    .concat();
    let error = list(stream(&deep, &[])).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Limit { limit: "depth", .. }),
        "{error}"
    );
    list_with(stream(&deep, &[]), Limits::none()).unwrap();
}

#[test]
fn legacy_storage_views_select_a_part() {
    let view = |offset: u8, size: u8| {
        let object = [
            &b"\x80\x02ctorch._utils\n_rebuild_tensor\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x06(U\x011K"
                [..],
            &[offset, b'K', size],
            b"ttQK\x01K\x02\x85K\x01\x85tR.",
        ]
        .concat();
        list(stream(&object, &[("0", &[0.0; 6])]))
    };
    let catalog = view(2, 3).unwrap();
    assert_eq!(
        catalog.tensors()[0].bytes.start - catalog.members[0].bytes.start,
        3 * 4
    );
    assert!(
        view(2, 2).is_err(),
        "the tensor needs elements 1 and 2 of the view"
    );
    assert!(view(4, 3).is_err(), "the view leaves the storage");
}

#[test]
fn legacy_element_counts_are_verified() {
    let object = [b"\x80\x02", &*tensor("I0\n", "I2\n", "I1\n"), b"."].concat();
    let valid = stream(&object, &[("0", &[0.0; 6])]);
    list(valid.clone()).unwrap();
    let count_at = valid.len() - 32;
    for count in [5u64, 7, u64::MAX] {
        let mut invalid = valid.clone();
        invalid[count_at..count_at + 8].copy_from_slice(&count.to_le_bytes());
        assert!(list(invalid).is_err());
    }
    assert!(list(valid[..valid.len() - 1].to_vec()).is_err());
    let trailing = list([&valid[..], b"more"].concat()).unwrap();
    assert!(trailing.warnings[0].contains("4 bytes follow"));
}

#[test]
fn pickles_without_the_magic_number_are_not_checkpoints() {
    for bytes in [
        &b"\x80\x02K\x01."[..],
        b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}.",
    ] {
        let error = list(bytes.to_vec()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("a bare pickle, which torch.save has not written"),
            "{error}"
        );
    }
}

#[test]
fn legacy_typed_storages_are_always_little_endian() {
    let object = [b"\x80\x02", &*tensor("I0\n", "I2\n", "I1\n"), b"."].concat();
    let mut bytes = stream(&object, &[("0", &[0.0; 6])]);
    let at = bytes.windows(4).position(|w| w == b"\x02}.\x80").unwrap() + 2;
    bytes.splice(at..at, *b"U\x0dlittle_endian\x89s");
    let catalog = list(bytes).unwrap();
    assert_eq!(catalog.tensors()[0].endian, Endian::Little);
    assert_eq!(catalog.details.text("byteorder"), Some("big"));
}

#[test]
fn objects_that_contain_only_themselves_are_malformed() {
    let bytes = b"c__torch__\nA\n)\x81q\x00h\x00b.";
    let (memory, budget) = (
        MemorySource::new(bytes.to_vec()),
        Budget::new(Limits::none()),
    );
    let pickle = pickle::read(
        &mut Cursor::new(&memory, &budget),
        pickle::Vocabulary::TorchScript,
        false,
    )
    .unwrap();
    let mut locate = |_: &str| unreachable!("no storages");
    let storages = super::storage::Storages::new([Endian::Little; 2], 0, &mut locate);
    let rebuilt = super::rebuild::rebuild(
        &pickle.heap,
        storages,
        super::rebuild::numpy::PickleBytes::Stored(0),
    )
    .unwrap();
    let mut catalog = Catalog::new("pth");
    assert!(super::flatten::flatten(&pickle.heap, pickle.root, rebuilt, &mut catalog).is_err());
}

#[test]
fn safetensors_header_length_is_not_taken_for_a_pickle() {
    let mut bytes = 0x0280u64.to_le_bytes().to_vec();
    bytes.extend(format!("{:<640}", "{}").bytes());
    assert_eq!(
        crate::read::checkpoint::Checkpoint::from_bytes(bytes)
            .unwrap()
            .catalog()
            .format,
        "safetensors"
    );
}

/// A call of `_rebuild_from_type_v2` for a tensor of this torchao class, with this size and these attributes.
fn subclass(class: &str, size: &str, attributes: &[u8]) -> Vec<u8> {
    let class = format!("ctorchao.quantization\n{class}\n");
    let mut bytes =
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_wrapper_subclass\n"
            .to_vec();
    bytes.extend(format!("{class}({class}ctorch\nfloat32\n({size}t(I3\nI1\ntI0\nNNI00\nt").bytes());
    bytes.extend(attributes);
    bytes.extend(b"tR");
    bytes
}

fn list_subclass(class: &str, size: &str, attributes: &[u8]) -> Result<Catalog> {
    let object = [
        b"\x80\x02}U\x08a.weight",
        &*subclass(class, size, attributes),
        b"s.",
    ]
    .concat();
    list(stream(&object, &[("0", &[0.0; 6])]))
}

#[test]
fn torchao_tensor_is_listed_as_its_parts() {
    let t = tensor("I0\n", "I2\nI3\n", "I3\nI1\n");
    // options of the matrix multiplication are objects with a state and are left out, like attributes that no class has
    let kernel = &b"ctorchao.quantization.granularity\nPerRow\n)\x81}U\x03dimI1\nsb"[..];
    let attributes = [
        &b"}(U\x05qdata"[..],
        &t,
        b"U\x0ablock_size](I1\nI3\neU\x04noneNU\x02onI01\nU\x05dtypectorch\nfloat16\nU\x04kind",
        kernel,
        b"U\x04many](",
        &b"I1\n".repeat(65),
        b"eu",
    ];
    let catalog = list_subclass("Int8Tensor", "I2\nI3\n", &attributes.concat()).unwrap();
    let names: Vec<&str> = catalog.tensors().iter().map(|t| &*t.name).collect();
    assert_eq!(names, ["a._weight_qdata"]);
    let description: serde_json::Value =
        serde_json::from_str(catalog.metadata.text("a.weight").unwrap()).unwrap();
    let data = serde_json::json!({
        "block_size": [1, 3], "on": true, "shape": [2, 3], "dtype": {"_type": "torch.dtype", "_data": "float16"},
    });
    let expected =
        serde_json::json!({"_type": "Int8Tensor", "_data": data, "_tensor_data_names": ["qdata"]});
    assert_eq!(description, expected);
}

#[test]
fn malformed_torchao_tensors_are_refused() {
    let refused = |class| list_subclass(class, "I2\nI3\n", b"}").unwrap_err();
    for class in ["Int9Tensor", "int8Tensor", "Int8Tensor.__class__", ""] {
        let error = refused(class);
        assert!(
            matches!(error.kind(), ErrorKind::RefusedGlobal { name, .. } if name == class),
            "{error}"
        );
    }
    let malformed = |size, attributes| list_subclass("Int8Tensor", size, attributes).unwrap_err();
    for (size, attributes) in [
        ("I2\nI3\n", &b"]"[..]),
        ("I2\nI3\n", b"N"),
        ("I2\nI3\n", b"}I1\nI1\ns"),
        ("I-2\nI3\n", b"}"),
        ("N", b"}"),
    ] {
        let error = malformed(size, attributes);
        assert!(matches!(error.kind(), ErrorKind::Malformed(_)), "{error}");
    }
}

#[test]
#[cfg_attr(
    miri,
    ignore = "reaches a limit of two hundred thousand steps, which take an interpreter long"
)]
fn shared_attributes_are_charged_per_tensor() {
    let mut object = b"\x80\x02}(".to_vec();
    for name in 0..1000u16 {
        object.extend(format!("V{name}\nI1\n").bytes());
    }
    object.extend(b"uq\x00](");
    let one = subclass("Int8Tensor", "I2\n", b"h\x00");
    object.extend(one.repeat(1000));
    object.extend(b"e.");
    let limits = Limits {
        steps: 200_000,
        ..Limits::default()
    };
    let error = list_with(stream(&object, &[]), limits).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Limit { limit: "steps", .. }),
        "{error}"
    );
}

#[test]
fn views_of_packed_codes_are_listed_as_refused() {
    let list = |offset: &str, size: &str, stride: &str| {
        let mut object =
            b"\x80\x02}U\x01wctorch._utils\n_rebuild_qtensor\n((U\x07storagectorch\nQUInt4x2Storage\n".to_vec();
        object.extend(format!("U\x010U\x03cpuK\x06NtQ{offset}({size}t({stride}t").bytes());
        object.extend(b"(ctorch\nper_tensor_affine\nF0.5\nK\x07tI00\nNtRs.");
        list(stream(&object, &[("0", &[0.0; 6])]))
    };
    assert_eq!(
        list("I0\n", "I3\nI4\n", "I4\nI1\n").unwrap().tensors()[0]
            .bytes
            .len,
        6
    );
    for (offset, size, stride) in [
        ("I2\n", "I2\n", "I1\n"),
        ("I1\n", "I2\n", "I1\n"),
        ("I0\n", "I3\nI2\n", "I1\nI3\n"),
        ("I0\n", "I3\n", "I0\n"),
    ] {
        let catalog = list(offset, size, stride).unwrap();
        assert!(catalog.tensors().is_empty());
        let [refused] = &catalog.refused[..] else {
            panic!("{:?}", catalog.refused)
        };
        assert!(
            &*refused.name == "w" && refused.reason.contains("dequantise"),
            "{refused:?}"
        );
    }
    assert!(list("I0\n", "I13\n", "I1\n").is_err());
}

#[test]
fn values_that_cannot_be_shown_are_counted_in_one_warning() {
    let storage = &b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x06NtQ"[..];
    let object = [
        b"\x80\x02}(U\x05epochK\x03U\x02lrF0.5\nU\x04noneNU\x04seen](K\x01K\x02eU\x05first",
        storage,
        b"U\x06second",
        storage,
        b"U\x06scalarcnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(U\x02S2I00\nI01\ntRC\x02abtRu.",
    ]
    .concat();
    let catalog = list(stream(&object, &[("0", &[0.0; 6])])).unwrap();
    assert_eq!(
        catalog.warnings,
        [
            "values that are not tensors and cannot be shown: 3 (storages without a tensor: 2, numpy scalars: 1; \
             the first is `first`)"
        ]
    );
    assert_eq!(catalog.metadata.text("second"), Some("a storage"));
    assert_eq!(catalog.metadata.integer("epoch"), Some(3));

    let ordinary =
        b"\x80\x02}(U\x05epochK\x03U\x02lrF0.5\nU\x04noneNU\x05empty}U\x04seen](K\x01K\x02eu.";
    assert!(list(stream(ordinary, &[])).unwrap().warnings.is_empty());
}

/// An array of numpy under the name `a`, with this dtype, shape, order and data.
fn numpy_array(code: &str, shape: &str, order: &str, data: &[u8]) -> Result<Catalog> {
    let mut object = b"\x80\x02}U\x01acnumpy._core.multiarray\n_reconstruct\n".to_vec();
    object.extend(b"cnumpy\nndarray\nI0\n\x85U\x01b\x87R(K\x01");
    object.extend(format!("({shape}tcnumpy\ndtype\n(V{code}\nI00\nI01\ntR(K\x03V<\nNNNJ").bytes());
    object.extend(
        [
            &b"\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"[..],
            order.as_bytes(),
            data,
            b"tbs.",
        ]
        .concat(),
    );
    list(stream(&object, &[]))
}

#[test]
fn numpy_arrays_are_checked_against_their_bytes() {
    let raw = |n: u8| [&b"C"[..], &[n], &vec![7; usize::from(n)]].concat();
    let six = numpy_array("i2", "K\x03", "I00\n", &raw(6)).unwrap();
    assert_eq!(
        (&*six.tensors()[0].name, six.tensors()[0].bytes.len),
        ("a", 6)
    );
    let fortran = numpy_array("i2", "K\x03K\x02", "I01\n", &raw(12)).unwrap();
    assert_eq!(fortran.tensors()[0].layout, Layout::ColumnMajor);
    let encoded = b"c_codecs\nencode\nX\x08\x00\x00\x00\xc3\xbf\xc2\x80abcdV" as &[u8];
    let latin1 = numpy_array(
        "i2",
        "K\x03",
        "I00\n",
        &[encoded, b"latin1\n\x86R"].concat(),
    )
    .unwrap();
    let info = &latin1.tensors()[0];
    assert_eq!(
        (info.packing, info.bytes.len),
        (crate::read::catalog::Packing::Latin1, 8)
    );
    let utf8 = numpy_array("i2", "K\x04", "I00\n", &[encoded, b"utf-8\n\x86R"].concat()).unwrap();
    assert_eq!(
        utf8.tensors()[0].packing,
        crate::read::catalog::Packing::Raw
    );

    for (code, shape, order, data) in [
        ("i2", "K\x04", "I00\n", raw(6)),
        ("i2", "K\x02", "I00\n", raw(6)),
        ("i2", "I-3\n", "I00\n", raw(6)),
        ("i2", "K\x03", "K\x00", raw(6)),
        ("i2", "K\x03", "N", raw(6)),
        ("i2", "I4611686018427387904\nK\x00", "I00\n", raw(6)),
        ("i2", "I9223372036854775807\n", "I00\n", raw(6)),
        ("i2", "I4294967296\nI4294967296\n", "I00\n", raw(6)),
        ("f8", "", "I00\n", raw(7)),
    ] {
        let error = numpy_array(code, shape, order, &data).expect_err(shape);
        assert!(matches!(error.kind(), ErrorKind::Malformed(_)), "{error}");
    }
    let many = "K\x01".repeat(65);
    assert!(numpy_array("i1", &many, "I00\n", &raw(1)).is_err());
    for (code, data) in [
        ("O8", &b"](NNNe"[..]),
        ("U1", &raw(12)),
        ("M8", &raw(24)),
        ("f16", &raw(48)),
        ("i2", b"X\x06\x00\x00\x00abcdef"),
    ] {
        let catalog = numpy_array(code, "K\x03", "I00\n", data).unwrap();
        assert!(catalog.tensors().is_empty());
        let [warning] = &catalog.warnings[..] else {
            panic!("{code}: {:?}", catalog.warnings)
        };
        assert!(
            warning.contains("cannot be shown: 1 (numpy arrays"),
            "{warning}"
        );
    }
}

#[test]
fn names_are_quoted_only_where_two_tensors_have_one() {
    let t = tensor("I0\n", "I2\n", "I1\n");
    let names = |object: &[&[u8]]| {
        let object = [b"\x80\x02}(", &object.concat()[..], b"u."].concat();
        let catalog = list(stream(&object, &[("0", &[0.0; 6])])).unwrap();
        let names: Vec<_> = catalog
            .tensors()
            .iter()
            .map(|t| t.name.to_string())
            .collect();
        names
    };
    let nested = [b"U\x01a}U\x01b", &t[..], b"s"].concat();
    let dotted = [b"U\x03a.b", &t[..]].concat();
    assert_eq!(names(&[&nested, b"U\x03c.d", &t]), ["a.b", "c.d"]);
    assert_eq!(
        names(&[&nested, &dotted, b"U\x03c.d", &t]),
        ["a.b", "\"a.b\"", "c.d"]
    );
    // a key that is spelt as the quoted name of another
    let spelt = [b"U\x05\"a.b\"", &t[..]].concat();
    assert_eq!(
        names(&[&nested, &dotted, &spelt]),
        ["a.b", "\"a.b\"", r#""\"a.b\"""#]
    );
    assert_eq!(names(&[b"K\x01", &t, b"U\x011", &t]), ["1", "\"1\""]);
    assert_eq!(names(&[b"N", &t, b"U\x04None", &t]), ["None", "\"None\""]);
}

#[test]
fn one_key_twice_is_malformed() {
    let t = tensor("I0\n", "I2\n", "I1\n");
    let object = [b"\x80\x02}(U\x01a", &t[..], b"U\x01a", &t, b"u."].concat();
    let error =
        crate::read::checkpoint::Checkpoint::from_bytes(stream(&object, &[("0", &[0.0; 6])]))
            .unwrap_err();
    assert!(
        error.to_string().contains("two tensors are named `a`"),
        "{error}"
    );
}

fn list_opaque(object: &[u8], storages: &[(&str, &[f32])]) -> Result<Catalog> {
    let (memory, budget) = (
        MemorySource::new(stream(object, storages)),
        Budget::new(Limits::default()),
    );
    super::legacy::read(&mut Cursor::new(&memory, &budget), true)
}

#[test]
fn opaque_objects_keep_arguments_state_and_items() {
    let t = tensor("I0\n", "I2\n", "I1\n");
    let object = [
        &b"\x80\x02}(U\x01tclib\nTree\n(K\x07"[..],
        &t,
        b"t\x81}U\x01wK\x05sb(U\x01k",
        &t,
        b"uU\x01lclib\nList\n)\x81](K\x01K\x02eb(",
        &t,
        b"K\x03eU\x01nclib\nnamed\nU\x01eccopyreg\n__newobj_ex__\n)R",
        b"U\x01kclib\nTree\n(K\x01t}U\x01xK\x02s\x92u.",
    ]
    .concat();
    let storages: &[(&str, &[f32])] = &[("0", &[0.0; 6])];
    let refused = list(stream(&object, storages)).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::RefusedGlobal { module, .. } if module == "lib"));
    let catalog = list_opaque(&object, storages).unwrap();
    let names: Vec<_> = catalog.tensors().iter().map(|t| &*t.name).collect();
    assert_eq!(names, ["t.k", "t.args.1", "l.items.0"]);
    let metadata = &catalog.metadata;
    assert_eq!(metadata.text("t"), Some("lib.Tree"));
    assert_eq!(metadata.integer("t.w"), Some(5));
    assert_eq!(metadata.integer("t.args.0"), Some(7));
    assert_eq!(metadata.text("l"), Some("lib.List"));
    assert!(matches!(metadata.get("l.state"), Some(Value::List(list)) if list.len() == 2));
    assert_eq!(metadata.integer("l.items.1"), Some(3));
    assert_eq!(metadata.text("n"), Some("lib.named"));
    assert_eq!(metadata.integer("k.args.1.x"), Some(2));
    assert_eq!(
        catalog.warnings,
        [
            "objects of unknown classes, set aside by class name and plain state: 4 (`lib.Tree`: 2, `lib.List`: 1, \
          `lib.named`: named only, `copyreg.__newobj_ex__`: 1)"
        ]
    );
}

#[test]
fn tensors_that_depend_on_opaque_objects_are_refused() {
    let t = tensor("I0\n", "I2\n", "I1\n");
    let sizes = tensor("I0\n", "clib\nsize\n)R", "I1\n");
    let dtype =
        b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nI0\n\x85U\x01b\x87R(K\x01(K\x03t\
        cnumpy\ndtype\nclib\nfloat\nI00\nI01\n\x87RI00\nC\x03abctb";
    let class = b"cnumpy._core.multiarray\n_reconstruct\nclib\nArray\nI0\n\x85U\x01b\x87R(K\x01(K\x03tNI00\nC\x03abctb";
    let labelled = [
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nclib\nTensor\n(NtNtR",
        &b""[..],
    ]
    .concat();
    let attribute = subclass(
        "Int8Tensor",
        "I2\nI3\n",
        b"}U\x06layout(clib\nLayout\n)RI1\nts",
    );
    let parameter = b"ctorch._utils\n_rebuild_parameter\n(clib\nmake\n)RI01\nNtR";
    for object in [&sizes[..], dtype, class, &labelled, &attribute, parameter] {
        let object = [b"\x80\x02}(U\x01a", object, b"U\x01b", &t, b"u."].concat();
        let catalog = list_opaque(&object, &[("0", &[0.0; 6])]).unwrap();
        let names: Vec<_> = catalog.tensors().iter().map(|t| &*t.name).collect();
        assert_eq!(names, ["b"]);
        let [refused] = &catalog.refused[..] else {
            panic!("{:?}", catalog.refused)
        };
        assert_eq!(&*refused.name, "a");
        assert!(refused.reason.contains("depend on `lib."), "{refused:?}");
    }
    // without an opaque object, the same faults make the file malformed
    let broken = [b"\x80\x02}U\x01a", &tensor("I0\n", "N", "I1\n")[..], b"s."].concat();
    assert!(list_opaque(&broken, &[("0", &[0.0; 6])]).is_err());
}

#[test]
fn hostile_opaque_objects_end() {
    // an object that is its own state; one that is its own item; a chain of states
    let own_state = b"\x80\x02clib\nA\n)\x81q\x00h\x00b.";
    let own_item = b"\x80\x02clib\nA\n)\x81q\x00h\x00a.";
    for object in [&own_state[..], own_item] {
        let catalog = list_opaque(object, &[]).unwrap();
        assert!(
            catalog.warnings[0].contains("contains itself"),
            "{:?}",
            catalog.warnings
        );
    }
    let depth = if cfg!(miri) { 100 } else { 1000 };
    let chain = [
        &b"\x80\x02"[..],
        &b"clib\nA\n)\x81".repeat(depth),
        b"N",
        &b"b".repeat(depth),
        b".",
    ]
    .concat();
    let error = list_opaque(&chain, &[]).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Limit { limit: "depth", .. }),
        "{error}"
    );
    // two kinds of items, a second state, items of a known call
    for object in [
        &b"\x80\x02clib\nA\n)\x81NaNNs."[..],
        b"\x80\x02clib\nA\n)\x81NbNb.",
        b"\x80\x02ctorch\nSize\n)RNa.",
        b"\x80\x02clib\nA\nNb.",
    ] {
        let error = list_opaque(object, &[]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Malformed(_)), "{error}");
    }
}
