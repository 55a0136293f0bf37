//! Quantised files that were bent: each ends in weights or in an error that names a tensor, in little memory and time.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anamnesis::sink::NullSink;
use anamnesis::{
    BlockFormat, Checkpoint, Dtype, Limits, OpenOptions, QuantConfig, remember, source,
};
use serde_json::Value;
use support::corpus::quantised_files;
use support::random::random_bytes;
use support::testing::ThreadTime;
use support::writers::{StoredTensor, gguf, safetensors};

/// Small, so that what is allocated past it shows.
const LIMITS: Limits = Limits {
    memory: 16 << 20,
    tensors: 10_000,
    depth: 16,
    steps: 100_000,
    tensor_bytes: 64 << 20,
    tile_bytes: 64 << 20,
    expansion: 1032,
};

/// The most bytes of output that are made of one file.
const OUTPUT: u64 = 32 << 20;

/// What all this may take of memory: the limits, the files, the process.
const PEAK: u64 = 192 << 20;

/// One bent file takes no longer, from opening to its last weight.
const TIME: Duration = Duration::from_secs(2);

/// How often each answer was given.
#[derive(Debug, Default)]
struct Answers {
    not_opened: usize,
    made: usize,
    refused: usize,
    failed: usize,
}

impl Answers {
    fn all(&self) -> usize {
        self.not_opened + self.made + self.refused + self.failed
    }

    /// Opens, plans and decodes, and says what was bent if that panics.
    fn ask(&mut self, bytes: Vec<u8>, config: Option<&[u8]>, what: &dyn Fn() -> String) {
        let answered = catch_unwind(AssertUnwindSafe(|| self.answer(bytes, config, what)));
        answered.unwrap_or_else(|_| panic!("{}", what()));
    }

    fn answer(&mut self, bytes: Vec<u8>, config: Option<&[u8]>, what: &dyn Fn() -> String) {
        let began = ThreadTime::start();
        let options = OpenOptions::new().limits(LIMITS);
        let Ok(checkpoint) = options.from_source(source::MemorySource::new(bytes)) else {
            self.not_opened += 1;
            return;
        };
        let mut remember = remember(&checkpoint).threads(1);
        if let Some(config) = config.and_then(|text| QuantConfig::from_json(text).ok()) {
            remember = remember.config(config);
        }
        let mut plan = remember
            .plan()
            .unwrap_or_else(|e| panic!("{}: planning fails: {e}", what()));
        let names: Vec<&str> = checkpoint
            .catalog()
            .tensors()
            .iter()
            .map(|t| &*t.name)
            .collect();
        for refusal in &plan.refused {
            let text = refusal.error.to_string();
            let named = |name: &str| text.contains(&format!("`{name}`"));
            // of the weight, or of one of the tensors it would be made from
            let found = named(&refusal.name) || names.iter().any(|name| named(name));
            assert!(
                found,
                "{}: {} is refused, and no tensor named: {text}",
                what(),
                refusal.name
            );
        }
        self.refused += usize::from(!plan.refused.is_empty());
        plan.refused.clear();
        for range in plan.reads(checkpoint.catalog()) {
            assert!(
                range.end() <= checkpoint.catalog().files()[0].nbytes,
                "{}: reads {range:?}",
                what()
            );
        }
        if plan.nbytes() <= OUTPUT {
            match remember.run(&plan, &mut NullSink) {
                Ok(()) => self.made += 1,
                Err(_) => self.failed += 1,
            }
        }
        assert!(
            began.elapsed() < TIME,
            "{} took {:?}",
            what(),
            began.elapsed()
        );
    }
}

/// A quantised checkpoint of one file, and the configuration beside it.
struct Seed {
    path: PathBuf,
    tensors: Vec<StoredTensor>,
    /// Keys and texts, in which some schemes describe their weights.
    metadata: Vec<(String, String)>,
    config: Option<Vec<u8>>,
}

fn seed(path: &Path) -> Seed {
    let checkpoint = Checkpoint::open(path).unwrap();
    let stored = |tensor: anamnesis::Tensor<'_>| {
        let info = tensor.info();
        StoredTensor::new(
            &info.name,
            info.encoding.name(),
            &info.shape,
            tensor.bytes().unwrap().into_owned(),
        )
    };
    let tensors = checkpoint.tensors().map(stored).collect();
    let metadata = checkpoint.catalog().metadata().iter();
    let metadata = metadata.filter_map(|(key, value)| match value {
        anamnesis::Value::Text(text) => Some((key.to_owned(), text.to_string())),
        _ => None,
    });
    Seed {
        tensors,
        metadata: metadata.collect(),
        config: std::fs::read(path.with_file_name("config.json")).ok(),
        path: path.to_owned(),
    }
}

