//! The classes that the `.metadata` of a torch.distributed.checkpoint directory may name. All are data classes; none is
//! called.
//!
//! Source: `torch/distributed/checkpoint/metadata.py` and `filesystem.py`, PyTorch 2.0 to 2.15.

/// A data class of torch.distributed.checkpoint, by what its instances describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DistributedClass {
    Metadata,
    TensorStorage,
    BytesStorage,
    ChunkStorage,
    TensorProperties,
    /// An enumeration of memory formats, pickled as a call with a number.
    MemoryFormat,
    MetadataIndex,
    StorageInfo,
    /// The identifiers of a save, which are not read.
    StorageMeta,
    /// Plans of a save and their items, which are not read.
    Plan,
    /// The path that a checkpoint was saved under, which is not read.
    Path,
}

impl DistributedClass {
    pub(super) fn named(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("torch.distributed.checkpoint.metadata", name) => match name {
                "Metadata" => Self::Metadata,
                "TensorStorageMetadata" => Self::TensorStorage,
                "BytesStorageMetadata" => Self::BytesStorage,
                "ChunkStorageMetadata" => Self::ChunkStorage,
                "TensorProperties" => Self::TensorProperties,
                "_MEM_FORMAT_ENCODING" => Self::MemoryFormat,
                "MetadataIndex" => Self::MetadataIndex,
                "StorageMeta" => Self::StorageMeta,
                _ => return None,
            },
            // the class of PyTorch before 2.3
            ("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties") => {
                Self::TensorProperties
            }
            ("torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING") => {
                Self::MemoryFormat
            }
            ("torch.distributed.checkpoint.filesystem", "_StorageInfo") => Self::StorageInfo,
            (
                "torch.distributed.checkpoint.planner",
                "SavePlan" | "WriteItem" | "WriteItemType" | "TensorWriteData" | "BytesIOWriteData",
            ) => Self::Plan,
            // megatron-core, whose classes extend those above
            (module, name) if module.starts_with("megatron.core.dist_checkpointing") => {
                match name {
                    "MCoreMetadata" => Self::Metadata,
                    "MCoreSavePlan" => Self::Plan,
                    _ => return None,
                }
            }
            // Python 3.13 moved the classes
            (
                "pathlib" | "pathlib._local",
                "PosixPath" | "WindowsPath" | "PurePosixPath" | "PureWindowsPath",
            ) => Self::Path,
            _ => return None,
        })
    }
}
