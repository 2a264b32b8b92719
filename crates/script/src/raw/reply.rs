//! A command's reply as a Lua value, and a script's value as a reply.
//!
//! ```text
//!   :7                 7                      $3 abc, "abc"
//!   $-1 *-1            false                  _          nil
//!   +OK                {ok = "OK"}            -ERR no    {err = "ERR no"}
//!   *2 :1 :2           {1, 2}                 #t         true
//!   ,1.5               {double = 1.5}         (12        {big_number = "12"}
//!   %1 :1 :2           {map = {[1] = 2}}      ~1 :1      {set = {[1] = true}}
//!   =7 txt:abc         {verbatim_string = {string = "abc", format = "txt"}}
//! ```
//!
//! The way back is the same, but that a number loses its fraction and an array ends before its
//! first nil.

use std::borrow::Cow;
use std::ffi::c_int;

use mlua::ffi as lua;
use resp::Writer;

use super::stack::{State, bytes_at, get_field, need_stack, pop, push_bytes, push_ref};
use super::stack::{set_field, type_of};
use super::state::inner_of;

const STACK: &std::ffi::CStr = c"lua stack limit reach when parsing redis.call reply";

/// Where a reply is being read.
pub struct Reader<'r> {
    bytes: &'r [u8],
    at: usize,
}

impl<'r> Reader<'r> {
    /// At the beginning of a reply. Replies are our own: what is no reply reads as null.
    pub fn new(bytes: &'r [u8]) -> Reader<'r> {
        Reader { bytes, at: 0 }
    }

    /// The type and what stands in the rest of the line.
    fn line(&mut self) -> (u8, &'r [u8]) {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let Some(end) = memchr::memchr(b'\r', rest).filter(|end| *end > 0) else {
            self.at = self.bytes.len();
            return (b'_', b"");
        };
        self.at += end + 2;
        (rest[0], &rest[1..end])
    }

    fn text(&mut self, len: usize) -> &'r [u8] {
        let text = self.bytes.get(self.at..self.at + len).unwrap_or_default();
        self.at += len + 2;
        text
    }
}

/// Reads a number of a header or an integer; `None` for -1 and what is none.
fn number(text: &[u8]) -> i64 {
    resp::number::integer(text).unwrap_or(0)
}

/// Whether a reply would be the same after it has been a value of Lua, whatever the protocols: a
/// status, a string, an integer that a double holds.
pub fn passes_unchanged(bytes: &[u8]) -> bool {
    const DIGITS_MAX: usize = 15;
    match bytes {
        [b'+', ..] => true,
        [b'$', next, ..] => *next != b'-',
        [b':', ..] => bytes.len() <= DIGITS_MAX + 3,
        _ => false,
    }
}

/// Pushes the reply that comes next.
pub unsafe fn push(l: State, reader: &mut Reader<'_>) {
    need_stack(l, 6, STACK);
    let (kind, line) = reader.line();
    match kind {
        b':' => lua::lua_pushnumber(l, number(line) as f64),
        b'$' | b'*' if line == b"-1" => lua::lua_pushboolean(l, 0),
        b'$' => push_bytes(l, reader.text(number(line) as usize)),
        b'*' | b'>' => push_array(l, reader, number(line) as c_int),
        b'+' => push_status(l, line),
        b'-' => push_error_reply(l, line),
        b'%' => push_map(l, reader, number(line)),
        b'~' => push_set(l, reader, number(line)),
        b'#' => lua::lua_pushboolean(l, c_int::from(line == b"t")),
        b',' => {
            lua::lua_createtable(l, 0, 1);
            let number = resp::number::rounded_double(line).unwrap_or(f64::NAN);
            lua::lua_pushnumber(l, number);
            set_field(l, -2, b"double");
        }
        b'(' => push_single(l, b"big_number", line),
        b'=' => push_verbatim(l, reader.text(number(line) as usize)),
        _ => lua::lua_pushnil(l),
    }
}

unsafe fn push_status(l: State, text: &[u8]) {
    let references = &raw const (*inner_of(l)).references;
    lua::lua_createtable(l, 0, 1);
    push_ref(l, (*references).ok);
    if text == b"OK" {
        push_ref(l, (*references).ok_text);
    } else {
        push_bytes(l, text);
    }
    lua::lua_rawset(l, -3);
}

unsafe fn push_single(l: State, name: &[u8], text: &[u8]) {
    lua::lua_createtable(l, 0, 1);
    push_bytes(l, text);
    set_field(l, -2, name);
}

