//! The text of `fit`: the terms of the sum, the kinds of layers, contexts and workers.

use std::io::{self, Write};

use anamnesis::fit::{Basis, Estimate, GroupEstimate, MemoryFit};
use anamnesis::quote::escape;

use crate::output::table::{Column, ColumnFit, Table};
use crate::output::{BOLD, DIM, REFUSED, Screen, WARNING};
use crate::text::{ByteSize, ExactCount, ShortCount, plural, wrap};

/// Width of a term's label.
const LABEL_WIDTH: usize = 9;
/// Width of a term's size.
const SIZE_WIDTH: usize = 10;

pub(super) fn all(estimates: &[Estimate], screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    for (i, estimate) in estimates.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        one(estimate, screen, out)?;
    }
    Ok(())
}

pub(super) fn title(estimate: &Estimate) -> String {
    let path = estimate.path.as_deref();
    path.map_or("standard input".into(), |path| escape(path).into_owned())
}

fn one(estimate: &Estimate, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", screen.paint(BOLD, title(estimate)))?;
    let mut term = |label: &str, size: Option<u64>, text: String| -> io::Result<()> {
        let label = screen.paint(DIM, format!("{label:LABEL_WIDTH$}"));
        let size = size_or_dash(size);
        let text = wrapped(&text, screen, 2 + LABEL_WIDTH + 1 + SIZE_WIDTH + 2);
        writeln!(out, "  {label} {size:>SIZE_WIDTH$}  {text}")
    };
    term("weights", estimate.weights.nbytes, weights(estimate))?;
    term("cache", estimate.cache.nbytes, cache(estimate))?;
    term("compute", estimate.compute.nbytes, compute(estimate))?;
    if estimate.overhead_nbytes > 0 {
        term(
            "overhead",
            Some(estimate.overhead_nbytes),
            "as given".to_owned(),
        )?;
    }
    for extra in &estimate.extras {
        // no size, rather than one that lacks the cache
        let nbytes = extra
            .cache_nbytes
            .and_then(|cache| cache.checked_add(extra.weights_nbytes));
        let path = escape(extra.path.as_deref().unwrap_or_default()).into_owned();
        let cache = match extra.cache_nbytes {
            Some(0) => String::new(),
            Some(cache) => format!(", with a cache of {}", ByteSize(cache)),
            None => ", whose cache is not estimated".to_owned(),
        };
        term(extra.role, nbytes, format!("{path}{cache}"))?;
    }
    term("total", estimate.total_nbytes, total(estimate))?;
    let mut line = |label: &str, text: String| -> io::Result<()> {
        let label = screen.paint(DIM, format!("{label:LABEL_WIDTH$}"));
        writeln!(
            out,
            "  {label} {}",
            wrapped(&text, screen, 2 + LABEL_WIDTH + 1)
        )
    };
    if let Some(memory) = estimate
        .memory
        .as_ref()
        // without a total nothing largest can be stated
        .filter(|memory| memory.fits.is_some())
    {
        line("largest", largest(estimate, memory))?;
    }
    line("model", model(estimate))?;
    // an encoder has no cache, and a table of layers without one says nothing
    if estimate
        .cache
        .groups
        .iter()
        .any(|group| group.kind != "none")
    {
        writeln!(out)?;
        layers(estimate).print(screen, out)?;
    }
    if !estimate.contexts.is_empty() {
        writeln!(out)?;
        contexts(estimate).print(screen, out)?;
    }
    // with one worker the terms above are its own
    if estimate.ranks.len() > 1 {
        writeln!(out)?;
        workers(estimate).print(screen, out)?;
    }
    remarks(estimate, screen, out)
}

fn model(estimate: &Estimate) -> String {
    let mut parts = Vec::new();
    parts.push(match (&estimate.model_type, estimate.source) {
        (Some(name), _) => escape(name).into_owned(),
        (None, _) => "unknown architecture".to_owned(),
    });
    parts.extend(estimate.layers.map(|n| plural(n, "layer")));
    let parameters = &estimate.parameters;
    parts.extend(
        parameters
            .total
            .map(|n| format!("{} parameters", ShortCount(n))),
    );
    // they differ for mixtures of experts only
    if parameters.active != parameters.total {
        parts.extend(
            parameters
                .active
                .map(|n| format!("{} active", ShortCount(n))),
        );
    }
    parts.extend(
        estimate
            .context_max
            .map(|n| format!("made for {} tokens", ExactCount(n))),
    );
    parts.join(", ")
}

