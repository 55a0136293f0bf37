//! One conversion by many processes: the files of an output directory, and making one of them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anamnesis::Remember;
use anamnesis::sink::{OutputDirectory, OutputFile};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::checkpoint::CoreCheckpoint;
use crate::remember::RememberOptions;
use crate::run::interruptible;

/// Name, bytes of tensors, names of outputs, and the description that `make_file` needs.
type FileRow = (String, u64, Vec<String>, String);

/// The files of a directory before they are made.
#[pyclass(frozen, module = "anamnesis._core")]
pub(crate) struct CoreDirectory {
    inner: Mutex<OutputDirectory>,
}

impl CoreDirectory {
    fn inner(&self) -> MutexGuard<'_, OutputDirectory> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl CoreDirectory {
    fn files(&self) -> PyResult<Vec<FileRow>> {
        let inner = self.inner();
        let rows = inner.files().iter().map(|file| {
            // as text, which a scheduler can send to another process without knowing the type
            let text = serde_json::to_string(file);
            let text = text.map_err(|e| PyValueError::new_err(e.to_string()))?;
            let outputs = file.outputs.iter().map(ToString::to_string).collect();
            Ok((file.name.clone(), file.nbytes, outputs, text))
        });
        rows.collect()
    }

    /// Creates the directory; the numbers of the files that are to be made.
    fn prepare(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        // the lock is held for the call: a directory is prepared and completed once, by one thread at a time
        interruptible(py, None, |_| self.inner().prepare())
    }

    /// Writes the other files and the index. Returns the files of tensors.
    fn complete(&self, py: Python<'_>) -> PyResult<Vec<PathBuf>> {
        interruptible(py, None, |_| self.inner().complete())
    }

    /// Removes what killed processes left.
    fn remove_abandoned(&self, py: Python<'_>) {
        py.detach(|| self.inner().remove_abandoned());
    }
}

impl CoreCheckpoint {
    /// Options for directories, whose clients need their own names.
    fn options(&self, dtype: &str, cast: bool, names: Option<&str>) -> PyResult<RememberOptions> {
        RememberOptions::new(dtype, cast, names.unwrap_or(self.client_names()))
    }

    fn builder(&self) -> Remember<'static> {
        anamnesis::remember(Arc::clone(&self.inner))
    }
}

#[pymethods]
impl CoreCheckpoint {
    /// The files that `remember_to` would write into a directory.
    #[pyo3(signature = (out, shard_size, outputs = None, *, dtype = "auto", cast = false, names = None,
                        native_rounding = false, overwrite = false, code = false, untie = false))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // keywords of Python
    fn output_directory(
        &self,
        py: Python<'_>,
        out: PathBuf,
        shard_size: u64,
        outputs: Option<HashSet<String>>,
        dtype: &str,
        cast: bool,
        names: Option<&str>,
        native_rounding: bool,
        overwrite: bool,
        code: bool,
        untie: bool,
    ) -> PyResult<CoreDirectory> {
        let options = self.options(dtype, cast, names)?;
        let inner = interruptible(py, None, |state| {
            let mut remember = options.apply(self.builder());
            if let Some(outputs) = outputs {
                remember = remember.only(outputs);
            }
            let remember = remember
                .native_rounding(native_rounding)
                .overwrite(overwrite)
                .code(code)
                .untie(untie)
                .cancel(&state.cancel);
            remember.output_directory(&remember.plan()?, &out, shard_size)
        })?;
        Ok(CoreDirectory {
            inner: Mutex::new(inner),
        })
    }

    /// Makes one file of `output_directory`. False if it is there already.
    #[pyo3(signature = (out, file, *, dtype = "auto", cast = false, names = None, native_rounding = false, overwrite = false,
                        untie = false, threads = 0, progress = None))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // keywords of Python
    fn make_file(
        &self,
        py: Python<'_>,
        out: PathBuf,
        file: &str,
        dtype: &str,
        cast: bool,
        names: Option<&str>,
        native_rounding: bool,
        overwrite: bool,
        untie: bool,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<bool> {
        let options = self.options(dtype, cast, names)?;
        let file: OutputFile =
            serde_json::from_str(file).map_err(|e| PyValueError::new_err(e.to_string()))?;
        interruptible(py, progress.as_ref(), |state| {
            let state = Arc::clone(state);
            options
                .apply(self.builder())
                .native_rounding(native_rounding)
                .overwrite(overwrite)
                .untie(untie)
                .threads(threads)
                .cancel(&state.cancel)
                .progress(move |progress| state.on_progress(progress))
                .make_file(&out, &file)
        })
    }
}
