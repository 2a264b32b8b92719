//! What becomes of the values that a C function gives.
//!
//! A script that writes `redis.call('SET', ...)` as a statement drops the reply: to make a table
//! for it and to collect that later is a fifth of the whole call. One that ends in
//! `return redis.call(...)` never looks at it: the reply can go on as it is. Lua's interface does
//! not tell, so this looks where Lua 5.1.5, which is built in, keeps it.
//!
//! ```text
//!   depth 0: the host   1: `runner`   2: the script   3: redis.call
//!                         ^-- returns to --+  `place`: behind the OP_TAILCALL that called it
//! ```
//!
//! **Invariant:** a state believes it only after [`try_wanted`] has seen it right in that state.

use std::ffi::{c_int, c_void};

use mlua::ffi as lua;

use super::stack::{State, pop};
use super::state::inner_of;

/// The beginning of Lua 5.1's `lua_State` (lstate.h).
#[repr(C)]
struct StateHead {
    next: *mut c_void,
    kind: u8,
    marked: u8,
    status: u8,
    top: *mut c_void,
    base: *mut c_void,
    global: *mut c_void,
    call: *const CallInfo,
    place: *const u32,
    stack_last: *mut c_void,
    stack: *mut c_void,
    last_call: *const CallInfo,
    first_call: *const CallInfo,
}

/// Lua 5.1's instruction `return f(...)` (lopcodes.h): the lowest six bits of it.
const TAIL_CALL: u32 = 29;
/// How deep a C function is that the script itself calls.
const DEPTH: isize = 3;

/// Lua 5.1's `CallInfo` (lstate.h).
#[repr(C)]
struct CallInfo {
    base: *mut c_void,
    function: *mut c_void,
    top: *mut c_void,
    place: *const u32,
    wanted: c_int,
    tail_calls: c_int,
}

/// How many values the caller of the running C function wants, -1 = all there are. Lua's interface
/// does not tell, so this looks at where Lua 5.1.5, which is built in, keeps it; [`try_wanted`]
/// says whether that is so.
#[inline]
unsafe fn wanted(l: State) -> c_int {
    (*(*l.cast::<StateHead>()).call).wanted
}

/// Whether the caller of the running C function drops what it gives: nothing need be made then.
#[inline]
pub unsafe fn wants_nothing(l: State) -> bool {
    (*inner_of(l)).sees_wanted && wanted(l) == 0
}

/// Whether the script, called by `runner` in the state's main thread, gives what the running C
/// function gives, and does nothing else with it.
#[inline]
pub unsafe fn is_returned(l: State) -> bool {
    let inner = inner_of(l);
    (*inner).sees_wanted && l == (*inner).main && is_tail_call(l)
}

#[inline]
unsafe fn is_tail_call(l: State) -> bool {
    let head = l.cast::<StateHead>();
    let call = (*head).call;
    if call.offset_from((*head).first_call) != DEPTH || (*call).wanted != -1 {
        return false;
    }
    // What calls at that depth is the script, a function in Lua, with its place behind the call.
    *(*call.sub(1)).place.sub(1) & 0x3f == TAIL_CALL
}

unsafe extern "C-unwind" fn tell_returned(l: State) -> c_int {
    let asked = lua::lua_toboolean(l, 1) != 0;
    (*inner_of(l)).sees_wanted &= asked == is_tail_call(l);
    0
}

unsafe extern "C-unwind" fn tell_wanted(l: State) -> c_int {
    let (asked, seen) = (lua::lua_tonumber(l, 1) as c_int, wanted(l));
    (*inner_of(l)).sees_wanted &= asked == seen;
    0
}

/// Calls a C function in ways that differ in what is wanted, and notes whether it saw that.
pub unsafe fn try_wanted(l: State) {
    (*inner_of(l)).sees_wanted = true;
    for count in [0, 1, -1, 2, 0] {
        let top = lua::lua_gettop(l);
        lua::lua_pushcclosure(l, tell_wanted, 0);
        lua::lua_pushnumber(l, f64::from(count));
        lua::lua_call(l, 1, count);
        lua::lua_settop(l, top);
    }
    for code in [
        c"local f = ... return f(true)",
        c"local f = ... return (f(false))",
        c"local f = ... f(false)",
        c"local f = ... return f(false), 1",
        c"local f = ... local function g(f) local a = f(false) return a end return g(f)",
        c"local f = ... local function g(f) return f(true) end return g(f)",
        c"local f = ... local function g(f) return f(false) end local a = g(f) return a",
    ] {
        let code = code.to_bytes();
        if lua::luaL_loadbuffer(l, code.as_ptr().cast(), code.len(), c"=try".as_ptr()) != 0 {
            lua::lua_error(l);
        }
        lua::lua_pushcclosure(l, tell_returned, 0);
        // As `runner` calls a script, and as deep.
        lua::lua_call(l, 1, 1);
        pop(l, 1);
    }
}
