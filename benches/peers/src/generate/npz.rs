//! Writes F32 arrays as an NPZ file, uncompressed as `numpy.savez` does, with the values of the safetensors file.

use std::io::{self, Seek, Write};

use npyz::WriterBuilder;
use npyz::npz::NpzWriter;
use npyz::zip::{CompressionMethod, write::FileOptions};

use super::{Random, TensorSpec};

pub fn write(to: &mut (impl Write + Seek), specs: &[TensorSpec]) -> io::Result<()> {
    let mut random = Random(1);
    let mut archive = NpzWriter::new(to);
    for spec in specs {
        let options = FileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .large_file(true);
        let array = archive.array(&spec.name, options)?;
        let mut array = array.default_dtype().shape(&spec.shape).begin_nd()?;
        for _ in 0..spec.elements() {
            array.push(&random.weight())?;
        }
        array.finish()?;
    }
    archive
        .zip_writer()
        .finish()
        .map(drop)
        .map_err(io::Error::other)
}
