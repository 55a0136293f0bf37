//! Tensors as they are stored, in files of any container.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anamnesis::quantise::ImportanceMatrix;
use anamnesis::sink::{Container, GGUF, HeaderValue};
use anamnesis::template::parallel::Rules;
use anamnesis::{FileType, OpenOptions, OutputDtype, Rename};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::checkpoint::CoreCheckpoint;
use crate::errors::exception;
use crate::remember::dtype_of;
use crate::run::interruptible;

/// Several checkpoints as one.
#[pyfunction]
pub(crate) fn union(py: Python<'_>, sources: Vec<OsString>) -> PyResult<CoreCheckpoint> {
    let inner = interruptible(py, None, |state| {
        let options = OpenOptions::new().cancel(&state.cancel);
        options.open_union(&sources)
    })?;
    Ok(CoreCheckpoint {
        inner: Arc::new(inner),
    })
}

/// The container of this name; `None` where the path decides.
pub(crate) fn container_named(name: Option<&str>) -> PyResult<Option<&'static Container>> {
    let Some(name) = name else {
        return Ok(None);
    };
    let mut all = Container::all();
    let found = all.find(|container| container.name == name);
    found.map(Some).ok_or_else(|| {
        let known: Vec<_> = Container::all().map(|container| container.name).collect();
        PyValueError::new_err(format!("container {name:?}: one of {}", known.join(", ")))
    })
}

