//! Generators of files that cost much memory or work per byte, per format. All are deterministic.

use std::io::Write;

use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

/// Files to be written to one directory, of which the first is opened.
pub struct Amplifier {
    /// The format, as the table in docs/untrusted.md names it.
    pub format: &'static str,
    pub what: &'static str,
    pub files: Vec<(&'static str, Vec<u8>)>,
}

impl Amplifier {
    pub fn nbytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }
}

/// All amplifiers of about `nbytes` bytes each.
pub fn all(nbytes: usize) -> Vec<Amplifier> {
    [
        safetensors(nbytes),
        indexes(nbytes),
        configurations(nbytes),
        gguf(nbytes),
        npy(nbytes),
        npz(nbytes),
        pth(nbytes),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// As many rows as fit in `nbytes`, joined by commas.
fn rows(nbytes: usize, row: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(nbytes + 64);
    for n in 0.. {
        if text.len() >= nbytes {
            break;
        }
        if n > 0 {
            text.push(',');
        }
        text.push_str(&row(n));
    }
    text
}

// ---- safetensors

fn safetensors_file(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

/// A file of tensors without elements, whose dtype and names these are.
fn empty_tensors(nbytes: usize, dtype: &str, name: impl Fn(usize) -> String) -> Vec<u8> {
    let row = |n| {
        let name = name(n);
        format!(r#""{name}":{{"dtype":"{dtype}","shape":[0],"data_offsets":[0,0]}}"#)
    };
    safetensors_file(&format!("{{{}}}", rows(nbytes, row)), 0)
}

fn safetensors(nbytes: usize) -> Vec<Amplifier> {
    let mut all = Vec::new();
    let mut add = |what, file| {
        all.push(Amplifier {
            format: "safetensors",
            what,
            files: vec![("model.safetensors", file)],
        });
    };
    let metadata = |row: &dyn Fn(usize) -> String| {
        let text = rows(nbytes, row);
        safetensors_file(&format!(r#"{{"__metadata__":{{{text}}}}}"#), 0)
    };
    let shaped = |sizes: usize| {
        let sizes = vec!["1"; sizes].join(",");
        move |n: usize| {
            format!(r#""{n:x}":{{"dtype":"U8","shape":[0,{sizes}],"data_offsets":[0,0]}}"#)
        }
    };
    add("tensors", empty_tensors(nbytes, "U8", |n| format!("{n:x}")));
    add(
        "tensors of escaped names",
        empty_tensors(nbytes, "U8", |n| format!("\\u0041{n:x}")),
    );
    add(
        "one long name",
        empty_tensors(1, "U8", |_| "n".repeat(nbytes)),
    );
    add(
        "one long escaped name",
        empty_tensors(1, "U8", |_| "\\n".repeat(nbytes / 2)),
    );
    add(
        "dotted names",
        empty_tensors(1, "F8_E4M3", |_| ".".repeat(nbytes)),
    );
    add(
        "tensors of six dimensions",
        safetensors_file(&format!("{{{}}}", rows(nbytes, shaped(5))), 0),
    );
    add(
        "one shape",
        safetensors_file(&format!("{{{}}}", shaped(nbytes / 2)(0)), 0),
    );
    add("metadata", metadata(&|n| format!(r#""{n:x}":"""#)));
    add(
        "metadata of escapes",
        metadata(&|n| format!(r#""\n{n:x}":"\n""#)),
    );
    add(
        "one metadata value",
        metadata(&|_| format!(r#""a":"{}""#, "x".repeat(nbytes))),
    );
    let count = nbytes / 64;
    let reversed: Vec<String> = (0..count)
        .rev()
        .map(|at| {
            let end = at + 1;
            format!(r#""{at:x}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{end}]}}"#)
        })
        .collect();
    let header = format!("{{{}}}", reversed.join(","));
    add("tensors out of order", safetensors_file(&header, count));
    all
}

// ---- indexes

fn indexes(nbytes: usize) -> Vec<Amplifier> {
    let shard = || {
        let row = r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
        ("a.safetensors", safetensors_file(row, 0))
    };
    let mut all = Vec::new();
    let mut add = |what, text: String| {
        all.push(Amplifier {
            format: "index",
            what,
            files: vec![("model.safetensors.index.json", text.into_bytes()), shard()],
        });
    };
    let map = r#""weight_map":{"a":"a.safetensors"}"#;
    for (what, row) in trees() {
        let values = rows(nbytes, row);
        add(what, format!(r#"{{"metadata":{{"x":[{values}]}},{map}}}"#));
    }
    let keys = rows(nbytes, |n| format!(r#""{n:x}":0"#));
    add(
        "metadata of numbers",
        format!(r#"{{"metadata":{{{keys}}},{map}}}"#),
    );
    let pairs = rows(nbytes, |n| format!(r#""{n:x}":"a.safetensors""#));
    add(
        "tensors of one file",
        format!(r#"{{"weight_map":{{{pairs}}}}}"#),
    );
    let pairs = rows(nbytes, |n| format!(r#""{n:x}":"{n:x}""#));
    add("files", format!(r#"{{"weight_map":{{{pairs}}}}}"#));
    let ignored = rows(nbytes, |_| "[0]".to_owned());
    add("an ignored value", format!(r#"{{"x":[{ignored}],{map}}}"#));
    all
}

type Row = fn(usize) -> String;

/// Items of a JSON array that allocate.
fn trees() -> Vec<(&'static str, Row)> {
    vec![
        ("arrays", |_| "[0]".to_owned()),
        ("empty arrays", |_| "[]".to_owned()),
        ("objects", |_| r#"{"":0}"#.to_owned()),
        ("strings", |_| r#""""#.to_owned()),
        ("escaped strings", |_| r#""\n""#.to_owned()),
        ("nested arrays", |_| {
            format!("{}{}", "[".repeat(100), "]".repeat(100))
        }),
        ("long numbers", |_| "1e300".to_owned()),
    ]
}

// ---- configurations

fn configurations(nbytes: usize) -> Vec<Amplifier> {
    let mut all = Vec::new();
    let mut add = |what, config: String, model: Vec<u8>| {
        all.push(Amplifier {
            format: "configuration",
            what,
            files: vec![
                ("model.safetensors", model),
                ("config.json", config.into_bytes()),
            ],
        });
    };
    let few = || empty_tensors(1, "F8_E4M3", |n| format!("{n}.weight"));
    // one half of the bytes are tensors, the other entries of a list
    let (half, name) = (nbytes / 2, |n: usize| format!("model.layers.{n}.weight"));
    let fp8 = || empty_tensors(half, "F8_E4M3", name);
    for (what, row) in trees() {
        let values = rows(nbytes, row);
        add(what, format!(r#"{{"x":[{values}]}}"#), few());
    }
    let quantised = |list: &str, entry: &dyn Fn(usize) -> String| {
        let entries = rows(half, entry);
        format!(r#"{{"quantization_config":{{"quant_method":"fp8","{list}":[{entries}]}}}}"#)
    };
    let lists: [(&str, &str, Row); 6] = [
        ("modules of other names", "modules_to_not_convert", |n| {
            format!(r#""model.layers.{n}.x""#)
        }),
        ("modules that begin alike", "ignore", |n| {
            format!(r#""model.layers.{}""#, "a.".repeat(n % 50))
        }),
        ("patterns that begin alike", "ignored_layers", |n| {
            format!(r#""model.layers.*x{n}*y""#)
        }),
        ("patterns of prefixes", "exclude_modules", |n| {
            format!(r#""{}*x""#, &"model.layers.100000"[..n % 20])
        }),
        ("regular expressions", "ignore", |n| {
            format!(r#""re:.*layers.{n}.*""#)
        }),
        ("one long module", "llm_int8_skip_modules", |_| {
            format!(r#""{}""#, "a.".repeat(1 << 15))
        }),
    ];
    for (what, list, entry) in lists {
        add(what, quantised(list, &entry), fp8());
    }
    let dotted = empty_tensors(1, "F8_E4M3", |_| format!("{}weight", "a.".repeat(half / 2)));
    let entries = quantised("ignore", &|n| format!(r#""{}b""#, "a.".repeat(n % 500)));
    add("modules in one long name", entries, dotted);
    let stars = |n: usize| format!(r#""a*{}""#, "a*".repeat(n % 100));
    let long = empty_tensors(1, "F8_E4M3", |_| "a".repeat(half));
    add(
        "patterns on one long name",
        quantised("ignore", &stars),
        long,
    );

    let object = |head: &str, key: &str, entries: String| {
        format!(r#"{{"quantization_config":{{{head}"{key}":{{{entries}}}}}}}"#)
    };
    let u8s = || {
        let row = |n: usize| {
            let offsets = r#""shape":[0,8],"data_offsets":[0,0]"#;
            format!(
                r#""m.{n}.weight":{{"dtype":"U8",{offsets}}},"m.{n}.weight_scale":{{"dtype":"U8",{offsets}}}"#
            )
        };
        safetensors_file(&format!("{{{}}}", rows(half, row)), 0)
    };
    let layers = |pattern: Row| {
        rows(half, move |n| {
            format!(r#""{}":{{"weight":{{"dtype":"int8"}}}}"#, pattern(n))
        })
    };
    let head = r#""quant_method":"quark","#;
    let named = object(head, "layer_quant_config", layers(|n| format!("m.{n}")));
    add("layers by name", named, u8s());
    let patterns = object(head, "layer_quant_config", layers(|n| format!("m.*{n}x")));
    add("layers by pattern", patterns, u8s());
    let steps = rows(half, |_| "{}".to_owned());
    let steps = format!(
        r#"{{"quantization_config":{{{head}"global_quant_config":{{"weight":[{steps}]}}}}}}"#
    );
    add("steps of one layer", steps, u8s());
    let groups = rows(half, |n| {
        format!(r#""{n}":{{"weights":{{"num_bits":{n},"group_size":{n}}}}}"#)
    });
    let head = r#""quant_method":"compressed-tensors","#;
    add("groups", object(head, "config_groups", groups), fp8());
    let method = format!(
        r#"{{"quantization_config":{{"quant_method":"{}","version":"{}"}}}}"#,
        "F".repeat(half / 2),
        "0".repeat(half / 2)
    );
    add("one long method", method, fp8());
    let module = rows(half, |n| format!(r#""m.{n}":{{"bits":4}}"#));
    add(
        "settings of modules",
        format!(r#"{{"quantization":{{{module}}}}}"#),
        u8s(),
    );
    let description = rows(half, |_| "[0]".to_owned());
    let torchao = format!(
        r#"{{"__metadata__":{{"w":"{{\"_type\":\"Int8Tensor\",\"_data\":[{description}]}}"}},"_w_qdata":{{"dtype":"I8","shape":[0],"data_offsets":[0,0]}}}}"#
    );
    add(
        "a description of a tensor",
        "{}".into(),
        safetensors_file(&torchao, 0),
    );
    all
}

// ---- GGUF

fn gguf_file(tensors: u64, keys: u64, body: &[u8]) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend(tensors.to_le_bytes());
    file.extend(keys.to_le_bytes());
    file.extend(body);
    file.resize(file.len().next_multiple_of(32), 0);
    file
}

fn gguf_text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

fn gguf(nbytes: usize) -> Vec<Amplifier> {
    let mut all = Vec::new();
    let mut add = |what, file| {
        all.push(Amplifier {
            format: "gguf",
            what,
            files: vec![("model.gguf", file)],
        });
    };
    let keys = |value: &dyn Fn(usize) -> Vec<u8>| {
        let (mut body, mut count) = (Vec::new(), 0);
        while body.len() < nbytes {
            let n = usize::try_from(count).unwrap();
            body.extend(gguf_text(format!("{n:x}").as_bytes()));
            body.extend(value(n));
            count += 1;
        }
        gguf_file(0, count, &body)
    };
    let array = |item: u32, len: u64, items: Vec<u8>| {
        [
            &9u32.to_le_bytes()[..],
            &item.to_le_bytes(),
            &len.to_le_bytes(),
            &items,
        ]
        .concat()
    };
    let inner = |item: u32, len: u64, items: &[u8]| {
        [&item.to_le_bytes()[..], &len.to_le_bytes(), items].concat()
    };
    add("keys", keys(&|_| [&0u32.to_le_bytes()[..], &[0]].concat()));
    let empty = [&8u32.to_le_bytes()[..], &gguf_text(b"")].concat();
    add("empty texts", keys(&|_| empty.clone()));
    add("arrays of numbers", keys(&|_| array(0, 16, vec![0; 16])));
    add(
        "arrays of texts",
        keys(&|_| array(8, 4, gguf_text(b"").repeat(4))),
    );
    let one = inner(0, 1, &[0]);
    let nested = (0..30).fold(one.clone(), |nested, _| inner(9, 1, &nested));
    add("nested arrays", keys(&|_| array(9, 1, nested.clone())));
    let wide = inner(9, 16, &one.repeat(16));
    add("arrays of arrays", keys(&|_| array(9, 16, wide.repeat(16))));
    let invalid = [&8u32.to_le_bytes()[..], &gguf_text(&vec![0xff; nbytes])].concat();
    add("one text that is not UTF-8", keys(&|_| invalid.clone()));
    let strings = array(8, nbytes as u64 / 8, gguf_text(b"").repeat(nbytes / 8));
    add("one array of texts", keys(&|_| strings.clone()));
    let (mut body, mut count) = (Vec::new(), 0u64);
    while body.len() < nbytes {
        body.extend(gguf_text(format!("{count:x}").as_bytes()));
        body.extend(1u32.to_le_bytes());
        body.extend(0u64.to_le_bytes());
        body.extend(24u32.to_le_bytes());
        body.extend(0u64.to_le_bytes());
        count += 1;
    }
    add("tensors", gguf_file(count, 0, &body));
    all
}

// ---- NPY and NPZ

fn npy_file(dict: &str) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x02\x00".to_vec();
    file.extend(u32::try_from(dict.len()).unwrap().to_le_bytes());
    file.extend(dict.as_bytes());
    file
}

fn array(descr: &str) -> Vec<u8> {
    npy_file(&format!(
        "{{'descr': {descr}, 'fortran_order': False, 'shape': (0,)}}"
    ))
}

/// Longest header that is read.
const NPY_TEXT_MAX: usize = 1 << 20;

/// Headers of at most this length.
fn headers(nbytes: usize) -> Vec<(&'static str, Vec<u8>)> {
    let list = |row: &dyn Fn(usize) -> String| array(&format!("[{}]", rows(nbytes, row)));
    vec![
        ("fields", list(&|n| format!("('{n:x}','u1')"))),
        (
            "fields of two widths",
            list(&|n| format!("('{n:x}','u{}')", 1 + n % 2)),
        ),
        ("padding", list(&|_| "('','u1')".into())),
        ("empty tuples", list(&|_| "()".into())),
        ("numbers", list(&|_| "0".into())),
        ("empty texts", list(&|_| "''".into())),
        (
            "nested fields",
            list(&|n| format!("('{n:x}',[('',[('','u1')])])")),
        ),
        ("titles", list(&|n| format!("(('','{n:x}'),'u1')"))),
        (
            "one long name",
            array(&format!("[('{}','u1')]", "n".repeat(nbytes))),
        ),
        (
            "keys",
            npy_file(&format!("{{{}}}", rows(nbytes, |n| format!("'{n:x}':0")))),
        ),
    ]
}

fn npy(nbytes: usize) -> Vec<Amplifier> {
    let all = headers(nbytes.min(NPY_TEXT_MAX - 100));
    all.into_iter()
        .map(|(what, file)| Amplifier {
            format: "npy",
            what,
            files: vec![("array.npy", file)],
        })
        .collect()
}

pub fn zip(method: CompressionMethod, members: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in members {
        zip.start_file(name, options).unwrap();
        zip.write_all(&bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn npz(nbytes: usize) -> Vec<Amplifier> {
    let mut all = Vec::new();
    let mut add = |what, file| {
        all.push(Amplifier {
            format: "npz",
            what,
            files: vec![("arrays.npz", file)],
        });
    };
    let stored = CompressionMethod::Stored;
    // a member costs about 100 bytes beyond its name, which it has twice, and its content
    let members = |len: usize| nbytes / (len + 110);
    let arrays = |descr: &dyn Fn(usize) -> String| {
        let count = members(array(&descr(9999)).len());
        zip(
            stored,
            (0..count).map(|n| (format!("{n:x}.npy"), array(&descr(n)))),
        )
    };
    add("arrays", arrays(&|_| "'u1'".into()));
    add(
        "structured dtypes",
        arrays(&|n| format!("[('', 'V{}')]", n + 1)),
    );
    add("object arrays", arrays(&|_| "'O'".into()));
    let count = members(0);
    add(
        "members that are no arrays",
        zip(
            stored,
            (0..count)
                .map(|n| (format!("{n:x}.npy"), Vec::new()))
                .chain([("array.npy".into(), array("'u1'"))]),
        ),
    );
    let name = "n".repeat(60_000);
    add(
        "long names",
        zip(
            stored,
            (0..nbytes / 120_000).map(|n| (format!("{name}{n}.npy"), array("'u1'"))),
        ),
    );
    for (what, header) in headers(NPY_TEXT_MAX - 100) {
        // each deflates to a few kilobytes
        let count = (nbytes / (200 << 10)).max(1);
        let same = (0..count).map(|n| (format!("{n:x}.npy"), header.clone()));
        add(what, zip(CompressionMethod::Deflated, same));
    }
    all
}

// ---- PyTorch

const TENSOR: &[u8] = b"ctorch._utils\n_rebuild_tensor_v2\n";
const STORAGE: &[u8] = b"ctorch\nFloatStorage\n";

/// A checkpoint whose pickle this is, with one storage of four bytes.
pub fn checkpoint(method: CompressionMethod, pickle: Vec<u8>) -> Vec<u8> {
    let members = [
        ("a/data.pkl".to_owned(), pickle),
        ("a/data/0".to_owned(), vec![0; 4]),
    ];
    zip(method, members.into_iter())
}

/// The opcodes that push a tensor of one element.
pub fn tensor() -> Vec<u8> {
    let mut code = Vec::new();
    // _rebuild_tensor_v2(storage, 0, (1,), (1,), False, {})
    code.extend(TENSOR);
    code.push(b'(');
    code.push(b'(');
    code.extend(b"X\x07\0\0\0storage");
    code.extend(STORAGE);
    code.extend(b"X\x01\0\0\x000X\x03\0\0\0cpuK\x01tQ");
    code.extend(b"K\0K\x01\x85K\x01\x85\x89}tR");
    code
}

/// A pickle of `head`, of `each` by number until that has `nbytes` bytes, and of `tail`.
pub fn program(
    nbytes: usize,
    head: &[u8],
    each: &dyn Fn(usize) -> Vec<u8>,
    tail: &[u8],
) -> Vec<u8> {
    let mut code = b"\x80\x02".to_vec();
    code.extend(head);
    let start = code.len();
    for n in 0.. {
        if code.len() >= start + nbytes {
            break;
        }
        code.extend(each(n));
    }
    code.extend(tail);
    code.push(b'.');
    code
}

/// The opcode that pushes a text.
pub fn spelt(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap().to_le_bytes();
    [&b"X"[..], &len, text.as_bytes()].concat()
}

fn pth(nbytes: usize) -> Vec<Amplifier> {
    let mut all = Vec::new();
    let mut add = |what, pickle: &[u8], method| {
        all.push(Amplifier {
            format: "pth",
            what,
            files: vec![("model.pth", checkpoint(method, pickle.to_vec()))],
        });
    };
    let program = |head: &[u8], each: &dyn Fn(usize) -> Vec<u8>, tail: &[u8]| {
        program(nbytes, head, each, tail)
    };
    let text = |n: usize| spelt(&format!("{n:x}"));
    let pair = |n: usize, value: &[u8]| [&text(n)[..], value].concat();
    let programs: Vec<(&'static str, Vec<u8>)> = vec![
        ("empty lists", program(b"](", &|_| b"]".to_vec(), b"e")),
        ("lists of one", program(b"](", &|_| b"]Na".to_vec(), b"e")),
        ("dicts of one", program(b"](", &|_| b"}NNs".to_vec(), b"e")),
        ("tuples", program(b"](", &|_| b"N\x85".to_vec(), b"e")),
        ("marks", program(b"", &|_| b"(".to_vec(), b"N")),
        (
            "memo",
            program(
                b"N",
                &|n| [&b"r"[..], &u32::try_from(n).unwrap().to_le_bytes()].concat(),
                b"",
            ),
        ),
        (
            "scattered memo",
            program(
                b"N",
                &|n| {
                    [
                        &b"r"[..],
                        &u32::try_from(n * 300 % 0xffff_ffff).unwrap().to_le_bytes(),
                    ]
                    .concat()
                },
                b"",
            ),
        ),
        (
            "numbers by name",
            program(b"}(", &|n| pair(n, b"K\x01"), b"u"),
        ),
        (
            "texts by name",
            program(b"}(", &|n| [text(n), text(n)].concat(), b"u"),
        ),
        (
            "lists by name",
            program(b"}(", &|n| pair(n, b"(K\x01K\x01l"), b"u"),
        ),
        ("tensors", program(b"}(", &|n| pair(n, &tensor()), b"u")),
        (
            "one tensor by many names",
            program(
                &[&tensor()[..], b"q\x010}("].concat(),
                &|n| pair(n, b"h\x01"),
                b"u",
            ),
        ),
        (
            "one list by many names",
            program(
                b"](NNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNNeq\x010}(",
                &|n| pair(n, b"h\x01"),
                b"u",
            ),
        ),
        (
            "calls",
            program(b"](", &|_| b"ctorch\nSize\n(N\x85tR".to_vec(), b"e"),
        ),
        (
            "ordered dicts",
            program(b"](", &|_| b"ccollections\nOrderedDict\n)R".to_vec(), b"e"),
        ),
        (
            "arrays of numpy",
            program(
                b"cnumpy\ndtype\n(U\x02i1I00\nI01\ntRq\x01cnumpy\nndarray\nq\x020}(",
                &|n| {
                    let array = b"cnumpy.core.multiarray\n_reconstruct\n(h\x02I0\nNtR(K\x01(K\x01th\x01I00\nC\x01xtb";
                    pair(n, array)
                },
                b"u",
            ),
        ),
        (
            "encoded bytes",
            program(
                b"](",
                &|_| b"c_codecs\nencode\n(X\x02\0\0\0\xc3\xbfU\x06latin1tR".to_vec(),
                b"e",
            ),
        ),
        (
            "names to be quoted",
            program(
                &[&tensor()[..], b"q\x010}("].concat(),
                &|n| {
                    [
                        &text(n)[..],
                        b"}U\x01ah\x01s",
                        &spelt(&format!("{n:x}.a")),
                        b"h\x01",
                    ]
                    .concat()
                },
                b"u",
            ),
        ),
        (
            "opaque objects",
            program(b"](", &|_| b"cA\nB\n)\x81}K\x01K\x01sb".to_vec(), b"e"),
        ),
        (
            "opaque lists",
            program(b"](", &|_| b"cA\nB\n)\x81K\x01a".to_vec(), b"e"),
        ),
        (
            "objects of one long name",
            program(
                &[b"c", &b"A".repeat(nbytes / 4)[..], b"\nB\nq\x01]("].concat(),
                &|_| b"h\x01)\x81".to_vec(),
                b"e",
            ),
        ),
        (
            "unknown classes",
            program(
                b"](",
                &|n| [format!("cA\n{n}\n").as_bytes(), b")\x81"].concat(),
                b"e",
            ),
        ),
        (
            "refused tensors",
            program(
                b"cA\nB\nq\x010}(",
                &|n| pair(n, b"ctorch._utils\n_rebuild_tensor_v2\n(h\x01tR"),
                b"u",
            ),
        ),
        // each level refers twice to the one below
        (
            "shared values",
            program(b"Nq\0", &|_| b"0(h\0h\0tq\0".to_vec(), b""),
        ),
        (
            "nested lists",
            program(
                b"",
                &|_| b"(".to_vec(),
                &[&b"N"[..], &b"l".repeat(60)].concat(),
            ),
        ),
    ];
    for (what, pickle) in &programs {
        add(what, pickle, CompressionMethod::Stored);
        add(what, pickle, CompressionMethod::Deflated);
    }
    all
}
