//! Sections `dequantise` and `large`: kernels that dequantise block types and schemes, ours, the unrelated crate's, ggml's and
//! gguf-py's. The limit is a copy of the output's size.

mod blocks;
mod buffer;
pub mod builds;
pub mod checkpoint_weight;
mod compare_outputs;
mod decoder;
mod gguf_py;
mod schemes;
pub mod variants;

use std::process::{Command, ExitCode, Output};

use anamnesis::Dtype;
use blocks::Blocks;
use variants::{DTYPES, DecodeInput, DecodeVariant, MEMCPY, OURS};

use crate::case::{Case, Measurement, Variant};
use crate::child_process::ProcessUsage;
use crate::report::options::Options;
use crate::results::{Outcome, markdown};

/// `peers kernels [TYPE…]`.
pub fn compare(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if let Some(unknown) = options.words.iter().find(|name| input(name).is_none()) {
        eprintln!(
            "unknown type {unknown:?}; the types are {}",
            [names(), large()].concat().join(", ")
        );
        return ExitCode::from(2);
    }
    let mut outcome = Outcome::default();
    for name in names().into_iter().chain(large()) {
        if options.words.is_empty() || options.words.iter().any(|word| word == name) {
            outcome.extend(
                case(name, crate::report::python::interpreter(&options)).run(options.rounds),
            );
        }
    }
    println!("{}", markdown::outcome(&outcome));
    if outcome.notes.is_empty() {
        println!("All outputs are bit-identical to ours.");
    }
    ExitCode::SUCCESS
}

/// Names of the section `dequantise`: all block types and schemes, cache-resident.
pub fn names() -> Vec<&'static str> {
    let large = large();
    DecodeInput::all()
        .map(DecodeInput::name)
        .filter(|name| !large.contains(name))
        .collect()
}

/// Names of the section `large`: block types in the size of a weight.
pub fn large() -> Vec<&'static str> {
    Blocks::weight_sized().map(|blocks| blocks.name).collect()
}

/// One type or scheme to every output dtype.
pub fn case(name: &str, interpreter: Result<String, String>) -> Case {
    let input = input(name).expect("`names` or `large` returned the name");
    let (available, mut missing) = variants::available();
    let mut variants: Vec<Variant> = Vec::new();
    for variant in &available {
        let program = variant.program.to_str().expect("a path in UTF-8");
        let parse = if input.allocates(&variant.name) {
            parse_allocating
        } else {
            parse
        };
        match require_decoder(variant, input) {
            Ok(()) => variants.push(Variant::new(
                &variant.label,
                &[program, "kernel-one", &variant.name, input.name()],
                parse,
            )),
            Err(reason) => missing.push((variant.label.clone(), reason)),
        }
    }
    match gguf_py::variant(input, interpreter) {
        Ok(variant) => variants.push(variant),
        Err(reason) => missing.push((gguf_py::LABEL.to_owned(), reason)),
    }
    let check: Box<dyn Fn() -> Vec<String>> = Box::new({
        let python = variants
            .iter()
            .find(|v| v.name == gguf_py::LABEL)
            .map(|v| v.command.clone());
        move || differences(input, &available, python.as_deref())
    });
    Case {
        name: name.to_owned(),
        variants,
        missing,
        limit: Some(MEMCPY),
        check: Some(check),
        ..Case::default()
    }
}

/// The work of one process: times a variant, or with a dtype prints the elements that it decodes.
pub fn one(variant: &str, name: &str, dtype: Option<&str>) -> ExitCode {
    match (input(name), dtype.map(Dtype::from_name)) {
        (Some(input), None) => variants::time(variant, input),
        (Some(input), Some(Some(dtype))) => variants::print_decoded(variant, input, dtype),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn input(name: &str) -> Option<DecodeInput> {
    DecodeInput::all().find(|input| input.name() == name)
}

/// Fails if the variant decodes the input to no dtype.
fn require_decoder(variant: &DecodeVariant, input: DecodeInput) -> Result<(), String> {
    let able = DTYPES
        .iter()
        .any(|&dtype| !variants::decoders(&variant.name, input, dtype).is_empty());
    if able {
        Ok(())
    } else {
        Err("no decoder for this type".to_owned())
    }
}

fn run(command: &[String]) -> Output {
    let out = Command::new(&command[0])
        .args(&command[1..])
        .output()
        .expect("the variant's program starts");
    assert!(
        out.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

/// A line for each output: dtype, nanoseconds per call, number of elements.
pub fn parse(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let text = String::from_utf8_lossy(&usage.stdout);
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[dtype, ns, elements] = &words[..] else {
            return None;
        };
        let more = vec![("elements", elements.parse().ok()?)];
        Some(Measurement {
            suffix: dtype.to_owned(),
            ns: ns.parse().ok()?,
            more,
        })
    });
    lines.collect()
}

fn parse_allocating(usage: &ProcessUsage) -> Option<Vec<Measurement>> {
    let mut measurements = parse(usage)?;
    measurements
        .iter_mut()
        .for_each(|m| m.more.push(("allocates", 1.0)));
    Some(measurements)
}

/// Decodes once with every variant and describes which outputs are not bit-identical to ours.
fn differences(
    input: DecodeInput,
    variants: &[DecodeVariant],
    python: Option<&[String]>,
) -> Vec<String> {
    let mut notes = Vec::new();
    for &dtype in DTYPES {
        let decoded = |variant: &DecodeVariant| {
            let program = variant.program.to_str().expect("a path in UTF-8");
            let words = [
                program,
                "kernel-one",
                &variant.name,
                input.name(),
                dtype.name(),
            ];
            run(&words.map(str::to_owned)).stdout
        };
        let ours = variants
            .iter()
            .find(|v| v.name == OURS)
            .map(decoded)
            .unwrap_or_default();
        let mut compare = |label: &str, other: Vec<u8>| {
            if !other.is_empty() && !ours.is_empty() {
                let difference = compare_outputs::difference(dtype, &ours, &other);
                notes.extend(difference.map(|d| format!("{} {dtype}, {label}: {d}", input.name())));
            }
        };
        for variant in variants
            .iter()
            .filter(|v| v.name != OURS && v.name != MEMCPY)
        {
            compare(&variant.label, decoded(variant));
        }
        if let (Some(python), Dtype::F32) = (python, dtype) {
            let command: Vec<String> = python.iter().cloned().chain(["bytes".to_owned()]).collect();
            compare(gguf_py::LABEL, run(&command).stdout);
        }
    }
    notes
}