/// An error reply's code and text; one without a code gets `ERR`.
unsafe fn push_error_reply(l: State, line: &[u8]) {
    lua::lua_createtable(l, 0, 2);
    if line.contains(&b' ') {
        push_bytes(l, line);
    } else {
        push_bytes(l, b"ERR ");
        push_bytes(l, line);
        lua::lua_concat(l, 2);
    }
    set_field(l, -2, b"err");
    // The command itself has counted it.
    lua::lua_pushboolean(l, 1);
    set_field(l, -2, b"ignore_error_stats_update");
}

unsafe fn push_array(l: State, reader: &mut Reader<'_>, len: c_int) {
    lua::lua_createtable(l, len, 0);
    for index in 1..=len {
        push(l, reader);
        lua::lua_rawseti_(l, -2, index);
    }
}

unsafe fn push_map(l: State, reader: &mut Reader<'_>, len: i64) {
    lua::lua_createtable(l, 0, 1);
    lua::lua_createtable(l, 0, len as c_int);
    for _ in 0..len {
        push(l, reader);
        push(l, reader);
        lua::lua_rawset(l, -3);
    }
    set_field(l, -2, b"map");
}

unsafe fn push_set(l: State, reader: &mut Reader<'_>, len: i64) {
    lua::lua_createtable(l, 0, 1);
    lua::lua_createtable(l, 0, len as c_int);
    for _ in 0..len {
        push(l, reader);
        lua::lua_pushboolean(l, 1);
        lua::lua_rawset(l, -3);
    }
    set_field(l, -2, b"set");
}

unsafe fn push_verbatim(l: State, text: &[u8]) {
    lua::lua_createtable(l, 0, 1);
    lua::lua_createtable(l, 0, 2);
    push_bytes(l, text.get(4..).unwrap_or_default());
    set_field(l, -2, b"string");
    push_bytes(l, text.get(..3).unwrap_or_default());
    set_field(l, -2, b"format");
    set_field(l, -2, b"verbatim_string");
}

// The way back.

/// A number as C converts it to an integer of 64 bits.
fn truncated(number: f64) -> i64 {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    if fits { number as i64 } else { i64::MIN }
}

/// A line of a reply: line ends in it become spaces.
fn put_line(out: &mut Writer, kind: u8, text: &[u8]) {
    out.raw(&[kind]);
    out.raw(&on_one_line(text));
    out.raw(b"\r\n");
}

/// The text with spaces for its line ends.
fn on_one_line(text: &[u8]) -> Cow<'_, [u8]> {
    let ends = |byte: &u8| matches!(byte, b'\r' | b'\n');
    if !text.iter().any(ends) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.iter().map(|byte| if ends(byte) { b' ' } else { *byte }).collect())
}

/// Writes the value at the top and pops it; `resp3`: the version that the script has chosen.
pub unsafe fn write(l: State, out: *mut Writer, resp3: bool) {
    if lua::lua_checkstack(l, 6) == 0 {
        (*out).error("ERR reached lua stack limit");
        return pop(l, 1);
    }
    match type_of(l, -1) {
        lua::LUA_TSTRING => (*out).bulk(bytes_at(l, -1).unwrap_or_default()),
        lua::LUA_TNUMBER => (*out).int(truncated(lua::lua_tonumber(l, -1))),
        lua::LUA_TBOOLEAN => {
            let truth = lua::lua_toboolean(l, -1) != 0;
            match (resp3, truth) {
                (true, truth) => (*out).boolean(truth),
                (false, true) => (*out).int(1),
                (false, false) => (*out).null(),
            }
        }
        lua::LUA_TTABLE => {
            if !write_special(l, out, resp3) {
                write_array(l, out, resp3);
            }
        }
        _ => (*out).null(),
    }
    pop(l, 1);
}

unsafe fn write_array(l: State, out: *mut Writer, resp3: bool) {
    let place = (*out).later();
    let mut len = 0;
    loop {
        lua::lua_rawgeti_(l, -1, len + 1);
        if type_of(l, -1) == lua::LUA_TNIL {
            break pop(l, 1);
        }
        write(l, out, resp3);
        len += 1;
    }
    (*out).array_at(place, len as usize);
}

/// Whether the field has this type; it is pushed then.
unsafe fn has(l: State, name: &[u8], kind: c_int) -> bool {
    if get_field(l, -1, name) == kind {
        return true;
    }
    pop(l, 1);
    false
}

