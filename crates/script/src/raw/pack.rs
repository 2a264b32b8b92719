//! The module `struct`: values to and from bytes by a format, as in Roberto Ierusalimschy's
//! library of that name in the version that Redis has.
//!
//! ```text
//!   > <       big, little endian            !n     alignment up to n (default 8)
//!   b B h H l L T iN IN   signed, unsigned integers of 1, 2, 8, 8, N bytes
//!   f d       float, double                 x      a zero byte
//!   cN        N bytes of a string, c0: as many as the number before it says
//!   s         a string and a zero byte      space  nothing
//! ```

use std::ffi::c_int;

use mlua::ffi as lua;

use super::stack::raise_argument;
use super::stack::{Function, State, check_bytes, need_stack, pop, push_bytes, raise};
use super::state::inner_of;

/// The module's functions.
pub const FUNCTIONS: &[(&str, Function)] = &[("pack", pack), ("unpack", unpack), ("size", size)];

const INTEGER_BYTES_MAX: usize = 32;
const ALIGNMENT_MAX: usize = 8;

/// A format as it is read.
struct Format<'f> {
    rest: &'f [u8],
    is_big: bool,
    alignment: usize,
}

impl<'f> Format<'f> {
    fn new(text: &'f [u8]) -> Format<'f> {
        // A zero byte ends it, as it does in C.
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        Format { rest: &text[..end], is_big: cfg!(target_endian = "big"), alignment: 1 }
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    unsafe fn number(&mut self, l: State, default: usize) -> usize {
        if !self.rest.first().is_some_and(u8::is_ascii_digit) {
            return default;
        }
        let mut number = 0usize;
        while let Some(digit) = self.rest.first().filter(|byte| byte.is_ascii_digit()) {
            number = number * 10 + usize::from(digit - b'0');
            if number > i32::MAX as usize {
                raise(l, format_args!("integral size overflow"));
            }
            self.rest = &self.rest[1..];
        }
        number
    }

    /// Bytes that an option takes; 0 for those that say it otherwise.
    unsafe fn size(&mut self, l: State, option: u8) -> usize {
        match option {
            b'B' | b'b' | b'x' => 1,
            b'H' | b'h' => 2,
            b'L' | b'l' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(l, 1),
            b'i' | b'I' => {
                let size = self.number(l, 4);
                if size > INTEGER_BYTES_MAX {
                    let max = INTEGER_BYTES_MAX;
                    raise(l, format_args!("integral size {size} is larger than limit of {max}"));
                }
                size
            }
            _ => 0,
        }
    }

    /// Bytes to leave out before an element of `size` bytes at `at`.
    fn padding(&self, at: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        let size = size.min(self.alignment);
        size.wrapping_sub(at & (size - 1)) & (size - 1)
    }

    unsafe fn control(&mut self, l: State, option: u8) {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let alignment = self.number(l, ALIGNMENT_MAX);
                if !alignment.is_power_of_two() {
                    raise(l, format_args!("alignment {alignment} is not a power of 2"));
                }
                self.alignment = alignment;
            }
            option => {
                let option = option as char;
                raise_argument(l, 1, format_args!("invalid format option '{option}'"));
            }
        }
    }
}

/// A number as an integer of 64 bits in C's way: what is out of range has no defined value there.
fn integer_of(number: f64) -> u64 {
    if number < 0.0 { number as i64 as u64 } else { number as u64 }
}

fn put_integer(out: &mut Vec<u8>, value: u64, is_big: bool, size: usize) {
    let byte = |index: usize| if index < 8 { (value >> (8 * index)) as u8 } else { 0 };
    if is_big {
        out.extend((0..size).rev().map(byte));
    } else {
        out.extend((0..size).map(byte));
    }
}

fn integer_from(bytes: &[u8], is_big: bool, is_signed: bool) -> f64 {
    let shift = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value =
        if is_big { bytes.iter().fold(0, shift) } else { bytes.iter().rev().fold(0, shift) };
    if !is_signed {
        return value as f64;
    }
    let unused = 64u32.saturating_sub(8 * bytes.len().max(1) as u32);
    ((value << unused) as i64 >> unused) as f64
}

