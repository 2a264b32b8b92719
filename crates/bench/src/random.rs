//! A small generator of random numbers: SplitMix64.
//!
//! **Invariant:** the same seed gives the same numbers on every machine and in every version, so
//! that a run can be repeated.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Random { state: seed }
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, not including, `bound`; 0 where the bound is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_below_the_bound_and_reaches_all_of_it() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7000 {
            seen[random.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (850..1150).contains(&count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn repeats_by_seed() {
        let mut items: Vec<u32> = (0..10).collect();
        Random::new(3).shuffle(&mut items);
        let mut again: Vec<u32> = (0..10).collect();
        Random::new(3).shuffle(&mut again);
        assert_eq!(items, again);
        assert_ne!(items, (0..10).collect::<Vec<_>>());
    }
}
