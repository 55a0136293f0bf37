//! Quantisation: how quantised weights are stored, and how stored bytes become elements.
//!
//! [`scheme`] recognises weights in a catalog and describes them; `decode` holds the decoders that the descriptions are
//! made of. A decoder that a single scheme uses is in the folder of that scheme.

pub(crate) mod decode;
pub mod scheme;
