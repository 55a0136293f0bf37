//! Pseudo-random test data: the same seed gives the same data on every machine.

/// A linear congruential generator.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 32).unwrap()
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.next() % bound
    }
}

/// `n` bytes of a xorshift generator. The first bytes do not depend on `n`.
pub fn random_bytes(seed: u64, n: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(next)
        .take(n.div_ceil(8))
        .flatten()
        .collect();
    bytes.truncate(n);
    bytes
}
