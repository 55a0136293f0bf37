//! Loaded tensors.

use std::sync::{Arc, OnceLock};

use zeropool::{BufferPart, DividedBuffer};

use super::{Chunk, IoReport, LoaderChoice};
use crate::base::error::Result;
use crate::base::kernel::Dtype;
use crate::read::catalog::{Encoding, Shape, TensorInfo};
use crate::read::checkpoint::Checkpoint;
use crate::read::slice::TensorSlice;
use crate::read::tensor::Element;

/// Tensors in memory, in the order in which they were loaded.
#[derive(Clone, Debug)]
pub struct Loaded<'c> {
    tensors: Vec<LoadedTensor<'c>>,
    /// The indices of the tensors in the order of their names. Built by the first look-up.
    by_name: OnceLock<Box<[usize]>>,
    outcome: LoadOutcome,
}

/// How tensors were loaded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadOutcome {
    /// The loader, and the reason why it was chosen.
    pub choice: LoaderChoice,
    /// How the loader really read, which may differ from what it was configured to do; `None` if it does not report it.
    pub report: Option<IoReport>,
}

/// A tensor in memory.
#[derive(Clone, Debug)]
pub struct LoadedTensor<'c> {
    info: InfoHandle<'c>,
    slice: TensorSlice,
    shape: Shape,
    bytes: Chunk<'c>,
}

/// The description of a tensor.
#[derive(Clone, Debug)]
enum InfoHandle<'c> {
    Borrowed(&'c TensorInfo),
    /// That with this index in the catalog.
    Shared(Arc<Checkpoint>, usize),
}

/// An iterator over tensors that are loaded one by one, while the next ones are read. See
/// [`Load::stream`](super::Load::stream).
pub struct TensorStream<'r, 'c> {
    next: Next<'r, 'c>,
    choice: &'r LoaderChoice,
    report: &'r dyn Fn() -> Option<IoReport>,
}

/// The function that loads the next tensor of a stream.
pub(super) type Next<'r, 'c> = &'r mut dyn FnMut() -> Option<Result<LoadedTensor<'c>>>;

impl<'c> Loaded<'c> {
    pub(super) fn new(tensors: Vec<LoadedTensor<'c>>, outcome: LoadOutcome) -> Self {
        Self {
            tensors,
            by_name: OnceLock::new(),
            outcome,
        }
    }

    /// The same tensors without a lifetime.
    pub(super) fn shared(self, checkpoint: &Arc<Checkpoint>) -> Loaded<'static> {
        let tensors = self.tensors.into_iter();
        Loaded {
            tensors: tensors.map(|tensor| tensor.shared(checkpoint)).collect(),
            by_name: self.by_name,
            outcome: self.outcome,
        }
    }

    /// The tensors, in the order in which they were loaded.
    pub fn tensors(&self) -> &[LoadedTensor<'c>] {
        &self.tensors
    }

    /// The tensor with this name; of several slices the first.
    pub fn get(&self, name: &str) -> Option<&LoadedTensor<'c>> {
        // most callers iterate, so the order of names is made by the first look-up only
        let by_name = self.by_name.get_or_init(|| {
            let mut by_name: Box<[usize]> = (0..self.tensors.len()).collect();
            by_name.sort_by_key(|&i| self.tensors[i].name());
            by_name
        });
        // the first of equal names, since several slices of a tensor have one
        let first = by_name.partition_point(|&i| self.tensors[i].name() < name);
        by_name
            .get(first)
            .map(|&i| &self.tensors[i])
            .filter(|tensor| tensor.name() == name)
    }

    /// The loader, and the reason why it was chosen.
    pub fn choice(&self) -> &LoaderChoice {
        &self.outcome.choice
    }

    /// How the loader really read, which may differ from what it was configured to do; `None` if it does not report it.
    pub fn report(&self) -> Option<&IoReport> {
        self.outcome.report.as_ref()
    }

    /// Bytes of all of them.
    pub fn nbytes(&self) -> u64 {
        self.tensors
            .iter()
            // tied tensors count each time: it is the sum of what the tensors have, not of the memory
            .map(|tensor| tensor.bytes.len() as u64)
            .fold(0, u64::saturating_add)
    }
}

impl<'c> IntoIterator for Loaded<'c> {
    type Item = LoadedTensor<'c>;
    type IntoIter = std::vec::IntoIter<LoadedTensor<'c>>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter()
    }
}

impl<'r, 'c> TensorStream<'r, 'c> {
    pub(super) fn new(
        next: Next<'r, 'c>,
        choice: &'r LoaderChoice,
        report: &'r dyn Fn() -> Option<IoReport>,
    ) -> Self {
        Self {
            next,
            choice,
            report,
        }
    }

