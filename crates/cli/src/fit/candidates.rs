//! The table of several models that are compared with one memory.

use std::io::{self, Write};

use anamnesis::fit::{Basis, Estimate};
use anamnesis::quote::escape;

use super::show::{size_or_dash, title, wrapped};
use crate::output::table::{Column, ColumnFit, Table};
use crate::output::{DIM, DTYPE, REFUSED, Screen};
use crate::text::{ByteSize, ExactCount, plural};

/// One row per model; the largest that fits is marked.
pub(super) fn show(
    estimates: &[Estimate],
    screen: &Screen,
    out: &mut impl Write,
) -> io::Result<()> {
    let columns = vec![
        Column::left("model").fit(ColumnFit::Middle(24)),
        Column::left("weights").style(DTYPE),
        Column::right("bytes"),
        Column::right("total"),
        Column::right("context up to"),
        Column::left(""),
        Column::left("").fit(ColumnFit::Below),
    ];
    let mut table = Table::new(columns, 0);
    let fits = |estimate: &Estimate| estimate.memory.and_then(|memory| memory.fits) == Some(true);
    let best = estimates.iter().filter(|estimate| fits(estimate));
    // the candidates are usually quantisations of one model: of those that fit, the one with the most bytes lost least
    let best = best.max_by_key(|estimate| estimate.weights.nbytes);
    for estimate in estimates {
        let memory = estimate.memory.as_ref();
        table.cell(title(estimate));
        let dtype = match &*estimate.weights.dtype {
            // the dtype with most bytes names the quantisation, as file names do
            "stored" => estimate
                .weights
                .stored_dtypes
                .first()
                .map_or("", String::as_str),
            dtype => dtype,
        };
        table.cell(escape(dtype));
        table.cell(size_or_dash(estimate.weights.nbytes));
        table.cell(size_or_dash(estimate.total_nbytes));
        let context = memory.and_then(|memory| memory.largest_context);
        table.cell(context.map_or("–".to_owned(), |n| ExactCount(n).to_string()));
        // by identity: two candidates may have equal numbers, and one row is marked
        let is_best = best.is_some_and(|best| std::ptr::eq(best, estimate));
        table.cell(match memory.and_then(|memory| memory.fits) {
            Some(true) if is_best => "fits, largest",
            Some(true) => "fits",
            Some(false) => "does not fit",
            None => "not known",
        });
        // a model's own maximum bounds the context, and its format chooses the engine
        table.cell(format!(
            "context {}, by the rule of {}{}",
            ExactCount(estimate.context),
            estimate.engine,
            match estimate.compute.basis {
                Basis::NotEstimated => "; without compute",
                _ => "",
            }
        ));
    }
    table.print(screen, out)?;
    // memory and batch come from the arguments, so that the first row speaks for all
    let memory = estimates.first().and_then(|estimate| estimate.memory);
    if let (Some(first), Some(memory)) = (estimates.first(), memory) {
        let text = format!(
            "{} of memory, {}; without what is not estimated",
            ByteSize(memory.nbytes),
            plural(first.batch, "sequence")
        );
        writeln!(out, "{}", screen.paint(DIM, wrapped(&text, screen, 0)))?;
    }
    for estimate in estimates
        .iter()
        .filter(|estimate| !estimate.unknown.is_empty())
    {
        for text in &estimate.unknown {
            let text = format!("{}: {}", title(estimate), escape(text));
            writeln!(
                out,
                "{} {}",
                screen.paint(REFUSED, "unknown:"),
                wrapped(&text, screen, 9)
            )?;
        }
    }
    Ok(())
}
