//! Dequantised weights, one at a time: planned once, made when they are requested.

use std::collections::HashMap;
use std::sync::Arc;

use anamnesis::companions::CompanionContent;
use anamnesis::plan::{Job, Plan};
use anamnesis::{Checkpoint, Dtype, Remember};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::checkpoint::CoreCheckpoint;
use crate::memory::pool;
use crate::remember::{RememberOptions, RememberedRow, remembered_row};
use crate::run::interruptible;
use crate::warnings::warn;

/// Name, dtype, shape.
type WeightRow<'py> = (String, String, Bound<'py, PyTuple>);

/// The outputs of `remember` before they are made.
#[pyclass(frozen, module = "anamnesis._core")]
pub(crate) struct CoreWeights {
    checkpoint: Arc<Checkpoint>,
    options: RememberOptions,
    dtype: Dtype,
    jobs: Vec<Job>,
    by_name: HashMap<Box<str>, usize>,
}

impl CoreWeights {
    fn builder(&self) -> Remember<'static> {
        let builder = anamnesis::remember(Arc::clone(&self.checkpoint));
        self.options.apply(builder)
    }
}

#[pymethods]
impl CoreWeights {
    /// The dtype of dequantised weights.
    #[getter]
    fn dtype(&self) -> String {
        self.dtype.to_string()
    }

    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<WeightRow<'py>>> {
        let rows = self.jobs.iter().map(|job| {
            let spec = &job.output;
            let shape = PyTuple::new(py, &*spec.shape)?;
            Ok((spec.name.to_string(), spec.dtype.to_string(), shape))
        });
        rows.collect()
    }

    /// One weight, in the pool's memory.
    fn make<'py>(&self, py: Python<'py>, name: &str) -> PyResult<RememberedRow<'py>> {
        let Some(&number) = self.by_name.get(name) else {
            return Err(PyKeyError::new_err(name.to_owned()));
        };
        let plan = Plan {
            jobs: vec![self.jobs[number].clone()],
            ..Plan::default()
        };
        let made = interruptible(py, None, |state| {
            self.builder()
                .cancel(&state.cancel)
                .planned_in(&plan, &pool())
        })?;
        let one = made.into_iter().next().expect("a plan of one job");
        remembered_row(py, one)
    }

    /// The files that clients read beside the weights: name, and bytes or the path of the file. Python files with `code`.
    fn companions<'py>(
        &self,
        py: Python<'py>,
        code: bool,
    ) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let found = interruptible(py, None, |_| self.builder().code(code).companions())?;
        let files = found.files.into_iter().map(|file| {
            let content = match file.content {
                CompanionContent::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
                CompanionContent::Copy(path) => path.into_os_string().into_pyobject(py)?.into_any(),
            };
            Ok((file.name, content))
        });
        files.collect()
    }
}

#[pymethods]
impl CoreCheckpoint {
    /// Plans the outputs. Fails if one of them cannot be made.
    #[pyo3(signature = (*, dtype = "auto", cast = false, names = None))]
    fn weights(
        &self,
        py: Python<'_>,
        dtype: &str,
        cast: bool,
        names: Option<&str>,
    ) -> PyResult<CoreWeights> {
        let options = RememberOptions::new(dtype, cast, names.unwrap_or(self.client_names()))?;
        let (dtype, jobs, notes) = interruptible(py, None, |state| {
            let remember = options.apply(anamnesis::remember(Arc::clone(&self.inner)));
            let remember = remember.cancel(&state.cancel);
            let plan = remember.plan()?;
            // now, and not when the weight that is refused is requested
            plan.check()?;
            Ok((remember.output_dtype()?, plan.jobs, plan.notes))
        })?;
        warn(py, notes)?;
        let names = jobs.iter().map(|job| job.output.name.clone());
        let by_name = names.enumerate().map(|(at, name)| (name, at)).collect();
        Ok(CoreWeights {
            checkpoint: Arc::clone(&self.inner),
            options,
            dtype,
            jobs,
            by_name,
        })
    }
}
