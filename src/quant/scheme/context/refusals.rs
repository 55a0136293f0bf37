//! Errors about a tensor that a scheme refuses, with its name and file offset.

use crate::base::error::Error;
use crate::read::catalog::{TensorInfo, quote};

/// An error about a tensor, with its name and file offset.
#[cold]
pub(crate) fn not_known(info: &TensorInfo, what: impl std::fmt::Display) -> Error {
    Error::unexplained(about(info, what)).at(info.bytes.start)
}

/// Like [`not_known`], for valid input that this library does not decode.
#[cold]
pub(crate) fn unsupported(info: &TensorInfo, what: impl std::fmt::Display) -> Error {
    Error::unsupported(about(info, what)).at(info.bytes.start)
}

/// An error for a weight that lacks one of its parts.
#[cold]
pub(crate) fn missing(info: &TensorInfo, part: &str) -> Error {
    Error::unexplained(format!(
        "tensor {}: its {} is missing",
        quote(&info.name),
        quote(part)
    ))
    .at(info.bytes.start)
}

/// Like [`missing`], for a part that a setting demands.
#[cold]
pub(crate) fn missing_by(info: &TensorInfo, part: &str, setting: &str, value: &str) -> Error {
    not_known(
        info,
        format!(
            "its {} is missing, though the configuration says {}: {}",
            quote(part),
            quote(setting),
            value
        ),
    )
}

/// A message about a tensor. It may quote text of a descriptor, of which it shows the beginning: a plan keeps a message
/// per refused weight.
fn about(info: &TensorInfo, what: impl std::fmt::Display) -> String {
    const MAX_BYTES: usize = 1 << 10;
    let mut text = format!("tensor {}: {what}", quote(&info.name));
    if text.len() > MAX_BYTES {
        text.truncate(text.floor_char_boundary(MAX_BYTES));
        text.push('…');
        text.shrink_to_fit();
    }
    text
}

/// A shape as text, such as `[2, 3]`.
pub(crate) fn shown(shape: &[u64]) -> String {
    format!("{shape:?}")
}
