//! NPY type descriptors: dtype, byte order, item size and units of what numpy writes, and errors for what numpy rejects.

use super::*;
use crate::read::format::npy::literal::dict;

fn read(text: &str) -> Result<ItemType> {
    let header = format!("{{'k': {text}}}");
    let entries = dict(&header)?;
    item(&entries[0].value, 6)
}

fn opaque(text: &str) -> (Opaque, Endian) {
    let item = read(text).unwrap();
    let Encoding::Opaque(opaque) = item.encoding else {
        panic!("{text} has a dtype")
    };
    (*opaque, item.endian)
}

fn layout_of(text: &str) -> (String, u64, Vec<(u32, u32)>) {
    let (opaque, _) = opaque(text);
    (opaque.name.into(), opaque.item_bytes, opaque.units.into())
}

#[test]
fn numeric_types_have_their_dtype_and_byte_order() {
    for (text, dtype, endian) in [
        ("'<f4'", Dtype::F32, Endian::Little),
        ("'>f4'", Dtype::F32, Endian::Big),
        ("'=f4'", Dtype::F32, Endian::Little),
        ("'f8'", Dtype::F64, Endian::Little),
        ("'|b1'", Dtype::BOOL, Endian::Little),
        ("'>u1'", Dtype::U8, Endian::Little),
        ("'>i2'", Dtype::I16, Endian::Big),
        ("'<c8'", Dtype::C64, Endian::Little),
        ("'>c16'", Dtype::C128, Endian::Big),
    ] {
        let item = read(text).unwrap();
        assert_eq!(
            (item.encoding, item.endian, item.float8),
            (Encoding::Plain(dtype), endian, false),
            "{text}"
        );
    }
    assert!(read("'<f1'").unwrap().float8);
}

#[test]
fn types_without_a_dtype_are_opaque() {
    assert_eq!(layout_of("'|V2'"), ("V2".into(), 2, vec![(1, 2)]));
    assert_eq!(layout_of("'|S0'"), ("S0".into(), 0, vec![]));
    assert_eq!(layout_of("'|a5'"), ("S5".into(), 5, vec![(1, 5)]));
    assert_eq!(layout_of("'>U3'"), ("U3".into(), 12, vec![(4, 3)]));
    assert_eq!(opaque("'>U3'").1, Endian::Big);
    assert_eq!(layout_of("'<M8[25s]'"), ("M8[25s]".into(), 8, vec![(8, 1)]));
    assert_eq!(layout_of("'<m8'"), ("m8".into(), 8, vec![(8, 1)]));
    assert_eq!(layout_of("'<f16'"), ("F128".into(), 16, vec![(16, 1)]));
    assert_eq!(layout_of("'<c32'"), ("C256".into(), 32, vec![(16, 2)]));
}

#[test]
fn structured_types_have_the_units_of_their_fields() {
    let text = "[('a', '<f4'), ('b', '<i8', (2,)), ('c', '<u8')]";
    let (found, _) = opaque(text);
    assert_eq!((&*found.name, &*found.fields), ("V28", text));
    assert_eq!(&*found.units, [(4, 1), (8, 3)]);
    // fields with titles, padding, nested types and shapes
    assert_eq!(
        layout_of("[(('t', 'n'), '>i2'), ('', '|V2'), ('', '|V1')]").2,
        [(2, 1), (1, 3)]
    );
    assert_eq!(
        layout_of("[('p', [('x', '<i2'), ('y', '<i4')], (2, 1))]").2,
        [(2, 1), (4, 1), (2, 1), (4, 1)]
    );
    assert_eq!(layout_of("[('p', '<c8', 3)]").2, [(4, 6)]);
    assert_eq!(
        layout_of("('<f4', (2, 3))"),
        ("V24".into(), 24, vec![(4, 6)])
    );
    assert_eq!(layout_of("[('s', ('<f4', (2,)), (3,))]").1, 24);
    assert_eq!(layout_of("[]").1, 0);
    assert_eq!(
        layout_of("[('e', [('x', '<i2'), ('y', '<i4')], (0, 99999999999))]").1,
        0
    );
    assert_eq!(
        opaque("[('a', '>f4'), ('s', '|S3'), ('b', '>U2')]").1,
        Endian::Big
    );
}

#[test]
fn descriptors_that_numpy_rejects_are_errors() {
    for invalid in [
        "''",
        "'<'",
        "'<q9'",
        "'<f3'",
        "'<i3'",
        "'<i16'",
        "'f'",
        "'<f4 '",
        "'<<f4'",
        "'V99999999999'",
        "'U999999999'",
        "'<M8[x]'",
        "'<M8[D'",
        "'<M8[/2]'",
        "'<M4[D]'",
        "'<f4[s]'",
        "'ü4'",
        "'<f-4'",
        "'<f+4'",
        "1",
        "None",
        "()",
        "('<f4',)",
        "[1]",
        "['<f4']",
        "[('a',)]",
        "[('a', '<f4', (1,), 1)]",
        "[(1, '<f4')]",
        "[('a', '<f4', 'x')]",
        "[('a', '<f4'), ('a', '<f4')]",
        "[(('t',), '<f4')]",
        "[('a', '<f4', (4294967296, 4294967296))]",
        "[('a', '|V2147483647'), ('b', '|V1')]",
    ] {
        let error = read(invalid).unwrap_err();
        assert!(error.object_array().is_none(), "{invalid}");
    }
    for object in [
        "'|O'",
        "'O8'",
        "[('a', '<f4'), ('b', '|O')]",
        "[('a', [('b', '|O', (2,))])]",
    ] {
        assert!(
            read(object).unwrap_err().object_array().is_some(),
            "{object}"
        );
    }
}

#[test]
fn fields_of_both_byte_orders_are_swapped_one_by_one() {
    let text = "[('a', '<f4'), ('b', '>f4', (2,)), ('c', '|u1'), ('d', '<i8'), ('e', '>U2')]";
    let (found, endian) = opaque(text);
    // the little-endian numbers are bytes, which swapping leaves as they are
    assert_eq!(&*found.units, [(1, 4), (4, 2), (1, 9), (4, 2)]);
    assert_eq!((found.item_bytes, endian), (29, Endian::Big));
    assert_eq!(found.descriptor(endian), text);
}

#[test]
fn descriptors_are_as_numpy_writes_them() {
    for text in [
        "|V2", "|S5", ">U3", "<M8[25s]", "<m8", "<f16", ">c32", "|S0",
    ] {
        let (found, endian) = opaque(&format!("'{text}'"));
        assert_eq!(found.descriptor(endian), text);
    }
    // numbers of Python 2, and other quotes
    let (found, endian) = opaque(r#"[("it's", '<f4', (2L,)), ('\x01', [("b", '|S2'),])]"#);
    let expected = r"[('it\'s', '<f4', (2,)), ('\x01', [('b', '|S2')])]";
    assert_eq!(found.descriptor(endian), expected);
}

#[test]
fn repeated_units_are_limited() {
    let start = crate::base::testing::ThreadTime::start();
    assert!(read("[('p', [('x', '<i2'), ('y', '<i4')], (300000000,))]").is_err());
    let nested = "[('p', [('p', [('p', [('x', '<i2'), ('y', '<i4')], (999,))], (999,))], (99,))]";
    assert!(read(nested).is_err());
    assert!(start.elapsed().as_secs() < 2);
}
