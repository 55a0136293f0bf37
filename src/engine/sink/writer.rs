//! Writing tensors that a program makes itself, one by one.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

use crate::base::error::{Error, Result};
use crate::plan::TensorSpec;
use crate::read::catalog::quote;

use super::{FileSink, Sink};

/// Bytes that a reader fills at a time.
const PIECE: usize = 1 << 20;

/// Writes tensors that a program makes itself to the files of a [`FileSink`]: any container, one file or shards, a local path or
/// a bucket. No more than the bytes of one call are in memory.
///
/// Names, shapes and dtypes are given first, as they are in front of the data. The bytes follow in any order; to a bucket
/// in the [`order`](Self::order) of the files, which is the fastest everywhere. The files appear when [`finish`](Self::finish) has
/// returned; a writer that is dropped before leaves nothing.
///
/// ```
/// use anamnesis::catalog::Shape;
/// use anamnesis::plan::TensorSpec;
/// use anamnesis::sink::{FileSink, GGUF, Sharding, TensorWriter};
/// use anamnesis::{Checkpoint, Dtype};
///
/// # let path = std::env::temp_dir().join(format!("anamnesis-writer-{}.gguf", std::process::id()));
/// let sink = FileSink::new(&path, Sharding::SingleFile).container(&GGUF);
/// let tensor = |name: &str, shape: &[u64]| TensorSpec::new(name, Shape::from_slice(shape), Dtype::F32);
/// let mut writer = TensorWriter::begin(sink, vec![tensor("w", &[2, 2]), tensor("b", &[2])])?;
/// // little endian, in C order; in as many calls as the program likes
/// writer.write("b", &[0; 8])?;
/// writer.write_from("w", &mut &[0; 16][..])?;
/// writer.finish()?;
/// assert_eq!(Checkpoint::open(&path)?.tensors().len(), 2);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorWriter {
    sink: FileSink,
    tensors: Vec<WrittenTensor>,
    /// Indices of tensors by name.
    numbers: HashMap<Box<str>, usize>,
}

#[derive(Debug)]
struct WrittenTensor {
    name: Box<str>,
    nbytes: u64,
    written: u64,
}

impl TensorWriter {
    /// Begins to write these tensors.
    ///
    /// # Errors
    /// A name that is there twice, a name, shape or dtype that the container does not have, and the errors of the file system.
    pub fn begin(mut sink: FileSink, tensors: Vec<TensorSpec>) -> Result<Self> {
        let mut numbers = HashMap::with_capacity(tensors.len());
        let mut written = Vec::with_capacity(tensors.len());
        for (number, tensor) in tensors.iter().enumerate() {
            if numbers.insert(tensor.name.clone(), number).is_some() {
                return Err(wrong(&tensor.name, "its name is there twice"));
            }
            let Some(nbytes) = tensor.nbytes() else {
                return Err(wrong(&tensor.name, "its shape has more than 2⁶⁴ bytes"));
            };
            written.push(WrittenTensor {
                name: tensor.name.clone(),
                nbytes,
                written: 0,
            });
        }
        if let Err(error) = sink.begin(&tensors) {
            return Err(sink.fail(error));
        }
        Ok(Self {
            sink,
            tensors: written,
            numbers,
        })
    }

    /// The names in the order of their bytes in the files.
    pub fn order(&self) -> impl Iterator<Item = &str> {
        let order = self.sink.file_order();
        order.into_iter().map(|number| &*self.tensors[number].name)
    }

    /// Writes bytes of a tensor, behind those that were written before.
    ///
    /// # Errors
    /// An unknown name, more bytes than the tensor has, and the errors of writing; after one of the latter the writer is of no use.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let number = self.number(name)?;
        let tensor = &mut self.tensors[number];
        let missing = tensor.nbytes - tensor.written;
        if bytes.len() as u64 > missing {
            let what = format!(
                "{missing} bytes are missing, and {} were given",
                bytes.len()
            );
            return Err(wrong(name, &what));
        }
        if let Err(error) = self.sink.put(number, tensor.written, bytes) {
            return Err(self.sink.fail(error));
        }
        tensor.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes the rest of a tensor from a reader, of which it takes as many bytes as are missing.
    ///
    /// # Errors
    /// A reader that ends before, and the errors of [`write`](Self::write).
    pub fn write_from(&mut self, name: &str, reader: &mut dyn Read) -> Result<()> {
        let tensor = &self.tensors[self.number(name)?];
        let mut missing = tensor.nbytes - tensor.written;
        let mut piece = vec![0; PIECE.min(usize::try_from(missing).unwrap_or(PIECE))];
        while missing > 0 {
            let len = piece.len().min(usize::try_from(missing).unwrap_or(PIECE));
            let read = match reader.read(&mut piece[..len]) {
                Ok(0) => {
                    let what = format!("the reader ended with {missing} bytes missing");
                    return Err(wrong(name, &what));
                }
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::from(error)),
            };
            self.write(name, &piece[..read])?;
            missing -= read as u64;
        }
        Ok(())
    }

    /// Gives the files their names, and returns their paths.
    ///
    /// # Errors
    /// A tensor of which bytes are missing, and the errors of the file system. Nothing is left then.
    pub fn finish(mut self) -> Result<Vec<PathBuf>> {
        let is_incomplete = |tensor: &&WrittenTensor| tensor.written < tensor.nbytes;
        let ended = match self.tensors.iter().find(is_incomplete) {
            Some(tensor) => {
                let (written, nbytes) = (tensor.written, tensor.nbytes);
                let what = format!("{written} of {nbytes} bytes were written");
                Err(wrong(&tensor.name, &what))
            }
            None => self.sink.end(),
        };
        match ended {
            Ok(()) => Ok(self.sink.files().map(Into::into).collect()),
            Err(error) => Err(self.sink.fail(error)),
        }
    }

    fn number(&self, name: &str) -> Result<usize> {
        let number = self.numbers.get(name).copied();
        number.ok_or_else(|| Error::not_found("tensor", name))
    }
}

#[cold]
fn wrong(name: &str, what: &str) -> Error {
    Error::invalid_argument(format!("tensor {}: {what}", quote(name)))
}
