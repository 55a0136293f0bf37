//! Arrays of F32 as one NPZ file, stored as `numpy.savez` stores them; the values are those of the other files.

use std::io::{self, Seek, Write};

use npyz::WriterBuilder;
use npyz::npz::NpzWriter;
use npyz::zip::{CompressionMethod, write::FileOptions};

use super::{Random, Spec};

pub fn write(to: &mut (impl Write + Seek), specs: &[Spec]) -> io::Result<()> {
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
