//! The arguments of recorded calls: storages, dtypes, and tensors that earlier calls describe.

use crate::base::error::{Error, Result};
use crate::read::catalog::{Layout, TensorInfo};
use crate::read::format::pickle::globals::{Global, TorchDtype};
use crate::read::format::pickle::value_heap::{PickleValue, ValueId};
use crate::read::format::pth::storage::{PersistentId, Storage};

use super::{CallInterpreter, CallResult, unexpected_arguments};

impl CallInterpreter<'_, '_, '_> {
    /// The storage that a persistent id names.
    pub(super) fn storage(&mut self, tuple: ValueId) -> Result<Storage> {
        match self.last_storage {
            Some((id, storage)) if id == tuple => Ok(storage),
            _ => {
                let storage = self
                    .storages
                    .find(tuple, &PersistentId::parse(self.heap, tuple)?)?;
                self.last_storage = Some((tuple, storage));
                Ok(storage)
            }
        }
    }

    pub(super) fn dtype_argument(&self, id: ValueId) -> Result<TorchDtype> {
        match self.heap.get(id) {
            PickleValue::Global(Global::Dtype(dtype)) => Ok(dtype),
            _ => Err(Error::malformed(
                "the dtype argument of a tensor is not a torch dtype",
            )),
        }
    }

    /// The value that the call with this id would have returned; `None` if the value is not a call that was interpreted.
    pub(in crate::read::format::pth) fn result_of(&self, id: ValueId) -> Option<&CallResult> {
        match self.heap.get(id) {
            PickleValue::Call(index) => self.results.get(index as usize),
            _ => None,
        }
    }

    /// An argument that is a tensor.
    pub(in crate::read::format::pth) fn tensor_argument(&self, id: ValueId) -> Result<&TensorInfo> {
        match self.result_of(id) {
            Some(&CallResult::Tensor(index)) => Ok(&self.tensors[index]),
            _ => Err(Error::malformed(
                "an argument of a tensor is not itself a tensor",
            )),
        }
    }

    /// An argument that becomes a part of another tensor, such as its scales. It must have bytes of its own and no
    /// parts: otherwise a pickle could nest parts without bound.
    pub(in crate::read::format::pth) fn part_argument(
        &self,
        id: ValueId,
        name: &str,
    ) -> Result<TensorInfo> {
        let info = self.tensor_argument(id)?;
        if matches!(info.layout, Layout::Sparse(_) | Layout::Absent) || info.quantizer().is_some() {
            return Err(Error::unsupported(
                "a part of a tensor is sparse, quantised or without data; only plain tensors can be parts",
            ));
        }
        // a part is boxed, or in a list of three
        let memory = 2 * size_of::<TensorInfo>() as u64 + info.lists_memory();
        self.heap.budget().memory(memory, "a tensor's parts")?;
        // a copy: the tensor may also be listed under a name of its own
        Ok(TensorInfo {
            name: name.into(),
            ..info.clone()
        })
    }

    pub(super) fn pass_through(&self, data: ValueId) -> Result<CallResult> {
        match self.result_of(data) {
            Some(
                // a parameter of something that is no tensor has nothing to list
                made @ (CallResult::Tensor(_) | CallResult::Subclass(_) | CallResult::Refused(_)),
            ) => Ok(made.clone()),
            _ => Err(unexpected_arguments("a parameter")),
        }
    }
}
