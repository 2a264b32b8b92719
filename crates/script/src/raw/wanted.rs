//! How many values whoever called a C function wants of it.
//!
//! A script that writes `redis.call('SET', ...)` as a statement drops the reply: to make a table
//! for it and to collect that later is a fifth of the whole call. Lua's interface does not tell, so
//! this looks where Lua 5.1.5, which is built in, keeps it.
//!
//! **Invariant:** a state believes it only after [`try_wanted`] has seen it right in that state.

use std::ffi::{c_int, c_void};

use mlua::ffi as lua;

use super::stack::State;
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
}

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
}
