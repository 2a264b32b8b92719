//! Random numbers for RANDOMKEY, SPOP, eviction samples and the like: fast, seeded, not secret.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
//! Generators", OOPSLA 2014). The seed is passed in: below the server nothing asks the system.

/// A generator; one per thread.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound - 1`; 0 for a bound of 0.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_below_its_bound() {
        let mut random = Random::new(1);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[random.below(10)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!(random.below(0), 0);
    }
}
