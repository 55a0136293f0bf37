//! Buffers that begin at a cache line.

/// Bytes that begin at a cache line, so that alignment is the same for all variants.
pub struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

const LINE: usize = 64;

impl Buffer {
    pub fn zeroed(len: usize) -> Self {
        let bytes = vec![0; len + LINE];
        let start = bytes.as_ptr().align_offset(LINE);
        Self { bytes, start, len }
    }

    /// Pseudo-random bytes; the same in every process.
    pub fn random(len: usize) -> Self {
        let mut buffer = Self::zeroed(len);
        let mut state = 0_u64;
        for chunk in buffer.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15); // splitmix64
            let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
        buffer
    }

    pub fn from_f32s(values: impl IntoIterator<Item = f32>) -> Self {
        let bytes: Vec<u8> = values.into_iter().flat_map(f32::to_le_bytes).collect();
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(&bytes);
        buffer
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}
