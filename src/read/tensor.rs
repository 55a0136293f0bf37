//! Reading one tensor: its stored bytes, its logical bytes, or a typed view of them.

mod byte_order;
mod chunks;
mod element;
mod gather;
mod integrity;
mod part;
mod stream;

use std::borrow::Cow;

use crate::base::error::{Error, Result};
use crate::read::catalog::{ByteRange, Encoding, Layout, Packing, TensorInfo, quote};
use crate::read::checkpoint::Checkpoint;
use crate::read::slice::{SelectedBytes, SliceLayout};

use integrity::Checksum;
use stream::StreamEvent;

pub use element::Element;
pub(crate) use integrity::PieceChecksum;

/// Receives the number of value bytes that are complete and the bytes processed since the last call; an error cancels.
pub(crate) type Watcher<'w> = &'w mut dyn FnMut(u64, usize) -> Result<()>;

/// A tensor of an open checkpoint.
///
/// ```
/// use anamnesis::Checkpoint;
///
/// let checkpoint = Checkpoint::open("fixtures/npy/be_c16.npy")?; // big-endian complex numbers
/// let tensor = checkpoint.tensors().next().expect("one array");
/// assert_eq!(tensor.info().encoding.name(), "C128");
/// let little_endian = tensor.bytes()?;
/// assert_eq!(little_endian.len() as u64, tensor.info().nbytes());
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'c> {
    checkpoint: &'c Checkpoint,
    info: &'c TensorInfo,
}

impl Checkpoint {
    /// The tensor with this name, ready to be read.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.catalog().get(name).map(|info| Tensor {
            checkpoint: self,
            info,
        })
    }

    /// The tensor with this number in the catalog.
    /// The error for a name that no tensor has: the reason, where an entry of this name is refused.
    pub(crate) fn no_tensor(&self, name: &str) -> Error {
        let refused = self.catalog().refused.iter();
        match refused.into_iter().find(|refused| *refused.name == *name) {
            Some(refused) => Error::unsupported(format!(
                "{} cannot be read: {}",
                quote(name),
                refused.reason
            )),
            None => Error::not_found("tensor", name),
        }
    }

    pub(crate) fn tensor_at(&self, number: usize) -> Tensor<'_> {
        Tensor {
            checkpoint: self,
            info: &self.catalog().tensors()[number],
        }
    }

    /// All tensors in file order, ready to be read.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.catalog().tensors().iter().map(|info| Tensor {
            checkpoint: self,
            info,
        })
    }

    /// The tensor with this description: one of the catalog's, or one inside it.
    pub(crate) fn tensor_of<'c>(&'c self, info: &'c TensorInfo) -> Tensor<'c> {
        Tensor {
            checkpoint: self,
            info,
        }
    }
}

