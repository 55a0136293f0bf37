//! The library's errors as exceptions: the classes of `anamnesis.errors`, or built-in ones where Python has them.

use std::io;

use anamnesis::{Error, ErrorKind, Note, Remedy};
use pyo3::exceptions::{PyKeyError, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The exception for an error.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let remedy = error.remedy().map(remedy);
    let text = match &remedy {
        Some(remedy) => format!("{error}\nhelp: {remedy}"),
        None => error.to_string(),
    };
    match error.kind() {
        ErrorKind::Io(e) => {
            let own = own_exception(e);
            return own.map_or_else(|| system_error(e, error, text), |own| own.clone_ref(py));
        }
        ErrorKind::InvalidArgument(_) => return PyValueError::new_err(text),
        // the name alone, as dictionaries raise it
        ErrorKind::NotFound { name, .. } => return PyKeyError::new_err(name.clone()),
        // the buffer pool's budget
        ErrorKind::Limit {
            limit: "budget", ..
        } => return PyMemoryError::new_err(text),
        // only where the caller raises another exception, which replaces this one
        ErrorKind::Cancelled => return PyRuntimeError::new_err(text),
        _ => {}
    }
    let class = class_of(py, error.kind().name());
    let made = class.and_then(|class| instance(py, &class, &text, error, remedy));
    // if the class cannot be imported, that error says more than none
    made.unwrap_or_else(|failed| failed)
}

/// The exception of a file object of Python that a read has failed with.
fn own_exception(error: &io::Error) -> Option<&PyErr> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = error.get_ref().map(|e| e as _);
    while let Some(error) = next {
        if let Some(own) = error.downcast_ref::<PyErr>() {
            return Some(own);
        }
        next = error.source();
    }
    None
}

/// The exception for a failure of a verb that is no error of the library.
pub(crate) fn exception_of_kind(py: Python<'_>, kind: &str, text: String) -> PyErr {
    match class_of(py, kind) {
        Ok(class) => class
            .call1((text,))
            .map_or_else(|failed| failed, PyErr::from_value),
        Err(failed) => failed,
    }
}

/// The class for a kind of error: `anamnesis.errors` has the table.
fn class_of<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyAny>> {
    let errors = py.import("anamnesis.errors")?;
    errors.call_method1("class_of", (kind,))
}

/// Whether an exception says that another process has replaced a checkpoint.
pub(crate) fn is_replaced(py: Python<'_>, error: &PyErr) -> bool {
    let class = py
        .import("anamnesis.errors")
        .and_then(|errors| errors.getattr("ReplacedError"));
    class.is_ok_and(|class| error.is_instance(py, &class))
}

/// An instance of a class of `anamnesis.errors`.
fn instance(
    py: Python<'_>,
    class: &Bound<'_, PyAny>,
    text: &str,
    error: &Error,
    remedy: Option<String>,
) -> PyResult<PyErr> {
    let path = error.path().map(std::path::Path::as_os_str);
    let place = (text, path, error.format(), error.offset(), remedy);
    let more = PyDict::new(py);
    match error.kind() {
        ErrorKind::Limit {
            what,
            needed,
            allowed,
            limit,
        } => {
            more.set_item("what", what)?;
            more.set_item("needed", needed)?;
            more.set_item("allowed", allowed)?;
            more.set_item("limit", limit)?;
        }
        ErrorKind::RefusedGlobal { module, name } => {
            more.set_item("module", module)?;
            more.set_item("name", name)?;
        }
        _ => {}
    }
    let made = class.call(
        place.into_pyobject(py)?.cast_into::<PyTuple>()?,
        Some(&more),
    )?;
    Ok(PyErr::from_value(made))
}