fn weights(estimate: &Estimate) -> String {
    let weights = &estimate.weights;
    if weights.nbytes.is_none() {
        // a configuration was opened alone
        return "there are none".to_owned();
    }
    // a mixture of blocks has more types than fit in a line: those with most bytes are shown
    let dtypes: Vec<&str> = weights
        .stored_dtypes
        .iter()
        .map(String::as_str)
        .take(4)
        .collect();
    let stored = escape(&dtypes.join(", ")).into_owned();
    let text = if weights.dtype == "stored" {
        format!("as stored ({stored})")
    } else {
        let nbytes = weights.stored_nbytes.unwrap_or(0);
        format!(
            "as {}; {} as stored ({stored})",
            weights.dtype,
            ByteSize(nbytes)
        )
    };
    with_basis(text, weights.basis)
}

fn cache(estimate: &Estimate) -> String {
    let cache = &estimate.cache;
    let types = if cache.k_dtype == cache.v_dtype {
        cache.k_dtype.clone()
    } else {
        format!("{} and {}", cache.k_dtype, cache.v_dtype)
    };
    let text = format!(
        "{} × {} tokens, {types}, by the rule of {}",
        ExactCount(estimate.batch),
        ExactCount(estimate.context),
        estimate.engine
    );
    with_basis(text, cache.basis)
}

fn compute(estimate: &Estimate) -> String {
    match estimate.compute.basis {
        Basis::NotEstimated => "not estimated (--overhead adds it)".to_owned(),
        basis => with_basis("buffers of a step".to_owned(), basis),
    }
}

fn with_basis(text: String, basis: Basis) -> String {
    match basis {
        // a bound is no estimate: the word keeps it from being read as one
        Basis::Bound => format!("{text}; at most"),
        basis => format!("{text}; {}", basis.name()),
    }
}

fn total(estimate: &Estimate) -> String {
    let workers = match estimate.ranks.len() {
        0 | 1 => "",
        // the model fits if its largest worker does
        _ => " on the worker that takes most",
    };
    let Some(memory) = &estimate.memory else {
        return match estimate.total_nbytes {
            Some(_) => format!("without what is not estimated{workers}"),
            None => "not estimated".to_owned(),
        };
    };
    let of = format!("of {}{workers}", ByteSize(memory.nbytes));
    let without = without_compute(estimate);
    match (memory.fits, memory.left_nbytes) {
        (Some(true), Some(left)) => format!("{of}: {without}fits, {} left", ByteSize(left)),
        (Some(false), _) => {
            let over = estimate
                .total_nbytes
                .unwrap_or(0)
                .saturating_sub(memory.nbytes);
            format!("{of}: {without}does not fit, {} too much", ByteSize(over))
        }
        _ => format!("{of}: not known, as a term is not estimated"),
    }
}

/// A verdict without a term must not be read as the whole.
fn without_compute(estimate: &Estimate) -> &'static str {
    match estimate.compute.basis {
        Basis::NotEstimated => "without compute: ",
        _ => "",
    }
}

fn largest(estimate: &Estimate, memory: &MemoryFit) -> String {
    let context = match memory.largest_context {
        Some(n) if Some(n) == estimate.context_max => format!(
            "context {} (all that the model was made for)",
            ExactCount(n)
        ),
        Some(n) => format!("context {}", ExactCount(n)),
        None => "no context".to_owned(),
    };
    let batch = match memory.largest_batch {
        Some(n) => format!("batch {}", ExactCount(n)),
        None => "no batch".to_owned(),
    };
    format!(
        "{context} with batch {}; {batch} with context {}",
        ExactCount(estimate.batch),
        ExactCount(estimate.context)
    )
}

fn layers(estimate: &Estimate) -> Table {
    let columns = vec![
        Column::left("layers").fit(ColumnFit::End),
        Column::left("kind"),
        Column::right("elements"),
        Column::right("tokens"),
        Column::right("bytes"),
        Column::left("by").fit(ColumnFit::End).style(DIM),
    ];
    let mut table = Table::new(columns, 0);
    for group in &estimate.cache.groups {
        table.cell(numbers(&group.layers));
        table.cell(match group.window {
            Some(window) => format!("{} {}", group.kind, ExactCount(window)),
            None => group.kind.to_owned(),
        });
        table.cell(elements(group));
        table.cell(match (group.tokens, group.streams) {
            (0, 0) => String::new(),
            // states do not grow with tokens
            (0, streams) => format!("{} ×", ExactCount(streams)),
            (tokens, streams) => format!("{} × {}", ExactCount(streams), ExactCount(tokens)),
        });
        let nbytes = group.nbytes_each.checked_mul(group.layers.len() as u64);
        table.cell(ByteSize(nbytes.unwrap_or(u64::MAX)));
        table.cell(group.why);
    }
    // padding is of no layer, and a total without it would not be the sum of the rows
    if estimate.cache.padding_nbytes > 0 {
        table.cell("");
        table.cell("padding");
        table.cell("");
        table.cell("");
        table.cell(ByteSize(estimate.cache.padding_nbytes));
        table.cell("pages of one size");
    }
    table
}