impl<'c> Tensor<'c> {
    /// Its description.
    pub fn info(&self) -> &'c TensorInfo {
        self.info
    }

    /// The bytes in stored order (inflated if deflated): borrowed if the file is mapped or in memory, else read.
    ///
    /// # Errors
    /// I/O, a member that is not what the directory says, or more than [`Limits::tensor_bytes`](crate::Limits::tensor_bytes).
    pub fn stored(&self) -> Result<Cow<'c, [u8]>> {
        self.in_file(self.stored_span(&mut |_| Ok(())))
    }

    /// The logical values in C order, little endian, without gaps (block types: the blocks as stored). Borrowed if the
    /// mapped bytes already have this form, else copied.
    ///
    /// # Errors
    /// The errors of [`stored`](Self::stored); unsupported for sparse tensors and for tensors without data.
    pub fn bytes(&self) -> Result<Cow<'c, [u8]>> {
        self.bytes_watched(&mut |_, _| Ok(()))
    }

    /// Like [`bytes`](Self::bytes), with a callback that can cancel.
    pub(crate) fn bytes_watched(&self, watch: Watcher<'_>) -> Result<Cow<'c, [u8]>> {
        match self.in_file(self.mapped_values())? {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => self.owned_bytes(watch).map(Cow::Owned),
        }
    }

    /// Like [`bytes`](Self::bytes), read even where the file is mapped. Touching one page of a map reads all that the kernel
    /// reads ahead around it, which is up to megabytes: for the small tensors of a plan that is the whole file.
    pub(crate) fn small_bytes(&self) -> Result<Vec<u8>> {
        self.owned_bytes(&mut |_, _| Ok(()))
    }

    fn owned_bytes(&self, watch: Watcher<'_>) -> Result<Vec<u8>> {
        let buffer = self
            .readable()
            // refused before memory is requested: the bound is lower than the limit of allocation
            .and_then(|()| self.bounded())
            .and_then(|()| self.allocate(self.info.nbytes()));
        let mut out = self.in_file(buffer)?;
        self.read_watched(&mut out, watch)?;
        Ok(out)
    }

    /// Writes the logical values (see [`bytes`](Self::bytes)) into `out`, which must be
    /// [`nbytes`](TensorInfo::nbytes) long. Checksums of zip members are verified.
    ///
    /// # Errors
    /// The errors of [`bytes`](Self::bytes).
    pub fn read_into(&self, out: &mut [u8]) -> Result<()> {
        self.read_watched(out, &mut |_, _| Ok(()))
    }

    /// Like [`read_into`](Self::read_into), with a callback that can cancel.
    pub(crate) fn read_watched(&self, out: &mut [u8], watch: Watcher<'_>) -> Result<()> {
        // checked before the first byte is read; a longer buffer would keep old bytes at its end
        if out.len() as u64 != self.info.nbytes() {
            return Err(Error::invalid_argument(format!(
                "tensor {} has {} bytes, but the buffer has {}",
                quote(&self.info.name),
                self.info.nbytes(),
                out.len()
            )));
        }
        let mut done = 0;
        let each = &mut |chunk: &[u8]| {
            out[done..done + chunk.len()].copy_from_slice(chunk);
            done += chunk.len();
        };
        self.chunks_watched(each, watch)
    }

    /// Like [`chunks`](Self::chunks), with a callback that can cancel.
    pub(crate) fn chunks_watched(
        &self,
        each: &mut dyn FnMut(&[u8]),
        watch: Watcher<'_>,
    ) -> Result<()> {
        let mut done = 0;
        let read = self.stream(&mut |event| match event {
            StreamEvent::Stored(bytes) => watch(done, bytes),
            StreamEvent::Values(chunk) => {
                each(chunk);
                done += chunk.len() as u64;
                watch(done, chunk.len())
            }
        });
        self.in_file(read)
    }

    /// Writes a slice of the logical values into `out`, which has its length. All of the tensor is read, and verified as by
    /// [`read_into`](Self::read_into); no more than the slice is kept in memory if they are stored in C order.
    pub(crate) fn read_slice(
        &self,
        layout: &SliceLayout,
        mut out: &mut [u8],
        watch: Watcher<'_>,
    ) -> Result<()> {
        let (mut selected, mut done) = (SelectedBytes::new(layout), 0);
        let read = self.stream(&mut |event| match event {
            StreamEvent::Stored(bytes) => watch(0, bytes),
            StreamEvent::Values(chunk) => {
                selected.of(chunk, |run| {
                    let to = out
                        .split_off_mut(..run.len())
                        .expect("as long as the slice");
                    to.copy_from_slice(run);
                    done += run.len() as u64;
                    Ok(())
                })?;
                watch(done, chunk.len())
            }
        });
        self.in_file(read)
    }

    /// Calls `each` with the logical values (see [`bytes`](Self::bytes)), piece by piece in order; in bounded memory if
    /// they are stored in C order. Checksums of zip members are verified at the end.
    ///
    /// # Errors
    /// The errors of [`bytes`](Self::bytes), and whatever `each` returns
    /// ([`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) to stop).
    pub fn chunks(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.in_file(self.stream(&mut |event| match event {
            // stored bytes that are not values yet concern no consumer of values
            StreamEvent::Stored(_) => Ok(()),
            StreamEvent::Values(chunk) => each(chunk),
        }))
    }

    /// The elements as a slice of the mapped file: `None` if they are not stored as plain,
    /// contiguous, native-endian, aligned `T`.
    ///
    /// ```
    /// # let checkpoint = anamnesis::Checkpoint::open("fixtures/npy/v1.npy")?;
    /// # let tensor = checkpoint.tensors().next().unwrap();
    /// if let Some(values) = tensor.view::<f32>() {
    ///     println!("{:?}", &values[..values.len().min(4)]);
    /// }
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    pub fn view<T: Element>(&self) -> Option<&'c [T]> {
        let Encoding::Plain(dtype) = self.info.encoding else {
            return None;
        };
        // the bytes are little endian: on a big-endian machine only single bytes can be viewed without swapping
        if dtype != T::DTYPE || (cfg!(target_endian = "big") && size_of::<T>() > 1) {
            return None;
        }
        // fails if the bytes are not aligned to their elements, which no format guarantees for every tensor
        bytemuck::try_cast_slice(self.mapped_values().ok()??).ok()
    }

    pub(crate) fn checkpoint(&self) -> &'c Checkpoint {
        self.checkpoint
    }

    /// Adds the file and format to an error.
    fn in_file<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| {
            self.checkpoint.place(
                e.in_format(self.checkpoint.catalog().format),
                self.info.bytes.file,
            )
        })
    }

    /// The mapped bytes, if they already are the logical values.
    fn mapped_values(&self) -> Result<Option<&'c [u8]>> {
        if !self.is_stored_as_values() {
            return Ok(None);
        }
        let Some(map) = self.checkpoint.source(self.info.bytes.file).mapped() else {
            return Ok(None);
        };
        integrity::verify(self.checkpoint, self.info)?;
        self.slice(map).map(Some)
    }

    /// Whether the stored bytes are the logical values.
    pub(crate) fn is_stored_as_values(&self) -> bool {
        let plain = self.info.packing == Packing::Raw && self.info.layout == Layout::RowMajor;
        plain
            // bytes that need no change can be borrowed, shared and read in any piece
            && byte_order::swap(self.info).is_none()
            && self.info.view_flags() == Default::default()
    }

    /// Whether its bytes are verified before they are used.
    pub(crate) fn has_integrity_check(&self) -> bool {
        self.info.member.is_some()
    }

    /// Reports the byte ranges that reading the complete tensor touches; members of archives as a whole.
    pub(crate) fn reads(&self, each: &mut dyn FnMut(ByteRange, Option<u32>)) {
        self.checkpoint.catalog().stored(self.info, each);
    }

    /// The byte range in front of its bytes that its integrity check reads.
    pub(crate) fn check_bytes(&self) -> Option<ByteRange> {
        integrity::front(self.checkpoint, self.info)
    }

    /// Verifies stored bytes that a loader has read: the header in front of them and their checksum. The checksum of
    /// borrowed bytes is skipped, as in [`bytes`](Self::bytes), since computing it would read them. `each` receives the
    /// number of bytes of each step and cancels by returning an error.
    pub(crate) fn verify(
        &self,
        bytes: &[u8],
        borrowed: bool,
        each: &mut dyn FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let proved = integrity::verify(self.checkpoint, self.info).and_then(|()| {
            if borrowed {
                return Ok(());
            }
            // after the header of the member: its offset decides which bytes the checksum covers
            let checksum = Checksum::new(self.checkpoint, self.info, bytes.len() as u64)?;
            checksum.of(bytes, each)
        });
        self.in_file(proved)
    }

    /// Whether its bytes have a checksum that covers all of them.
    pub(crate) fn has_checksum(&self) -> bool {
        integrity::has_checksum(self.checkpoint, self.info)
    }

    /// Like [`verify`](Self::verify), for bytes that lie elsewhere, with the checksums of pieces of them, in order, if the
    /// tensor [has one](Self::has_checksum).
    pub(crate) fn verify_pieces<'p>(
        &self,
        pieces: impl Iterator<Item = &'p PieceChecksum>,
    ) -> Result<()> {
        let proved = integrity::verify(self.checkpoint, self.info).and_then(|()| {
            let mut checksum = Checksum::new(self.checkpoint, self.info, self.info.bytes.len)?;
            pieces.for_each(|piece| checksum.combine(piece));
            checksum.finish()
        });
        self.in_file(proved)
    }

    fn slice<'m>(&self, map: &'m [u8]) -> Result<&'m [u8]> {
        let bytes = self.info.bytes;
        let range = usize::try_from(bytes.start)
            .ok()
            .zip(usize::try_from(bytes.end()).ok());
        range
            .and_then(|(from, to)| map.get(from..to))
            .ok_or_else(|| {
                Error::malformed(format!(
                    "tensor {} is outside of the file",
                    quote(&self.info.name)
                ))
                .at(bytes.start)
            })
    }
}
