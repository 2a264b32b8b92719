//! The module `cmsgpack`: MessagePack to and from Lua values, as in lua-cmsgpack 0.4.
//!
//! A table whose keys are exactly 1 to n becomes an array, any other a map; a number that is a
//! whole one an integer in its shortest form, any other a float if that is exact, else a double.
//! Tables below `NESTING_MAX` become nil.

use std::ffi::c_int;

use mlua::ffi as lua;

use super::stack::{Function, State, bytes_at, check_bytes, need_stack, pop, push_bytes, raise};
use super::stack::{raise_argument, type_of};
use super::state::inner_of;

/// The module's functions.
pub const FUNCTIONS: &[(&str, Function)] = &[
    ("pack", pack),
    ("unpack", unpack),
    ("unpack_one", unpack_one),
    ("unpack_limit", unpack_limit),
];

const NESTING_MAX: c_int = 16;
/// Deeper input is refused: each level takes a frame of this thread's stack.
const DEPTH_MAX: u32 = 4000;

// Packing.

/// Writes a length or an integer behind its mark.
fn put(out: &mut Vec<u8>, mark: u8, bytes: &[u8]) {
    out.push(mark);
    out.extend_from_slice(bytes);
}

fn put_bytes(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        len @ 0..32 => out.push(0xa0 | len as u8),
        len @ 32..0x100 => put(out, 0xd9, &[len as u8]),
        len @ 0x100..0x1_0000 => put(out, 0xda, &(len as u16).to_be_bytes()),
        len => put(out, 0xdb, &(len as u32).to_be_bytes()),
    }
    out.extend_from_slice(text);
}

fn put_integer(out: &mut Vec<u8>, number: i64) {
    match number {
        0..=127 => out.push(number as u8),
        128..=0xff => put(out, 0xcc, &[number as u8]),
        0x100..=0xffff => put(out, 0xcd, &(number as u16).to_be_bytes()),
        0x1_0000..=0xffff_ffff => put(out, 0xce, &(number as u32).to_be_bytes()),
        0x1_0000_0000.. => put(out, 0xcf, &number.to_be_bytes()),
        -32..0 => out.push(number as u8),
        -128..-32 => put(out, 0xd0, &[number as u8]),
        -0x8000..-128 => put(out, 0xd1, &(number as i16).to_be_bytes()),
        -0x8000_0000..-0x8000 => put(out, 0xd2, &(number as i32).to_be_bytes()),
        _ => put(out, 0xd3, &number.to_be_bytes()),
    }
}

fn put_number(out: &mut Vec<u8>, number: f64) {
    let is_integer = number as i64 as f64 == number && number < 9_223_372_036_854_775_808.0;
    if is_integer {
        put_integer(out, number as i64);
    } else if f64::from(number as f32) == number {
        put(out, 0xca, &(number as f32).to_be_bytes());
    } else {
        put(out, 0xcb, &number.to_be_bytes());
    }
}

fn put_count(out: &mut Vec<u8>, count: usize, marks: [u8; 3]) {
    match count {
        0..16 => out.push(marks[0] | count as u8),
        16..0x1_0000 => put(out, marks[1], &(count as u16).to_be_bytes()),
        _ => put(out, marks[2], &(count as u32).to_be_bytes()),
    }
}

/// The table at the top has the keys 1 to n and no others: n. Else `Err` with the number of keys.
unsafe fn array_length(l: State) -> Result<usize, usize> {
    let (mut count, mut max, mut is_array) = (0usize, 0.0f64, true);
    need_stack(l, 3, c"in function table_is_an_array");
    lua::lua_pushnil(l);
    while lua::lua_next(l, -2) != 0 {
        pop(l, 1);
        count += 1;
        let is_number = type_of(l, -1) == lua::LUA_TNUMBER;
        let number = if is_number { lua::lua_tonumber(l, -1) } else { 0.0 };
        is_array &= number > 0.0 && number as i32 as f64 == number;
        max = max.max(number);
    }
    if is_array && max == count as f64 { Ok(count) } else { Err(count) }
}

