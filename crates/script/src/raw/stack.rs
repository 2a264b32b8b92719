//! Bytes, numbers, fields and errors to and from the Lua stack.
//!
//! All functions here follow the rules in the module above: they own nothing when they call Lua.

use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Write};

use mlua::ffi as lua;

use super::state::inner_of;

/// A Lua state or coroutine.
pub type State = *mut lua::lua_State;
/// A function that Lua calls.
pub type Function = unsafe extern "C-unwind" fn(State) -> c_int;

/// Pushes a string.
pub unsafe fn push_bytes(l: State, bytes: &[u8]) {
    lua::lua_pushlstring_(l, bytes.as_ptr().cast(), bytes.len());
}

/// The bytes at `index` if there is a string or a number there; a number becomes a string in
/// place. They stay valid as long as the value stays on the stack.
pub unsafe fn bytes_at<'s>(l: State, index: c_int) -> Option<&'s [u8]> {
    let mut len = 0;
    let start = lua::lua_tolstring(l, index, &mut len);
    if start.is_null() {
        return None;
    }
    Some(std::slice::from_raw_parts(start.cast(), len))
}

/// The string argument at `index`, or the error that it is none.
pub unsafe fn check_bytes<'s>(l: State, index: c_int) -> &'s [u8] {
    let mut len = 0;
    let start = lua::luaL_checklstring(l, index, &mut len);
    std::slice::from_raw_parts(start.cast(), len)
}

/// The type of the value at `index`.
pub unsafe fn type_of(l: State, index: c_int) -> c_int {
    lua::lua_type(l, index)
}

/// Removes the top `count` values.
pub unsafe fn pop(l: State, count: c_int) {
    lua::lua_settop(l, -count - 1);
}

/// Pops the top value into the field `name` of the table at `table` (raw).
pub unsafe fn set_field(l: State, table: c_int, name: &[u8]) {
    let table = absolute(l, table);
    push_bytes(l, name);
    lua::lua_insert(l, -2);
    lua::lua_rawset(l, table);
}

/// Pushes the field `name` of the table at `table` (raw); its type.
pub unsafe fn get_field(l: State, table: c_int, name: &[u8]) -> c_int {
    let table = absolute(l, table);
    push_bytes(l, name);
    lua::lua_rawget_(l, table);
    type_of(l, -1)
}

/// Sets the field `name` of the table at `table` to a C function.
pub unsafe fn set_function(l: State, table: c_int, name: &str, function: Function) {
    let table = absolute(l, table);
    lua::lua_pushcclosure(l, function, 0);
    set_field(l, table, name.as_bytes());
}

/// Sets the field `name` of the table at `table` to a number.
pub unsafe fn set_number(l: State, table: c_int, name: &str, number: f64) {
    let table = absolute(l, table);
    lua::lua_pushnumber(l, number);
    set_field(l, table, name.as_bytes());
}

/// An index counted from the bottom, whatever is pushed.
pub unsafe fn absolute(l: State, index: c_int) -> c_int {
    let is_relative = index < 0 && index > lua::LUA_REGISTRYINDEX;
    if is_relative { lua::lua_gettop(l) + index + 1 } else { index }
}

/// Pushes what luaL_ref put away.
pub unsafe fn push_ref(l: State, reference: c_int) {
    lua::lua_rawgeti_(l, lua::LUA_REGISTRYINDEX, reference);
}

/// Puts the top value away in the registry.
pub unsafe fn take_ref(l: State) -> c_int {
    lua::luaL_ref(l, lua::LUA_REGISTRYINDEX)
}

/// Makes room for `count` more values, or raises an error.
pub unsafe fn need_stack(l: State, count: c_int, what: &'static CStr) {
    lua::luaL_checkstack_(l, count, what.as_ptr());
}

/// Raises an error with the place in the script in front, as `error` does.
pub unsafe fn raise(l: State, text: fmt::Arguments<'_>) -> ! {
    let inner = inner_of(l);
    (*inner).message.clear();
    // Writing into a string cannot fail.
    let _ = (*inner).message.write_fmt(text);
    lua::luaL_where(l, 1);
    push_bytes(l, (*inner).message.as_bytes());
    lua::lua_concat(l, 2);
    lua::lua_error(l)
}

/// Raises the error that an argument is wrong, and why.
pub unsafe fn raise_argument(l: State, argument: c_int, why: fmt::Arguments<'_>) -> ! {
    let inner = inner_of(l);
    (*inner).message.clear();
    let _ = (*inner).message.write_fmt(why);
    (*inner).message.push('\0');
    let start = (*inner).message.as_ptr().cast::<c_char>();
    lua::luaL_argerror(l, argument, start);
    unreachable!("luaL_argerror does not return");
}

/// Pushes an error as Redis's scripts know it: a table with the text, code included, in `err`.
pub unsafe fn push_error(l: State, text: &[u8]) {
    lua::lua_createtable(l, 0, 2);
    push_bytes(l, text);
    set_field(l, -2, b"err");
}

/// Pushes such a table and raises it.
pub unsafe fn raise_error(l: State, text: &[u8]) -> ! {
    push_error(l, text);
    lua::lua_error(l)
}

/// Writes a number as C's `%.*g` does; its bytes in `buffer`.
pub fn format_number(number: f64, digits: c_int, buffer: &mut [u8; 64]) -> &[u8] {
    // SAFETY: at most `buffer.len()` bytes are written, the format and its arguments agree.
    let len = unsafe {
        libc::snprintf(buffer.as_mut_ptr().cast(), buffer.len(), c"%.*g".as_ptr(), digits, number)
    };
    &buffer[..(len.max(0) as usize).min(buffer.len() - 1)]
}
