//! Sources made of a closure.

use std::io;

use super::Source;

/// A closure that reads bytes at an offset: the place to plug in an HTTP range client or an object store.
///
/// `read(offset, buf)` must fill all of `buf`, or fail. It is never called for bytes after `len`, and may be called from
/// several threads at once.
///
/// ```
/// use anamnesis::{Checkpoint, source::FnSource};
///
/// let file = std::fs::read("fixtures/safetensors/all_dtypes.safetensors")?;
/// let fetch = {
///     let file = file.clone(); // in a program: a URL and a client
///     move |offset: u64, buf: &mut [u8]| -> std::io::Result<()> {
///         let start = offset as usize;
///         buf.copy_from_slice(&file[start..start + buf.len()]);
///         Ok(())
///     }
/// };
/// let checkpoint = Checkpoint::from_source(FnSource::new(file.len() as u64, fetch))?;
/// assert_eq!(checkpoint.catalog().tensors().len(), 19);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FnSource<F> {
    len: u64,
    read: F,
}

impl<F: Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync> FnSource<F> {
    /// A source of `len` bytes that `read(offset, buf)` reads.
    pub fn new(len: u64, read: F) -> Self {
        Self { len, read }
    }
}

impl<F: Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync> Source for FnSource<F> {
    fn len(&self) -> Option<u64> {
        Some(self.len)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        // the closure must fill its buffer, so that it is never called for bytes beyond the end
        let rest = self.len.saturating_sub(start);
        let n = usize::try_from(rest).map_or(buf.len(), |rest| rest.min(buf.len()));
        if n > 0 {
            (self.read)(start, &mut buf[..n])?;
        }
        Ok(n)
    }
}
