//! The checkpoint of a builder: borrowed, or shared with other owners.

use std::ops::Deref;
use std::sync::Arc;

use super::Checkpoint;

/// The checkpoint that [`load`](crate::load()) and [`remember`](crate::remember()) work on, made from a `&Checkpoint` or
/// from an `Arc<Checkpoint>`. With the first, results borrow from the checkpoint; with the second, they have no lifetime:
///
/// ```
/// use std::sync::Arc;
/// use anamnesis::load::LoadedTensor;
/// use anamnesis::{Checkpoint, load};
///
/// fn head(path: &str) -> anamnesis::Result<LoadedTensor<'static>> {
///     let checkpoint = Arc::new(Checkpoint::open(path)?);
///     load(&checkpoint).borrow_mapped().tensor("lm_head.weight")
/// }
///
/// let head = head("fixtures/safetensors/sharded")?;
/// // on another thread, after the last other owner of the checkpoint: the tensor keeps the file and its map
/// let nbytes = std::thread::spawn(move || head.bytes().len()).join().expect("the thread ends");
/// assert_eq!(nbytes, 1024);
/// # Ok::<(), anamnesis::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CheckpointHandle<'c>(pub(crate) Ownership<'c>);

#[derive(Clone, Debug)]
pub(crate) enum Ownership<'c> {
    Borrowed(&'c Checkpoint),
    Shared(Arc<Checkpoint>),
}

impl Deref for CheckpointHandle<'_> {
    type Target = Checkpoint;

    fn deref(&self) -> &Checkpoint {
        match &self.0 {
            Ownership::Borrowed(checkpoint) => checkpoint,
            Ownership::Shared(checkpoint) => checkpoint,
        }
    }
}

impl<'c> From<&'c Checkpoint> for CheckpointHandle<'c> {
    fn from(checkpoint: &'c Checkpoint) -> Self {
        Self(Ownership::Borrowed(checkpoint))
    }
}

impl From<Arc<Checkpoint>> for CheckpointHandle<'_> {
    fn from(checkpoint: Arc<Checkpoint>) -> Self {
        Self(Ownership::Shared(checkpoint))
    }
}

impl From<&Arc<Checkpoint>> for CheckpointHandle<'_> {
    fn from(checkpoint: &Arc<Checkpoint>) -> Self {
        Arc::clone(checkpoint).into()
    }
}
