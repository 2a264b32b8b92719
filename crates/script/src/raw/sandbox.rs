//! What scripts find in their globals, by an allow-list, and the tables they cannot change.
//!
//! ```text
//!   script's _G --__index--> globals --__index--> error "nonexistent global variable"
//!    (empty)                  redis --> (empty) --__index--> call, pcall, ...
//! ```
//!
//! Lua 5.1 has no read-only tables. A protected table is an empty stand-in whose metatable looks
//! keys up in the real one and refuses new ones; as it stays empty, every assignment is a new key.
//! `rawset`, `setmetatable` and `table.insert` refuse stand-ins, `rawget`, `next` and `pairs` look
//! through them (`pairs` into a copy). **Invariant:** no script gets hold of a real table, of a
//! metatable of ours, or of bytecode that it could load.
//!
//! A script that is to end must not go on behind `pcall`: whatever catches errors is wrapped in
//! [`guarded`], which raises again.

use std::ffi::{c_int, c_void};

use mlua::ffi as lua;

use super::stack::{
    Function, State, absolute, bytes_at, check_bytes, get_field, need_stack, pop, push_bytes,
};
use super::stack::{push_ref, raise, set_field, set_function, take_ref, type_of};
use super::state::{Kind, inner_of};
use super::{bit, json, library, msgpack, pack, random, redis, run};

/// Lua's own functions that scripts may use as they are.
const ALLOWED: &[&str] = &[
    "_VERSION",
    "assert",
    "error",
    "gcinfo",
    "getmetatable",
    "ipairs",
    "rawequal",
    "select",
    "tonumber",
    "tostring",
    "type",
];
/// Lua's own functions that get a wrapper, which has the original.
const WRAPPED: &[(&str, Function)] = &[
    ("pcall", protected),
    ("xpcall", guarded),
    ("unpack", unpack),
    ("rawset", unless_protected),
    ("setmetatable", unless_protected),
    ("collectgarbage", collectgarbage),
];
/// Functions of ours under the names of Lua's own.
const OWN: &[(&str, Function)] = &[
    ("load", load),
    ("loadstring", loadstring),
    ("next", next),
    ("pairs", pairs),
    ("rawget", rawget),
];
/// Parts of a pattern that may match in more than one way, at most: each takes a frame of the C
/// stack while it is tried.
const PATTERN_PARTS_MAX: usize = 2000;

static MARK: u8 = 0;

fn mark() -> *mut c_void {
    (&raw const MARK).cast_mut().cast()
}

/// Fills a fresh state; called in protected mode.
pub unsafe extern "C-unwind" fn open(l: State) -> c_int {
    for opener in [
        lua::luaopen_base as Function,
        lua::luaopen_table,
        lua::luaopen_string,
        lua::luaopen_math,
        lua::luaopen_os,
    ] {
        lua::lua_pushcclosure(l, opener, 0);
        lua::lua_call(l, 0, 0);
    }
    lua::lua_settop(l, 0);
    lua::lua_createtable(l, 0, 64);
    copy_builtins(l);
    open_libraries(l);
    redis::open(l);
    protect(l);
    lua::lua_pushvalue(l, -1);
    set_field(l, 1, b"server");
    set_field(l, 1, b"redis");
    refuse_unknown(l);
    let references = &raw mut (*inner_of(l)).references;
    lua::lua_pushvalue(l, 1);
    (*references).globals = take_ref(l);
    protect(l);
    lua::lua_getmetatable(l, -1);
    (*references).globals_meta = take_ref(l);
    push_ref(l, (*references).globals);
    lua::lua_pushvalue(l, -2);
    set_field(l, -2, b"_G");
    pop(l, 1);
    lua::lua_replace(l, lua::LUA_GLOBALSINDEX);
    if (*inner_of(l)).kind == Kind::Functions {
        library::open(l);
        refuse_unknown(l);
        (*references).loading_globals = take_ref(l);
    }
    protect_strings(l);
    lua::lua_pushcclosure(l, run::handler, 0);
    (*references).handler = take_ref(l);
    push_bytes(l, b"ok");
    (*references).ok = take_ref(l);
    push_bytes(l, b"OK");
    (*references).ok_text = take_ref(l);
    push_bytes(l, b"err");
    (*references).err = take_ref(l);
    lua::lua_pushcclosure(l, run::runner, 0);
    (*references).runner = take_ref(l);
    0
}

