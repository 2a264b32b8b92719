//! math.random as Redis has it: the same numbers after the same seed, on every machine.
//!
//! The generator is the 48-bit linear congruential one of POSIX's `drand48` (Redis's `rand.c`). A
//! script that sets no seed goes on where the last one of its thread stopped.

use std::ffi::c_int;

use mlua::ffi as lua;

use super::stack::{State, raise, raise_argument};
use super::state::inner_of;

const FACTOR: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// The state that nobody has seeded.
pub const START: u64 = 0x1234_ABCD_330E;
/// What a number is divided by, and taken modulo of: 2^31 - 1.
const MAX: i64 = i32::MAX as i64;

/// The generator's state after `srand48(seed)`.
pub fn seeded(seed: i32) -> u64 {
    u64::from(seed as u32) << 16 | 0x330E
}

/// The next number of 31 bits.
pub fn next(state: &mut u64) -> i64 {
    *state = (*state).wrapping_mul(FACTOR).wrapping_add(INCREMENT) & MASK;
    (*state >> 17) as i64
}

unsafe fn check_running(l: State, name: &str) {
    if (*inner_of(l)).run.is_null() {
        raise(l, format_args!("{name} can only be called inside a script invocation"));
    }
}

unsafe fn check_int(l: State, index: c_int) -> i32 {
    lua::luaL_checkinteger(l, index) as i32
}

/// `math.random([low,] high)`.
pub unsafe extern "C-unwind" fn random(l: State) -> c_int {
    check_running(l, "math.random");
    let number = (next(&mut (*inner_of(l)).random) % MAX) as f64 / MAX as f64;
    let (low, high) = match lua::lua_gettop(l) {
        0 => {
            lua::lua_pushnumber(l, number);
            return 1;
        }
        1 => (1, check_int(l, 1)),
        2 => (check_int(l, 1), check_int(l, 2)),
        _ => raise(l, format_args!("wrong number of arguments")),
    };
    if low > high {
        raise_argument(l, lua::lua_gettop(l), format_args!("interval is empty"));
    }
    let span = f64::from(high) - f64::from(low) + 1.0;
    lua::lua_pushnumber(l, (number * span).floor() + f64::from(low));
    1
}

/// `math.randomseed(seed)`.
pub unsafe extern "C-unwind" fn randomseed(l: State) -> c_int {
    check_running(l, "math.randomseed");
    (*inner_of(l)).random = seeded(check_int(l, 1));
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_lrand48() {
        // What glibc's srand48(0), lrand48() and srand48(42) give.
        let mut state = seeded(0);
        let first: Vec<i64> = (0..3).map(|_| next(&mut state)).collect();
        assert_eq!(first, [366_850_414, 1_610_402_240, 206_956_554]);
    }
}
