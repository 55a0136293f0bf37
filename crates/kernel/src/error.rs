//! What a kernel refuses.

/// Why a kernel was not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no kernel for this type or dtype.
    #[error("{0}")]
    Unsupported(String),
    /// The bytes, the output and the dtype do not fit each other.
    #[error("{0}")]
    Misfit(String),
}

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
