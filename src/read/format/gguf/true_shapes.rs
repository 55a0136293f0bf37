//! Shapes that a tensor had before ComfyUI's converter flattened it.
//!
//! Blocks do not fit narrow rows, as convolutions have them, so the converter stores `[n / 256, 256]`, and tensors of five
//! dimensions as four. The shape is an array of integers under `comfy.gguf.orig_shape.NAME`, outermost first.
//!
//! Source: city96/ComfyUI-GGUF, `tools/convert.py` and `loader.py` (`get_orig_shape`).

use std::collections::HashMap;

use crate::base::error::Result;
use crate::base::limits::Budget;
use crate::base::note::Note;
use crate::read::catalog::{Catalog, Shape, Value, elements, quote};

const KEY: &str = "comfy.gguf.orig_shape.";

/// Warnings of shapes that do not fit.
const MAX_WARNINGS: usize = 4;

/// Gives tensors the shapes that the metadata state. A shape of another number of elements is left out, with a warning.
pub(super) fn restore(catalog: &mut Catalog, budget: &Budget) -> Result<()> {
    const ROW: u64 = 4 * size_of::<(&str, Option<Shape>)>() as u64;
    // `None` for a value that is no list of sizes
    let mut shapes: HashMap<&str, Option<Shape>> = HashMap::new();
    for (key, value) in catalog.metadata.iter() {
        let Some(name) = key.strip_prefix(KEY) else {
            continue;
        };
        budget.memory(ROW, "the shapes of tensors")?;
        let Value::Array(array) = value else {
            shapes.insert(name, None);
            continue;
        };
        let sizes = array.first.iter().map(|size| match *size {
            Value::I64(n) => u64::try_from(n).ok(),
            Value::U64(n) => Some(n),
            _ => None,
        });
        // weights have few dimensions, so all of them are among the first elements
        let sizes: Option<Shape> = sizes.collect();
        shapes.insert(name, sizes.filter(|shape| shape.len() as u64 == array.len));
    }
    if shapes.is_empty() {
        return Ok(());
    }
    let mut warned = 0;
    for tensor in &mut catalog.tensors {
        let Some(shape) = shapes.remove(&*tensor.name) else {
            continue;
        };
        let found = tensor.elements();
        let why = match shape {
            Some(shape) if elements(&shape) == Some(found) => {
                tensor.shape = shape;
                continue;
            }
            Some(shape) => format!("the shape {shape:?} of {KEY} has not its {found} elements"),
            None => format!("its shape under {KEY} is no list of sizes"),
        };
        if warned < MAX_WARNINGS {
            warned += 1;
            let text = format!("tensor {}: {why}, and is ignored", quote(&tensor.name));
            catalog.warnings.push(Note::from(text));
        }
    }
    Ok(())
}
