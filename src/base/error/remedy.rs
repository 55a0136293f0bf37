//! Remedies: what can be done about an error, as data.

use std::fmt;

/// The remedy for an [`Error`](super::Error), or for the cause of a [`Note`](crate::Note).
///
/// `Display` words it for users of this library. A program matches on the variants to name its own
/// options instead.
///
/// ```
/// use anamnesis::{Checkpoint, Limits, OpenOptions, Remedy};
///
/// let limits = Limits { tensors: 1, ..Limits::default() };
/// let error = OpenOptions::new().limits(limits).open("fixtures/gguf/plain_v3.gguf").unwrap_err();
/// assert_eq!(error.remedy(), Some(Remedy::RaiseLimit { limit: "tensors" }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// The path does not exist.
    CheckPath,
    /// The file or directory may not be read or written by this user.
    CheckPermissions,
    /// A link of another user leads out of a directory, to a file that is not that user's.
    OpenTarget,
    /// The checkpoint holds nothing of this name.
    CheckName,
    /// The output exists already and is replaced only on request.
    AllowOverwrite,
    /// Another run writes to the same directory.
    WaitForOtherRun,
    /// Another process has replaced the checkpoint meanwhile.
    RunAgain,
    /// The process has as many open files as it may have.
    OpenFewerFiles,
    /// The file system of the output is full.
    FreeSpace,
    /// The file is in no format that this library reads.
    UseSupportedFormat,
    /// The file is damaged, or was written wrongly.
    ReplaceFile,
    /// The buffer pool's budget is smaller than what the call holds at once.
    EnlargePoolBudget,
    /// A weight is quantised already, and can be quantised again.
    Requantise,
    /// A type is too coarse without knowing which columns matter.
    GiveImportance,
    /// Several names, or none, are known for the steps of a tokenizer, of which one can be stated.
    NamePreTokenizer,
    /// No type takes the place of one that a tensor cannot have.
    AnotherType,
    /// A limit of [`Limits`](crate::Limits) is exceeded.
    RaiseLimit {
        /// The field of [`Limits`](crate::Limits), or of a template's limits.
        limit: &'static str,
    },
    /// A pickle names what is not plain data. Such objects can be kept without meaning, and the tensors around them read.
    KeepOpaque,
    /// A file of a sharded or split checkpoint is absent.
    AddMissingFile,
    /// A tensor cannot be made or stored, and is no necessary part of an output.
    LeaveOut,
    /// A refused weight would be read otherwise in the output. All of its parts can be left out, or copied as tensors that are no
    /// weight.
    LeaveOutOrAssumePlain,
    /// The output cannot have a tensor of this name.
    LeaveOutOrRename,
    /// The names that two renames swap go by way of a third one.
    RenameApart,
    /// The container has no such blocks: the tensor can be dequantised.
    LeaveOutOrDequantise,
    /// One worker's share of a weight is no share of its stored parts; the dequantised weight has one.
    DequantiseShare,
    /// NumPy has no such dtype: elements can be cast, or written as items without a type.
    CastOrWriteVoid,
    /// Items without a type cannot be made, and can be read as a dtype of their width.
    LeaveOutOrReadItems,
    /// Items have no type; whether a dtype of their width is meant, the file does not say.
    ReadItems {
        /// A dtype of that width, as an example.
        dtype: &'static str,
    },
    /// The other files of a split GGUF cannot be found by the name of this one.
    RenameOrOpenAlone,
    /// The file holds a part of a model, and was opened alone.
    OpenWhole,
    /// Outputs have the names of llama.cpp, and could have the names of transformers.
    NameAsTransformers,
    /// Requests are not allowed, and nothing on this machine has what is read.
    AllowRequests,
    /// Other users can change a cache that this process reads.
    OwnCache,
    /// Tensors of a GGUF have another alignment only in another file.
    ConvertAligned,
    /// An edit was interrupted, and its journal completes it.
    RecoverEdit,
    /// The file is not changed where it is; another one can be written.
    ConvertInstead,
    /// The file has several names, of which one can be given a file of its own.
    EditCopy,
    /// The files say more about the stored weights than is known. The library that wrote them reads them, and what is not
    /// known can be ignored.
    AssumePlain,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::CheckPath => "check the path",
            Self::CheckPermissions => "check the file's permissions",
            Self::OpenTarget => {
                "open the file that the link leads to by its own path, or put a link of your own in its place"
            }
            Self::NamePreTokenizer => {
                "state llama.cpp's name for the pre-tokenizer, as in `tokenizer.ggml.pre` of another GGUF of this model"
            }
            Self::CheckName => "check the name; names are case-sensitive",
            Self::AllowOverwrite => "choose another file, or call `Remember::overwrite`",
            Self::WaitForOtherRun => "wait until it has ended, or choose another directory",
            Self::RunAgain => "open it again, when the other process has ended",
            Self::OpenFewerFiles => {
                "raise the limit of open files (`ulimit -n`), or write fewer shards (`Sharding::Shards`)"
            }
            Self::FreeSpace => "free space, or write to another file system",
            Self::UseSupportedFormat => {
                "supported formats are safetensors, GGUF, NPY, NPZ and PyTorch"
            }
            Self::ReplaceFile => {
                "the file is damaged or was written wrongly: fetch it again or export it again"
            }
            Self::EnlargePoolBudget => {
                "give the pool a larger budget, load fewer tensors, or borrow mapped bytes (`Load::borrow_mapped`)"
            }
            Self::RaiseLimit { limit } => {
                return write!(f, "raise `Limits::{limit}` if the file is trusted");
            }
            Self::KeepOpaque => {
                "to read the tensors around such objects without calling anything, set `OpenOptions::opaque`; load this \
                 file elsewhere only if you trust its author"
            }
            Self::AssumePlain => {
                "convert it with the library that wrote it; to ignore what is not known, set `OpenOptions::assume_plain`"
            }
            Self::AddMissingFile => "put the missing file into the same directory",
            Self::Requantise => {
                "quantise the model that it was made from, or call `Quantise::requantise`"
            }
            Self::GiveImportance => {
                "give an importance matrix of this model (`Quantise::importance`), or choose a larger type"
            }
            Self::AnotherType => "choose another type for it with `Quantise::type_of`",
            Self::LeaveOut => "leave the tensor out with `Remember::filter`",
            Self::LeaveOutOrAssumePlain => {
                "leave all of its parts out with `Convert::exclude`, or copy them as tensors of their own with \
                 `OpenOptions::assume_plain`"
            }
            Self::LeaveOutOrRename => {
                "leave the tensor out with `Remember::filter`, or rename it with `Remember::rename`"
            }
            Self::LeaveOutOrDequantise => {
                "dequantise it (`Convert::dtype`), write a GGUF, or leave the tensor out with a filter"
            }
            Self::RenameApart => {
                "to swap two names, rename the first to a third one, then the second to the first, then the third to the second"
            }
            Self::DequantiseShare => {
                "dequantise it (`Convert::dtype`), or leave the weight out with a filter"
            }
            Self::ConvertAligned => "write another file with `convert` and `Convert::alignment`",
            Self::CastOrWriteVoid => {
                "cast it (`Convert::dtype` and `Convert::cast`), or write such items with `Convert::void`"
            }
            Self::LeaveOutOrReadItems => {
                "leave the tensor out with `Remember::filter`, or read its items as a dtype of their width with \
                 `OpenOptions::void_as`"
            }
            Self::ReadItems { dtype } => {
                return write!(
                    f,
                    "if you know the dtype, give {dtype} to `OpenOptions::void_as`"
                );
            }
            Self::RenameOrOpenAlone => "rename it, or open it alone with `OpenOptions::single`",
            Self::OpenWhole => "open the directory of the model, or its index",
            Self::NameAsTransformers => "`Names::HuggingFace` makes those of transformers",
            Self::OwnCache => {
                "use a cache of your own (`HF_HUB_CACHE`), or change that (`chmod go-w`, `chown`)"
            }
            Self::RecoverEdit => "complete it with `Edit::recover`",
            Self::ConvertInstead => "write another file with `convert`",
            Self::EditCopy => {
                "give this name a file of its own with `Edit::copy`, or write another file with `convert`"
            }
            Self::AllowRequests => "requests are sent unless `RemoteOptions::offline` is set",
        };
        f.write_str(text)
    }
}
