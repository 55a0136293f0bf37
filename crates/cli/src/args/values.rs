//! Parsers of argument values.

use anamnesis::fit::{CacheType, InferenceEngine};
use anamnesis::format::FORMATS;
use anamnesis::sink::{Container, HeaderValue};
use anamnesis::{Checkpoint, Dtype, Format, Names, OutputDtype, Rename};
use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use globset::{Glob, GlobBuilder, GlobMatcher};

use crate::failure::Failure;

/// A glob over tensor names.
pub(super) fn name_pattern(text: &str) -> Result<GlobMatcher, String> {
    Glob::new(text)
        .map(|glob| glob.compile_matcher())
        .map_err(|e| e.kind().to_string())
}

/// A glob over words that people write in capitals or not.
pub(super) fn any_case_pattern(text: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(text).case_insensitive(true).build();
    glob.map(|glob| glob.compile_matcher())
        .map_err(|e| e.kind().to_string())
}

/// A dtype that weights can be dequantised to, or `auto`.
pub(super) fn output_dtype() -> impl TypedValueParser<Value = OutputDtype> {
    // PyTorch's names are understood, and not listed
    let with_alias = |name: &'static str, alias| PossibleValue::new(name).alias(alias);
    PossibleValuesParser::new([
        PossibleValue::new("auto"),
        with_alias("bf16", "bfloat16"),
        with_alias("f16", "float16"),
        with_alias("f32", "float32"),
    ])
    .map(|name| match &*name {
        "auto" => OutputDtype::Auto,
        "bf16" | "bfloat16" => Dtype::BF16.into(),
        "f16" | "float16" => Dtype::F16.into(),
        _ => Dtype::F32.into(),
    })
}

/// A dtype that weights can be dequantised to, `auto`, or `stored`.
pub(super) fn stored_or_output_dtype() -> impl TypedValueParser<Value = OutputDtype> {
    PossibleValuesParser::new(["stored", "bf16", "f16", "f32", "auto"]).map(|name| match &*name {
        "stored" => OutputDtype::Stored,
        "auto" => OutputDtype::Auto,
        "bf16" => Dtype::BF16.into(),
        "f16" => Dtype::F16.into(),
        _ => Dtype::F32.into(),
    })
}

/// A container of tensors that is written.
pub(super) fn container() -> impl TypedValueParser<Value = &'static Container> {
    PossibleValuesParser::new(Container::all().map(|container| container.name))
        .map(|name| Container::for_extension(&name).expect("one of the possible values"))
}

/// A key and a value.
pub(crate) type MetadataArgument = (String, HeaderValue);

/// `KEY=VALUE`, or `KEY:TYPE=VALUE` with a type of GGUF.
pub(super) fn metadata_value(text: &str) -> Result<MetadataArgument, String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or("expected KEY=VALUE or KEY:TYPE=VALUE, such as `license=mit`")?;
    typed_value(key, value)
}

/// The key of `KEY`, or `KEY:TYPE`, and its value.
pub(crate) fn typed_value(key: &str, value: &str) -> Result<MetadataArgument, String> {
    let parsed = HeaderValue::of_key(key, value).map_err(|e| e.kind().to_string())?;
    Ok((parsed.0.to_owned(), parsed.1))
}

/// Refuses keys that a GGUF does not have yet, and that end in a colon and a word that is no type.
pub(crate) fn check_new_keys(
    checkpoint: &Checkpoint,
    set: &[MetadataArgument],
) -> Result<(), Failure> {
    for (key, value) in set {
        let is_known = checkpoint.catalog().metadata().get(key).is_some();
        if !is_known && let Err(error) = value.check_new_key(key) {
            let remedy = "give the type of the value; the key itself is set as KEY:str=VALUE";
            let what = error.kind().to_string();
            return Err(Failure::new("invalid_argument", what, remedy));
        }
    }
    Ok(())
}