/// FP8 weights, one of HQQ's whose scales and zero points are quantised, and shuffled ones of torchao's: no safetensors
/// file of their own has the latter two.
fn own() -> Seed {
    let bytes = |seed, n| random_bytes(seed, n);
    let number = |name: &str, n: i32| StoredTensor::new(name, "I32", &[], n.to_le_bytes().to_vec());
    let shape = |name: &str, shape: [i64; 2]| {
        StoredTensor::new(
            name,
            "I64",
            &[2],
            shape.iter().flat_map(|n| n.to_le_bytes()).collect(),
        )
    };
    let tensors = vec![
        StoredTensor::new("a.weight", "F8_E4M3", &[10, 12], bytes(1, 120)),
        StoredTensor::new("a.weight_scale_inv", "F32", &[3, 3], bytes(2, 36)),
        StoredTensor::new("b.weight", "F8_E5M2", &[2, 6, 8], bytes(3, 96)),
        StoredTensor::new("b.weight_scale", "BF16", &[2, 6, 1], bytes(4, 24)),
        StoredTensor::new("c.weight", "F8_E4M3", &[4, 32], bytes(5, 128)),
        StoredTensor::new("c.weight_scale", "U8", &[4, 1], bytes(6, 4)),
        StoredTensor::new("c.input_scale", "F32", &[], bytes(7, 4)),
        StoredTensor::new("d.W_q", "U8", &[8, 16], bytes(8, 128)),
        StoredTensor::new("d.scale_q", "U8", &[4, 4], bytes(9, 16)),
        StoredTensor::new("d.zero_q", "U8", &[16, 1], bytes(10, 16)),
        StoredTensor::new("d.meta_scale.scale", "F16", &[1, 4], bytes(11, 8)),
        StoredTensor::new("d.meta_scale.zero", "F32", &[1, 4], bytes(12, 16)),
        StoredTensor::new("d.meta_zero.scale", "F32", &[], bytes(13, 4)),
        StoredTensor::new("d.meta_zero.zero", "F32", &[], bytes(14, 4)),
        number("d.nbits", 4),
        number("d.group_size", 16),
        number("d.axis", 1),
        number("d.meta_scale.nbits", 8),
        number("d.meta_scale.group_size", 4),
        number("d.meta_scale.axis", 0),
        number("d.meta_zero.nbits", 8),
        number("d.meta_zero.axis", 0),
        shape("d.shape", [16, 16]),
        shape("d.meta_scale.shape", [16, 1]),
        shape("d.meta_zero.shape", [16, 1]),
        StoredTensor::new("e._weight_qdata", "I8", &[16, 16], bytes(15, 256)),
        StoredTensor::new("e._weight_group_scale", "BF16", &[2, 16], bytes(16, 64)),
        StoredTensor::new("e._weight_group_zero", "BF16", &[2, 16], bytes(17, 64)),
        StoredTensor::new("f._weight_qdata", "I8", &[2, 16, 16], bytes(18, 512)),
        StoredTensor::new(
            "f._weight_group_scale",
            "F8_E4M3",
            &[2, 2, 8, 16],
            bytes(19, 512),
        ),
        StoredTensor::new("f._weight_row_scale", "F32", &[2, 16], bytes(20, 128)),
    ];
    let said = |block: &str| {
        format!(r#"{{"_type":"Int4PreshuffledTensor","_data":{{"block_size":{block}}}}}"#)
    };
    let metadata = vec![
        ("e.weight".to_owned(), said("[1,16]")),
        ("f.weight".to_owned(), said("[1,1,16]")),
    ];
    let config = br#"{"quantization_config":{"quant_method":"fp8","weight_block_size":[4,4],"ignore":["x"]}}"#.to_vec();
    Seed {
        path: "own".into(),
        tensors,
        metadata,
        config: Some(config),
    }
}

/// Sizes of a dimension that a header may claim.
fn sizes(d: u64) -> [u64; 9] {
    [
        0,
        1,
        d.saturating_sub(1),
        d + 1,
        d / 2,
        d * 2,
        7,
        1 << 40,
        u64::MAX,
    ]
}

/// A tensor with its bytes cut or lengthened to what its header says, where that is little.
fn fitted(mut tensor: StoredTensor) -> StoredTensor {
    let elements = match tensor.shape.contains(&0) {
        true => Some(0),
        false => tensor.shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d)),
    };
    let nbytes = elements.and_then(|n| Dtype::from_name(&tensor.dtype)?.nbytes(n));
    if let Some(n) = nbytes.filter(|n| *n <= 1 << 20) {
        tensor.bytes.resize(usize::try_from(n).unwrap(), 0x5a);
    }
    tensor
}