/// Elements of a token, or of a state.
fn elements(group: &GroupEstimate) -> String {
    match (group.k_elements, group.v_elements, group.state_elements) {
        (0, 0, 0) => String::new(),
        (0, 0, state) => ExactCount(state).to_string(),
        (k, 0, 0) => ExactCount(k).to_string(),
        (k, v, _) => format!("{} + {}", ExactCount(k), ExactCount(v)),
    }
}

/// Numbers of layers: `0,2,4,…,22 (12)`.
fn numbers(layers: &[u32]) -> String {
    let (Some(first), Some(last)) = (layers.first(), layers.last()) else {
        return String::new();
    };
    let n = layers.len();
    // numbers ascend and do not repeat
    let contiguous = (last - first) as usize + 1 == n;
    match layers {
        [only] => only.to_string(),
        _ if contiguous => format!("{first}..{last} ({n})"),
        // no longer than the abbreviation would be
        few if few.len() <= 4 => {
            let few: Vec<String> = few.iter().map(u32::to_string).collect();
            format!("{} ({n})", few.join(","))
        }
        _ => format!("{},{},{},…,{last} ({n})", layers[0], layers[1], layers[2]),
    }
}

fn contexts(estimate: &Estimate) -> Table {
    let columns = vec![
        Column::right("context"),
        Column::right("cache"),
        Column::right("total"),
    ];
    let mut table = Table::new(columns, 0);
    for row in &estimate.contexts {
        table.cell(ExactCount(row.context));
        table.cell(size_or_dash(row.cache_nbytes));
        table.cell(size_or_dash(row.total_nbytes));
    }
    table
}

/// Workers that are shown.
// two nodes of eight devices; workers beyond repeat the pattern
const MAX_WORKERS: usize = 16;

fn workers(estimate: &Estimate) -> Table {
    let columns = vec![
        Column::right("worker"),
        Column::right("tp"),
        Column::right("pp"),
        Column::right("weights"),
        Column::right("cache"),
        Column::right("total"),
    ];
    let mut table = Table::new(columns, 0);
    for rank in estimate.ranks.iter().take(MAX_WORKERS) {
        table.cell(rank.rank);
        table.cell(rank.tp);
        table.cell(rank.pp);
        table.cell(size_or_dash(rank.weights_nbytes));
        table.cell(size_or_dash(rank.cache_nbytes));
        table.cell(size_or_dash(rank.total_nbytes));
    }
    if estimate.ranks.len() > MAX_WORKERS {
        table.cell(format!("… {} more", estimate.ranks.len() - MAX_WORKERS));
        // a row has a cell for each column
        (0..5).for_each(|_| table.cell(""));
    }
    table
}

fn remarks(estimate: &Estimate, screen: &Screen, out: &mut impl Write) -> io::Result<()> {
    if !estimate.notes.is_empty() || !estimate.unknown.is_empty() {
        writeln!(out)?;
    }
    for (label, style, texts) in [
        ("note:", WARNING, &estimate.notes),
        ("unknown:", REFUSED, &estimate.unknown),
    ] {
        for text in texts {
            let text = escape(text);
            writeln!(
                out,
                "{} {}",
                screen.paint(style, label),
                wrapped(&text, screen, label.len() + 1)
            )?;
        }
    }
    Ok(())
}

/// A size; a dash for what is not estimated.
pub(super) fn size_or_dash(nbytes: Option<u64>) -> String {
    nbytes.map_or("–".to_owned(), |n| ByteSize(n).to_string())
}

/// Text that fits the screen, with continuation lines indented.
pub(super) fn wrapped(text: &str, screen: &Screen, indent: usize) -> String {
    wrap(text, screen.width, indent)
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn numbers_of_layers_are_short() {
        assert_eq!(numbers(&[3]), "3");
        assert_eq!(numbers(&[0, 1, 2, 3, 4]), "0..4 (5)");
        assert_eq!(numbers(&[0, 2, 4]), "0,2,4 (3)");
        assert_eq!(numbers(&[0, 2, 4, 6, 8, 22]), "0,2,4,…,22 (6)");
    }
}