#[pymethods]
impl CoreCheckpoint {
    /// Copies tensors as they are stored. `selected` and `excluded` are names of tensors and weights. Returns the files.
    #[pyo3(signature = (out, *, selected = None, excluded = None, dtype = "stored", cast = false, rename = Vec::new(),
                        container = None, metadata = Vec::new(), void = false, alignment = None, tp = None,
                        shard_size = None, overwrite = false, code = false, untie = false, threads = 0, progress = None))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // keywords of Python
    fn convert_to(
        &self,
        py: Python<'_>,
        out: PathBuf,
        selected: Option<HashSet<String>>,
        excluded: Option<HashSet<String>>,
        dtype: &str,
        cast: bool,
        rename: Vec<(String, String)>,
        container: Option<&str>,
        metadata: Vec<(String, Option<String>)>,
        void: bool,
        alignment: Option<u32>,
        tp: Option<(u32, u32)>,
        shard_size: Option<u64>,
        overwrite: bool,
        code: bool,
        untie: bool,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<PathBuf>> {
        let dtype = match dtype {
            "stored" => OutputDtype::Stored,
            other => dtype_of(other)?,
        };
        let mut convert = anamnesis::convert(Arc::clone(&self.inner))
            .dtype(dtype)
            .cast(cast)
            .void(void)
            .overwrite(overwrite)
            .code(code)
            .threads(threads);
        if let Some(names) = selected {
            convert = convert.filter(move |name| names.contains(name));
        }
        if let Some(names) = excluded {
            convert = convert.exclude(move |name| names.contains(name));
        }
        if let Some(container) = container_named(container)? {
            convert = convert.container(container);
        }
        if let Some(alignment) = alignment {
            convert = convert.alignment(alignment);
        }
        if let Some((rank, world)) = tp {
            if rank >= world {
                let text = format!("tp: {rank} is no rank of {world} workers");
                return Err(PyValueError::new_err(text));
            }
            convert = convert.tensor_parallel(rank, world, &Rules::default());
        }
        for (from, to) in &rename {
            convert = convert.rename(from, to);
        }
        let mut set = Vec::new();
        for (key, value) in &metadata {
            let Some(value) = value else {
                convert = convert.drop_metadata(key);
                continue;
            };
            let (key, value) = HeaderValue::of_key(key, value).map_err(|e| exception(py, &e))?;
            set.push((key.to_owned(), value.clone()));
            convert = convert.metadata(key, value);
        }
        let sharding = convert.sharding(&out, shard_size);
        let sharding = sharding.map_err(|error| exception(py, &error))?;
        if *convert.container_for(&out, &sharding) == GGUF {
            let known = self.inner.catalog().metadata();
            let new = set.iter().filter(|(key, _)| known.get(key).is_none());
            for (key, value) in new {
                value.check_new_key(key).map_err(|e| exception(py, &e))?;
            }
        }
        let convert = convert.untie(untie).for_output(&sharding);
        interruptible(py, progress.as_ref(), |state| {
            let state = Arc::clone(state);
            let convert = convert
                .cancel(&state.cancel)
                .progress(move |progress| state.on_progress(progress));
            let plan = convert.plan()?;
            // before the sink exists: a refused checkpoint leaves no file
            plan.check()?;
            let mut sink = convert.sink(&out, sharding)?;
            convert.run(&plan, &mut sink)?;
            Ok(sink.files().map(PathBuf::from).collect())
        })
    }

    /// Makes a GGUF of a file type. Returns the files.
    #[pyo3(signature = (out, file_type, *, imatrix = None, pure = false, tensor_types = Vec::new(), requantise = false, via = None,
                        tokenizer_pre = None, overwrite = false, threads = 0, progress = None))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // keywords of Python
    fn quantise_to(
        &self,
        py: Python<'_>,
        out: PathBuf,
        file_type: &str,
        imatrix: Option<PathBuf>,
        pure: bool,
        tensor_types: Vec<(String, String)>,
        requantise: bool,
        via: Option<&str>,
        tokenizer_pre: Option<&str>,
        overwrite: bool,
        threads: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Vec<PathBuf>> {
        let fails = |error| exception(py, &error);
        let kind = match file_type {
            "auto" | "copy" => None,
            name => Some(file_type_named(name)?),
        };
        let mut quantise = anamnesis::quantise(Arc::clone(&self.inner), kind)
            .pure(pure)
            .requantise(requantise)
            .overwrite(overwrite)
            .threads(threads);
        if let Some(path) = imatrix {
            quantise = quantise.importance(ImportanceMatrix::read(path).map_err(fails)?);
        }
        for (pattern, kind) in &tensor_types {
            quantise = quantise.type_of(pattern, kind).map_err(fails)?;
        }
        if let Some(via) = via {
            let OutputDtype::Of(dtype) = dtype_of(via)? else {
                return Err(PyValueError::new_err(format!("via: {via} is no float")));
            };
            quantise = quantise.via(dtype).map_err(fails)?;
        }
        if let Some(name) = tokenizer_pre {
            quantise = quantise.pre_tokenizer(name);
        }
        interruptible(py, progress.as_ref(), |state| {
            let state = Arc::clone(state);
            let quantise = quantise
                .cancel(&state.cancel)
                .progress(move |progress| state.on_progress(progress));
            let plan = quantise.plan()?;
            plan.check()?;
            let mut sink = quantise.sink(&out)?;
            quantise.run(&plan, &mut sink)?;
            Ok(sink.files().map(PathBuf::from).collect())
        })
    }
}

/// The file type of this name.
fn file_type_named(name: &str) -> PyResult<&'static FileType> {
    FileType::from_name(name).ok_or_else(|| {
        let known: Vec<_> = FileType::all().iter().map(|known| known.name).collect();
        PyValueError::new_err(format!(
            "type {name:?}: one of {}, auto, copy",
            known.join(", ")
        ))
    })
}

/// The new names of tensors, by renames that are applied one after the other.
#[pyfunction]
pub(crate) fn renamed(
    py: Python<'_>,
    names: Vec<String>,
    rename: Vec<(String, String)>,
) -> PyResult<Vec<String>> {
    let rules: Vec<_> = rename
        .iter()
        .map(|(from, to)| Rename::new(from, to))
        .collect();
    Rename::apply_all(&rules, &names).map_err(|error| exception(py, &error))
}