unsafe fn put_table(l: State, depth: c_int) {
    let out = &raw mut (*inner_of(l)).buffer;
    match array_length(l) {
        Ok(count) => {
            put_count(&mut *out, count, [0x90, 0xdc, 0xdd]);
            for index in 1..=count {
                lua::lua_rawgeti_(l, -1, index as c_int);
                put_top(l, depth + 1);
            }
        }
        Err(count) => {
            put_count(&mut *out, count, [0x80, 0xde, 0xdf]);
            need_stack(l, 4, c"in function mp_encode_lua_table_as_map");
            lua::lua_pushnil(l);
            while lua::lua_next(l, -2) != 0 {
                lua::lua_pushvalue(l, -2);
                put_top(l, depth + 1);
                put_top(l, depth + 1);
            }
        }
    }
}

/// Packs the value at the top and pops it.
unsafe fn put_top(l: State, depth: c_int) {
    let out = &raw mut (*inner_of(l)).buffer;
    match type_of(l, -1) {
        lua::LUA_TSTRING => put_bytes(&mut *out, bytes_at(l, -1).unwrap_or_default()),
        lua::LUA_TBOOLEAN => (*out).push(0xc2 + lua::lua_toboolean(l, -1) as u8),
        lua::LUA_TNUMBER => put_number(&mut *out, lua::lua_tonumber(l, -1)),
        lua::LUA_TTABLE if depth < NESTING_MAX => put_table(l, depth),
        _ => (*out).push(0xc0),
    }
    pop(l, 1);
}

unsafe extern "C-unwind" fn pack(l: State) -> c_int {
    let count = lua::lua_gettop(l);
    if count == 0 {
        raise_argument(l, 0, format_args!("MessagePack pack needs input."));
    }
    if lua::lua_checkstack(l, count) == 0 {
        raise_argument(l, 0, format_args!("Too many arguments for MessagePack pack."));
    }
    (*inner_of(l)).buffer.clear();
    for index in 1..=count {
        need_stack(l, 1, c"in function mp_check");
        lua::lua_pushvalue(l, index);
        put_top(l, 0);
    }
    push_bytes(l, &(*inner_of(l)).buffer);
    1
}

// Unpacking.

/// Why input cannot be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bad {
    Short,
    Format,
}

/// Takes `count` bytes off the front.
fn take<'i>(input: &mut &'i [u8], count: usize) -> Result<&'i [u8], Bad> {
    let (head, rest) = input.split_at_checked(count).ok_or(Bad::Short)?;
    *input = rest;
    Ok(head)
}

