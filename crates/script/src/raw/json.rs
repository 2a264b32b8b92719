//! The module `cjson`: JSON to and from Lua values, as in lua-cjson 2.1 with Redis's limits.
//!
//! A table whose keys are whole numbers from 1 on becomes an array, any other an object; null is
//! the light userdata `cjson.null`. Settings that a script changes hold to its end.

use std::ffi::{CStr, c_char, c_int};

use mlua::ffi as lua;

use super::stack::{Function, State, bytes_at, check_bytes, format_number, pop, push_bytes, raise};
use super::stack::{raise_argument, set_field, set_function, type_of};
use super::state::inner_of;

/// The module's functions.
pub const FUNCTIONS: &[(&str, Function)] = &[
    ("encode", encode),
    ("decode", decode),
    ("encode_sparse_array", encode_sparse_array),
    ("encode_max_depth", encode_max_depth),
    ("decode_max_depth", decode_max_depth),
    ("encode_number_precision", encode_number_precision),
    ("encode_keep_buffer", encode_keep_buffer),
    ("encode_invalid_numbers", encode_invalid_numbers),
    ("decode_invalid_numbers", decode_invalid_numbers),
    ("new", new),
];

/// What the module's own functions set.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    sparse_converts: c_int,
    sparse_ratio: c_int,
    sparse_safe: c_int,
    encode_depth_max: c_int,
    decode_depth_max: c_int,
    number_digits: c_int,
    keeps_buffer: c_int,
    /// 0 = an error, 1 = as they are, 2 = null.
    invalid_encoded: c_int,
    invalid_decoded: c_int,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            sparse_converts: 0,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1000,
            decode_depth_max: 1000,
            number_digits: 14,
            keeps_buffer: 1,
            invalid_encoded: 0,
            invalid_decoded: 1,
        }
    }
}

/// Pushes the module.
pub unsafe fn open(l: State) {
    lua::lua_createtable(l, 0, 16);
    for (name, function) in FUNCTIONS {
        set_function(l, -1, name, *function);
    }
    lua::lua_pushlightuserdata(l, std::ptr::null_mut());
    set_field(l, -2, b"null");
    push_bytes(l, b"cjson");
    set_field(l, -2, b"_NAME");
    push_bytes(l, b"2.1.0");
    set_field(l, -2, b"_VERSION");
}

unsafe extern "C-unwind" fn new(l: State) -> c_int {
    open(l);
    1
}

// Settings.

unsafe fn need_arguments(l: State, most: c_int) {
    if lua::lua_gettop(l) > most {
        raise_argument(l, most + 1, format_args!("found too many arguments"));
    }
    lua::lua_settop(l, most);
}

unsafe fn integer_setting(l: State, index: c_int, setting: *mut c_int, min: c_int, max: c_int) {
    if type_of(l, index) != lua::LUA_TNIL {
        let value = lua::luaL_checkinteger(l, index) as i64;
        if !(i64::from(min)..=i64::from(max)).contains(&value) {
            raise_argument(l, 1, format_args!("expected integer between {min} and {max}"));
        }
        *setting = value as c_int;
    }
    lua::lua_pushnumber(l, f64::from(*setting));
}

unsafe fn choice_setting(l: State, index: c_int, setting: *mut c_int, names: &[&CStr]) {
    match type_of(l, index) {
        lua::LUA_TNIL => {}
        lua::LUA_TBOOLEAN => *setting = lua::lua_toboolean(l, index),
        _ => {
            let mut list = [std::ptr::null::<c_char>(); 4];
            for (place, name) in list.iter_mut().zip(names) {
                *place = name.as_ptr();
            }
            *setting = lua::luaL_checkoption(l, index, std::ptr::null(), list.as_ptr());
        }
    }
    if *setting < 2 {
        lua::lua_pushboolean(l, *setting);
    } else {
        push_bytes(l, names[*setting as usize].to_bytes());
    }
}

const SWITCH: &[&CStr] = &[c"off", c"on"];

unsafe extern "C-unwind" fn encode_sparse_array(l: State) -> c_int {
    need_arguments(l, 3);
    let settings = &raw mut (*inner_of(l)).json;
    choice_setting(l, 1, &raw mut (*settings).sparse_converts, SWITCH);
    integer_setting(l, 2, &raw mut (*settings).sparse_ratio, 0, c_int::MAX);
    integer_setting(l, 3, &raw mut (*settings).sparse_safe, 0, c_int::MAX);
    3
}

