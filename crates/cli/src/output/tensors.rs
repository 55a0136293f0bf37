//! The tensor table of `inspect`.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::io::{self, Write};

use anamnesis::Summary;
use anamnesis::inspect::{FileSummary, TensorSummary};
use anamnesis::quote::escape;

use super::overview::file_name;
use super::table::{Column, ColumnFit, Table};
use super::{DIM, DTYPE, Screen};
use crate::text::ByteSize;

/// Minimum screen width for hashes in a column; on narrower screens a hash is printed below its tensor.
const HASH_COLUMN_WIDTH: usize = 150;

pub(crate) fn show(
    summary: &Summary,
    hashes: bool,
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    if summary.tensors.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let hash_column = screen.width.is_none_or(|width| width >= HASH_COLUMN_WIDTH);
    let columns = vec![
        Column::left("name").fit(ColumnFit::Middle(24)),
        Column::left("dtype").style(DTYPE),
        Column::left("shape"),
        Column::right("bytes"),
        Column::left("file").fit(ColumnFit::End),
        Column::left("sha256").fit(if hash_column {
            ColumnFit::Whole
        } else {
            ColumnFit::Below
        }),
        Column::left("notes").fit(ColumnFit::End).style(DIM),
    ];
    let mut table = Table::new(columns, 0);
    let labels = labels(&summary.files);
    let notes = TensorNotes::new(&summary.tensors);
    for tensor in &summary.tensors {
        table.cell(name(&tensor.name));
        table.cell(escape(&tensor.dtype));
        table.cell(ShapeText(&tensor.shape));
        table.cell(ByteSize(tensor.nbytes));
        table.cell(labels.get(tensor.file as usize).map_or("", String::as_str));
        table.cell(tensor.sha256.as_deref().filter(|_| hashes).unwrap_or(""));
        table.cell(notes.of(tensor));
    }
    table.print(screen, out)
}

/// A name, escaped; arrays without a name are shown as `(unnamed)`.
pub(crate) fn name(name: &str) -> std::borrow::Cow<'_, str> {
    if name.is_empty() {
        "(unnamed)".into()
    } else {
        escape(name)
    }
}

/// A shape, outermost dimension first: `[4096,14336]`.
pub(crate) struct ShapeText<'a>(pub(crate) &'a [u64]);

impl Display for ShapeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, n) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{n}")?;
        }
        f.write_str("]")
    }
}

/// The labels of the files in the `file` column: shard numbers if all names have one (`…-00002-of-00005`), file names
/// otherwise. Empty for a single file, which omits the column.
fn labels(files: &[FileSummary]) -> Vec<String> {
    // a column with one label in every row says nothing
    if files.len() < 2 {
        return Vec::new();
    }
    let names: Vec<&str> = files.iter().map(|f| file_name(f.path.as_deref())).collect();
    let number = |name: &str| {
        Some(
            name.rsplit_once("-of-")?
                .0
                .rsplit_once('-')?
                .1
                .parse::<u64>()
                .ok()?
                .to_string(),
        )
    };
    // all or none: numbers among names would look like names
    let numbers: Option<Vec<String>> = names.iter().map(|name| number(name)).collect();
    numbers.unwrap_or_else(|| names.iter().map(|name| escape(name).into_owned()).collect())
}

/// A tensor's storage, offset and size. Tensors that agree in all three are tied.
type StorageRange = (u32, Option<u64>, u64);

/// The `notes` column: layout, compression, byte order and shared storage where they are not the default.
pub(crate) struct TensorNotes {
    /// Number of tensors per storage.
    sharing: HashMap<u32, u32>,
    /// Number of tensors per storage range; tensors of a range with more than one are tied.
    tied: HashMap<StorageRange, u32>,
}

impl TensorNotes {
    pub(crate) fn new(tensors: &[TensorSummary]) -> Self {
        let mut notes = Self {
            sharing: HashMap::new(),
            tied: HashMap::new(),
        };
        for (tensor, storage) in tensors
            .iter()
            .filter_map(|tensor| Some((tensor, tensor.storage?)))
        {
            *notes.sharing.entry(storage).or_default() += 1;
            *notes
                .tied
                .entry((storage, tensor.offset, tensor.nbytes))
                .or_default() += 1;
        }
        notes
    }

    pub(crate) fn of(&self, tensor: &TensorSummary) -> String {
        let mut notes = Vec::new();
        match (tensor.layout, &tensor.strides) {
            // only deviations are noted, so that a reader sees them
            ("row_major", _) => {}
            (_, Some(strides)) => notes.push(format!("strides {}", ShapeText(strides))),
            (layout, _) => notes.push(layout.replace('_', "-")),
        }
        notes.extend(tensor.packing.map(str::to_owned));
        notes.extend(tensor.endian.map(|endian| format!("{endian}-endian")));
        if let Some(quantizer) = &tensor.quantizer {
            notes.push(format!("quantised {}", quantizer.name().replace('_', " ")));
        }
        if let Some(storage) = tensor.storage {
            // tied tensors also share a storage; the stronger statement is shown
            if self.tied[&(storage, tensor.offset, tensor.nbytes)] > 1 {
                notes.push(format!("tied #{storage}"));
            } else if self.sharing[&storage] > 1 {
                notes.push(format!("shares #{storage}"));
            }
        }
        notes.join(", ")
    }
}
