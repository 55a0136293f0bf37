//! Dequantising: into memory of Python, or into files.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use anamnesis::pool::Buffer;
use anamnesis::sink::Sharding;
use anamnesis::{Dtype, Names, OutputDtype, Remember, Remembered};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::checkpoint::CoreCheckpoint;
use crate::errors::{exception, note, refusal};
use crate::memory::{TensorMemory, pool};
use crate::parts::{Boxes, Parts};
use crate::run::interruptible;
use crate::warnings::warn;

/// The dtype of outputs. `PyTorch` writes `bfloat16`, this library `BF16`: both are understood in any case.
pub(crate) fn dtype_of(name: &str) -> PyResult<OutputDtype> {
    Ok(match &*name.to_ascii_lowercase() {
        "auto" => OutputDtype::Auto,
        "bf16" | "bfloat16" => Dtype::BF16.into(),
        "f16" | "float16" => Dtype::F16.into(),
        "f32" | "float32" => Dtype::F32.into(),
        _ => {
            let text = format!("dtype {name:?}: auto, bfloat16, float16 or float32");
            return Err(PyValueError::new_err(text));
        }
    })
}

/// Options that decide the outputs.
#[derive(Clone, Copy)]
pub(crate) struct RememberOptions {
    dtype: OutputDtype,
    cast: bool,
    names: Names,
}

impl RememberOptions {
    pub(crate) fn new(dtype: &str, cast: bool, names: &str) -> PyResult<Self> {
        let dtype = dtype_of(dtype)?;
        let names = match names {
            "stored" => Names::Stored,
            "hf" => Names::HuggingFace,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "naming {names:?}: stored or hf"
                )));
            }
        };
        Ok(Self { dtype, cast, names })
    }

    pub(crate) fn apply(self, remember: Remember<'_>) -> Remember<'_> {
        remember.dtype(self.dtype).cast(self.cast).names(self.names)
    }
}

/// Name, dtype, true for a dtype, shape, memory.
pub(crate) type RememberedRow<'py> = (String, String, bool, Bound<'py, PyTuple>, Py<TensorMemory>);

/// An output as an object of Python.
pub(crate) fn remembered_row(
    py: Python<'_>,
    one: Remembered<Buffer>,
) -> PyResult<RememberedRow<'_>> {
    let len = one.bytes.len();
    let part = one.bytes.divide().part(0..len).expect("the first part");
    let shape = PyTuple::new(py, &*one.spec.shape)?;
    let memory = Py::new(py, TensorMemory::new(part))?;
    let (name, dtype) = (one.spec.name.into(), one.spec.dtype.to_string());
    Ok((name, dtype, true, shape, memory))
}

