//! The pickle machine without a container: the value that each opcode builds, and the errors of malformed and refused pickles.

use super::value_heap::{PickleValue, ValueHeap, ValueId};
use super::{Pickle, Vocabulary, read};
use crate::base::error::{ErrorKind, Result};
use crate::base::limits::{Budget, Limits};
use crate::read::source::MemorySource;
use crate::read::source::cursor::Cursor;

/// Runs a pickle and passes the result to `inspect`.
fn run<T>(bytes: &[u8], inspect: impl FnOnce(Result<Pickle<'_>>) -> T) -> T {
    run_with(bytes, [false, false], Limits::default(), inspect)
}

fn run_with<T>(
    bytes: &[u8],
    [script, opaque]: [bool; 2],
    limits: Limits,
    inspect: impl FnOnce(Result<Pickle<'_>>) -> T,
) -> T {
    let (memory, budget) = (MemorySource::new(bytes.to_vec()), Budget::new(limits));
    let mut cursor = Cursor::new(&memory, &budget);
    let vocabulary = if script {
        Vocabulary::TorchScript
    } else {
        Vocabulary::Checkpoint
    };
    inspect(read(&mut cursor, vocabulary, opaque))
}

/// The built value as text, to a limited depth; deeper values, and so cycles, end in `…`.
fn show(heap: &ValueHeap<'_>, id: ValueId, depth: usize) -> String {
    if depth == 0 {
        return "…".into();
    }
    let joined = |ids: &[ValueId]| {
        ids.iter()
            .map(|&id| show(heap, id, depth - 1))
            .collect::<Vec<_>>()
            .join(",")
    };
    match heap.get(id) {
        PickleValue::None => "None".into(),
        PickleValue::Bool(b) => b.to_string(),
        PickleValue::Int(n) => n.to_string(),
        PickleValue::BigInt(span) => format!("big {}", heap.text(span)),
        PickleValue::Float(x) => format!("{x:?}"),
        PickleValue::Text(span) => format!("{:?}", heap.text(span)),
        PickleValue::Bytes(span) => format!("b\"{}\"", heap.bytes(span).escape_ascii()),
        PickleValue::Tuple(span) => format!("({})", joined(heap.items(span))),
        PickleValue::List(index) => format!("[{}]", joined(heap.container(index))),
        PickleValue::Set(index) => format!("set[{}]", joined(heap.container(index))),
        PickleValue::Dict { items, .. } => format!("{{{}}}", joined(heap.container(items))),
        PickleValue::Global(global) => format!("{global:?}"),
        PickleValue::ScriptClass(span) | PickleValue::OpaqueGlobal(span) => {
            heap.text(span).to_owned()
        }
        PickleValue::Call(index) => {
            let call = heap.call(index);
            format!("call({})", joined(heap.items(call.args)))
        }
        PickleValue::Persistent(id) => format!("pid{}", show(heap, id, depth - 1)),
    }
}

fn built(bytes: &[u8]) -> String {
    run(bytes, |out| {
        let pickle = out.unwrap();
        show(&pickle.heap, pickle.root, 8)
    })
}

/// The global that the machine refuses in this pickle.
fn refused(bytes: &[u8]) -> String {
    run(bytes, |out| match out.err().expect("refused").kind() {
        ErrorKind::RefusedGlobal { module, name } => format!("{module} {name}"),
        other => panic!("refused with another error: {other}"),
    })
}

fn malformed(bytes: &[u8]) -> String {
    run(bytes, |out| match out.err().expect("refused").kind() {
        ErrorKind::Malformed(what) => what.clone(),
        other => panic!("not malformed: {other}"),
    })
}

#[test]
fn opcodes_of_scalars_build_their_values() {
    let cases: &[(&[u8], &str)] = &[
        (b"N.", "None"),
        (b"\x88.", "true"),
        (b"\x89.", "false"),
        (b"I01\n.", "true"),
        (b"I00\n.", "false"),
        (b"I-7\n.", "-7"),
        (b"L12L\n.", "12"),
        (b"L99999999999999999999L\n.", "big 99999999999999999999"),
        (b"J\xff\xff\xff\xff.", "-1"),
        (b"K\xff.", "255"),
        (b"M\x01\x02.", "513"),
        (b"\x8a\x00.", "0"),
        (b"\x8a\x01\xff.", "-1"),
        (b"\x8a\x02\xff\x00.", "255"),
        (
            b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00.",
            "big 18446744073709551615",
        ),
        (b"\x8b\x02\x00\x00\x00\x00\x80.", "-32768"),
        (
            b"\x8a\x11\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01.",
            "big 0x010000000000000000000000000000000a",
        ),
        (b"G\x3f\xf8\0\0\0\0\0\0.", "1.5"),
        (b"F-2.5\n.", "-2.5"),
        (b"X\x03\0\0\0\xe2\x82\xac.", "\"€\""),
        (b"\x8c\x01a.", "\"a\""),
        (b"\x8d\x01\0\0\0\0\0\0\0a.", "\"a\""),
        (b"Va\\u20acb\\n\n.", "\"a€b\\\\n\""),
        (b"S'a\\x41\\'\\n'\n.", "\"aA'\\n\""),
        (b"S\"\\xff\"\n.", "b\"\\xff\""),
        (b"U\x02ab.", "\"ab\""),
        (b"T\x01\0\0\0\xfe.", "b\"\\xfe\""),
        (b"C\x02\x00a.", "b\"\\x00a\""),
        (b"B\x01\0\0\0a.", "b\"a\""),
        (b"\x8e\x01\0\0\0\0\0\0\0a.", "b\"a\""),
        (
            b"\x80\x05\x95\x0b\0\0\0\0\0\0\0\x96\x01\0\0\0\0\0\0\0a.",
            "b\"a\"",
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(built(bytes), *expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn opcodes_of_containers_build_their_values() {
    let cases: &[(&[u8], &str)] = &[
        (b").", "()"),
        (b"K\x01\x85.", "(1)"),
        (b"K\x01K\x02\x86.", "(1,2)"),
        (b"K\x01K\x02K\x03\x87.", "(1,2,3)"),
        (b"(K\x01K\x02t.", "(1,2)"),
        (b"(K\x01l.", "[1]"),
        (b"]K\x01a.", "[1]"),
        (b"](K\x01K\x02e.", "[1,2]"),
        (b"}K\x01K\x02s.", "{1,2}"),
        (b"}(K\x01K\x02K\x03K\x04u.", "{1,2,3,4}"),
        (b"(K\x01K\x02d.", "{1,2}"),
        (b"\x8f(K\x01\x90.", "set[1]"),
        (b"(K\x01\x91.", "set[1]"),
        (b"K\x01K\x020.", "1"),
        (b"K\x01(K\x02K\x031.", "1"),
        (b"K\x01(0.", "1"),
        (b"K\x012\x86.", "(1,1)"),
        (b"K\x01q\x05K\x02h\x05\x86.", "(2,1)"),
        (b"K\x01r\x05\0\0\0K\x02j\x05\0\0\0\x86.", "(2,1)"),
        (b"K\x01p12\nK\x02g12\n\x86.", "(2,1)"),
        (b"]q\x00h\x00a.", "[[[[[[[[…]]]]]]]]"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(built(bytes), *expected, "{}", bytes.escape_ascii());
    }
    assert_eq!(built(b"K\x07\x94K\x02\x94h\x00h\x01\x86."), "(7,2)");
}

#[test]
fn memo_accepts_sparse_indices() {
    assert_eq!(
        built(b"K\x01r\xfe\xff\xff\x7fK\x02j\xfe\xff\xff\x7f\x86."),
        "(2,1)"
    );
    // MEMOIZE stores at the number of distinct numbers, whether they are in the table or in the map
    assert_eq!(built(b"K\x01r\xfe\xff\xff\x7fK\x02\x94h\x01\x86."), "(2,2)");
    // the later value replaces the earlier one, also when the table has grown over a number in the map
    let mut bytes = b"K\x01r\x2c\x01\0\0".to_vec(); // 300: beyond the first step of the table
    bytes.extend(b"K\x00r\xff\0\0\0"); // 255
    bytes.extend(b"K\x09r\x2c\x01\0\0j\x2c\x01\0\0.");
    assert_eq!(built(&bytes), "9");
    assert!(malformed(b"h\x01.").contains("memo"));
    assert!(malformed(b"K\x01p-1\n.").contains("memo index"));
}

#[test]
fn globals_outside_the_table_are_refused_by_name() {
    let cases: &[(&[u8], &str)] = &[
        (b"cos\nsystem\n.", "os system"),
        (b"cposix\nsystem\n.", "posix system"),
        (b"cbuiltins\neval\n.", "builtins eval"),
        (b"c__builtin__\neval\n.", "__builtin__ eval"),
        (b"\x8c\x02os\x8c\x06system\x93.", "os system"),
        (
            b"\x8c\x02os\x940\x8c\x06system\x940h\x00h\x01\x93.",
            "os system",
        ),
        (b"(S'ls'\nios\nsystem\n.", "os system"),
        (b"(cos\nsystem\nS'ls'\no.", "os system"),
        (b"cos\nsystem\n)\x81.", "os system"),
        (b"c\xd0\xbes\nsystem\n.", "\u{43e}s system"), // `os` with a Cyrillic o
        (
            b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
            "torch._utils _rebuild_tensor_v2.__globals__",
        ),
        (b"ctorch\nFloatStorage \n.", "torch FloatStorage "),
        (b"ctorch\nStorage\n.", "torch Storage"),
        (b"c__torch__.a\nB\n.", "__torch__.a B"),
        (b"\x82\x01.", "copyreg extension 1"),
        (b"\x83\x01\x02.", "copyreg extension 513"),
        (b"\x84\x01\0\0\0.", "copyreg extension 1"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(refused(bytes), *expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn torchscript_classes_are_accepted_only_in_torchscript_archives() {
    run_with(
        b"c__torch__.a\nB\n)\x81}b.",
        [true, false],
        Limits::default(),
        |out| {
            let pickle = out.unwrap();
            assert!(matches!(pickle.heap.get(pickle.root), PickleValue::Call(0)));
        },
    );
    let look_alike = b"c__torch__x.a\nB\n.";
    run_with(look_alike, [true, false], Limits::default(), |out| {
        assert!(out.is_err())
    });
}

#[test]
fn calls_are_recorded_and_builtins_are_evaluated() {
    assert_eq!(built(b"ctorch\nSize\n(K\x02K\x03t\x85R."), "call((2,3))");
    assert_eq!(built(b"ccollections\nOrderedDict\n)RK\x01K\x02s."), "{1,2}");
    assert_eq!(
        built(b"ccollections\nOrderedDict\n]]K\x01aK\x02aa\x85R."),
        "{1,2}"
    );
    assert_eq!(
        built(b"ccollections\ndefaultdict\n(cbuiltins\ndict\ntR."),
        "{}"
    );
    assert_eq!(built(b"cbuiltins\nset\n]K\x01a\x85R."), "set[1]");
    assert_eq!(
        built(b"c_codecs\nencode\n\x8c\x02\xc3\xbf\x8c\x06latin1\x86R."),
        "b\"\\xff\""
    );
    assert_eq!(built(b"cbuiltins\nbytearray\nC\x01a\x85R."), "b\"a\"");
    assert!(malformed(b"cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.").contains("ByteArray"));
    assert!(malformed(b"cbuiltins\ndict\n)R.").contains("cannot be called"));
    assert!(malformed(b"K\x01)R.").contains("cannot be called"));
    assert!(malformed(b"ctorch\nSize\nK\x01R.").contains("not a tuple"));
}

#[test]
fn build_is_refused_for_values_without_state() {
    assert_eq!(built(b"ccollections\nOrderedDict\n)R}b."), "{}");
    assert!(malformed(b"}}b.").contains("state"));
    assert!(malformed(b"ctorch\nSize\n)R}b.").contains("state"));
    assert!(malformed(b"cnumpy\ndtype\n)R}b}b.").contains("state"));
}

#[test]
fn stack_underflow_is_malformed() {
    for bytes in [
        &b"0."[..],
        b".",
        b"a.",
        b"(a.",
        b"t.",
        b"K\x01(\x85.",
        b"]K\x01(a.",
        b"(K\x01e.",
        b"2.",
        b"q\x00.",
        b"R.",
        b"b.",
        b"Q.",
        b"(o.",
        b"s.",
        b"(K\x01u.",
    ] {
        malformed(bytes);
    }
    assert!(malformed(b"}(K\x01u.").contains("no value"));
    assert!(malformed(b"]K\x01K\x02s.").contains("dict"));
    assert!(malformed(b"}K\x01a.").contains("list"));
    assert!(malformed(b"K\x01Q.").contains("persistent"));
    assert!(malformed(b"Pabc\n.").contains("persistent"));
}

#[test]
fn lengths_are_checked_before_allocation() {
    for bytes in [
        &b"X\xff\xff\xff\xffab"[..],
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffab",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fab",
        b"\x96\xff\xff\xff\xff\xff\xff\xff\x7fab",
        b"\x8b\xff\xff\xff\x7fab",
        b"\x8b\xff\xff\xff\xffab",
        b"T\xff\xff\xff\xffab",
        b"cos",
        b"",
    ] {
        malformed(bytes);
    }
}

#[test]
fn steps_and_memory_are_charged_to_the_budget() {
    let dups = [b"N".to_vec(), vec![b'2'; 10_000], b".".to_vec()].concat();
    for limits in [
        Limits {
            steps: 5_000,
            ..Limits::default()
        },
        Limits {
            memory: 20_000,
            ..Limits::default()
        },
    ] {
        run_with(&dups, [false, false], limits, |out| {
            assert!(matches!(out.err().unwrap().kind(), ErrorKind::Limit { .. }));
        });
    }
    run_with(&dups, [false, false], Limits::default(), |out| {
        assert!(out.is_ok())
    });
}

#[test]
fn out_of_band_buffers_and_unknown_protocols_are_unsupported() {
    for bytes in [&b"\x97."[..], b"\x98.", b"\x80\x06."] {
        run(bytes, |out| {
            assert!(matches!(
                out.err().unwrap().kind(),
                ErrorKind::Unsupported(_)
            ))
        });
    }
}

/// Random opcodes give an error or a value within the limits, never a panic.
#[test]
fn random_bytes_do_not_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let opcodes =
        b"(.012FIJKLMNPQRSTUVXabcdeghijlopqrstu)]}\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8f\x90\x91\x92\x93\x94\x95";
    let limits = Limits {
        memory: 1 << 20,
        steps: 10_000,
        ..Limits::default()
    };
    for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
        let bytes: Vec<u8> = (0..40)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let [selector, byte, ..] = state.to_le_bytes();
                if selector < 200 {
                    opcodes[usize::from(byte) % opcodes.len()]
                } else {
                    byte
                }
            })
            .collect();
        for opaque in [false, true] {
            run_with(&bytes, [true, opaque], limits, |out| {
                drop(out.map(|p| show(&p.heap, p.root, 6)))
            });
        }
    }
}
