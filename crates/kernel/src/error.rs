//! Why a kernel does not run.

/// Why a kernel does not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no kernel for this block type or dtype.
    #[error("{0}")]
    Unsupported(String),
    /// The input length, the output length and the dtypes do not agree.
    #[error("{0}")]
    Mismatch(String),
    /// An element, or a scale that elements need, is a number that the type does not store.
    #[error("{0}")]
    Unencodable(String),
}

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