/// Copies what is allowed of Lua's globals to the table at 1.
unsafe fn copy_builtins(l: State) {
    for name in ALLOWED {
        get_field(l, lua::LUA_GLOBALSINDEX, name.as_bytes());
        set_field(l, 1, name.as_bytes());
    }
    for (name, wrapper) in WRAPPED {
        get_field(l, lua::LUA_GLOBALSINDEX, name.as_bytes());
        lua::lua_pushcclosure(l, *wrapper, 1);
        set_field(l, 1, name.as_bytes());
    }
    for (name, function) in OWN {
        set_function(l, 1, name, *function);
    }
}

unsafe fn open_libraries(l: State) {
    for name in ["table", "string", "math", "coroutine"] {
        get_field(l, lua::LUA_GLOBALSINDEX, name.as_bytes());
        match name {
            "table" => wrap(l, "insert", unless_protected),
            "math" => {
                set_function(l, -1, "random", random::random);
                set_function(l, -1, "randomseed", random::randomseed);
            }
            "string" => {
                for name in ["find", "match", "gmatch", "gsub", "gfind"] {
                    wrap(l, name, with_pattern);
                }
            }
            _ => wrap(l, "resume", guarded),
        }
        protect(l);
        set_field(l, 1, name.as_bytes());
    }
    lua::lua_createtable(l, 0, 1);
    get_field(l, lua::LUA_GLOBALSINDEX, b"os");
    get_field(l, -1, b"clock");
    set_field(l, -3, b"clock");
    pop(l, 1);
    protect(l);
    set_field(l, 1, b"os");
    for (name, functions) in
        [("bit", bit::FUNCTIONS), ("struct", pack::FUNCTIONS), ("cmsgpack", msgpack::FUNCTIONS)]
    {
        lua::lua_createtable(l, 0, functions.len() as c_int);
        for (name, function) in functions {
            set_function(l, -1, name, *function);
        }
        if name == "cmsgpack" {
            push_bytes(l, b"cmsgpack");
            set_field(l, -2, b"_NAME");
            push_bytes(l, b"lua-cmsgpack 0.4.0");
            set_field(l, -2, b"_VERSION");
        }
        protect(l);
        set_field(l, 1, name.as_bytes());
    }
    json::open(l);
    protect(l);
    set_field(l, 1, b"cjson");
}

/// Replaces a function in the table at the top by a wrapper that has the original.
unsafe fn wrap(l: State, name: &str, wrapper: Function) {
    if get_field(l, -1, name.as_bytes()) == lua::LUA_TNIL {
        return pop(l, 1);
    }
    lua::lua_pushcclosure(l, wrapper, 1);
    set_field(l, -2, name.as_bytes());
}

/// Replaces the table at the top by a stand-in that cannot be changed.
pub unsafe fn protect(l: State) {
    lua::lua_createtable(l, 0, 0);
    lua::lua_createtable(l, 2, 3);
    lua::lua_pushvalue(l, -3);
    set_field(l, -2, b"__index");
    lua::lua_pushvalue(l, -3);
    lua::lua_rawseti_(l, -2, 1);
    hide(l);
    lua::lua_setmetatable(l, -2);
    lua::lua_remove(l, -2);
}

/// Makes the metatable at the top refuse new keys and hide itself behind an empty stand-in.
unsafe fn hide(l: State) {
    set_function(l, -1, "__newindex", refuse_change);
    lua::lua_pushlightuserdata(l, mark());
    lua::lua_rawseti_(l, -2, 2);
    // What getmetatable shows: empty, protected, and its own metatable.
    lua::lua_createtable(l, 0, 0);
    lua::lua_createtable(l, 2, 2);
    set_function(l, -1, "__newindex", refuse_change);
    lua::lua_pushlightuserdata(l, mark());
    lua::lua_rawseti_(l, -2, 2);
    lua::lua_pushvalue(l, -2);
    lua::lua_rawseti_(l, -2, 1);
    lua::lua_pushvalue(l, -2);
    set_field(l, -2, b"__metatable");
    lua::lua_setmetatable(l, -2);
    set_field(l, -2, b"__metatable");
}

/// Hides the metatable that all strings share.
unsafe fn protect_strings(l: State) {
    push_bytes(l, b"");
    lua::lua_getmetatable(l, -1);
    lua::lua_createtable(l, 0, 0);
    protect(l);
    set_field(l, -2, b"__metatable");
    pop(l, 2);
}

/// Makes the table at the top raise an error for a key that it does not have.
pub unsafe fn refuse_unknown(l: State) {
    lua::lua_createtable(l, 0, 1);
    set_function(l, -1, "__index", refuse_access);
    lua::lua_setmetatable(l, -2);
}