/// Whether the field whose name is kept at `reference` is a string; it is pushed then.
unsafe fn has_named(l: State, reference: c_int) -> bool {
    push_ref(l, reference);
    lua::lua_rawget_(l, -2);
    if type_of(l, -1) == lua::LUA_TSTRING {
        return true;
    }
    pop(l, 1);
    false
}

/// Writes the table at the top if it stands for another type; it stays there.
unsafe fn write_special(l: State, out: *mut Writer, resp3: bool) -> bool {
    if is_pure_array(l) {
        return false;
    }
    let references = &raw const (*inner_of(l)).references;
    if has_named(l, (*references).err) {
        note_counted(l);
        put_line(&mut *out, b'-', bytes_at(l, -1).unwrap_or_default());
    } else if has_named(l, (*references).ok) {
        put_line(&mut *out, b'+', bytes_at(l, -1).unwrap_or_default());
    } else if has(l, b"double", lua::LUA_TNUMBER) {
        (*out).double(lua::lua_tonumber(l, -1));
    } else if has(l, b"big_number", lua::LUA_TSTRING) {
        let digits = bytes_at(l, -1).unwrap_or_default();
        if (*out).is_resp3() {
            put_line(&mut *out, b'(', digits);
        } else {
            (*out).bulk(&on_one_line(digits));
        }
    } else if has(l, b"verbatim_string", lua::LUA_TTABLE) {
        if !write_verbatim(l, out) {
            pop(l, 1);
            return false;
        }
    } else if has(l, b"map", lua::LUA_TTABLE) {
        write_map(l, out, resp3);
    } else if has(l, b"set", lua::LUA_TTABLE) {
        write_set(l, out, resp3);
    } else {
        return false;
    }
    pop(l, 1);
    true
}

/// Whether the table at the top has no keys behind those of its array: most have none, and finding
/// that out is one look instead of seven.
unsafe fn is_pure_array(l: State) -> bool {
    match lua::lua_objlen(l, -1) {
        0 => lua::lua_pushnil(l),
        len => lua::lua_pushnumber(l, len as f64),
    }
    if lua::lua_next(l, -2) == 0 {
        return true;
    }
    pop(l, 2);
    false
}

/// The error table below the top: remembers whether a command has counted it.
unsafe fn note_counted(l: State) {
    get_field(l, -2, b"ignore_error_stats_update");
    let run = (*inner_of(l)).run;
    if !run.is_null() {
        (*run).returns_counted = lua::lua_toboolean(l, -1) != 0;
    }
    pop(l, 1);
}

unsafe fn write_verbatim(l: State, out: *mut Writer) -> bool {
    let found = get_field(l, -1, b"format") == lua::LUA_TSTRING
        && get_field(l, -2, b"string") == lua::LUA_TSTRING;
    if !found {
        // One or two were pushed.
        let pushed = if type_of(l, -2) == lua::LUA_TSTRING { 2 } else { 1 };
        pop(l, pushed);
        return false;
    }
    let format = bytes_at(l, -2).unwrap_or_default();
    let text = bytes_at(l, -1).unwrap_or_default();
    if (*out).is_resp3() {
        let mut number = itoa::Buffer::new();
        (*out).raw(b"=");
        (*out).raw(number.format(text.len() + 4).as_bytes());
        (*out).raw(b"\r\n");
        let mut form = *b"   ";
        form.iter_mut().zip(format).for_each(|(place, byte)| *place = *byte);
        (*out).raw(&form);
        (*out).raw(b":");
        (*out).raw(text);
        (*out).raw(b"\r\n");
    } else {
        (*out).bulk(text);
    }
    pop(l, 2);
    true
}

unsafe fn write_map(l: State, out: *mut Writer, resp3: bool) {
    let place = (*out).later();
    let mut len = 0;
    lua::lua_pushnil(l);
    while lua::lua_next(l, -2) != 0 {
        lua::lua_pushvalue(l, -2);
        write(l, out, resp3);
        write(l, out, resp3);
        len += 1;
    }
    (*out).map_at(place, len);
}

unsafe fn write_set(l: State, out: *mut Writer, resp3: bool) {
    let place = (*out).later();
    let mut len = 0;
    lua::lua_pushnil(l);
    while lua::lua_next(l, -2) != 0 {
        pop(l, 1);
        lua::lua_pushvalue(l, -1);
        write(l, out, resp3);
        len += 1;
    }
    (*out).set_at(place, len);
}
