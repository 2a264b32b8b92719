//! The module `bit`: operations on 32-bit numbers, as in Lua BitOp 1.0.

use std::ffi::c_int;

use mlua::ffi as lua;

use super::stack::{Function, State, push_bytes};

/// The module's functions.
pub const FUNCTIONS: &[(&str, Function)] = &[
    ("tobit", tobit),
    ("bnot", bnot),
    ("band", band),
    ("bor", bor),
    ("bxor", bxor),
    ("lshift", lshift),
    ("rshift", rshift),
    ("arshift", arshift),
    ("rol", rol),
    ("ror", ror),
    ("bswap", bswap),
    ("tohex", tohex),
];

/// The low 32 bits of the nearest integer, halves to even: what adding 2^52 + 2^51 leaves behind.
pub fn to_bits(number: f64) -> u32 {
    (number + 6_755_399_441_055_744.0).to_bits() as u32
}

unsafe fn argument(l: State, index: c_int) -> u32 {
    let bits = to_bits(lua::lua_tonumber(l, index));
    if bits == 0 && lua::lua_isnumber(l, index) == 0 {
        lua::luaL_typerror(l, index, c"number".as_ptr());
    }
    bits
}

unsafe fn answer(l: State, bits: u32) -> c_int {
    lua::lua_pushnumber(l, f64::from(bits as i32));
    1
}

unsafe extern "C-unwind" fn tobit(l: State) -> c_int {
    answer(l, argument(l, 1))
}

unsafe extern "C-unwind" fn bnot(l: State) -> c_int {
    answer(l, !argument(l, 1))
}

unsafe fn fold(l: State, apply: fn(u32, u32) -> u32) -> c_int {
    let mut bits = argument(l, 1);
    for index in (2..=lua::lua_gettop(l)).rev() {
        bits = apply(bits, argument(l, index));
    }
    answer(l, bits)
}

unsafe extern "C-unwind" fn band(l: State) -> c_int {
    fold(l, |a, b| a & b)
}

unsafe extern "C-unwind" fn bor(l: State) -> c_int {
    fold(l, |a, b| a | b)
}

unsafe extern "C-unwind" fn bxor(l: State) -> c_int {
    fold(l, |a, b| a ^ b)
}

unsafe fn shift(l: State, apply: fn(u32, u32) -> u32) -> c_int {
    let bits = argument(l, 1);
    let by = argument(l, 2) & 31;
    answer(l, apply(bits, by))
}

unsafe extern "C-unwind" fn lshift(l: State) -> c_int {
    shift(l, |bits, by| bits << by)
}

unsafe extern "C-unwind" fn rshift(l: State) -> c_int {
    shift(l, |bits, by| bits >> by)
}

unsafe extern "C-unwind" fn arshift(l: State) -> c_int {
    shift(l, |bits, by| (bits as i32 >> by) as u32)
}

unsafe extern "C-unwind" fn rol(l: State) -> c_int {
    shift(l, u32::rotate_left)
}

unsafe extern "C-unwind" fn ror(l: State) -> c_int {
    shift(l, u32::rotate_right)
}

unsafe extern "C-unwind" fn bswap(l: State) -> c_int {
    answer(l, argument(l, 1).swap_bytes())
}

unsafe extern "C-unwind" fn tohex(l: State) -> c_int {
    let mut bits = argument(l, 1);
    let wanted = if type_is_none(l, 2) { 8 } else { argument(l, 2) as i32 };
    let count = wanted.unsigned_abs().min(8) as usize;
    let digits = if wanted < 0 { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let mut text = [0; 8];
    for place in text[..count].iter_mut().rev() {
        *place = digits[bits as usize & 15];
        bits >>= 4;
    }
    push_bytes(l, &text[..count]);
    1
}

unsafe fn type_is_none(l: State, index: c_int) -> bool {
    lua::lua_type(l, index) == lua::LUA_TNONE
}

#[cfg(test)]
mod tests {
    use super::to_bits;

    #[test]
    fn numbers_wrap_to_32_bits() {
        let cases = [
            (0.0, 0),
            (-1.0, u32::MAX),
            (4_294_967_296.0, 0),
            (4_294_967_295.0, u32::MAX),
            (1.5, 2),
            (2.5, 2),
            (2_147_483_648.0, 0x8000_0000),
        ];
        for (number, bits) in cases {
            assert_eq!(to_bits(number), bits, "{number}");
        }
    }
}