unsafe extern "C-unwind" fn encode_max_depth(l: State) -> c_int {
    need_arguments(l, 1);
    integer_setting(l, 1, &raw mut (*inner_of(l)).json.encode_depth_max, 1, c_int::MAX);
    1
}

unsafe extern "C-unwind" fn decode_max_depth(l: State) -> c_int {
    need_arguments(l, 1);
    integer_setting(l, 1, &raw mut (*inner_of(l)).json.decode_depth_max, 1, c_int::MAX);
    1
}

unsafe extern "C-unwind" fn encode_number_precision(l: State) -> c_int {
    need_arguments(l, 1);
    integer_setting(l, 1, &raw mut (*inner_of(l)).json.number_digits, 1, 14);
    1
}

unsafe extern "C-unwind" fn encode_keep_buffer(l: State) -> c_int {
    need_arguments(l, 1);
    choice_setting(l, 1, &raw mut (*inner_of(l)).json.keeps_buffer, SWITCH);
    1
}

unsafe extern "C-unwind" fn encode_invalid_numbers(l: State) -> c_int {
    need_arguments(l, 1);
    let setting = &raw mut (*inner_of(l)).json.invalid_encoded;
    choice_setting(l, 1, setting, &[c"off", c"on", c"null"]);
    1
}

unsafe extern "C-unwind" fn decode_invalid_numbers(l: State) -> c_int {
    need_arguments(l, 1);
    choice_setting(l, 1, &raw mut (*inner_of(l)).json.invalid_decoded, SWITCH);
    1
}

// Encoding.

/// Writes a string with its quotes and escapes.
fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', *byte]),
            8 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0..32 | 127 => {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            }
            byte => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// Writes a number with so many digits, as C's `%.*g`.
fn put_number(out: &mut Vec<u8>, number: f64, digits: c_int) {
    let is_plain = number.trunc() == number && number.abs() < 1e14 && number != 0.0;
    if digits == 14 && is_plain {
        let mut buffer = itoa::Buffer::new();
        return out.extend_from_slice(buffer.format(number as i64).as_bytes());
    }
    out.extend_from_slice(format_number(number, digits, &mut [0; 64]));
}

unsafe fn refuse(l: State, index: c_int, why: &str) -> ! {
    let name = CStr::from_ptr(lua::lua_typename(l, type_of(l, index)));
    let name = name.to_str().unwrap_or("value");
    raise(l, format_args!("Cannot serialise {name}: {why}"))
}

unsafe fn put_number_at(l: State, index: c_int) {
    let inner = inner_of(l);
    let number = lua::lua_tonumber(l, index);
    let out = &raw mut (*inner).buffer;
    if !number.is_finite() {
        match (*inner).json.invalid_encoded {
            0 => refuse(l, index, "must not be NaN or Inf"),
            1 if number.is_nan() => return (*out).extend_from_slice(b"nan"),
            1 => {}
            _ => return (*out).extend_from_slice(b"null"),
        }
    }
    put_number(&mut *out, number, (*inner).json.number_digits);
}

/// The length of the array that the table at the top is; `None` if it is an object.
unsafe fn array_length(l: State) -> Option<c_int> {
    let settings = (*inner_of(l)).json;
    let (mut max, mut count) = (0.0f64, 0.0);
    lua::lua_pushnil(l);
    while lua::lua_next(l, -2) != 0 {
        let is_number = type_of(l, -2) == lua::LUA_TNUMBER;
        let key = if is_number { lua::lua_tonumber(l, -2) } else { 0.0 };
        if key < 1.0 || key.floor() != key {
            pop(l, 2);
            return None;
        }
        max = max.max(key);
        count += 1.0;
        pop(l, 1);
    }
    let ratio = f64::from(settings.sparse_ratio);
    if ratio > 0.0 && max > count * ratio && max > f64::from(settings.sparse_safe) {
        if settings.sparse_converts == 0 {
            refuse(l, -1, "excessively sparse array");
        }
        return None;
    }
    Some(max as c_int)
}

