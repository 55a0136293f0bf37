//! Random templates for the property tests: of any content, and of small files whose bytes can be listed.

use anamnesis_template::{
    ContentKey, File, ServiceId, StridedFileRange, StridedRange, Template, TemplateBuilder,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

fn random_file(nbytes: impl Strategy<Value = u64>) -> impl Strategy<Value = File> {
    let path = "(|dir/|a long directory/)(model|weights-0000)[0-9é]{0,2}\\.(gguf|safetensors)";
    (
        path,
        nbytes,
        option::of(any::<i64>()),
        option::of(any::<[u8; 16]>()),
    )
        .prop_map(|(path, nbytes, mtime, key)| {
            let mut file = File::new(path, nbytes).unwrap();
            file.mtime = mtime;
            file.key = key.map(ContentKey);
            file
        })
}

/// Arguments of `TemplateBuilder::access`: rank, file, start, length, count, stride minus length, time.
type AccessArguments = (u32, u32, u64, u64, u32, u64, Option<u64>);

fn random_access() -> impl Strategy<Value = AccessArguments> {
    let small = prop_oneof![0..4u64, 0..40u64, any::<u64>()];
    let rank = prop_oneof![4 => 0..3u32, 1 => any::<u32>()];
    let count = prop_oneof![3 => Just(1u32), 2 => 2..6u32, 1 => any::<u32>()];
    (
        rank,
        0..4u32,
        small.clone(),
        small.clone(),
        count,
        small,
        option::of(0..1u64 << 62),
    )
}

/// Files and accesses of any size, built with any options.
pub(crate) fn any_template() -> impl Strategy<Value = Template> {
    let length = prop_oneof![0..100u64, any::<u64>()];
    let text = "[a-zé\"\n]{0,5}";
    let accesses = prop_oneof![vec(random_access(), 0..40), repeated_accesses()];
    let header = (
        option::of(any::<[u8; 16]>()),
        btree_map(text, text, 0..3),
        vec((0..4u32, text), 0..3),
    );
    (
        header,
        vec(random_file(length), 0..4),
        accesses,
        0..3u64,
        1..3usize,
    )
        .prop_map(
            |((service, parameters, names), files, accesses, gap, lookback)| {
                let mut builder = TemplateBuilder::new().gap(gap).lookback(lookback);
                service.map(|id| builder.service(ServiceId(id)));
                for (key, value) in &parameters {
                    builder.parameter(key, value);
                }
                for (rank, name) in &names {
                    builder.group(*rank, name);
                }
                let mut lengths = Vec::new();
                for file in files {
                    let nbytes = file.nbytes;
                    if builder
                        .file(file)
                        .is_ok_and(|number| number as usize == lengths.len())
                    {
                        lengths.push(nbytes);
                    }
                }
                for access in accesses {
                    if let Some(access) = clip(access, &lengths) {
                        add_access(&mut builder, access).unwrap();
                    }
                }
                builder.finish()
            },
        )
}

/// Clips an access to its file.
fn clip(
    (rank, file, start, len, count, between, at): AccessArguments,
    lengths: &[u64],
) -> Option<AccessArguments> {
    let file = file % u32::try_from(lengths.len()).ok().filter(|&n| n > 0)?;
    let nbytes = lengths[file as usize];
    let start = start.checked_rem(nbytes)?;
    let len = len.min(nbytes - start);
    let max_count = (nbytes - start - len)
        .checked_div(len.saturating_add(between))
        .unwrap_or(0)
        .saturating_add(1);
    Some((
        rank,
        file,
        start,
        len,
        count.min(u32::try_from(max_count).unwrap_or(u32::MAX)),
        between,
        at,
    ))
}

/// A few accesses, repeated at growing offsets.
fn repeated_accesses() -> impl Strategy<Value = Vec<AccessArguments>> {
    (vec(random_access(), 1..4), 1..12u64, 0..50u64).prop_map(|(pattern, times, step)| {
        let shifted = |i: u64| {
            let shift = move |(rank, file, start, len, count, between, at): AccessArguments| {
                (
                    rank,
                    file,
                    start.saturating_add(i * step),
                    len,
                    count,
                    between,
                    at,
                )
            };
            pattern.clone().into_iter().map(shift)
        };
        (0..times).flat_map(shifted).collect()
    })
}

fn add_access(
    builder: &mut TemplateBuilder,
    (rank, file, start, len, count, between, at): AccessArguments,
) -> anamnesis_template::Result<()> {
    let bytes = StridedRange {
        start,
        len,
        count: count.into(),
        stride: len.saturating_add(between),
    };
    builder.access(rank, StridedFileRange { file, bytes }, at)
}

/// A template of files of 100 bytes. Two of them share some paths. Invalid accesses are left out.
pub(crate) fn small_template() -> impl Strategy<Value = Template> {
    let access = (
        0..3u32,
        0..3u32,
        0..90u64,
        0..20u64,
        prop_oneof![Just(1u32), 1..5u32],
        0..9u64,
    );
    let access = access.prop_map(|(rank, file, start, len, count, between)| {
        (rank, file, start, len, count, between, None)
    });
    (vec(access, 0..20), 0..3usize).prop_map(|(accesses, first)| {
        let mut builder = TemplateBuilder::new();
        for i in 0..3 {
            builder
                .file(File::new(format!("f{}", (i + first) % 4), 100).unwrap())
                .unwrap();
        }
        accesses
            .into_iter()
            .for_each(|access| drop(add_access(&mut builder, access)));
        builder.finish()
    })
}
