//! The models of trees, caches and buckets.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;

use pyo3::prelude::*;

use crate::run::interruptible;

/// A model: path, format, architecture, parameters, dtype, quantisation, bytes, context, files, error, note.
type ModelRow = (
    PathBuf,
    Option<&'static str>,
    Option<String>,
    Option<u64>,
    Option<String>,
    Option<String>,
    Option<u64>,
    Option<u64>,
    Option<u64>,
    Option<String>,
    Option<String>,
);

/// The models at and below a path. With `has`, those with a tensor or weight of one of these names.
#[pyfunction]
#[pyo3(signature = (root, *, has = None, all_snapshots = false, threads = 0))]
pub(crate) fn ls(
    py: Python<'_>,
    root: OsString,
    has: Option<HashSet<String>>,
    all_snapshots: bool,
    threads: usize,
) -> PyResult<Vec<ModelRow>> {
    interruptible(py, None, |state| {
        let mut list = anamnesis::list(PathBuf::from(root))
            .all_snapshots(all_snapshots)
            .threads(threads)
            .cancel(&state.cancel);
        if let Some(names) = &has {
            list = list.has(|name| names.contains(name));
        }
        let mut rows = Vec::new();
        for model in list.run()? {
            let model = model?;
            // a filter cannot tell of it
            if model.error.is_some() && has.is_some() {
                continue;
            }
            let error = model.error_text();
            rows.push((
                model.path,
                model.format,
                model.architecture,
                model.parameters,
                model.dtype,
                model.quantisation,
                model.nbytes,
                model.context,
                model.files,
                error,
                model.note,
            ));
        }
        Ok(rows)
    })
}
