//! A source in memory that records each read.

use std::io;
use std::sync::{Arc, Mutex};

use anamnesis::Source;

/// Bytes, and the `(start, length)` of each read of them.
pub struct RecordingSource {
    pub bytes: Vec<u8>,
    pub reads: Arc<Mutex<Vec<(u64, u64)>>>,
}

impl Source for RecordingSource {
    fn len(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn read_at(&self, start: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = &self.bytes[usize::try_from(start).unwrap().min(self.bytes.len())..];
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        self.reads.lock().unwrap().push((start, buf.len() as u64));
        Ok(n)
    }
}