unsafe extern "C-unwind" fn pack(l: State) -> c_int {
    let mut format = Format::new(check_bytes(l, 1));
    let inner = inner_of(l);
    (*inner).buffer.clear();
    let mut argument = 2;
    while let Some(option) = format.next() {
        let size = format.size(l, option);
        let out = &mut (*inner).buffer;
        let padding = format.padding(out.len(), option, size);
        out.resize(out.len() + padding, 0);
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = lua::luaL_checknumber(l, argument);
                put_integer(out, integer_of(number), format.is_big, size);
            }
            b'x' => {
                out.push(0);
                continue;
            }
            b'f' => {
                let number = lua::luaL_checknumber(l, argument) as f32;
                put_integer(out, u64::from(number.to_bits()), format.is_big, size);
            }
            b'd' => {
                let number = lua::luaL_checknumber(l, argument);
                put_integer(out, number.to_bits(), format.is_big, size);
            }
            b'c' | b's' => {
                let text = check_bytes(l, argument);
                let size = if size == 0 { text.len() } else { size };
                if text.len() < size {
                    raise_argument(l, argument, format_args!("string too short"));
                }
                out.extend_from_slice(&text[..size]);
                if option == b's' {
                    out.push(0);
                }
            }
            option => {
                format.control(l, option);
                continue;
            }
        }
        argument += 1;
    }
    push_bytes(l, &(*inner).buffer);
    1
}

unsafe fn check_room(l: State, data: &[u8], at: usize, size: usize) {
    if size > data.len() || at > data.len() - size {
        raise_argument(l, 2, format_args!("data string too short"));
    }
}

unsafe extern "C-unwind" fn unpack(l: State) -> c_int {
    let mut format = Format::new(check_bytes(l, 1));
    let data = check_bytes(l, 2);
    let start = lua::luaL_optinteger(l, 3, 1);
    if start <= 0 {
        raise_argument(l, 3, format_args!("offset must be 1 or greater"));
    }
    let mut at = start as usize - 1;
    let mut count = 0;
    while let Some(option) = format.next() {
        let mut size = format.size(l, option);
        at = at.saturating_add(format.padding(at, option, size));
        check_room(l, data, at, size);
        need_stack(l, 2, c"too many results");
        let field = &data[at..at + size];
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let is_signed = option.is_ascii_lowercase();
                lua::lua_pushnumber(l, integer_from(field, format.is_big, is_signed));
            }
            b'x' => {
                at += size;
                continue;
            }
            b'f' | b'd' => lua::lua_pushnumber(l, float_from(field, format.is_big)),
            b'c' => {
                if size == 0 {
                    if count == 0 || lua::lua_isnumber(l, -1) == 0 {
                        raise(l, format_args!("format 'c0' needs a previous size"));
                    }
                    size = lua::lua_tonumber(l, -1) as usize;
                    pop(l, 1);
                    count -= 1;
                    check_room(l, data, at, size);
                }
                push_bytes(l, &data[at..at + size]);
            }
            b's' => {
                let Some(len) = data[at..].iter().position(|byte| *byte == 0) else {
                    raise(l, format_args!("unfinished string in data"));
                };
                push_bytes(l, &data[at..at + len]);
                size = len + 1;
            }
            option => {
                format.control(l, option);
                continue;
            }
        }
        count += 1;
        at += size;
    }
    lua::lua_pushnumber(l, (at + 1) as f64);
    count + 1
}

fn float_from(bytes: &[u8], is_big: bool) -> f64 {
    let shift = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let bits = if is_big { bytes.iter().fold(0, shift) } else { bytes.iter().rev().fold(0, shift) };
    if bytes.len() == 4 { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) }
}

unsafe extern "C-unwind" fn size(l: State) -> c_int {
    let mut format = Format::new(check_bytes(l, 1));
    let mut at = 0usize;
    while let Some(option) = format.next() {
        let size = format.size(l, option);
        at = at.saturating_add(format.padding(at, option, size));
        if option == b's' {
            raise_argument(l, 1, format_args!("option 's' has no fixed size"));
        }
        if option == b'c' && size == 0 {
            raise_argument(l, 1, format_args!("option 'c0' has no fixed size"));
        }
        if !option.is_ascii_alphanumeric() {
            format.control(l, option);
        }
        at = at.saturating_add(size);
    }
    lua::lua_pushnumber(l, at as f64);
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_come_back(value in any::<u64>(), size in 1usize..=8, is_big in any::<bool>()) {
            let value = if size == 8 { value } else { value & ((1 << (8 * size)) - 1) };
            let mut out = Vec::new();
            put_integer(&mut out, value, is_big, size);
            prop_assert_eq!(out.len(), size);
            prop_assert_eq!(integer_from(&out, is_big, false), value as f64);
        }
    }

    #[test]
    fn signs_are_extended() {
        assert_eq!(integer_from(&[0xff], false, true), -1.0);
        assert_eq!(integer_from(&[0xfe, 0xff], false, true), -2.0);
        assert_eq!(integer_from(&[0xff, 0xfe], true, true), -2.0);
        assert_eq!(integer_from(&[0xff; 8], true, true), -1.0);
    }
}