    /// Passes the same stream to `consumer`, with tensors that own the checkpoint, so that they have any lifetime.
    pub(super) fn shared<'s, T>(
        &mut self,
        checkpoint: &Arc<Checkpoint>,
        consumer: impl FnOnce(&mut TensorStream<'_, 's>) -> T,
    ) -> T {
        let (choice, report) = (self.choice, self.report);
        let mut next = || -> Option<Result<LoadedTensor<'s>>> {
            Some(self.next()?.map(|tensor| tensor.shared(checkpoint)))
        };
        consumer(&mut TensorStream::new(&mut next, choice, report))
    }

    /// The loader, and the reason why it was chosen.
    pub fn choice(&self) -> &LoaderChoice {
        self.choice
    }

    /// How the loader read what was consumed so far; `None` if it does not report it.
    pub fn report(&self) -> Option<IoReport> {
        (self.report)()
    }
}

impl<'c> Iterator for TensorStream<'_, 'c> {
    type Item = Result<LoadedTensor<'c>>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.next)()
    }
}

impl<'c> LoadedTensor<'c> {
    pub(super) fn new(
        info: &'c TensorInfo,
        slice: TensorSlice,
        shape: Shape,
        bytes: Chunk<'c>,
    ) -> Self {
        Self {
            info: InfoHandle::Borrowed(info),
            slice,
            shape,
            bytes,
        }
    }

    /// The same tensor without a lifetime.
    pub(super) fn shared(self, checkpoint: &Arc<Checkpoint>) -> LoadedTensor<'static> {
        let info = self.info();
        let tensors = checkpoint.catalog().tensors();
        // by address, which costs no search by name
        let number = tensors.element_offset(info);
        let number = number.expect("a load has the tensors of its checkpoint's catalog");
        LoadedTensor {
            bytes: self.bytes.shared(checkpoint, tensors[number].bytes.file),
            info: InfoHandle::Shared(Arc::clone(checkpoint), number),
            slice: self.slice,
            shape: self.shape,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.info().name
    }

    /// Its description in the catalog: of the whole tensor, even if only a slice was loaded.
    pub fn info(&self) -> &TensorInfo {
        match &self.info {
            InfoHandle::Borrowed(info) => info,
            InfoHandle::Shared(checkpoint, number) => &checkpoint.catalog().tensors()[*number],
        }
    }

    /// Which part of the tensor it is.
    pub fn slice(&self) -> &TensorSlice {
        &self.slice
    }

    /// The shape of what was loaded, outermost dimension first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Its elements in C order, little endian; for block types its blocks. Several tensors may share a buffer, at the
    /// distances that they have in the file, so that their alignment in the file (up to 64 bytes) is kept.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements as a slice: `None` if they are not plain, native-endian, aligned `T`.
    pub fn view<T: Element>(&self) -> Option<&[T]> {
        let Encoding::Plain(dtype) = self.info().encoding else {
            return None;
        };
        // loaded bytes are little endian on every machine
        let native = cfg!(target_endian = "little") || dtype == Dtype::U8 || dtype == Dtype::I8;
        // a view must not swap bytes, and single bytes have no order
        if dtype != T::DTYPE || !native {
            None
        } else {
            bytemuck::try_cast_slice(&self.bytes).ok()
        }
    }

    /// Its bytes for writing, without a copy and for this tensor alone.
    ///
    /// ```
    /// use anamnesis::{Checkpoint, load};
    ///
    /// let checkpoint = Checkpoint::open("fixtures/safetensors/sharded")?;
    /// let head = load(&checkpoint).tensor("lm_head.weight")?;
    /// let mut head = head.into_part().expect("no other tensor has these bytes");
    /// head.fill(0);
    /// # Ok::<(), anamnesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// This tensor, if its bytes are borrowed from a map that others read, or if it was cloned, or if another tensor of the load has
    /// them too: one that is tied to it, or whose [slice](super::Load::slice) overlaps.
    #[allow(clippy::result_large_err)] // the tensor itself, which a caller goes on with
    pub fn into_part(self) -> std::result::Result<BufferPart, Self> {
        let Self {
            info,
            slice,
            shape,
            bytes,
        } = self;
        let bytes = match bytes {
            // no bytes have as many writers as there are values
            bytes if bytes.is_empty() => {
                let mut none = DividedBuffer::of_owner(Vec::new());
                return Ok(none.part(0..0).expect("the range is empty"));
            }
            Chunk::Pooled(bytes) => match bytes.try_into_part() {
                Ok(part) => return Ok(part),
                Err(bytes) => Chunk::Pooled(bytes),
            },
            other => other,
        };
        Err(Self {
            info,
            slice,
            shape,
            bytes,
        })
    }

    pub(super) fn chunk(&self) -> &Chunk<'c> {
        &self.bytes
    }

    /// Its bytes without its description. Cheap to clone; pooled bytes convert to `bytes::Bytes` without a copy.
    pub fn into_chunk(self) -> Chunk<'c> {
        self.bytes
    }
}

impl AsRef<[u8]> for LoadedTensor<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