unsafe fn put_array(l: State, len: c_int, depth: c_int) {
    let out = &raw mut (*inner_of(l)).buffer;
    (*out).push(b'[');
    for index in 1..=len {
        if index > 1 {
            (*out).push(b',');
        }
        lua::lua_rawgeti_(l, -1, index);
        put_top(l, depth);
        pop(l, 1);
    }
    (*out).push(b']');
}

unsafe fn put_object(l: State, depth: c_int) {
    let out = &raw mut (*inner_of(l)).buffer;
    (*out).push(b'{');
    let mut is_first = true;
    lua::lua_pushnil(l);
    while lua::lua_next(l, -2) != 0 {
        if !std::mem::take(&mut is_first) {
            (*out).push(b',');
        }
        match type_of(l, -2) {
            lua::LUA_TNUMBER => {
                (*out).push(b'"');
                put_number_at(l, -2);
                (*out).push(b'"');
            }
            lua::LUA_TSTRING => put_string(&mut *out, bytes_at(l, -2).unwrap_or_default()),
            _ => refuse(l, -2, "table key must be a number or string"),
        }
        (*out).push(b':');
        put_top(l, depth);
        pop(l, 1);
    }
    (*out).push(b'}');
}

/// Writes the value at the top; it stays there.
unsafe fn put_top(l: State, depth: c_int) {
    let inner = inner_of(l);
    let out = &raw mut (*inner).buffer;
    match type_of(l, -1) {
        lua::LUA_TSTRING => put_string(&mut *out, bytes_at(l, -1).unwrap_or_default()),
        lua::LUA_TNUMBER => put_number_at(l, -1),
        lua::LUA_TBOOLEAN if lua::lua_toboolean(l, -1) != 0 => (*out).extend_from_slice(b"true"),
        lua::LUA_TBOOLEAN => (*out).extend_from_slice(b"false"),
        lua::LUA_TNIL => (*out).extend_from_slice(b"null"),
        lua::LUA_TTABLE => {
            let depth = depth + 1;
            if depth > (*inner).json.encode_depth_max || lua::lua_checkstack(l, 4) == 0 {
                raise(l, format_args!("Cannot serialise, excessive nesting ({depth})"));
            }
            match array_length(l) {
                Some(len) if len > 0 => put_array(l, len, depth),
                _ => put_object(l, depth),
            }
        }
        lua::LUA_TLIGHTUSERDATA if lua::lua_touserdata(l, -1).is_null() => {
            (*out).extend_from_slice(b"null");
        }
        _ => refuse(l, -1, "type not supported"),
    }
}

unsafe extern "C-unwind" fn encode(l: State) -> c_int {
    if lua::lua_gettop(l) != 1 {
        raise_argument(l, 1, format_args!("expected 1 argument"));
    }
    (*inner_of(l)).buffer.clear();
    put_top(l, 0);
    push_bytes(l, &(*inner_of(l)).buffer);
    1
}

// Decoding.

/// One piece of JSON.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    /// Its text is in the scratch bytes.
    String,
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    /// The name in error texts.
    fn name(self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::String => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error(text) => text,
        }
    }
}