/// Pushes the real table behind the stand-in at `index`; false, and nothing pushed, if it is none.
unsafe fn push_real(l: State, index: c_int) -> bool {
    if type_of(l, index) != lua::LUA_TTABLE || lua::lua_getmetatable(l, index) == 0 {
        return false;
    }
    lua::lua_rawgeti_(l, -1, 2);
    let is_ours = lua::lua_touserdata(l, -1) == mark();
    pop(l, 1);
    if !is_ours {
        pop(l, 1);
        return false;
    }
    lua::lua_rawgeti_(l, -1, 1);
    lua::lua_remove(l, -2);
    true
}

unsafe extern "C-unwind" fn refuse_change(l: State) -> c_int {
    raise(l, format_args!("Attempt to modify a readonly table"))
}

unsafe extern "C-unwind" fn refuse_access(l: State) -> c_int {
    let name = bytes_at(l, 2).unwrap_or(b"?").utf8_chunks().next().map_or("", |it| it.valid());
    raise(l, format_args!("Script attempted to access nonexistent global variable '{name}'"))
}

/// The function that a wrapper is made of.
unsafe fn original(l: State) -> Function {
    lua::lua_tocfunction(l, lua::lua_upvalueindex(1)).unwrap_or(refuse_change)
}

/// Lua's `pcall`, with room made for its first result: Lua 5.1's own puts that past the end of its
/// frame where the function has returned as much as fits.
unsafe extern "C-unwind" fn protected(l: State) -> c_int {
    lua::luaL_checkany(l, 1);
    let status = lua::lua_pcall(l, lua::lua_gettop(l) - 1, lua::LUA_MULTRET, 0);
    need_stack(l, 2, c"too many results");
    if status != lua::LUA_OK && type_of(l, -1) == lua::LUA_TTABLE {
        // As Redis: the text of an error that a command, or `error_reply`, has made.
        let kind = get_field(l, -1, b"err");
        let is_text = matches!(kind, lua::LUA_TSTRING | lua::LUA_TNUMBER);
        if is_text { lua::lua_replace(l, -2) } else { pop(l, 1) }
    }
    lua::lua_pushboolean(l, c_int::from(status == lua::LUA_OK));
    lua::lua_insert(l, 1);
    end_guarded(l, lua::lua_gettop(l))
}

/// Runs what catches errors, and raises again the end of the script.
unsafe extern "C-unwind" fn guarded(l: State) -> c_int {
    let count = original(l)(l);
    end_guarded(l, count)
}

unsafe fn end_guarded(l: State, count: c_int) -> c_int {
    let inner = inner_of(l);
    if !(*inner).run.is_null() && (*(*inner).run).is_aborted() {
        lua::lua_error(l);
    }
    if (*inner).memory.was_short && lua::lua_toboolean(l, -count) == 0 {
        // Lua 5.1 does not collect before it gives up.
        lua::lua_gc(l, lua::LUA_GCCOLLECT, 0);
    }
    count
}

/// Runs what changes its first argument if that may be changed.
unsafe extern "C-unwind" fn unless_protected(l: State) -> c_int {
    if push_real(l, 1) {
        // Without a place in front: it is raised inside the function that was called.
        push_bytes(l, b"Attempt to modify a readonly table");
        lua::lua_error(l);
    }
    original(l)(l)
}

/// Runs a function that takes a pattern as its second argument if that is not too much.
unsafe extern "C-unwind" fn with_pattern(l: State) -> c_int {
    if let Some(pattern) = bytes_at(l, 2) {
        let is_part = |byte: &&u8| matches!(byte, b'*' | b'+' | b'-' | b'?' | b'(' | b')');
        let parts = pattern.len() > PATTERN_PARTS_MAX
            && pattern.iter().filter(is_part).count() > PATTERN_PARTS_MAX;
        if parts {
            raise(l, format_args!("pattern too complex"));
        }
    }
    original(l)(l)
}

/// `unpack(table, first, last)`. Lua 5.1's own counts in 32 bits, which run over.
unsafe extern "C-unwind" fn unpack(l: State) -> c_int {
    const RESULTS_MAX: i64 = 8000;
    lua::luaL_checktype(l, 1, lua::LUA_TTABLE);
    let first = lua::luaL_optinteger(l, 2, 1) as i64;
    let last = match type_of(l, 3) {
        lua::LUA_TNONE | lua::LUA_TNIL => lua::lua_objlen(l, 1) as i64,
        _ => lua::luaL_checkinteger(l, 3) as i64,
    };
    if last.saturating_sub(first) >= RESULTS_MAX {
        raise(l, format_args!("too many results to unpack"));
    }
    let in_range = |place: i64| i32::try_from(place).is_ok();
    if !in_range(first) || !in_range(last.saturating_add(1)) {
        raise(l, format_args!("too many results to unpack"));
    }
    original(l)(l)
}