fn number(input: &mut &[u8], bytes: usize) -> Result<u64, Bad> {
    Ok(take(input, bytes)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

unsafe fn push_array(l: State, input: &mut &[u8], count: usize, depth: u32) -> Result<(), Bad> {
    lua::lua_createtable(l, count.min(input.len()).min(1 << 16) as c_int, 0);
    for index in 1..=count {
        push_value(l, input, depth + 1)?;
        lua::lua_rawseti_(l, -2, index as c_int);
    }
    Ok(())
}

unsafe fn push_map(l: State, input: &mut &[u8], count: usize, depth: u32) -> Result<(), Bad> {
    lua::lua_createtable(l, 0, count.min(input.len() / 2).min(1 << 16) as c_int);
    for _ in 0..count {
        push_value(l, input, depth + 1)?;
        push_value(l, input, depth + 1)?;
        // Raises Lua's own error for a key that is nil or no number.
        lua::lua_settable(l, -3);
    }
    Ok(())
}

unsafe fn push_text(l: State, input: &mut &[u8], len: usize) -> Result<(), Bad> {
    push_bytes(l, take(input, len)?);
    Ok(())
}

unsafe fn push_value(l: State, input: &mut &[u8], depth: u32) -> Result<(), Bad> {
    need_stack(l, 3, c"too many return values at once; use unpack_one or unpack_limit instead.");
    if depth > DEPTH_MAX {
        return Err(Bad::Format);
    }
    // A value that is not whole is not begun.
    let all = *input;
    let mark = take(input, 1)?[0];
    let result = match mark {
        0x00..0x80 => push_double(l, f64::from(mark)),
        0x80..0x90 => push_map(l, input, usize::from(mark & 15), depth),
        0x90..0xa0 => push_array(l, input, usize::from(mark & 15), depth),
        0xa0..0xc0 => push_text(l, input, usize::from(mark & 31)),
        0xe0..=0xff => push_double(l, f64::from(mark as i8)),
        _ => push_marked(l, input, mark, depth),
    };
    if result == Err(Bad::Short) {
        *input = all;
    }
    result
}

unsafe fn push_double(l: State, number: f64) -> Result<(), Bad> {
    lua::lua_pushnumber(l, number);
    Ok(())
}

unsafe fn push_marked(l: State, input: &mut &[u8], mark: u8, depth: u32) -> Result<(), Bad> {
    match mark {
        0xc0 => lua::lua_pushnil(l),
        0xc2 | 0xc3 => lua::lua_pushboolean(l, c_int::from(mark & 1)),
        0xca => {
            let bits = number(input, 4)? as u32;
            lua::lua_pushnumber(l, f64::from(f32::from_bits(bits)));
        }
        0xcb => lua::lua_pushnumber(l, f64::from_bits(number(input, 8)?)),
        0xcc..=0xcf => lua::lua_pushnumber(l, number(input, 1 << (mark - 0xcc))? as f64),
        0xd0..=0xd3 => {
            let bytes = 1 << (mark - 0xd0);
            let unused = 64 - 8 * bytes as u32;
            let value = (number(input, bytes)? << unused) as i64 >> unused;
            lua::lua_pushnumber(l, value as f64);
        }
        0xd9..=0xdb => {
            let len = number(input, 1 << (mark - 0xd9))? as usize;
            return push_text(l, input, len);
        }
        0xdc | 0xdd => {
            let count = number(input, 2 << (mark - 0xdc))? as usize;
            return push_array(l, input, count, depth);
        }
        0xde | 0xdf => {
            let count = number(input, 2 << (mark - 0xde))? as usize;
            return push_map(l, input, count, depth);
        }
        _ => return Err(Bad::Format),
    }
    Ok(())
}

/// Unpacks up to `limit` values (0: all) from `offset` on.
unsafe fn unpack_from(l: State, limit: i64, offset: i64) -> c_int {
    let text = check_bytes(l, 1);
    if offset < 0 || limit < 0 {
        raise(
            l,
            format_args!("Invalid request to unpack with offset of {offset} and limit of {limit}."),
        );
    }
    let Some(mut input) = usize::try_from(offset).ok().and_then(|at| text.get(at..)) else {
        let len = text.len();
        raise(l, format_args!("Start offset {offset} greater than input length {len}."));
    };
    // Whoever may stop before the end says first where it has stopped.
    let tells = limit != 0 || offset != 0;
    let most = if tells { limit } else { i64::MAX };
    if tells {
        lua::lua_pushnil(l);
    }
    let first = lua::lua_gettop(l);
    let mut count = 0;
    while !input.is_empty() && count < most {
        match push_value(l, &mut input, 0) {
            Ok(()) => count += 1,
            Err(Bad::Short) => raise(l, format_args!("Missing bytes in input.")),
            Err(Bad::Format) => raise(l, format_args!("Bad data format in input.")),
        }
    }
    if tells {
        let at = if input.is_empty() { -1.0 } else { (text.len() - input.len()) as f64 };
        lua::lua_pushnumber(l, at);
        lua::lua_replace(l, first);
        return lua::lua_gettop(l) - first + 1;
    }
    lua::lua_gettop(l) - first
}

unsafe extern "C-unwind" fn unpack(l: State) -> c_int {
    unpack_from(l, 0, 0)
}

unsafe extern "C-unwind" fn unpack_one(l: State) -> c_int {
    let offset = lua::luaL_optinteger(l, 2, 0) as i64;
    lua::lua_settop(l, 1);
    unpack_from(l, 1, offset)
}

unsafe extern "C-unwind" fn unpack_limit(l: State) -> c_int {
    let limit = lua::luaL_checkinteger(l, 2) as i64;
    let offset = lua::luaL_optinteger(l, 3, 0) as i64;
    lua::lua_settop(l, 1);
    unpack_from(l, limit, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_their_shortest_form() {
        let packed = |number: f64| {
            let mut out = Vec::new();
            put_number(&mut out, number);
            out
        };
        assert_eq!(packed(1.0), [1]);
        assert_eq!(packed(-32.0), [0xe0]);
        assert_eq!(packed(-33.0), [0xd0, 0xdf]);
        assert_eq!(packed(200.0), [0xcc, 200]);
        assert_eq!(packed(65536.0), [0xce, 0, 1, 0, 0]);
        assert_eq!(packed(1.5), [0xca, 0x3f, 0xc0, 0, 0]);
        assert_eq!(packed(0.1)[0], 0xcb);
        assert_eq!(packed(f64::INFINITY)[0], 0xca);
    }
}
