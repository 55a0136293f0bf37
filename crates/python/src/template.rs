//! I/O templates: which worker of a service reads which bytes.

use std::path::PathBuf;

use anamnesis::Error;
use anamnesis::template::{Coverage, Template, TemplateLimits, coverage};
use pyo3::prelude::*;

use crate::checkpoint::CoreCheckpoint;
use crate::errors::exception;
use crate::parts::rules_of;
use crate::run::interruptible;

/// A template in memory.
#[pyclass(frozen, module = "anamnesis._core")]
pub(crate) struct CoreTemplate {
    inner: Template,
}

/// One file: path, bytes, and covered bytes.
type CoveredFile = (String, u64, u64);

#[pymethods]
impl CoreTemplate {
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.nbytes()
    }

    /// The path of each file.
    #[getter]
    fn files(&self) -> Vec<String> {
        let files = self.inner.files().iter();
        files.map(|file| file.path.to_string()).collect()
    }

    #[getter]
    fn parameters(&self) -> Vec<(String, String)> {
        let parameters = self.inner.parameters();
        parameters
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    /// Each worker's rank, name, bytes and accesses.
    #[getter]
    fn groups(&self) -> Vec<(u32, String, u64, usize)> {
        let groups = self.inner.groups().iter();
        let row = |group: &anamnesis::template::AccessGroup| {
            let (name, accesses) = (group.name().to_owned(), group.accesses().len());
            (group.rank(), name, group.nbytes(), accesses)
        };
        groups.map(row).collect()
    }

    /// How much of this template another one has: bytes, those that are covered, agreement of the order, files.
    fn coverage(&self, py: Python<'_>, by: &Self) -> (u64, u64, Option<f64>, Vec<CoveredFile>) {
        // a template may have millions of accesses: other threads run meanwhile
        let Coverage {
            files,
            nbytes,
            covered,
            order,
            ..
        } = py.detach(|| coverage(&self.inner, &by.inner));
        let files = files.into_iter();
        let files = files.map(|file| (file.path.into(), file.nbytes, file.covered));
        (nbytes, covered, order, files.collect())
    }

    /// Writes the binary form, or JSON to a path that ends in `.json`.
    fn save(&self, py: Python<'_>, path: PathBuf, overwrite: bool) -> PyResult<()> {
        // waits for the disk: other threads run meanwhile
        let saved = py.detach(|| {
            if overwrite {
                self.inner.save(&path, true)
            } else {
                self.inner.save_new(&path, true)
            }
        });
        saved.map_err(|error| exception(py, &Error::from(error)))?;
        Ok(())
    }
}

/// Reads a template from a file.
#[pyfunction]
pub(crate) fn load_template(py: Python<'_>, path: PathBuf) -> PyResult<CoreTemplate> {
    let inner = py.detach(|| Template::load(&path, &TemplateLimits::default()));
    let inner = inner.map_err(|error| exception(py, &Error::from(error)))?;
    Ok(CoreTemplate { inner })
}

#[pymethods]
impl CoreCheckpoint {
    /// Predicts which worker reads which bytes.
    #[pyo3(signature = (*, tp = 1, pp = 1, dp = 1, ep = 1, heads = None, kv_heads = None, experts = None, rules = None,
                        order = "file", whole = false, max_gap = 0))]
    #[allow(clippy::too_many_arguments)] // keywords of Python
    fn predict(
        &self,
        py: Python<'_>,
        tp: u32,
        pp: u32,
        dp: u32,
        ep: u32,
        heads: Option<u64>,
        kv_heads: Option<u64>,
        experts: Option<u64>,
        rules: Option<Vec<(String, String)>>,
        order: &str,
        whole: bool,
        max_gap: u64,
    ) -> PyResult<CoreTemplate> {
        let rules = rules_of(rules)?;
        let order = order.parse().map_err(|error| exception(py, &error))?;
        let inner = interruptible(py, None, |state| {
            let mut predict = anamnesis::predict(&self.inner)
                .tp(tp)
                .pp(pp)
                .dp(dp)
                .ep(ep)
                .rules(rules)
                .order(order)
                .whole(whole)
                .max_gap(max_gap)
                .cancel(&state.cancel);
            // by default these are the configuration's
            if let Some(heads) = heads {
                predict = predict.heads(heads);
            }
            if let Some(heads) = kv_heads {
                predict = predict.kv_heads(heads);
            }
            if let Some(experts) = experts {
                predict = predict.experts(experts);
            }
            predict.template()
        })?;
        Ok(CoreTemplate { inner })
    }
}
