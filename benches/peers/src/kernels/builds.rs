//! Every block type by every build of ours that this machine runs, to every output, cache-resident.

use std::path::PathBuf;

use anamnesis::kernel;

use super::blocks::{self, Blocks};
use super::variant::{BUILD, COPY, OURS, Row, Variant};
use super::{disagreements, read};
use crate::alternate::{Case, Contender, myself};

/// Block types, and the copying of as many bytes as their output has.
pub fn names() -> Vec<&'static str> {
    [COPY]
        .into_iter()
        .chain(blocks::formats().map(|format| format.name))
        .collect()
}

/// One type by all builds, the plainest first; none by another name.
pub fn case(name: &str) -> Option<Case> {
    let me = myself();
    let of = |variants: &[Variant], row: Row| {
        let contender = |variant: &Variant| {
            Contender::new(
                &variant.label,
                &[&me, "kernel", &variant.name, row.name()],
                read,
            )
        };
        Case {
            name: name.to_owned(),
            contenders: variants.iter().map(contender).collect(),
            ..Case::default()
        }
    };
    let program = || PathBuf::from(&me);
    if name == COPY {
        // outputs of all types are of one size
        let any = blocks::formats().next()?;
        return Some(of(
            &[Variant::new(COPY, COPY, program())],
            Row::Blocks(Blocks::few(any)),
        ));
    }
    let format = blocks::formats().find(|format| format.name == name)?;
    let builds = kernel::builds(format).ok()?;
    let build = |isa: &&str| {
        Variant::new(
            &format!("{BUILD}{isa}"),
            &format!("{BUILD}{isa}"),
            program(),
        )
    };
    let mut variants: Vec<Variant> = builds.iter().rev().map(build).collect();
    let row = Row::Blocks(Blocks::few(format));
    let case = of(&variants, row);
    variants.push(Variant::new(OURS, OURS, program()));
    Some(Case {
        check: Some(Box::new(move || disagreements(row, &variants, None))),
        ..case
    })
}