/// `collectgarbage(option)`: collects and counts; what would change how memory is collected from
/// now on, for other scripts too, does nothing.
unsafe extern "C-unwind" fn collectgarbage(l: State) -> c_int {
    match bytes_at(l, 1) {
        Some(b"stop" | b"restart" | b"setpause" | b"setstepmul") => {
            lua::lua_pushnumber(l, 0.0);
            1
        }
        _ => original(l)(l),
    }
}

/// Compiles a text, never bytecode. As Lua's own, pushes a function, or nil and a message.
unsafe fn compile(l: State, text: &[u8], name: *const std::ffi::c_char) -> c_int {
    const SIGNATURE: u8 = 0x1b;
    if text.first() == Some(&SIGNATURE) {
        lua::lua_pushnil(l);
        push_bytes(l, b"bytecode cannot be loaded");
        return 2;
    }
    if lua::luaL_loadbuffer(l, text.as_ptr().cast(), text.len(), name) == lua::LUA_OK {
        return 1;
    }
    lua::lua_pushnil(l);
    lua::lua_insert(l, -2);
    2
}

unsafe extern "C-unwind" fn loadstring(l: State) -> c_int {
    let text = check_bytes(l, 1);
    let name = lua::luaL_optlstring(l, 2, text.as_ptr().cast(), std::ptr::null_mut());
    compile(l, text, name)
}

/// `load(function, name)`: what the function returns, joined, is the text.
unsafe extern "C-unwind" fn load(l: State) -> c_int {
    lua::luaL_checktype(l, 1, lua::LUA_TFUNCTION);
    let name = lua::luaL_optlstring(l, 2, c"=(load)".as_ptr(), std::ptr::null_mut());
    lua::lua_settop(l, 2);
    push_bytes(l, b"");
    let mut parts = 1;
    loop {
        need_stack(l, 4, c"too many nested functions");
        lua::lua_pushvalue(l, 1);
        lua::lua_call(l, 0, 1);
        match type_of(l, -1) {
            lua::LUA_TNIL => break pop(l, 1),
            lua::LUA_TSTRING if lua::lua_objlen(l, -1) == 0 => break pop(l, 1),
            lua::LUA_TSTRING => parts += 1,
            _ => raise(l, format_args!("reader function must return a string")),
        }
        if parts == 64 {
            lua::lua_concat(l, parts);
            parts = 1;
        }
    }
    lua::lua_concat(l, parts);
    compile(l, bytes_at(l, -1).unwrap_or_default(), name)
}

/// `next(table, key)`.
unsafe extern "C-unwind" fn next(l: State) -> c_int {
    lua::luaL_checktype(l, 1, lua::LUA_TTABLE);
    lua::lua_settop(l, 2);
    if push_real(l, 1) {
        lua::lua_replace(l, 1);
    }
    if lua::lua_next(l, 1) != 0 {
        return 2;
    }
    lua::lua_pushnil(l);
    1
}

/// `pairs(table)`: a protected one is copied, so that the script does not get hold of the real one.
unsafe extern "C-unwind" fn pairs(l: State) -> c_int {
    lua::luaL_checktype(l, 1, lua::LUA_TTABLE);
    lua::lua_settop(l, 1);
    if push_real(l, 1) {
        lua::lua_createtable(l, 0, 0);
        lua::lua_replace(l, 1);
        lua::lua_pushnil(l);
        while lua::lua_next(l, 2) != 0 {
            lua::lua_pushvalue(l, -2);
            lua::lua_insert(l, -2);
            lua::lua_rawset(l, 1);
        }
        lua::lua_settop(l, 1);
    }
    lua::lua_pushcclosure(l, next, 0);
    lua::lua_insert(l, 1);
    lua::lua_pushnil(l);
    3
}

/// `rawget(table, key)`.
unsafe extern "C-unwind" fn rawget(l: State) -> c_int {
    lua::luaL_checktype(l, 1, lua::LUA_TTABLE);
    lua::luaL_checkany(l, 2);
    lua::lua_settop(l, 2);
    if push_real(l, 1) {
        lua::lua_replace(l, 1);
    }
    lua::lua_rawget_(l, absolute(l, 1));
    1
}