#[pymethods]
impl CoreCheckpoint {
    /// The names of outputs with which clients open them.
    #[getter]
    pub(crate) fn client_names(&self) -> &'static str {
        match self.inner.catalog().format() {
            // transformers finds no tensor under llama.cpp's names
            "gguf" => "hf",
            _ => "stored",
        }
    }

    /// The names that outputs have by default in this file or directory: a directory is a checkpoint that clients open.
    #[pyo3(signature = (out, shard_size = None))]
    fn names_in(
        &self,
        py: Python<'_>,
        out: PathBuf,
        shard_size: Option<u64>,
    ) -> PyResult<&'static str> {
        let remember = anamnesis::remember(Arc::clone(&self.inner));
        let sharding = remember.sharding(&out, shard_size);
        Ok(match sharding.map_err(|error| exception(py, &error))? {
            Sharding::Shards(_) => self.client_names(),
            Sharding::SingleFile => "stored",
        })
    }

    /// The plan of dequantising: name, scheme, dtype, shape, bytes; its refusals: name, reason; and notes.
    #[pyo3(signature = (*, dtype = "auto", cast = false, names = "stored"))]
    fn plan<'py>(
        &self,
        py: Python<'py>,
        dtype: &str,
        cast: bool,
        names: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let options = RememberOptions::new(dtype, cast, names)?;
        let plan = interruptible(py, None, |state| {
            let remember = options.apply(anamnesis::remember(Arc::clone(&self.inner)));
            remember.cancel(&state.cancel).plan()
        })?;
        let outputs = plan.jobs.iter().map(|job| {
            let spec = &job.output;
            let (name, dtype) = (spec.name.to_string(), spec.dtype.to_string());
            let shape = PyTuple::new(py, &*spec.shape)?;
            Ok((
                name,
                job.scheme,
                dtype,
                shape,
                spec.nbytes().unwrap_or(u64::MAX),
            ))
        });
        let outputs = outputs.collect::<PyResult<Vec<_>>>()?;
        let refused = plan.refused.iter();
        let refused: Vec<_> = refused
            .map(|one| (one.name.to_string(), refusal(&one.error)))
            .collect();
        let made = PyDict::new(py);
        made.set_item("outputs", outputs)?;
        made.set_item("refused", refused)?;
        made.set_item("quantised", plan.quantised)?;
        let of_outputs = plan.output_notes.iter().map(note);
        let notes: Vec<String> = plan.notes.into_iter().chain(of_outputs).collect();
        made.set_item("notes", notes)?;
        Ok(made)
    }

    /// Dequantised weights and plain tensors, in the pool's memory.
    #[pyo3(signature = (outputs = None, *, dtype = "auto", cast = false, names = "stored", native_rounding = false,
                        threads = 0, slices = None, tp = None, rules = None, progress = None))]
    #[allow(clippy::too_many_arguments)] // keywords of Python
    fn remember<'py>(
        &self,
        py: Python<'py>,
        outputs: Option<HashSet<String>>,
        dtype: &str,
        cast: bool,
        names: &str,
        native_rounding: bool,
        threads: usize,
        slices: Option<Boxes>,
        tp: Option<(u32, u32)>,
        rules: Option<Vec<(String, String)>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<RememberedRow<'py>>> {
        let options = RememberOptions::new(dtype, cast, names)?;
        let parts = Parts::new(slices, tp, rules)?;
        let made = interruptible(py, progress.as_ref(), |state| {
            let state = Arc::clone(state);
            let remember = options.apply(anamnesis::remember(Arc::clone(&self.inner)));
            let mut remember = parts.of_remember(remember);
            if let Some(outputs) = outputs {
                remember = remember.filter(move |name| outputs.contains(name));
            }
            let remember = remember
                .native_rounding(native_rounding)
                .threads(threads)
                .cancel(&state.cancel)
                .progress(move |progress| state.on_progress(progress));
            let plan = remember.plan()?;
            Ok((remember.planned_in(&plan, &pool())?, plan.notes))
        })?;
        let (made, notes) = made;
        // weights are made by something that the file does not say; notes about the outputs are none of these
        warn(py, notes)?;
        let rows = made.into_iter().map(|one| remembered_row(py, one));
        rows.collect()
    }

    /// Dequantised weights and plain tensors, in safetensors files. Returns them.
    #[pyo3(signature = (out, outputs = None, *, renamed = None, dtype = "auto", cast = false, names = "stored", native_rounding = false,
                        shard_size = None, overwrite = false, code = false, untie = false, threads = 0, progress = None))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // keywords of Python
    fn remember_to(
        &self,
        py: Python<'_>,
        out: PathBuf,
        outputs: Option<HashSet<String>>,
        renamed: Option<HashMap<String, String>>,
        dtype: &str,
        cast: bool,
        names: &str,
        native_rounding: bool,
        shard_size: Option<u64>,
        overwrite: bool,
        code: bool,
        untie: bool,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<PathBuf>> {
        let remember = anamnesis::remember(Arc::clone(&self.inner));
        let sharding = remember.sharding(&out, shard_size);
        let sharding = sharding.map_err(|error| exception(py, &error))?;
        let options = RememberOptions::new(dtype, cast, names)?;
        let (files, notes) = interruptible(py, progress.as_ref(), |state| {
            let state = Arc::clone(state);
            let mut remember = options.apply(remember);
            if let Some(outputs) = outputs {
                remember = remember.filter(move |name| outputs.contains(name));
            }
            if let Some(renamed) = renamed.filter(|renamed| !renamed.is_empty()) {
                // the library's own function of names, which are compared as they were made
                remember = remember.rename(move |name| match renamed.get(name) {
                    Some(new) => new.clone(),
                    None => name.to_owned(),
                });
            }
            let remember = remember
                .native_rounding(native_rounding)
                .overwrite(overwrite)
                .code(code)
                .untie(untie)
                .for_output(&sharding)
                .threads(threads)
                .cancel(&state.cancel)
                .progress(move |progress| state.on_progress(progress));
            let plan = remember.plan()?;
            // before the sink exists: a refused checkpoint leaves no file
            plan.check()?;
            let mut sink = remember.safetensors(&out, sharding)?;
            remember.run(&plan, &mut sink)?;
            let files = sink.files().map(PathBuf::from).collect();
            Ok((files, plan.notes))
        })?;
        warn(py, notes)?;
        Ok(files)
    }
}
