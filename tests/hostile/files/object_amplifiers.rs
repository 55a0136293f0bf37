//! Generators of PyTorch files whose object costs much memory or work per byte: `OpenOptions::objects` and
//! `Checkpoint::objects`. All are deterministic.
//!
//! Most store a value in the memo and refer to it by the two bytes `h` and its number.

use zip::CompressionMethod;

use super::amplifiers::{Amplifier, checkpoint, program, spelt, tensor, zip};

/// All amplifiers of about `nbytes` bytes each, stored and deflated.
pub fn all(nbytes: usize) -> Vec<Amplifier> {
    let groups = [
        containers(nbytes),
        plain_values(nbytes),
        calls(nbytes),
        tensors(nbytes),
        chains(nbytes),
    ];
    let mut all = Vec::new();
    for (what, pickle) in groups.into_iter().flatten() {
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            all.push(file(what, checkpoint(method, pickle.clone())));
        }
    }
    all.push(ids_of_one_long_key(nbytes));
    all
}

type Program = (&'static str, Vec<u8>);

fn file(what: &'static str, bytes: Vec<u8>) -> Amplifier {
    Amplifier {
        format: "pth",
        what,
        files: vec![("model.pth", bytes)],
    }
}

/// `times` times the same opcodes.
fn repeated(opcodes: &[u8], times: usize) -> Vec<u8> {
    opcodes.repeat(times)
}

/// Stores the value on top of the stack in the memo, and removes it from the stack.
fn stored(value: &[u8], number: u8) -> Vec<u8> {
    [value, b"q", &[number], b"0"].concat()
}

/// A call of a function with these arguments.
fn call(function: &[u8], arguments: &[u8]) -> Vec<u8> {
    [function, b"(", arguments, b"tR"].concat()
}

// ---- containers

fn containers(nbytes: usize) -> Vec<Program> {
    let list = |head: &[u8], each: &[u8], tail: &[u8]| {
        program(
            nbytes,
            &[head, b"]("].concat(),
            &|_| each.to_vec(),
            &[b"e", tail].concat(),
        )
    };
    let half = nbytes / 2;
    let many = [b"(", &repeated(b"N", nbytes / 4)[..], b"t"].concat();
    let ordered = b"ccollections\nOrderedDict\n";
    let reference = |_: usize| b"h\x00".to_vec();
    vec![
        (
            "lists in lists",
            program(half, b"", &|_| b"]".to_vec(), &repeated(b"a", half - 1)),
        ),
        (
            "a list that contains itself often",
            program(nbytes, b"]q\x00(", &reference, b"e"),
        ),
        (
            "a tuple of one value",
            program(
                nbytes,
                &[&stored(b"]", 0)[..], b"("].concat(),
                &reference,
                b"t",
            ),
        ),
        (
            "a frozen set of one value",
            program(
                nbytes,
                &[&stored(b"]", 0)[..], b"("].concat(),
                &reference,
                b"\x91",
            ),
        ),
        (
            "lists of one long tuple",
            list(&stored(&many, 0), b"]h\x00a", b""),
        ),
        (
            "sets of one long tuple",
            list(
                &[stored(&many, 0), stored(b"cbuiltins\nset\n", 1)].concat(),
                b"h\x01h\x00\x85R",
                b"",
            ),
        ),
        (
            "a set of a tuple",
            program(nbytes, b"cbuiltins\nset\n(", &|_| b"N".to_vec(), b"t\x85R"),
        ),
        (
            "a builtin of many arguments",
            program(nbytes, b"cbuiltins\nset\n(", &|_| b"N".to_vec(), b"tR"),
        ),
        (
            "an ordered dict of pairs",
            program(
                nbytes,
                &[&stored(b"NN\x86", 0)[..], ordered, b"("].concat(),
                &reference,
                b"t\x85R",
            ),
        ),
        (
            "ordered dicts with attributes",
            list(&stored(ordered, 0), b"h\x00)R}b", b""),
        ),
        (
            "counters",
            list(&stored(b"ccollections\nCounter\n", 0), b"h\x00)R", b""),
        ),
        ("frozen sets", list(b"", b"(\x91", b"")),
        (
            "one long key",
            program(
                half,
                &[&stored(&spelt(&"k".repeat(half)), 0)[..], b"}("].concat(),
                &|_| b"h\x00N".to_vec(),
                b"u",
            ),
        ),
    ]
}

// ---- values without references

fn plain_values(nbytes: usize) -> Vec<Program> {
    let u32_of = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
    let negative = [b"\x8b", &u32_of(nbytes)[..], &repeated(b"\x80", nbytes)].concat();
    let encode = stored(b"c_codecs\nencode\n", 0);
    let accents = "\u{e9}".repeat(nbytes / 2);
    let letters = "e".repeat(nbytes);
    let latin1 = |text: &str| {
        let argument = [b"h\x00", &spelt(text)[..], b"U\x06latin1\x86R"].concat();
        program(1, &encode, &|_| argument.clone(), b"")
    };
    let bytes = [b"B", &u32_of(nbytes)[..], &repeated(b"\xff", nbytes)].concat();
    let class = [
        &spelt(&"A".repeat(nbytes / 2))[..],
        &spelt(&"B".repeat(nbytes / 2)),
        b"\x93",
    ]
    .concat();
    vec![
        (
            "one long integer",
            program(1, b"", &|_| negative.clone(), b""),
        ),
        (
            "integers of 17 bytes",
            program(
                nbytes,
                b"](",
                &|_| [b"\x8a\x11", &[0x80; 17][..]].concat(),
                b"e",
            ),
        ),
        ("one byte string", program(1, b"", &|_| bytes.clone(), b"")),
        (
            "byte strings",
            program(nbytes, b"](", &|_| b"C\x01x".to_vec(), b"e"),
        ),
        (
            "byte arrays",
            program(
                nbytes,
                b"](",
                &|_| b"\x96\x01\0\0\0\0\0\0\0x".to_vec(),
                b"e",
            ),
        ),
        ("one text in Latin-1", latin1(&accents)),
        ("one text in ASCII", latin1(&letters)),
        (
            "one text that is encoded often",
            program(
                nbytes / 2,
                &[
                    &encode[..],
                    b"h\x00",
                    &spelt(&"e".repeat(nbytes / 2)),
                    b"q\x01U\x06latin1q\x02\x86R0](",
                ]
                .concat(),
                &|_| b"h\x00h\x01h\x02\x86R".to_vec(),
                b"e",
            ),
        ),
        (
            "a class of a long name",
            program(1, b"", &|_| class.clone(), b""),
        ),
        (
            "dtypes",
            program(nbytes, b"](", &|_| b"ctorch\nint8\n".to_vec(), b"e"),
        ),
        (
            "functions",
            program(nbytes, b"](", &|_| b"ctorch\nSize\n".to_vec(), b"e"),
        ),
    ]
}

// ---- calls that make no tensors

fn calls(nbytes: usize) -> Vec<Program> {
    // `function` is number 1 of the memo, and its only argument number 0
    let calls_of = |function: &[u8], argument: &[u8]| {
        let head = [stored(argument, 0), stored(function, 1)].concat();
        program(
            nbytes / 2,
            &[&head, &b"]("[..]].concat(),
            &|_| b"h\x01h\x00\x85R".to_vec(),
            b"e",
        )
    };
    let (size, device) = (b"ctorch\nSize\n", b"ctorch\ndevice\n");
    let layout = b"ctorch.serialization\n_get_layout\n";
    let mark = b"ctorch.jit._pickle\nbuild_intlist\n";
    let long = [b"(", &repeated(b"K\x01", nbytes / 4)[..], b"t"].concat();
    let text = spelt(&"t".repeat(nbytes / 2));
    let pair = stored(b"cA\nB\n", 0);
    vec![
        ("sizes", calls_of(size, b"(K\x01K\x01K\x01K\x01t")),
        ("sizes of one long tuple", calls_of(size, &long)),
        ("marks of one long tuple", calls_of(mark, &long)),
        ("layouts", calls_of(layout, b"U\rtorch.strided")),
        ("layouts of one long name", calls_of(layout, &text)),
        ("devices", calls_of(device, b"U\x03cpu")),
        ("devices of one long name", calls_of(device, &text)),
        (
            "complex numbers",
            calls_of(b"cbuiltins\ncomplex\n", b"K\x01"),
        ),
        (
            "opaque objects with state and items",
            program(
                nbytes,
                &[&pair[..], b"]("].concat(),
                &|_| b"h\x00)\x81}bNa".to_vec(),
                b"e",
            ),
        ),
        (
            "opaque objects of one tuple",
            program(
                nbytes / 2,
                &[&pair[..], &stored(&long, 1), b"]("].concat(),
                &|_| b"h\x00h\x01\x81".to_vec(),
                b"e",
            ),
        ),
    ]
}

// ---- tensors

/// Stores functions at the numbers 10 to 14, a tensor at 0, and an empty dict at 1.
fn tensor_memo() -> Vec<u8> {
    [
        stored(&tensor(), 0),
        stored(b"}", 1),
        stored(b"ctorch\nTensor\n", 10),
        stored(b"ctorch._utils\n_rebuild_parameter_with_state\n", 11),
        stored(b"ctorch._tensor\n_rebuild_from_type_v2\n", 12),
        stored(b"ctorch._utils\n_rebuild_tensor_v2\n", 13),
        stored(
            b"ctorch._utils\n_rebuild_device_tensor_from_cpu_tensor\n",
            14,
        ),
    ]
    .concat()
}

/// The opcodes that push a tensor of this storage class without elements, of this size and these strides.
fn empty_tensor(storage: &str, size: &[u8], strides: &[u8]) -> Vec<u8> {
    let id = [
        b"(",
        &spelt("storage")[..],
        format!("ctorch\n{storage}\n").as_bytes(),
        &spelt("0"),
        &spelt("cpu"),
        b"K\x00tQ",
    ]
    .concat();
    call(
        b"ctorch._utils\n_rebuild_tensor_v2\n",
        &[&id, &b"K\x00"[..], size, strides, b"\x89}"].concat(),
    )
}

fn tensors(nbytes: usize) -> Vec<Program> {
    let list = |nbytes: usize, head: &[u8], each: &[u8]| {
        let head = [&tensor_memo(), head, b"]("].concat();
        program(nbytes, &head, &|_| each.to_vec(), b"e")
    };
    let half = nbytes / 2;
    let ones = |count: usize| [b"(", &repeated(b"K\x01", count)[..], b"t"].concat();
    // 65 535 dimensions at most, as a number of two bytes
    let dims = (nbytes / 4).min(0xffff);
    let count = u16::try_from(dims).unwrap().to_le_bytes();
    let long = ones(dims);
    let zero = [b"(K\x00", &repeated(b"K\x01", dims - 1)[..], b"t"].concat();
    // indices of `dims` rows and no columns, and no values
    let sparse = [
        b"ctorch._utils\n_rebuild_sparse_tensor\n(ctorch.serialization\n_get_layout\nU\x10torch.sparse_coo\x85R(",
        &empty_tensor("LongStorage", &[b"M", &count[..], b"K\x00\x86"].concat(), b"K\x01K\x01\x86")[..],
        &empty_tensor("FloatStorage", b"K\x00\x85", b"K\x01\x85"),
        &long,
        b"ttR",
    ]
    .concat();
    let meta = b"ctorch._utils\n_rebuild_meta_tensor_no_storage\n";
    let meta = [
        stored(meta, 2),
        stored(b"ctorch\nfloat32\n", 3),
        stored(&ones(4), 4),
    ]
    .concat();
    vec![
        (
            "one tensor by many aliases",
            list(nbytes, b"", b"h\x0ah\x00\x85R"),
        ),
        (
            "a tensor of many dimensions by many aliases",
            list(
                half,
                &stored(&empty_tensor("FloatStorage", &zero, &long), 2),
                b"h\x0ah\x02\x85R",
            ),
        ),
        (
            "a sparse tensor of many dimensions by many aliases",
            list(half, &stored(&sparse, 2), b"h\x0ah\x02\x85R"),
        ),
        (
            "tensors without data",
            list(nbytes, &meta, b"h\x02(h\x03h\x04h\x04\x89tR"),
        ),
        ("parameters", list(nbytes, b"", b"h\x0ah\x00\x88\x86R")),
        (
            "parameters with attributes",
            list(nbytes, b"", b"h\x0b(h\x00\x88h\x01}tR"),
        ),
        (
            "parameters of one long state",
            list(
                half,
                &stored(&[b"}(", &repeated(b"NN", nbytes / 4)[..], b"u"].concat(), 2),
                b"h\x0b(h\x00\x88h\x01h\x02tR",
            ),
        ),
        (
            "tensors with attributes",
            list(
                nbytes,
                &stored(&arguments(), 2),
                b"h\x0c(h\x0dh\x0ah\x02}U\x01aNstR",
            ),
        ),
    ]
}

/// The arguments of `_rebuild_tensor_v2` for a tensor of one element, as a tuple.
fn arguments() -> Vec<u8> {
    let id = [
        b"(",
        &spelt("storage")[..],
        b"ctorch\nFloatStorage\n",
        &spelt("0"),
        &spelt("cpu"),
        b"K\x01tQ",
    ]
    .concat();
    [b"(", &id[..], b"K\x00K\x01\x85K\x01\x85\x89}t"].concat()
}

// ---- values that are each other, call by call

fn chains(nbytes: usize) -> Vec<Program> {
    let of = |first: &[u8], each: &[u8]| {
        let head = [&tensor_memo(), first].concat();
        program(nbytes, &head, &|_| each.to_vec(), b"h\x00")
    };
    // each call has the one before it as its argument, and is stored at its place
    let dtype = stored(b"ctorch\nfloat32\n", 2);
    let device = b"(h\x00h\x02U\x03cpu\x89t";
    let within_type = [b"h\x0c(h\x0eh\x0a", &device[..], b"h\x01tRq\x000"].concat();
    let mark = stored(b"ctorch.jit._pickle\nrestore_type_tag\n", 3);
    // the calls in a list, of which the last is the first
    let backwards = |function: u8| {
        let count = nbytes / 12;
        let number = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
        let mut code = [b"\x80\x02".to_vec(), tensor_memo(), mark.clone()].concat();
        for n in 0..count {
            code.extend([b'h', function, b'h', 0, 0x85, b'R', b'q', 0, b'r']);
            code.extend(number(n + 300));
            code.push(b'0');
        }
        code.extend(b"](");
        for n in (0..count).rev() {
            code.push(b'j');
            code.extend(number(n + 300));
        }
        code.extend(b"e.");
        code
    };
    vec![
        (
            "device tensors of device tensors",
            of(&dtype, &[b"h\x0e", &device[..], b"Rq\x000"].concat()),
        ),
        ("device tensors with attributes", of(&dtype, &within_type)),
        ("tensors of tensors", of(b"", b"h\x0ah\x00\x85Rq\x000")),
        ("marks of marks", of(&mark, b"h\x03h\x00\x85Rq\x000")),
        ("tensors of tensors, each in a list", backwards(10)),
        ("marks of marks, each in a list", backwards(3)),
    ]
}

// ---- storages

/// Persistent ids of one storage, whose key is as long as it may be.
fn ids_of_one_long_key(nbytes: usize) -> Amplifier {
    let key = "k".repeat(256);
    let memo = [
        stored(&spelt("storage"), 2),
        stored(b"ctorch\nFloatStorage\n", 3),
        stored(&spelt(&key), 4),
        stored(b"K\x00", 5),
    ]
    .concat();
    let pickle = program(
        nbytes,
        &[&memo, &b"]("[..]].concat(),
        &|_| b"(h\x02h\x03h\x04Nh\x05tQ".to_vec(),
        b"e",
    );
    let members = [
        ("a/data.pkl".to_owned(), pickle),
        (format!("a/data/{key}"), vec![0; 4]),
    ];
    let bytes = zip(CompressionMethod::Stored, members.into_iter());
    file("ids of one long key", bytes)
}