/// `KEY=FILE`.
pub(super) fn key_file(text: &str) -> Result<(String, std::path::PathBuf), String> {
    match text.split_once('=') {
        Some((key, path)) if !key.is_empty() && !path.is_empty() => {
            Ok((key.to_owned(), path.into()))
        }
        _ => Err("expected KEY=FILE, such as `tokenizer.chat_template=chat.jinja`".to_owned()),
    }
}

/// `KEY=NEW`.
pub(super) fn key_replacement(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => {
            Ok((from.to_owned(), to.to_owned()))
        }
        _ => Err("expected KEY=NEW, such as `author=creator`".to_owned()),
    }
}

/// `FROM=TO`, of which an `=` in a name is written `\=`.
pub(super) fn replacement(text: &str) -> Result<(String, String), String> {
    const ESCAPED: &str = "\\=";
    // no argument has this character
    const EQUALS: &str = "\0";
    let hidden = text.replace(ESCAPED, EQUALS);
    match hidden.split_once('=') {
        Some((_, to)) if to.contains('=') => {
            Err(r"several `=`: one in a name is written `\=`".to_owned())
        }
        // an empty FROM would match everywhere; an empty TO removes FROM
        Some((from, to)) if !from.is_empty() => {
            let (from, to) = (from.replace(EQUALS, "="), to.replace(EQUALS, "="));
            let checked = Rename::new(&from, &to).check();
            checked.map_err(|error| error.kind().to_string())?;
            Ok((from, to))
        }
        _ => Err("expected FROM=TO, such as `model.=`".to_owned()),
    }
}

/// Which names the tensors of a GGUF get.
pub(super) fn tensor_names() -> impl TypedValueParser<Value = Names> {
    PossibleValuesParser::new(["stored", "hf"]).map(|name| match &*name {
        "hf" => Names::HuggingFace,
        _ => Names::Stored,
    })
}

/// A number of bytes: `5000000`, `5GB`, `4.5GiB`.
fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        // powers of ten, as in `max_shard_size` of transformers
        ("K", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("B", 1),
        ("", 1),
    ];
    let (number, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len()),
    );
    let unit = UNITS
        .iter()
        // people write `5gb` and `5 GB`; no unit differs from another in case alone
        .find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
    let (_, unit) = unit.ok_or("expected a number with an optional unit of KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 5GB")?;
    let number: f64 = number
        .parse()
        .map_err(|_| "expected a number before the unit")?;
    let bytes = number * *unit as f64;
    // 0 is no size of a shard, a rate or a memory; below 10¹⁸, sums of a few sizes fit in 64 bits
    if !(1.0..1e18).contains(&bytes) {
        return Err("expected 1 to 10¹⁸ bytes".to_owned());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    // the range check above excludes loss
    Ok(bytes as u64)
}

/// A part of several, `3/16`: its index from 0, and their number.
pub(super) fn part(text: &str) -> Result<(usize, usize), String> {
    let wrong = || "a part and the number of parts, such as 1/16".to_owned();
    let (number, count) = text.split_once('/').ok_or_else(wrong)?;
    let number: usize = number.parse().map_err(|_| wrong())?;
    let count: usize = count.parse().map_err(|_| wrong())?;
    match number {
        0 => Err("parts are counted from 1".to_owned()),
        number if number > count => Err(format!("there is no part {number} of {count}")),
        number => Ok((number - 1, count)),
    }
}

/// A size of shards. A number alone is one of bytes, as for `max_shard_size` of transformers.
pub(super) fn shard_size(text: &str) -> Result<u64, String> {
    whole_bytes(text, "GB")
}

/// A distance in a file. A number alone is one of bytes.
pub(super) fn gap(text: &str) -> Result<u64, String> {
    whole_bytes(text, "KiB")
}

/// A number of bytes, of which there are no parts: `4.5` lacks its unit.
fn whole_bytes(text: &str, usual: &str) -> Result<u64, String> {
    match text.contains('.') {
        true => with_unit(text, usual),
        false => bytes(text),
    }
}

/// From this number on, bytes may be meant.
const LARGE: u64 = 1 << 20;

/// A size of memory, which has a unit: `24GiB`.
pub(super) fn memory_size(text: &str) -> Result<u64, String> {
    with_unit(text, "GiB")
}

