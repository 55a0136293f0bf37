//! Decoding speed in a warm cache: ours, the peer's, ggml's, gguf-py's, and copying the output.

mod agree;
mod blocks;
mod buffer;
pub mod builds;
mod python;
mod schemes;
pub mod stored;
pub mod variant;

use std::process::{Command, ExitCode, Output};

use anamnesis::Dtype;
use blocks::Blocks;
use variant::{COPY, DTYPES, OURS, Row, Variant};

use crate::alternate::{Case, Contender, Reading};
use crate::child::Usage;
use crate::report::options::Options;
use crate::results::{Outcome, markdown};

/// The table for these rows, or all: one process per variant and row, alternating.
pub fn compare(args: &[&str]) -> ExitCode {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    if let Some(unknown) = options.words.iter().find(|name| row(name).is_none()) {
        eprintln!(
            "no type {unknown:?}; there are {}",
            [names(), large()].concat().join(", ")
        );
        return ExitCode::from(2);
    }
    let mut found = Outcome::default();
    for name in names().into_iter().chain(large()) {
        if options.words.is_empty() || options.words.iter().any(|word| word == name) {
            found.extend(
                case(name, crate::report::python::interpreter(&options)).run(options.rounds),
            );
        }
    }
    println!("{}", markdown::outcome(&found));
    if found.notes.is_empty() {
        println!("All outputs are equal to ours, bit for bit, where both are there.");
    }
    ExitCode::SUCCESS
}

/// All types and schemes, cache-resident.
pub fn names() -> Vec<&'static str> {
    let large = large();
    Row::all()
        .map(Row::name)
        .filter(|name| !large.contains(name))
        .collect()
}

/// Types in the size of a weight.
pub fn large() -> Vec<&'static str> {
    Blocks::large().map(|blocks| blocks.name).collect()
}

/// One type or scheme, to all outputs.
pub fn case(name: &str, interpreter: Result<String, String>) -> Case {
    let row = row(name).expect("a name that `names` has");
    let (variants, mut missing) = variant::built();
    let mut contenders: Vec<Contender> = Vec::new();
    for variant in &variants {
        let program = variant.program.to_str().expect("a printable path");
        let read = if row.is_fresh(&variant.name) {
            read_fresh
        } else {
            read
        };
        match can(variant, row) {
            Ok(()) => contenders.push(Contender::new(
                &variant.label,
                &[program, "kernel", &variant.name, row.name()],
                read,
            )),
            Err(why) => missing.push((variant.label.clone(), why)),
        }
    }
    match python::contender(row, interpreter) {
        Ok(contender) => contenders.push(contender),
        Err(why) => missing.push((python::LABEL.to_owned(), why)),
    }
    let check: Box<dyn Fn() -> Vec<String>> = Box::new({
        let python = contenders
            .iter()
            .find(|c| c.variant == python::LABEL)
            .map(|c| c.command.clone());
        move || disagreements(row, &variants, python.as_deref())
    });
    Case {
        name: name.to_owned(),
        contenders,
        missing,
        limit: Some(COPY),
        check: Some(check),
        ..Case::default()
    }
}

/// What one process of the comparison does: `time` or `bytes` of a variant.
pub fn one(variant: &str, name: &str, dtype: Option<&str>) -> ExitCode {
    match (row(name), dtype.map(Dtype::from_name)) {
        (Some(row), None) => variant::time(variant, row),
        (Some(row), Some(Some(dtype))) => variant::bytes(variant, row, dtype),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

fn row(name: &str) -> Option<Row> {
    Row::all().find(|row| row.name() == name)
}

/// Whether a variant decodes a row at all.
fn can(variant: &Variant, row: Row) -> Result<(), String> {
    let able = DTYPES
        .iter()
        .any(|&dtype| !variant::decoders(&variant.name, row, dtype).is_empty());
    if able {
        Ok(())
    } else {
        Err("it has no decoder of this".to_owned())
    }
}

fn run(command: &[String]) -> Output {
    let out = Command::new(&command[0])
        .args(&command[1..])
        .output()
        .expect("the variant starts");
    assert!(
        out.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

/// A line for each output: its dtype, nanoseconds a call, and how many elements that are.
pub fn read(usage: &Usage) -> Option<Vec<Reading>> {
    let text = String::from_utf8_lossy(&usage.said);
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[dtype, ns, elements] = &words[..] else {
            return None;
        };
        let more = vec![("elements", elements.parse().ok()?)];
        Some(Reading {
            of: dtype.to_owned(),
            ns: ns.parse().ok()?,
            more,
        })
    });
    lines.collect()
}

fn read_fresh(usage: &Usage) -> Option<Vec<Reading>> {
    let mut readings = read(usage)?;
    readings
        .iter_mut()
        .for_each(|reading| reading.more.push(("fresh", 1.0)));
    Some(readings)
}

/// Decodes once with every variant, and says which do not give our bits.
fn disagreements(row: Row, variants: &[Variant], python: Option<&[String]>) -> Vec<String> {
    let mut notes = Vec::new();
    for &dtype in DTYPES {
        let decoded = |variant: &Variant| {
            let program = variant.program.to_str().expect("a printable path");
            run(&[program, "kernel", &variant.name, row.name(), dtype.name()].map(str::to_owned))
                .stdout
        };
        let ours = variants
            .iter()
            .find(|v| v.name == OURS)
            .map(decoded)
            .unwrap_or_default();
        let mut compare = |label: &str, other: Vec<u8>| {
            if !other.is_empty() && !ours.is_empty() {
                let difference = agree::difference(dtype, &ours, &other);
                notes.extend(difference.map(|d| format!("{} {dtype}, {label}: {d}", row.name())));
            }
        };
        for variant in variants.iter().filter(|v| v.name != OURS && v.name != COPY) {
            compare(&variant.label, decoded(variant));
        }
        if let (Some(python), Dtype::F32) = (python, dtype) {
            let command: Vec<String> = python.iter().cloned().chain(["bytes".to_owned()]).collect();
            compare(python::LABEL, run(&command).stdout);
        }
    }
    notes
}