/// Every way in which one tensor is bent.
fn bent(tensor: &StoredTensor, others: &[StoredTensor]) -> Vec<(String, Vec<StoredTensor>)> {
    let mut ways: Vec<(String, Vec<StoredTensor>)> = Vec::new();
    let mut way = |what: String, change: &dyn Fn(&mut StoredTensor)| {
        let mut changed = tensor.clone();
        change(&mut changed);
        ways.push((what, vec![changed]));
    };
    for dtype in Dtype::all() {
        let name = dtype.name().to_owned();
        way(format!("{name}, of the same shape"), &|t| {
            t.dtype.clone_from(&name);
            *t = fitted(t.clone());
        });
        way(format!("{name}, of the same bytes"), &|t| {
            let (old, new) = (Dtype::from_name(&t.dtype).unwrap().bits(), dtype.bits());
            if let Some(last) = t.shape.last_mut() {
                *last = *last * old / new;
            }
            t.dtype.clone_from(&name);
            *t = fitted(t.clone());
        });
    }
    for (i, &d) in tensor.shape.iter().enumerate() {
        for size in sizes(d) {
            way(format!("dimension {i} of {size}"), &|t| {
                t.shape[i] = size;
                *t = fitted(t.clone());
            });
            // what has no elements may claim anything elsewhere
            way(
                format!("dimension {i} of {size}, and none elsewhere"),
                &|t| {
                    t.shape.fill(0);
                    t.shape[i] = size;
                    *t = fitted(t.clone());
                },
            );
        }
    }
    for shape in [
        vec![],
        vec![1],
        vec![0],
        vec![1, 1],
        [&[1], &tensor.shape[..]].concat(),
        [&tensor.shape[..], &[1]].concat(),
    ] {
        way(format!("shape {shape:?}"), &|t| {
            t.shape.clone_from(&shape);
            *t = fitted(t.clone());
        });
    }
    way("dimensions in reverse".into(), &|t| t.shape.reverse());
    way("one dimension".into(), &|t| {
        t.shape = vec![t.shape.iter().product()]
    });
    way("renamed".into(), &|t| t.name.push('x'));
    way("cut from its module".into(), &|t| {
        t.name = t.name.rsplit('.').next().unwrap().to_owned()
    });
    for other in others.iter().filter(|other| other.name != tensor.name) {
        way(format!("with the content of {}", other.name), &|t| {
            *t = StoredTensor {
                name: t.name.clone(),
                ..other.clone()
            };
        });
    }
    for fill in [0, 1, 0x7f, 0x80, 0xff] {
        way(format!("full of {fill:#x}"), &|t| t.bytes.fill(fill));
    }
    // descriptors: a bit here and there, and all of it
    let flips = if tensor.bytes.len() <= 2048 { 24 } else { 2 };
    for seed in 0..flips {
        way(format!("a bit flipped, {seed}"), &|t| {
            let dice = u64::from_le_bytes(random_bytes(seed, 8).try_into().unwrap());
            if let Some(n) = (dice >> 8).checked_rem(t.bytes.len() as u64) {
                t.bytes[usize::try_from(n).unwrap()] ^= 1 << (dice & 7);
            }
        });
        way(format!("random bytes, {seed}"), &|t| {
            t.bytes = random_bytes(seed, t.bytes.len())
        });
    }
    ways.push(("removed".into(), Vec::new()));
    ways
}

/// Configurations with one value changed.
fn configs(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let Ok(whole) = serde_json::from_slice::<Value>(text) else {
        return Vec::new();
    };
    let mut places = Vec::new();
    walk(&whole, String::new(), &mut places);
    let mut changed = Vec::new();
    let others = [
        "0",
        "1",
        "-1",
        "3",
        "64",
        "1099511627776",
        "18446744073709551615",
        "2.5",
        "null",
        "\"x\"",
        "[]",
        "{}",
        "true",
    ];
    for place in &places {
        for other in others {
            let mut config = whole.clone();
            *config.pointer_mut(place).unwrap() = serde_json::from_str(other).unwrap();
            changed.push((
                format!("configured {place} = {other}"),
                serde_json::to_vec(&config).unwrap(),
            ));
        }
    }
    changed
}

