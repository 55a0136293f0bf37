//! Section `kernels`: every block type by each of our instruction-set builds that this machine can run, cache-resident.

use std::path::PathBuf;

use anamnesis::kernel;

use super::blocks::{self, Blocks};
use super::variants::{BUILD, DecodeInput, DecodeVariant, MEMCPY, OURS};
use super::{differences, parse};
use crate::case::{Case, Variant, this_program};

/// `memcpy` of the output's size, then the block types.
pub fn names() -> Vec<&'static str> {
    [MEMCPY]
        .into_iter()
        .chain(blocks::formats().map(|format| format.name))
        .collect()
}

/// One type by all builds, the most general first; `None` for an unknown name.
pub fn case(name: &str) -> Option<Case> {
    let this_program = this_program();
    let case_of = |variants: &[DecodeVariant], input: DecodeInput| {
        let variant = |variant: &DecodeVariant| {
            Variant::new(
                &variant.label,
                &[&this_program, "kernel-one", &variant.name, input.name()],
                parse,
            )
        };
        Case {
            name: name.to_owned(),
            variants: variants.iter().map(variant).collect(),
            ..Case::default()
        }
    };
    let program = || PathBuf::from(&this_program);
    if name == MEMCPY {
        // the output has the same size for all types
        let any = blocks::formats().next()?;
        return Some(case_of(
            &[DecodeVariant::new(MEMCPY, MEMCPY, program())],
            DecodeInput::Blocks(Blocks::cache_resident(any)),
        ));
    }
    let format = blocks::formats().find(|format| format.name == name)?;
    let builds = kernel::builds(format).ok()?;
    let build = |isa: &&str| {
        DecodeVariant::new(
            &format!("{BUILD}{isa}"),
            &format!("{BUILD}{isa}"),
            program(),
        )
    };
    let mut variants: Vec<DecodeVariant> = builds.iter().rev().map(build).collect();
    let input = DecodeInput::Blocks(Blocks::cache_resident(format));
    let case = case_of(&variants, input);
    variants.push(DecodeVariant::new(OURS, OURS, program()));
    Some(Case {
        check: Some(Box::new(move || differences(input, &variants, None))),
        ..case
    })
}
