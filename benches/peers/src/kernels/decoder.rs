//! A decoder with its input, ready to run.

/// Decodes into a buffer.
type Decode = Box<dyn Fn(&mut [u8])>;

pub enum Decoder {
    /// Writes into the caller's buffer, which is warm.
    IntoBuffer(Decode),
    /// Allocates its output.
    Allocating(Box<dyn Fn() -> Vec<u8>>),
}
