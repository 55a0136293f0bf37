//! The Python package over anamnesis. `anamnesis._core` is private: the classes of `python/anamnesis` are the interface.
//!
//! Each file here holds one idea: [`checkpoint`] what is opened and described, [`reader`] from which objects, [`load`] and [`remember`] what is read,
//! [`convert`] what is copied, [`writer`] what is written, [`list`] what is found, [`parts`] which parts of it, [`objects`] the object of a file of `torch.save`, [`shards`] one conversion by many processes,
//! [`weights`] weights that are dequantised one at a time, [`template`] which worker reads what, [`memory`] bytes that Python
//! writes to, [`elements`] the same with format and shape, [`dlpack`] the same for frameworks, [`run`] calls without the interpreter lock that
//! can be interrupted, [`edit`] changes of files where they are, [`errors`] the exceptions, [`json`] JSON as objects, [`command`] the command,
//! [`answers`] the answers of its verbs.

mod answers;
mod checkpoint;
mod command;
mod convert;
mod dlpack;
mod edit;
mod elements;
mod errors;
mod json;
mod list;
mod load;
mod memory;
mod objects;
mod parts;
mod reader;
mod remember;
mod run;
mod shards;
mod template;
mod warnings;
mod weights;
mod writer;

use pyo3::prelude::*;

// without the lock of the interpreter: all classes are frozen, and what they share is behind locks of the library
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<checkpoint::CoreCheckpoint>()?;
    module.add_class::<memory::TensorMemory>()?;
    module.add_class::<elements::TensorElements>()?;
    module.add_class::<load::CoreStream>()?;
    module.add_class::<shards::CoreDirectory>()?;
    module.add_class::<template::CoreTemplate>()?;
    module.add_class::<weights::CoreWeights>()?;
    module.add_class::<writer::CoreWriter>()?;
    module.add_function(wrap_pyfunction!(convert::union, module)?)?;
    module.add_function(wrap_pyfunction!(list::ls, module)?)?;
    module.add_function(wrap_pyfunction!(template::load_template, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::open, module)?)?;
    module.add_function(wrap_pyfunction!(memory::pool_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(memory::trim, module)?)?;
    module.add_function(wrap_pyfunction!(memory::new_memory, module)?)?;
    module.add_function(wrap_pyfunction!(elements::elements, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::is_url, module)?)?;
    module.add_function(wrap_pyfunction!(checkpoint::shown_path, module)?)?;
    module.add_function(wrap_pyfunction!(dlpack::dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(objects::objects, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(edit::edit, module)?)?;
    module.add_function(wrap_pyfunction!(edit::has_type, module)?)?;
    module.add_function(wrap_pyfunction!(answers::answer, module)?)?;
    module.add_function(wrap_pyfunction!(answers::digests, module)?)?;
    module.add_function(wrap_pyfunction!(convert::renamed, module)?)?;
    module.add_function(wrap_pyfunction!(run::again, module)?)?;
    module.add_function(wrap_pyfunction!(writer::safetensors_header, module)?)?;
    Ok(())
}
