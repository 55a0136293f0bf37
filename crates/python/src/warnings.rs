//! Warnings of Python.

use pyo3::prelude::*;

/// Warns of each text, at the code that has called this package.
pub(crate) fn warn(py: Python<'_>, texts: Vec<String>) -> PyResult<()> {
    if texts.is_empty() {
        return Ok(());
    }
    let level = level_of_caller(py)?;
    let warnings = py.import("warnings")?;
    for text in texts {
        warnings.call_method1("warn", (text, py.None(), level))?;
    }
    Ok(())
}

/// The `stacklevel` of a warning about the code that has called this package.
fn level_of_caller(py: Python<'_>) -> PyResult<u32> {
    const MOST: u32 = 16;
    let sys = py.import("sys")?;
    for level in 0..MOST {
        // an error: there is no further frame
        let Ok(frame) = sys.call_method1("_getframe", (level,)) else {
            break;
        };
        let module = frame
            .getattr("f_globals")?
            .call_method1("get", ("__name__", ""))?;
        if !module.extract::<String>()?.starts_with("anamnesis") {
            return Ok(level + 1);
        }
    }
    Ok(1)
}