/// A text as it is read. **Invariant:** a zero byte stands behind `text`.
struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    /// Where the last token began, or where it went wrong.
    token_at: usize,
    depth: c_int,
    settings: Settings,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn error(&mut self, text: &'static str) -> Token {
        self.token_at = self.at;
        Token::Error(text)
    }

    /// The next token; a string's text goes to `out`.
    fn next(&mut self, out: &mut Vec<u8>) -> Token {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') && self.at < self.text.len() {
            self.at += 1;
        }
        self.token_at = self.at;
        let single = match self.peek() {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            0 if self.at >= self.text.len() => return Token::End,
            b'"' => return self.string(out),
            _ => return self.word(),
        };
        self.at += 1;
        single
    }

    fn word(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let starts_number = matches!(self.peek(), b'-' | b'0'..=b'9');
        if starts_number {
            if self.settings.invalid_decoded == 0 && is_invalid_number(rest) {
                return self.error("invalid number");
            }
            return self.number();
        }
        for (word, token) in [
            ("true", Token::Boolean(true)),
            ("false", Token::Boolean(false)),
            ("null", Token::Null),
        ] {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        let may_start = matches!(self.peek(), b'+' | b'i' | b'I' | b'n' | b'N');
        if may_start && self.settings.invalid_decoded != 0 && is_invalid_number(rest) {
            return self.number();
        }
        self.error("invalid token")
    }

    fn number(&mut self) -> Token {
        let start = self.text[self.at..].as_ptr().cast::<c_char>();
        let mut end = std::ptr::null_mut();
        // SAFETY: a zero byte ends the text, so strtod stops there at the latest.
        let (number, len) = unsafe {
            let number = libc::strtod(start, &raw mut end);
            (number, end.offset_from(start))
        };
        if len <= 0 {
            return self.error("invalid number");
        }
        self.at += len as usize;
        Token::Number(number)
    }

    fn string(&mut self, out: &mut Vec<u8>) -> Token {
        out.clear();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0));
            let Some(len) = plain else {
                self.at = self.text.len();
                return self.error("unexpected end of string");
            };
            out.extend_from_slice(&rest[..len]);
            self.at += len;
            match self.peek() {
                b'"' => {
                    self.at += 1;
                    return Token::String;
                }
                0 => return self.error("unexpected end of string"),
                _ => {
                    if let Err(why) = self.escape(out) {
                        return self.error(why);
                    }
                }
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), &'static str> {
        let byte = match self.text.get(self.at + 1) {
            Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.unicode(out).ok_or("invalid unicode escape code"),
            _ => return Err("invalid escape code"),
        };
        out.push(byte);
        self.at += 2;
        Ok(())
    }

    fn unicode(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let first = hex4(self.text.get(self.at + 2..self.at + 6)?)?;
        let mut len = 6;
        let mut code = first;
        if first & 0xf800 == 0xd800 {
            if first & 0x400 != 0 || self.text.get(self.at + 6..self.at + 8)? != b"\\u" {
                return None;
            }
            let second = hex4(self.text.get(self.at + 8..self.at + 12)?)?;
            if second & 0xfc00 != 0xdc00 {
                return None;
            }
            code = ((first & 0x3ff) << 10 | second & 0x3ff) + 0x1_0000;
            len = 12;
        }
        let text = char::from_u32(code)?;
        out.extend_from_slice(text.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += len;
        Some(())
    }
}

fn hex4(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |code, digit| Some(code << 4 | (*digit as char).to_digit(16)?))
}

/// Whether what `strtod` would take is no number in JSON: `+1`, `01`, `0x1`, `nan`, `inf`.
fn is_invalid_number(text: &[u8]) -> bool {
    let at = |index: usize| text.get(index).copied().unwrap_or(0);
    if at(0) == b'+' {
        return true;
    }
    let digits = &text[usize::from(at(0) == b'-')..];
    match digits.first() {
        Some(b'0') => {
            digits.get(1).is_some_and(|next| next | 0x20 == b'x' || next.is_ascii_digit())
        }
        Some(first) if *first <= b'9' => false,
        _ => {
            let starts =
                |word: &[u8]| digits.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(word));
            starts(b"inf") || starts(b"nan")
        }
    }
}

unsafe fn fail(l: State, reader: &Reader<'_>, wanted: &str, found: Token) -> ! {
    let (found, place) = (found.name(), reader.token_at + 1);
    raise(l, format_args!("Expected {wanted} but found {found} at character {place}"))
}

unsafe fn descend(l: State, reader: &mut Reader<'_>) {
    reader.depth += 1;
    if reader.depth > reader.settings.decode_depth_max || lua::lua_checkstack(l, 4) == 0 {
        let (depth, at) = (reader.depth, reader.at);
        raise(l, format_args!("Found too many nested data structures ({depth}) at character {at}"));
    }
}

unsafe fn push_object(l: State, reader: &mut Reader<'_>) {
    let out = &raw mut (*inner_of(l)).buffer;
    descend(l, reader);
    lua::lua_createtable(l, 0, 0);
    let mut token = reader.next(&mut *out);
    while token != Token::ObjectEnd {
        if token != Token::String {
            fail(l, reader, "object key string", token);
        }
        push_bytes(l, &*out);
        token = reader.next(&mut *out);
        if token != Token::Colon {
            fail(l, reader, "colon", token);
        }
        token = reader.next(&mut *out);
        push_value(l, reader, token);
        lua::lua_rawset(l, -3);
        token = reader.next(&mut *out);
        match token {
            Token::ObjectEnd => {}
            Token::Comma => {
                token = reader.next(&mut *out);
                if token == Token::ObjectEnd {
                    fail(l, reader, "object key string", token);
                }
            }
            _ => fail(l, reader, "comma or object end", token),
        }
    }
    reader.depth -= 1;
}

