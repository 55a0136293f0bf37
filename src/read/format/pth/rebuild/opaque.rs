//! Objects of unknown classes, and what depends on them. They are kept where the caller allows it
//! ([`OpenOptions::opaque`](crate::OpenOptions::opaque)): by class name, with arguments, state and items, and without meaning.

use hashbrown::HashMap;

use crate::base::error::Result;
use crate::read::catalog::quote;
use crate::read::format::pickle::value_heap::{PickleValue, PoolRange, ValueHeap, ValueId};

use super::{CallInterpreter, CallResult};

/// Counts the objects of each unknown class.
#[derive(Default)]
pub(in crate::read::format::pth) struct OpaqueCounts<'h> {
    /// Index into `counts`, by name, and by where the name is: many objects may have one long name.
    by_name: HashMap<&'h str, usize>,
    by_place: HashMap<PoolRange, usize>,
    pub(in crate::read::format::pth) counts: Vec<(PoolRange, u64)>,
}

impl<'h> OpaqueCounts<'h> {
    pub(in crate::read::format::pth) fn count(
        &mut self,
        heap: &'h ValueHeap<'_>,
        name: PoolRange,
        objects: u64,
    ) -> Result<()> {
        const WHAT: &str = "the unknown classes";
        let row = match self.by_place.get(&name) {
            Some(&row) => row,
            None => {
                // entries of two tables that double, while the tables before them are copied
                heap.budget().memory(256, WHAT)?;
                let next = self.counts.len();
                let row = *self.by_name.entry(heap.text(name)).or_insert(next);
                if row == next {
                    heap.budget().push(&mut self.counts, (name, 0), WHAT)?;
                }
                self.by_place.insert(name, row);
                row
            }
        };
        self.counts[row].1 += objects;
        Ok(())
    }
}

/// Names that the warning about opaque objects lists.
const CLASSES_SHOWN: usize = 8;

/// The warning that lists the unknown classes and counts their objects.
pub(in crate::read::format::pth) fn warning(
    heap: &ValueHeap<'_>,
    counts: &[(PoolRange, u64)],
) -> Option<String> {
    let objects: u64 = counts.iter().map(|(_, n)| n).sum();
    let shown = counts.iter().take(CLASSES_SHOWN).map(|&(name, n)| {
        let name = quote(heap.text(name));
        if n > 0 {
            format!("{name}: {n}")
        } else {
            format!("{name}: named only")
        }
    });
    let mut shown: Vec<_> = shown.collect();
    if let Some(more) = counts.len().checked_sub(CLASSES_SHOWN).filter(|&n| n > 0) {
        shown.push(format!("{more} more classes"));
    }
    (!counts.is_empty()).then(|| {
        format!(
            "objects of unknown classes, set aside by class name and plain state: {objects} ({})",
            shown.join(", ")
        )
    })
}

impl CallInterpreter<'_, '_, '_> {
    /// Whether one of the values, or an item of one, is opaque or was refused: the reason to refuse what they describe.
    pub(in crate::read::format::pth) fn depends_on_opaque(
        &self,
        values: impl IntoIterator<Item = ValueId>,
    ) -> Result<Option<String>> {
        let heap = self.heap;
        let named = |id: ValueId| match heap.get(id) {
            PickleValue::OpaqueGlobal(name) => Some(unknown_class(heap, name)),
            _ => None,
        };
        let opaque = |id: ValueId| match (heap.get(id), self.result_of(id)) {
            (PickleValue::Call(_), Some(CallResult::Refused(why))) => Some(why.to_string()),
            // the state of a call may have calls that are interpreted after it, such as the dtype of an array
            (PickleValue::Call(index), result) => {
                let call = heap.call(index);
                let own = call.opaque().map(|name| unknown_class(heap, name));
                let first = || heap.items(call.args).first().and_then(|&id| named(id));
                own.or_else(|| result.is_none().then(first).flatten())
            }
            _ => named(id),
        };
        for id in values {
            let items = match heap.get(id) {
                PickleValue::Dict { items, .. } => heap.container(items),
                _ => heap.sequence(id).unwrap_or_default(),
            };
            heap.budget()
                .steps(1 + items.len() as u64, "the calls of the pickle")?;
            let found = opaque(id).or_else(|| items.iter().find_map(|&id| opaque(id)));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// The reason to refuse a tensor that an unknown class or function describes.
pub(in crate::read::format::pth) fn unknown_class(heap: &ValueHeap<'_>, name: PoolRange) -> String {
    format!(
        "its values depend on {}, which is not plain data",
        quote(heap.text(name))
    )
}
