//! The parser of Python literals in NPY headers: what Python's `ast.literal_eval` accepts in headers that numpy writes, and errors for
//! everything else.

use super::*;

fn value(text: &str) -> Result<Literal> {
    let header = format!("{{'k': {text}}}\n");
    let mut entries = dict(&header)?;
    assert_eq!(entries.len(), 1);
    assert_eq!(&header[entries[0].span.clone()], text.trim_end());
    Ok(entries.remove(0).value)
}

fn text(s: &str) -> Literal {
    Literal::Text(s.into())
}

#[test]
fn numpy_header_is_parsed() {
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n";
    let entries = dict(header).unwrap();
    assert_eq!(
        entries.iter().map(|e| &*e.key).collect::<Vec<_>>(),
        ["descr", "fortran_order", "shape"]
    );
    assert_eq!(&header[entries[0].span.clone()], "'<f4'");
    assert_eq!(entries[1].value, Literal::Bool(false));
    assert_eq!(
        entries[2].value,
        Literal::Tuple(vec![Literal::Number(3), Literal::Number(4)])
    );
    assert!(dict("{}").unwrap().is_empty());
}

#[test]
fn tuples_lists_and_parentheses_are_parsed() {
    let n = Literal::Number;
    assert_eq!(value("()").unwrap(), Literal::Tuple(vec![]));
    assert_eq!(value("(3,)").unwrap(), Literal::Tuple(vec![n(3)]));
    assert_eq!(value("(3)").unwrap(), n(3));
    assert_eq!(
        value("( 3 , 10L,\n)").unwrap(),
        Literal::Tuple(vec![n(3), n(10)])
    );
    assert_eq!(
        value("[1, (2,), None]").unwrap(),
        Literal::List(vec![n(1), Literal::Tuple(vec![n(2)]), Literal::None])
    );
    assert_eq!(value("18446744073709551615").unwrap(), n(u64::MAX));
}

#[test]
fn escapes_are_decoded_as_in_python() {
    assert_eq!(value(r#""a'b""#).unwrap(), text("a'b"));
    assert_eq!(
        value(r"'a\'b\\\x41\u00fc\U0001F600\n\101\0'").unwrap(),
        text("a'b\\Aü😀\nA\0")
    );
    assert_eq!(value("'ünï'").unwrap(), text("ünï"));
    for invalid in [
        r"'\ud800'",
        r"'\xg0'",
        r"'\N{BULLET}'",
        "'a",
        "'a\nb'",
        r"'\",
        r"'\x4",
        r"'\xü'",
        r"'\777777'",
    ] {
        // in Python, \777 is a character too
        assert_eq!(
            value(invalid).is_err(),
            invalid != r"'\777777'",
            "{invalid}"
        );
    }
}

#[test]
fn expressions_and_malformed_literals_are_errors() {
    for invalid in [
        "__import__('os')",
        "2**99",
        "9**9**9",
        "'a'*10",
        "1+1",
        "-1",
        "1.5",
        "1e3",
        "0x10",
        "1_000",
        "010",
        "2j",
        "lambda: 0",
        "{1}",
        "b'x'",
        "x",
        "...",
        "",
        "(",
        "(1",
        "(1,,)",
        "(,)",
        "[1 2]",
        "(1]",
        "99999999999999999999",
        "'a' 'b'",
        "1 2",
        "\u{fc}",
    ] {
        assert!(value(invalid).is_err(), "{invalid}");
    }
    for invalid in [
        "",
        "[1,2]",
        "{",
        "{'a'",
        "{'a':",
        "{'a':1",
        "{'a':1}x",
        "{'a':1}\0",
        "{1:1}",
        "{'a':1 'b':2}",
        "{,}",
    ] {
        assert!(dict(invalid).is_err(), "{invalid}");
    }
}

#[test]
fn nesting_depth_is_bounded() {
    let nested = |n: usize| value(&format!("{}1,{}", "(".repeat(n), ")".repeat(n)));
    assert!(nested(39).is_ok());
    assert!(nested(40).is_err());
    assert!(value(&"(".repeat(500_000)).is_err());
    assert!(value(&"[".repeat(500_000)).is_err());
}
