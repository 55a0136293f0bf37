//! What was loaded.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::run::Task;
use super::{Choice, Chunk, Way};
use crate::Dtype;
use crate::catalog::{Encoding, Shape, TensorInfo};
use crate::error::Result;
use crate::tensor::Element;

/// Tensors in memory, in the order in which they were loaded.
#[derive(Clone, Debug)]
pub struct Loaded<'c> {
    tensors: Vec<LoadedTensor<'c>>,
    /// Made when one is first asked for.
    names: OnceLock<HashMap<&'c str, usize>>,
    choice: Choice,
    way: Option<Way>,
}

/// A tensor in memory.
#[derive(Clone, Debug)]
pub struct LoadedTensor<'c> {
    info: &'c TensorInfo,
    shape: Shape,
    bytes: Chunk<'c>,
}

/// Tensors as they come, one by one, while the next ones are read. See [`Load::stream`](super::Load::stream).
pub struct Stream<'r, 'c> {
    next: Next<'r, 'c>,
}

type Next<'r, 'c> = &'r mut dyn FnMut() -> Option<Result<LoadedTensor<'c>>>;

impl<'c> Loaded<'c> {
    pub(super) fn new(tensors: Vec<LoadedTensor<'c>>, choice: Choice, way: Option<Way>) -> Self {
        Self {
            tensors,
            names: OnceLock::new(),
            choice,
            way,
        }
    }

    /// The tensors, in the order in which they were loaded.
    pub fn tensors(&self) -> &[LoadedTensor<'c>] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn get(&self, name: &str) -> Option<&LoadedTensor<'c>> {
        let named = || {
            self.tensors
                .iter()
                .enumerate()
                .map(|(i, tensor)| (tensor.name(), i))
                .collect()
        };
        self.names
            .get_or_init(named)
            .get(name)
            .map(|&i| &self.tensors[i])
    }

    /// Which loader brought them, and why it was chosen.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// How it really brought them, which may be in another way than it was asked for; `None` if it does not say.
    pub fn way(&self) -> Option<&Way> {
        self.way.as_ref()
    }

    /// Bytes of all of them.
    pub fn nbytes(&self) -> u64 {
        self.tensors
            .iter()
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

impl<'r, 'c> Stream<'r, 'c> {
    pub(super) fn new(next: Next<'r, 'c>) -> Self {
        Self { next }
    }
}

impl<'c> Iterator for Stream<'_, 'c> {
    type Item = Result<LoadedTensor<'c>>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.next)()
    }
}

impl<'c> LoadedTensor<'c> {
    pub(super) fn new(task: &Task<'c>, bytes: Chunk<'c>) -> Self {
        Self {
            info: task.tensor.info(),
            shape: task.runs.shape.clone(),
            bytes,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'c str {
        &self.info.name
    }

    /// Its description: of the whole tensor, also where a part of it was loaded.
    pub fn info(&self) -> &'c TensorInfo {
        self.info
    }

    /// Sizes of what was loaded, outermost first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Its elements in C order, little endian; of block types the blocks. Several tensors may share a buffer, with the
    /// distances that they have in the file, so that what is aligned there (up to 64 bytes) is aligned here.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements as a slice: `None` if they are not plain, native-endian, aligned `T`.
    pub fn view<T: Element>(&self) -> Option<&[T]> {
        let Encoding::Plain(dtype) = self.info.encoding else {
            return None;
        };
        let native = cfg!(target_endian = "little") || dtype == Dtype::U8 || dtype == Dtype::I8;
        if dtype != T::DTYPE || !native {
            None
        } else {
            bytemuck::try_cast_slice(&self.bytes).ok()
        }
    }

    /// Its bytes, to be kept for themselves: cheap to clone, and `bytes::Bytes` without a copy where they are the
    /// pool's.
    pub fn into_chunk(self) -> Chunk<'c> {
        self.bytes
    }
}

impl AsRef<[u8]> for LoadedTensor<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