/// Bytes per second, with a unit: `500MB`.
#[cfg(target_os = "linux")]
pub(super) fn rate(text: &str) -> Result<u64, String> {
    with_unit(text, "MB")
}

/// A number of bytes that has a unit. `24` alone is 24 bytes to a program and 24 GiB to the person who writes it.
fn with_unit(text: &str, usual: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    if !text.ends_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(bytes);
    }
    // there is no part of a byte
    let unit = match bytes < LARGE || text.contains('.') {
        true => usual,
        false => "B",
    };
    Err(format!("{text} bytes; write {text}{unit}"))
}

/// Workers of one kind of parallelism. The library refuses 0, and more than 65,536 together.
pub(super) fn workers() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(0..=1 << 20)
}

/// Threads; 0 is as many as there are processors, or as the device needs.
pub(super) fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=1024)
}

/// Threads that prefetch.
#[cfg(target_os = "linux")]
pub(super) fn prefetch_threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=256)
}

/// Reads or requests at a time: as many as a ring of the kernel has.
pub(super) fn depth() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=32_768)
}

/// Rounds of a measurement, which are all reported.
pub(super) fn rounds() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=100_000)
}

/// Heads or experts of a layer.
pub(super) fn per_layer() -> RangedU64ValueParser<u64> {
    RangedU64ValueParser::new().range(1..=1_000_000)
}

/// The most tokens or sequences: no model and no sum of a cache needs more.
const MAX_COUNT: u64 = 1 << 30;

/// A number of tokens or sequences: `4096`, `32K` (32,768), `1M`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.as_bytes().last() {
        // tokens are counted in powers of two, as contexts are advertised: 32K is 32,768
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1u64),
    };
    let number = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    number
        .filter(|n| (1..=MAX_COUNT).contains(n))
        .ok_or_else(|| {
            "expected a number from 1 to 1024M, with an optional K (1024) or M, such as 32K"
                .to_owned()
        })
}

/// A distance of values: `1e-4`, `0.01`.
pub(super) fn distance(text: &str) -> Result<f64, String> {
    // NaN as a tolerance would differ from every distance, and infinity would make everything equal
    let number = text.parse::<f64>().ok();
    number
        .filter(|n| n.is_finite() && *n >= 0.0)
        .ok_or_else(|| "expected a number from 0, such as 1e-4".to_owned())
}

/// The types of keys and values of a cache: `q8_0`, or `q8_0,q4_0` where they differ.
pub(super) fn cache_types(text: &str) -> Result<(CacheType, CacheType), String> {
    let (keys, values) = text.split_once(',').unwrap_or((text, text));
    let parse = |name: &str| {
        name.trim()
            .parse::<CacheType>()
            .map_err(|e| e.kind().to_string())
    };
    Ok((parse(keys)?, parse(values)?))
}

/// An engine, by its name.
pub(super) fn engine() -> impl TypedValueParser<Value = InferenceEngine> {
    PossibleValuesParser::new(InferenceEngine::ALL.map(InferenceEngine::name))
        .map(|name| name.parse().expect("one of the possible values"))
}

/// A dtype that weights can be dequantised to.
pub(super) fn weight_dtype() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(["bf16", "f16", "f32"]).map(|name| match &*name {
        "bf16" => Dtype::BF16,
        "f16" => Dtype::F16,
        _ => Dtype::F32,
    })
}

/// Any dtype, by its name.
pub(super) fn dtype() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(Dtype::all().map(Dtype::name)).map(|name| {
        // in any case, where the argument allows it
        let mut all = Dtype::all();
        let found = all.find(|dtype| dtype.name().eq_ignore_ascii_case(&name));
        found.expect("one of the possible values")
    })
}

/// Any format, by its name.
pub(super) fn format() -> impl TypedValueParser<Value = &'static Format> {
    PossibleValuesParser::new(FORMATS.iter().map(|f| f.name))
        .map(|name| Format::from_name(&name).expect("one of the possible values"))
}