unsafe fn push_array(l: State, reader: &mut Reader<'_>) {
    let out = &raw mut (*inner_of(l)).buffer;
    descend(l, reader);
    lua::lua_createtable(l, 0, 0);
    let mut token = reader.next(&mut *out);
    let mut index = 1;
    while token != Token::ArrayEnd {
        push_value(l, reader, token);
        lua::lua_rawseti_(l, -2, index);
        index += 1;
        token = reader.next(&mut *out);
        match token {
            Token::ArrayEnd => {}
            Token::Comma => {
                token = reader.next(&mut *out);
                if token == Token::ArrayEnd {
                    fail(l, reader, "value", token);
                }
            }
            _ => fail(l, reader, "comma or array end", token),
        }
    }
    reader.depth -= 1;
}

unsafe fn push_value(l: State, reader: &mut Reader<'_>, token: Token) {
    match token {
        Token::String => push_bytes(l, &(*inner_of(l)).buffer),
        Token::Number(number) => lua::lua_pushnumber(l, number),
        Token::Boolean(truth) => lua::lua_pushboolean(l, c_int::from(truth)),
        Token::Null => lua::lua_pushlightuserdata(l, std::ptr::null_mut()),
        Token::ObjectBegin => push_object(l, reader),
        Token::ArrayBegin => push_array(l, reader),
        token => fail(l, reader, "value", token),
    }
}

unsafe extern "C-unwind" fn decode(l: State) -> c_int {
    if lua::lua_gettop(l) != 1 {
        raise_argument(l, 1, format_args!("expected 1 argument"));
    }
    let text = check_bytes(l, 1);
    if text.len() >= 2 && text[..2].contains(&0) {
        raise(l, format_args!("JSON parser does not support UTF-16 or UTF-32"));
    }
    let settings = (*inner_of(l)).json;
    let mut reader = Reader { text, at: 0, token_at: 0, depth: 0, settings };
    let out = &raw mut (*inner_of(l)).buffer;
    let token = reader.next(&mut *out);
    push_value(l, &mut reader, token);
    let token = reader.next(&mut *out);
    if token != Token::End {
        fail(l, &reader, "the end", token);
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(text: &str) -> Vec<Token> {
        let ended = format!("{text}\0");
        let text = &ended.as_bytes()[..text.len()];
        let settings = Settings::default();
        let mut reader = Reader { text, at: 0, token_at: 0, depth: 0, settings };
        let mut found = Vec::new();
        loop {
            let token = reader.next(&mut Vec::new());
            found.push(token);
            if matches!(token, Token::End | Token::Error(_)) {
                return found;
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_ends(text in "[\\[\\]{}:,\"\\\\u0-9a-fnul+ .xX-]{0,40}") {
            prop_assert!(tokens(&text).len() <= text.len() + 1);
        }

        #[test]
        fn strings_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut written = Vec::new();
            put_string(&mut written, &bytes);
            written.push(0);
            let text = &written[..written.len() - 1];
            let settings = Settings::default();
            let mut reader = Reader { text, at: 0, token_at: 0, depth: 0, settings };
            let mut out = Vec::new();
            prop_assert_eq!(reader.next(&mut out), Token::String);
            prop_assert_eq!(out, bytes);
        }
    }

    #[test]
    fn words_are_told_apart() {
        assert_eq!(tokens("-1.5e3"), [Token::Number(-1500.0), Token::End]);
        assert_eq!(tokens("0x10"), [Token::Number(16.0), Token::End]);
        assert_eq!(tokens("truex")[1], Token::Error("invalid token"));
        assert_eq!(tokens("\"\\ud83d\""), [Token::Error("invalid unicode escape code")]);
        assert_eq!(tokens("\"\\q\""), [Token::Error("invalid escape code")]);
        assert_eq!(tokens("\"a"), [Token::Error("unexpected end of string")]);
    }
}
