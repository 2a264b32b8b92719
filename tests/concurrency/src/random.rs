//! Repeatable random numbers (SplitMix64): the same seed draws the same choices.

pub struct Random(u64);

impl Random {
    /// One stream of numbers for each pair of seed and client.
    pub fn new(seed: u64, client_index: usize) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ ((client_index as u64) << 48))
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }

    /// Two different numbers below `bound`, which is at least 2.
    pub fn two_below(&mut self, bound: usize) -> (usize, usize) {
        let first = self.below(bound);
        let second = (first + 1 + self.below(bound - 1)) % bound;
        (first, second)
    }
}
