//! The 24 bits that say how recently or how often a key was used, for the eviction policies.
//!
//! LRU: seconds, modulo 2^24. LFU: minutes modulo 2^16 and a logarithmic counter of 8 bits, as
//! Redis's `evict.c` describes it: the counter goes up with probability
//! `1 / ((counter - 5) * lfu-log-factor + 1)` and down by one each `lfu-decay-time` minutes.

use std::sync::atomic::Ordering;

use crate::random::Random;
use crate::settings::Settings;

const SECONDS_MASK: u32 = 0xff_ffff;
/// The counter of a new key, so that it is not the first to go.
const LFU_START: u32 = 5;

/// The bits of a key that is made or read now, under LRU.
#[inline]
pub fn lru_now(now_ms: i64) -> u32 {
    (now_ms / 1000) as u32 & SECONDS_MASK
}

fn minutes(now_ms: i64) -> u32 {
    (now_ms / 60_000) as u32 & 0xffff
}

/// The bits of a new key.
#[inline]
pub fn fresh(settings: &Settings, now_ms: i64) -> u32 {
    if settings.policy().is_lfu() { minutes(now_ms) << 8 | LFU_START } else { lru_now(now_ms) }
}

/// The bits of a key that had `access` and is used now.
#[inline]
pub fn touched(settings: &Settings, access: u32, now_ms: i64, random: &mut Random) -> u32 {
    if !settings.policy().is_lfu() {
        return lru_now(now_ms);
    }
    let mut counter = frequency(settings, access, now_ms);
    let factor = settings.lfu_log_factor.load(Ordering::Relaxed);
    let odds = u64::from(counter.saturating_sub(LFU_START) * factor) + 1;
    if counter < 255 && random.bits().is_multiple_of(odds) {
        counter += 1;
    }
    minutes(now_ms) << 8 | counter
}

/// The counter under LFU, decayed to now.
pub fn frequency(settings: &Settings, access: u32, now_ms: i64) -> u32 {
    let decay = settings.lfu_decay_time.load(Ordering::Relaxed);
    let elapsed = minutes(now_ms).wrapping_sub(access >> 8) & 0xffff;
    let periods = elapsed.checked_div(decay).unwrap_or(0);
    (access & 0xff).saturating_sub(periods)
}

/// Seconds since the last use under LRU.
pub fn idle_seconds(access: u32, now_ms: i64) -> u32 {
    lru_now(now_ms).wrapping_sub(access) & SECONDS_MASK
}

/// The bits that say `seconds` of idleness (RESTORE IDLETIME).
pub fn from_idle(seconds: u32, now_ms: i64) -> u32 {
    lru_now(now_ms).wrapping_sub(seconds) & SECONDS_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Policy;

    #[test]
    fn idleness_wraps() {
        let then = lru_now(0xff_fffe * 1000);
        assert_eq!(idle_seconds(then, 0x100_0003 * 1000), 5);
        assert_eq!(idle_seconds(from_idle(77, 1_000_000), 1_000_000), 77);
    }

    #[test]
    fn frequency_grows_and_decays() {
        let settings = Settings::default();
        settings.set_policy(Policy::AllKeysLfu);
        let mut random = Random::new(3);
        let mut access = fresh(&settings, 0);
        for _ in 0..10_000 {
            access = touched(&settings, access, 0, &mut random);
        }
        let counter = frequency(&settings, access, 0);
        assert!((20..80).contains(&counter), "{counter}");
        assert_eq!(frequency(&settings, access, 10 * 60_000), counter - 10);
    }
}
