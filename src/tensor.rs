//! Reading one tensor: its stored bytes, its logical bytes, a typed view.

mod byte_order;
mod element;
mod gather;
mod integrity;

use std::borrow::Cow;
use std::io::Read;

use crate::catalog::{ByteRange, Encoding, Layout, Packing, TensorInfo, quote};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Result};
use crate::limits::{over, zeroed};
use crate::progress::CHECK_INTERVAL;
use crate::source::range_reader::{Content, RangeReader};

use integrity::Checksum;

pub use element::Element;

/// Bytes that a streamed read hands out at a time: small enough for the second-level cache.
const CHUNK: usize = 256 << 10;

/// Progress of a streamed read. The callback cancels the read by returning an error.
enum Came<'b> {
    /// This many more stored bytes were read or verified; their values follow later.
    Stored(usize),
    /// These values.
    Values(&'b [u8]),
}

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

    /// The stored bytes as they lie in the file (inflated if deflated): borrowed where the file is
    /// mapped or in memory, else read.
    ///
    /// # Errors
    /// I/O, a member that is not what the directory says, or more than [`Limits::tensor_bytes`](crate::Limits::tensor_bytes).
    pub fn stored(&self) -> Result<Cow<'c, [u8]>> {
        self.placed(self.stored_span(&mut |_| Ok(())))
    }

    /// The logical values in C order, little endian, without gaps (block types: the blocks as stored).
    /// Borrowed where that is what lies in the mapped file, else made.
    ///
    /// # Errors
    /// As [`stored`](Self::stored); unsupported for sparse tensors and for those without data.
    pub fn bytes(&self) -> Result<Cow<'c, [u8]>> {
        self.bytes_watched(&mut |_, _| Ok(()))
    }

    /// As [`bytes`](Self::bytes), with a callback that can cancel.
    pub(crate) fn bytes_watched(&self, watch: Watcher<'_>) -> Result<Cow<'c, [u8]>> {
        if let Some(bytes) = self.placed(self.as_stored())? {
            return Ok(Cow::Borrowed(bytes));
        }
        let room = self
            .readable()
            .and_then(|()| self.bounded())
            .and_then(|()| self.allocate(self.info.nbytes()));
        let mut out = self.placed(room)?;
        self.read_watched(&mut out, watch)?;
        Ok(Cow::Owned(out))
    }

    /// Writes the logical values (see [`bytes`](Self::bytes)) into `out`, which must be
    /// [`nbytes`](TensorInfo::nbytes) long. Checksums of zip members are verified.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes).
    pub fn read_into(&self, out: &mut [u8]) -> Result<()> {
        self.read_watched(out, &mut |_, _| Ok(()))
    }

    /// As [`read_into`](Self::read_into), with a callback that can cancel.
    pub(crate) fn read_watched(&self, out: &mut [u8], watch: Watcher<'_>) -> Result<()> {
        if out.len() as u64 != self.info.nbytes() {
            return Err(Error::invalid_argument(format!(
                "tensor {} has {} bytes, but the buffer has {}",
                quote(&self.info.name),
                self.info.nbytes(),
                out.len()
            )));
        }
        let mut done = 0;
        let read = self.stream(|came| match came {
            Came::Stored(bytes) => watch(0, bytes),
            Came::Values(chunk) => {
                out[done..done + chunk.len()].copy_from_slice(chunk);
                done += chunk.len();
                watch(done as u64, chunk.len())
            }
        });
        self.placed(read)
    }

    /// Hands the logical values (see [`bytes`](Self::bytes)) to `each`, piece by piece in order, in
    /// bounded memory where they lie in C order. Checksums of zip members are verified at the end.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), and whatever `each` returns ([`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) to stop).
    pub fn chunks(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.placed(self.stream(|came| match came {
            // bytes are worth a call only once they are values
            Came::Stored(_) => Ok(()),
            Came::Values(chunk) => each(chunk),
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
        if dtype != T::DTYPE || (cfg!(target_endian = "big") && size_of::<T>() > 1) {
            return None;
        }
        bytemuck::try_cast_slice(self.as_stored().ok()??).ok()
    }

    /// Names the file in an error.
    fn placed<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| {
            self.checkpoint.place(
                e.in_format(self.checkpoint.catalog().format),
                self.info.bytes.file,
            )
        })
    }

    /// The mapped bytes, if they already are the logical values.
    fn as_stored(&self) -> Result<Option<&'c [u8]>> {
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
            let checksum = Checksum::new(self.checkpoint, self.info, bytes.len() as u64)?;
            checksum.of(bytes, each)
        });
        self.placed(proved)
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
                    "tensor {} lies outside the file",
                    quote(&self.info.name)
                ))
                .at(bytes.start)
            })
    }

    fn allocate(&self, len: u64) -> Result<Vec<u8>> {
        let allowed = self.checkpoint.limits().tensor_bytes;
        self.within(len, allowed)?;
        let refused = || self.over(len, allowed);
        let len = usize::try_from(len).map_err(|_| refused())?;
        zeroed(len).ok_or_else(refused)
    }

    fn within(&self, needed: u64, allowed: u64) -> Result<()> {
        if needed > allowed {
            Err(self.over(needed, allowed))
        } else {
            Ok(())
        }
    }

    #[cold]
    fn over(&self, needed: u64, allowed: u64) -> Error {
        let what = format!("tensor {}", quote(&self.info.name));
        over(needed, allowed, what, "tensor_bytes")
    }

    /// Bytes that the stored elements take once inflated.
    fn span_len(&self) -> u64 {
        match self.info.packing {
            Packing::Raw => self.info.bytes.len,
            Packing::Deflate { .. } => {
                gather::span(self.info).unwrap_or_else(|| self.info.nbytes())
            }
        }
    }

    fn stored_span(&self, each: &mut dyn FnMut(usize) -> Result<()>) -> Result<Cow<'c, [u8]>> {
        self.readable()?;
        if self.info.packing == Packing::Raw
            && let Some(map) = self.checkpoint.source(self.info.bytes.file).mapped()
        {
            integrity::verify(self.checkpoint, self.info)?;
            return self.slice(map).map(Cow::Borrowed);
        }
        let mut out = self.allocate(self.span_len())?;
        let (mut content, mut checksum) = self.content()?;
        for piece in out.chunks_mut(CHECK_INTERVAL) {
            self.fill(&mut content, piece)?;
            checksum.update(piece);
            each(piece.len())?;
        }
        checksum.finish()?;
        Ok(Cow::Owned(out))
    }

    fn readable(&self) -> Result<()> {
        let name = || quote(&self.info.name);
        match &self.info.layout {
            Layout::Absent => Err(Error::unsupported(format!(
                "tensor {} was saved without data (PyTorch's meta device)",
                name()
            ))),
            Layout::Sparse(_) => Err(Error::unsupported(format!(
                "tensor {} is sparse: read its parts, or make it dense before saving",
                name()
            ))),
            _ => Ok(()),
        }
    }

    /// The stored bytes as a reader that stands at the tensor's first, and their checksum so far.
    fn content(&self) -> Result<(Content<'c>, Checksum<'c>)> {
        integrity::verify(self.checkpoint, self.info)?;
        let bytes = self.info.bytes;
        let source = self.checkpoint.source(bytes.file);
        let mut checksum = Checksum::new(self.checkpoint, self.info, self.span_len())?;
        let deflated = self.info.packing != Packing::Raw;
        let mut content = Content::new(RangeReader::new(source, bytes.start, bytes.len), deflated);
        if let Packing::Deflate { mut skip, .. } = self.info.packing {
            let mut piece = [0; 4 << 10];
            while skip > 0 {
                let n = piece.len().min(usize::try_from(skip).unwrap_or(usize::MAX));
                self.fill(&mut content, &mut piece[..n])?;
                checksum.update(&piece[..n]);
                skip -= n as u64;
            }
        }
        Ok((content, checksum))
    }

    fn fill(&self, content: &mut Content<'_>, out: &mut [u8]) -> Result<()> {
        content
            .read_exact(out)
            .map_err(|e| match (content, e.kind()) {
                (
                    Content::Deflated(_),
                    std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidInput,
                ) => {
                    let what = format!(
                        "tensor {} does not inflate to its size: {e}",
                        quote(&self.info.name)
                    );
                    Error::malformed(what).at(self.info.bytes.start)
                }
                _ => Error::from(e).at(self.info.bytes.start),
            })
    }

    fn stream(&self, mut each: impl FnMut(Came<'_>) -> Result<()>) -> Result<()> {
        self.readable()?;
        self.bounded()?;
        let swap = byte_order::swap(self.info);
        let emit = |each: &mut dyn FnMut(Came<'_>) -> Result<()>, piece: &mut [u8]| {
            if let Some(units) = &swap {
                byte_order::reverse_numbers(piece, units);
            }
            gather::flip_signs(piece, self.info);
            each(Came::Values(piece))
        };
        if !matches!(self.info.layout, Layout::RowMajor) {
            let span = self.stored_span(&mut |bytes| each(Came::Stored(bytes)))?;
            if let Cow::Borrowed(span) = span {
                let checksum = Checksum::new(self.checkpoint, self.info, span.len() as u64)?;
                checksum.of(span, &mut |bytes| each(Came::Stored(bytes)))?;
            }
            return gather::in_order(self.info, &span, CHUNK, |piece| emit(&mut each, piece));
        }
        let (mut content, mut checksum) = self.content()?;
        let mut left = self.info.nbytes();
        let item = swap
            .as_ref()
            .map_or(16, |units| byte_order::item_bytes(units).max(1));
        let whole = (CHUNK / item).max(1) * item;
        let mut piece = vec![0; whole.min(usize::try_from(left).unwrap_or(usize::MAX))];
        while left > 0 {
            let n = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.fill(&mut content, &mut piece[..n])?;
            checksum.update(&piece[..n]);
            emit(&mut each, &mut piece[..n])?;
            left -= n as u64;
        }
        checksum.finish()
    }

    /// A view that repeats its storage, or a deflate stream, can describe far more than the file
    /// holds; going through it costs time even where it costs no memory.
    fn bounded(&self) -> Result<()> {
        let limits = self.checkpoint.limits();
        // 1032 is the most that deflate can expand
        let most = self
            .info
            .bytes
            .len
            .saturating_mul(1032)
            .max(1 << 30)
            .min(limits.tensor_bytes);
        let most = if limits.tensor_bytes == u64::MAX {
            u64::MAX
        } else {
            most
        };
        self.within(self.info.nbytes(), most)
    }
}
