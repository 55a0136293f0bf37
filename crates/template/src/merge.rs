//! One template of several.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::{Access, Builder, Group, Runs, Template};

/// One template of several of the same model: recordings of single workers, of single nodes, or of several runs.
///
/// A group's accesses are those of the first template that has its rank, followed by what later ones read beside;
/// what is read again is left out. Times are kept as they are. The service and the parameters remain where all
/// templates that have one agree.
///
/// # Errors
/// [`Conflict`](crate::ErrorKind::Conflict) if two templates have different files of the same path.
///
/// ```
/// use anamnesis_template::{Builder, ByteRange, File, merge};
///
/// let worker = |rank| {
///     let mut builder = Builder::new();
///     let file = builder.file(File::new("m.gguf", 100)?)?;
///     builder.access(rank, ByteRange { file, start: u64::from(rank) * 50, len: 50 }, None)?;
///     Ok::<_, anamnesis_template::Error>(builder.finish())
/// };
/// let both = merge(&[worker(0)?, worker(1)?])?;
/// assert_eq!((both.groups().len(), both.nbytes()), (2, 100));
/// # Ok::<(), anamnesis_template::Error>(())
/// ```
pub fn merge(templates: &[Template]) -> Result<Template> {
    let mut builder = Builder::new().once(true);
    let mut groups: BTreeMap<u32, Vec<(&Group, usize)>> = BTreeMap::new();
    let mut numbers = Vec::new();
    for (i, template) in templates.iter().enumerate() {
        numbers.push(
            template
                .files()
                .iter()
                .map(|file| builder.file(file.clone()))
                .collect::<Result<Vec<_>>>()?,
        );
        template
            .groups()
            .iter()
            .for_each(|group| groups.entry(group.rank()).or_default().push((group, i)));
    }
    for (rank, groups) in groups {
        let name = groups
            .iter()
            .map(|(group, _)| group.name())
            .find(|name| !name.is_empty());
        builder.group(rank, name.unwrap_or(""));
        for (nth, (group, i)) in groups.iter().enumerate() {
            let accesses = group.accesses().iter().map(|access| {
                let file =
                    numbers[*i][usize::try_from(access.runs.file).expect("an index of a template")];
                Access {
                    runs: Runs {
                        file,
                        ..access.runs
                    },
                    ..*access
                }
            });
            if nth == 0 {
                builder.adopt(rank, accesses.collect(), groups.len() > 1);
            } else {
                accesses
                    .into_iter()
                    .try_for_each(|access| builder.access(rank, access.runs, access.at))?;
            }
        }
    }
    let mut services: Vec<_> = templates.iter().filter_map(Template::service).collect();
    services.dedup();
    if let [one] = services[..] {
        builder.service(one);
    }
    for (key, value) in templates.iter().flat_map(Template::parameters) {
        let mut others = templates
            .iter()
            .flat_map(Template::parameters)
            .filter(|(other, _)| *other == key);
        if others.all(|(_, other)| other == value) {
            builder.parameter(key, value);
        }
    }
    Ok(builder.finish())
}
