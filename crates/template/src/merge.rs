//! Merges templates of one model.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::{Access, AccessGroup, Template, TemplateBuilder};

/// Merges several templates of one model: recordings of single workers, of single nodes, or of
/// several runs.
///
/// A group has the accesses of the first template with its rank, followed by those bytes of later
/// templates that it does not have yet. Times are kept unchanged. The service and each parameter
/// are kept if all templates that have one agree.
///
/// # Errors
/// [`Conflict`](crate::ErrorKind::Conflict) if two templates have different files of the same path.
///
/// ```
/// use anamnesis_template::{TemplateBuilder, ByteRange, File, merge};
///
/// let worker = |rank| {
///     let mut builder = TemplateBuilder::new();
///     let file = builder.file(File::new("m.gguf", 100)?)?;
///     builder.access(rank, ByteRange { file, start: u64::from(rank) * 50, len: 50 }, None)?;
///     Ok::<_, anamnesis_template::Error>(builder.finish())
/// };
/// let both = merge(&[worker(0)?, worker(1)?])?;
/// assert_eq!((both.groups().len(), both.nbytes()), (2, 100));
/// # Ok::<(), anamnesis_template::Error>(())
/// ```
pub fn merge(templates: &[Template]) -> Result<Template> {
    // each byte once per worker: the order of the first template stands, later ones add what it lacks
    let mut builder = TemplateBuilder::new().once(true);
    let mut groups: BTreeMap<u32, Vec<(&AccessGroup, usize)>> = BTreeMap::new();
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
                    numbers[*i][usize::try_from(access.file).expect("an index of a template")];
                Access { file, ..*access }
            });
            if nth == 0 {
                builder.adopt(rank, accesses.collect(), groups.len() > 1);
            } else {
                accesses
                    .into_iter()
                    .try_for_each(|access| builder.access(rank, access.range(), access.at))?;
            }
        }
    }
    let mut services: Vec<_> = templates.iter().filter_map(Template::service).collect();
    services.dedup();
    // templates of different services have no common id, and one of the two would be wrong for the result
    if let [one] = services[..] {
        builder.service(one);
    }
    // a key whose values differ has none
    let mut parameters: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for (key, value) in templates.iter().flat_map(Template::parameters) {
        parameters
            .entry(key)
            .and_modify(|agreed| *agreed = agreed.filter(|agreed| *agreed == value))
            .or_insert(Some(value));
    }
    for (key, value) in parameters {
        if let Some(value) = value {
            builder.parameter(key, value);
        }
    }
    Ok(builder.finish())
}