/// `OSError`, which becomes `FileNotFoundError` and the like by its number.
fn system_error(e: &io::Error, error: &Error, text: String) -> PyErr {
    let path = error.path().map(|path| path.display().to_string());
    let code = e.raw_os_error().or(match e.kind() {
        // errors that the library states itself have no number
        io::ErrorKind::NotFound => Some(2),
        io::ErrorKind::AlreadyExists => Some(17),
        io::ErrorKind::NotADirectory => Some(20),
        io::ErrorKind::IsADirectory => Some(21),
        io::ErrorKind::StorageFull => Some(28),
        _ => None,
    });
    match code {
        Some(code) => {
            // an error that has a kind alone has a text of Rust's
            let text = match e.get_ref() {
                None => io::Error::from_raw_os_error(code).to_string(),
                Some(own) => own.to_string(),
            };
            // Python states the number in front of the text
            let number = format!(" (os error {code})");
            let text = text.strip_suffix(&number).unwrap_or(&text).to_owned();
            PyOSError::new_err((code, text, path))
        }
        None => PyOSError::new_err(text),
    }
}

/// A note, with its remedy in the names of this package.
pub(crate) fn note(note: &Note) -> String {
    with_remedy(note.text(), note.remedy())
}

/// Why a weight is refused, with its remedy in the names of this package.
pub(crate) fn refusal(error: &Error) -> String {
    with_remedy(&error.to_string(), error.remedy())
}

fn with_remedy(text: &str, of: Option<Remedy>) -> String {
    match of {
        Some(of) => format!("{text}; {}", remedy(of)),
        None => text.to_owned(),
    }
}

/// The remedy for an error, in the names of this package.
fn remedy(remedy: Remedy) -> String {
    match remedy {
        Remedy::AllowOverwrite => "choose another path, or pass overwrite=True".to_owned(),
        Remedy::OpenFewerFiles => {
            "raise the limit of open files (`ulimit -n`), or pass a larger shard_size".to_owned()
        }
        Remedy::EnlargePoolBudget => "load fewer tensors, or pass borrow=True".to_owned(),
        Remedy::RaiseLimit { limit } => {
            format!("if the file is trusted, raise the limit: limits={{\"{limit}\": …}}")
        }
        Remedy::KeepOpaque => "to read the tensors around such objects without calling anything, pass opaque=True; load \
                               this file elsewhere only if you trust its author"
            .to_owned(),
        Remedy::Requantise => "quantise the model that it was made from".to_owned(),
        Remedy::GiveImportance => "give an importance matrix of this model, or choose a larger type".to_owned(),
        Remedy::AnotherType => "choose another type for it".to_owned(),
        Remedy::LeaveOut => "leave the tensor out with exclude= or filter=".to_owned(),
        Remedy::LeaveOutOrAssumePlain => {
            "leave all of its parts out with exclude=, or copy them as tensors of their own with assume=\"plain\"".to_owned()
        }
        Remedy::LeaveOutOrRename => {
            "leave the tensor out with exclude= or filter=, or rename it with rename=".to_owned()
        }
        Remedy::LeaveOutOrDequantise => {
            "dequantise it with remember(), or leave the tensor out with exclude= or filter=".to_owned()
        }
        Remedy::DequantiseShare => {
            "dequantise it with dtype=, or leave the weight out with exclude=".to_owned()
        }
        Remedy::ConvertAligned => "write another file with convert(…, alignment=…)".to_owned(),
        Remedy::CastOrWriteVoid => {
            "write items without a type with void=True, or cast it with convert(…, dtype=…, cast=True)".to_owned()
        }
        Remedy::LeaveOutOrReadItems => "leave the tensor out with exclude= or filter=, or read its items as a dtype of their width with void_as=".to_owned(),
        Remedy::ReadItems { dtype } => format!("if you know the dtype, pass void_as=[\"{dtype}\"]"),
        Remedy::RenameOrOpenAlone => "rename it, or open it alone with single=True".to_owned(),
        Remedy::NameAsTransformers => "naming=\"hf\" makes those of transformers".to_owned(),
        Remedy::RecoverEdit => "complete it with edit(path, recover=True)".to_owned(),
        Remedy::ConvertInstead => "write another file with convert(path, out)".to_owned(),
        Remedy::EditCopy => "give this name a file of its own with copy=True".to_owned(),
        Remedy::AllowRequests => "requests are sent unless HF_HUB_OFFLINE is set".to_owned(),
        Remedy::AssumePlain => {
            "convert it with the library that wrote it; to ignore what is not known, pass assume=\"plain\"".to_owned()
        }
        other => other.to_string(),
    }
}