fn walk(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            walk(
                value,
                format!("{place}/{}", key.replace('~', "~0").replace('/', "~1")),
                places,
            );
        }),
        Value::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(i, value)| walk(value, format!("{place}/{i}"), places));
        }
        _ => {}
    }
    if !place.is_empty() {
        places.push(place);
    }
}

#[test]
fn bent_safetensors_are_answered() {
    let mut answers = Answers::default();
    for (number, seed) in std::iter::once(own())
        .chain(quantised_files().iter().map(|path| seed(path)))
        .enumerate()
    {
        let Seed {
            path,
            tensors,
            metadata,
            config,
        } = &seed;
        let metadata: Vec<_> = metadata
            .iter()
            .map(|(key, text)| (&**key, &**text))
            .collect();
        let config = config.as_deref();
        answers.ask(safetensors(tensors, &metadata), config, &|| {
            path.display().to_string()
        });
        answers.ask(safetensors(tensors, &metadata), None, &|| {
            format!("{} without configuration", path.display())
        });
        for (i, tensor) in tensors.iter().enumerate() {
            for (round, (what, instead)) in bent(tensor, tensors).into_iter().enumerate() {
                // the corpus has many of a kind: each is bent in other ways
                if number > 0 && (round + number + i) % 3 != 0 {
                    continue;
                }
                let file = [&tensors[..i], &instead, &tensors[i + 1..]].concat();
                let what = || format!("{}: {} {what}", path.display(), tensor.name);
                answers.ask(
                    safetensors(&file, &metadata),
                    config.filter(|_| round % 4 != 0),
                    &what,
                );
            }
        }
        for (what, config) in config.map(configs).unwrap_or_default() {
            answers.ask(safetensors(tensors, &metadata), Some(&config), &|| {
                format!("{}: {what}", path.display())
            });
        }
    }
    println!("{} files: {answers:?}", answers.all());
    assert!(
        answers.made > 100 && answers.refused > 50 && answers.not_opened > 50,
        "{answers:?}"
    );
    let peak = peak();
    assert!(
        peak.is_none_or(|peak| peak < PEAK),
        "{peak:?} bytes at the peak"
    );
}

#[test]
fn bent_gguf_files_are_answered() {
    let mut answers = Answers::default();
    for format in BlockFormat::all() {
        let block = format.block_bytes as usize;
        let base = [
            StoredTensor::new(
                "blk.0.w.weight",
                &format.ggml_type.to_string(),
                &[2, 3, 256],
                random_bytes(1, 6 * 256 * block / format.block_len as usize),
            ),
            StoredTensor::new("blk.0.w.scale", "0", &[2], random_bytes(2, 8)),
            StoredTensor::new("norm.weight", "1", &[4], random_bytes(3, 8)),
        ];
        let each = |i: usize, change: &dyn Fn(&mut StoredTensor)| {
            let mut file = base.to_vec();
            change(&mut file[i]);
            file
        };
        let mut files = vec![base.to_vec()];
        for i in 0..base.len() {
            files.extend((0..44u32).map(|id| each(i, &|t| t.dtype = id.to_string())));
            for dimension in 0..base[i].shape.len() {
                for size in sizes(base[i].shape[dimension]) {
                    files.push(each(i, &|t| t.shape[dimension] = size));
                }
            }
            files.push(each(i, &|t| t.shape.reverse()));
            files.push(each(i, &|t| t.shape.clear()));
            files.push(each(i, &|t| t.name.push('x')));
            files.push(each(i, &|t| t.name = "blk.0.w.weight".into()));
            files.push(each(i, &|t| t.bytes.truncate(t.bytes.len() / 2)));
            files.push(each(i, &|t| t.bytes.fill(0xff)));
            files.push(
                base.iter()
                    .enumerate()
                    .filter(|(j, _)| *j != i)
                    .map(|(_, t)| t.clone())
                    .collect(),
            );
        }
        for (n, file) in files.into_iter().enumerate() {
            let what = || format!("{} {n}: {file:?}", format.name);
            answers.ask(gguf(n % 5 == 0, &[], &file), None, &what);
        }
    }
    println!("{} files: {answers:?}", answers.all());
    assert!(
        answers.made > 100 && answers.refused > 50 && answers.not_opened > 50,
        "{answers:?}"
    );
}

/// The most bytes that were resident in this process.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}
