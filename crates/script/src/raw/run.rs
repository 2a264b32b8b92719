//! Compiles scripts and calls them and functions: the error handler, the limits, the hook.
//!
//! ```text
//!   run_job      pcall -> runner -> the script's function -> redis.call -> Run::call
//!      ^                                    |
//!      +--- the reply, or handler's table --+--- hook, every HOOK_INSTRUCTIONS
//! ```

use std::ffi::{c_char, c_int};
use std::ptr;

use commands::context::Host;
use mlua::ffi as lua;
use resp::Args;

use super::json::Settings;
use super::reply;
use super::stack::{State, bytes_at, get_field, pop, push_bytes, push_error, push_ref, set_field};
use super::stack::{take_ref, type_of};
use super::state::{Inner, Kind, Vm, inner_of};
use crate::run::Run;

/// So many instructions of Lua run between two looks at the clock: about a millisecond.
pub const HOOK_INSTRUCTIONS: c_int = 100_000;
/// Looks at a library that is being loaded before it is given up: about half a second.
const LOADING_LOOKS_MAX: u32 = 500;

/// A call of a script or a function.
pub struct Job<'a> {
    /// Where the compiled function is in the registry.
    pub reference: c_int,
    /// The words of the command: name, script, number of keys, keys, arguments.
    pub words: Args<'a>,
    /// How many of them are keys.
    pub key_count: usize,
}

/// What a script ended with, other than a value.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error's text, with its code.
    pub text: String,
    /// The command that failed has counted the error already.
    pub is_counted: bool,
}

/// Compiles a script; `Err` is Lua's message.
pub fn compile(vm: &mut Vm, code: &[u8], name: &'static std::ffi::CStr) -> Result<c_int, String> {
    let l = vm.state();
    let mut compiling = Compiling { code, name: name.as_ptr(), reference: 0, is_bytecode: false };
    compiling.is_bytecode = code.first() == Some(&0x1b);
    if compiling.is_bytecode {
        return Err("bytecode cannot be loaded".into());
    }
    // SAFETY: `compile_protected` is called in protected mode with what it expects, and what it
    // raises is read with no limit on memory.
    unsafe {
        let status = lua::lua_cpcall(l, compile_protected, (&raw mut compiling).cast());
        if status == lua::LUA_OK {
            return Ok(compiling.reference);
        }
        let text = bytes_at(l, -1).unwrap_or(b"not enough memory");
        let text = String::from_utf8_lossy(text).into_owned();
        vm.clear_stack();
        Err(text)
    }
}

struct Compiling<'c> {
    code: &'c [u8],
    name: *const c_char,
    reference: c_int,
    is_bytecode: bool,
}

unsafe extern "C-unwind" fn compile_protected(l: State) -> c_int {
    let compiling = lua::lua_touserdata(l, 1).cast::<Compiling<'_>>();
    let code = (*compiling).code;
    if lua::luaL_loadbuffer(l, code.as_ptr().cast(), code.len(), (*compiling).name) != 0 {
        lua::lua_error(l);
    }
    (*compiling).reference = take_ref(l);
    0
}

/// Runs a script or function; its value is written to the client.
pub fn run_job(vm: &mut Vm, run: &mut Run<'_, '_>, job: &Job<'_>) -> Result<(), Failure> {
    let (l, inner) = (vm.state(), vm.inner());
    // SAFETY: `run` and `job` outlive the call, after which their addresses are forgotten; all that
    // may raise an error happens inside lua_pcall; a stack of at least 20 places is free.
    unsafe {
        (*inner).run = ptr::from_mut(run).cast();
        (*inner).job = ptr::from_ref(job).cast_mut().cast();
        (*inner).json = Settings::default();
        push_ref(l, (*inner).references.handler);
        push_ref(l, (*inner).references.runner);
        let status = lua::lua_pcall(l, 0, 0, 1);
        let was_aborted = run.is_aborted();
        (*inner).run = ptr::null_mut();
        (*inner).job = ptr::null_mut();
        let result = if status == lua::LUA_OK { Ok(()) } else { Err(failure(l, inner, run.name)) };
        lua::lua_settop(l, 0);
        set_pace(l, inner, SMALL_BYTES);
        if was_aborted {
            lua::lua_sethook(l, Some(hook), lua::LUA_MASKCOUNT, HOOK_INSTRUCTIONS);
        }
        result
    }
}

/// A state of less than this is collected when it has grown tenfold, a larger one when it has
/// doubled: marking the libraries again and again would be most of the work otherwise.
const SMALL_BYTES: usize = 1 << 20;

/// Chooses how often memory is collected; `most` is the size up to which that is seldom.
unsafe fn set_pace(l: State, inner: *mut Inner, most: usize) {
    let pace = if (*inner).memory.used <= most { 1000 } else { 200 };
    if (*inner).pace != pace {
        (*inner).pace = pace;
        lua::lua_gc(l, lua::LUA_GCSETPAUSE, pace);
    }
}

/// Runs inside the protected call: passes keys and arguments, calls, writes the reply.
pub unsafe extern "C-unwind" fn runner(l: State) -> c_int {
    let inner = inner_of(l);
    let job = &*(*inner).job.cast::<Job<'_>>();
    let first = 3 + job.key_count;
    if (*inner).kind == Kind::Scripts {
        set_words(l, 0, b"KEYS", job.words, 3, first);
        set_words(l, 1, b"ARGV", job.words, first, job.words.len());
        push_ref(l, job.reference);
        lua::lua_call(l, 0, 1);
    } else {
        push_ref(l, job.reference);
        push_words(l, job.words, 3, first);
        push_words(l, job.words, first, job.words.len());
        lua::lua_call(l, 2, 1);
    }
    let run = (*inner).run;
    let out = &raw mut *(*run).cx.out;
    if (*run).gives_reply {
        (*out).raw((*run).reply(&mut (*inner).buffer));
    } else {
        reply::write(l, out, (*run).resp3);
    }
    0
}

/// Sets a global to an array of these words. The last script's array is used again if that left it
/// as a fresh one would be: nobody can have kept it, as scripts leave nothing behind.
unsafe fn set_words(l: State, which: usize, name: &[u8], words: Args<'_>, from: usize, to: usize) {
    let inner = inner_of(l);
    let len = (to - from) as c_int;
    let (reference, last_len) = (*inner).references.words[which];
    if reference != 0 && last_len == len {
        push_ref(l, reference);
        for index in from..to {
            push_bytes(l, words.word(index));
            lua::lua_rawseti_(l, -2, (index - from + 1) as c_int);
        }
        if is_fresh(l, len) {
            return pop(l, 1);
        }
        pop(l, 1);
    }
    push_ref(l, (*inner).references.globals);
    push_words(l, words, from, to);
    lua::lua_pushvalue(l, -1);
    if reference == 0 {
        (*inner).references.words[which] = (take_ref(l), len);
    } else {
        lua::lua_rawseti_(l, lua::LUA_REGISTRYINDEX, reference);
        (*inner).references.words[which].1 = len;
    }
    set_field(l, -2, name);
    pop(l, 1);
}

/// Whether the array at the top has nothing besides its `len` elements.
unsafe fn is_fresh(l: State, len: c_int) -> bool {
    if lua::lua_getmetatable(l, -1) != 0 {
        pop(l, 1);
        return false;
    }
    if len == 0 {
        lua::lua_pushnil(l);
    } else {
        lua::lua_pushnumber(l, f64::from(len));
    }
    if lua::lua_next(l, -2) == 0 {
        return true;
    }
    pop(l, 2);
    false
}

unsafe fn push_words(l: State, words: Args<'_>, from: usize, to: usize) {
    lua::lua_createtable(l, (to - from) as c_int, 0);
    for index in from..to {
        push_bytes(l, words.word(index));
        lua::lua_rawseti_(l, -2, (index - from + 1) as c_int);
    }
}

/// Called with each error that is about to end a script, on top of the stack that raised it: makes
/// it a table, with the place in the script.
pub unsafe extern "C-unwind" fn handler(l: State) -> c_int {
    lua::lua_settop(l, 1);
    if type_of(l, 1) != lua::LUA_TTABLE {
        push_bytes(l, b"ERR ");
        push_text(l, 1);
        lua::lua_concat(l, 2);
        lua::lua_createtable(l, 0, 3);
        lua::lua_insert(l, -2);
        set_field(l, -2, b"err");
        lua::lua_replace(l, 1);
    }
    let mut place = std::mem::zeroed::<lua::lua_Debug>();
    for level in [1, 2] {
        if lua::lua_getstack(l, level, &mut place) == 0 {
            return 1;
        }
        lua::lua_getinfo(l, c"Sl".as_ptr(), &mut place);
        // Behind a C function, such as `error`, stands who called it.
        if *place.what.cast::<u8>() != b'C' {
            break;
        }
    }
    let source = std::ffi::CStr::from_ptr(place.source);
    push_bytes(l, source.to_bytes());
    set_field(l, 1, b"source");
    lua::lua_pushnumber(l, f64::from(place.currentline));
    set_field(l, 1, b"line");
    1
}

/// Pushes what `tostring` gives for simple values.
unsafe fn push_text(l: State, index: c_int) {
    match type_of(l, index) {
        lua::LUA_TSTRING | lua::LUA_TNUMBER => lua::lua_pushvalue(l, index),
        lua::LUA_TNIL => push_bytes(l, b"nil"),
        lua::LUA_TBOOLEAN if lua::lua_toboolean(l, index) != 0 => push_bytes(l, b"true"),
        lua::LUA_TBOOLEAN => push_bytes(l, b"false"),
        kind => lua::lua_pushstring_(l, lua::lua_typename(l, kind)),
    }
}

/// Reads the error at the top, outside of any protected call: memory has no limit here.
unsafe fn failure(l: State, inner: *mut Inner, name: &[u8]) -> Failure {
    let limit = std::mem::replace(&mut (*inner).memory.limit, usize::MAX);
    let top = lua::lua_gettop(l);
    let failure = read_failure(l, name);
    lua::lua_settop(l, top);
    (*inner).memory.limit = limit;
    failure
}

unsafe fn read_failure(l: State, name: &[u8]) -> Failure {
    let name = String::from_utf8_lossy(name);
    if type_of(l, -1) != lua::LUA_TTABLE {
        let text = bytes_at(l, -1).unwrap_or(b"execution failure");
        let text = String::from_utf8_lossy(&text[..text.len().min(100)]);
        let text = format!("ERR Error running script {name}, {text}");
        return Failure { text, is_counted: false };
    }
    let table = lua::lua_gettop(l);
    get_field(l, table, b"ignore_error_stats_update");
    let is_counted = lua::lua_toboolean(l, -1) != 0;
    let mut text = field_text(l, table, b"err").unwrap_or_else(|| "ERR unknown error".into());
    let (source, line) = (field_text(l, table, b"source"), field_text(l, table, b"line"));
    if let (Some(source), Some(line)) = (source, line) {
        text += &format!(" script: {name}, on {source}:{line}.");
    }
    Failure { text, is_counted }
}

unsafe fn field_text(l: State, table: c_int, name: &[u8]) -> Option<String> {
    get_field(l, table, name);
    let text = bytes_at(l, -1).map(|text| String::from_utf8_lossy(text).into_owned());
    pop(l, 1);
    text
}

/// Called by Lua every so many instructions, and at every line once a script is to end.
pub unsafe extern "C-unwind" fn hook(l: State, _: *mut lua::lua_Debug) {
    let inner = inner_of(l);
    if !(*inner).run.is_null() {
        let run = (*inner).run;
        if !(*run).must_end() {
            if (*inner).pace > 200 && (*inner).memory.used > 8 * SMALL_BYTES {
                set_pace(l, inner, 8 * SMALL_BYTES);
                lua::lua_gc(l, lua::LUA_GCSTEP, 1);
            }
            return;
        }
        // At every line from now on: no pcall in the script outlives that.
        lua::lua_sethook(l, Some(hook), lua::LUA_MASKLINE | lua::LUA_MASKCOUNT, 1);
        push_error(l, b"ERR Script killed by user with SCRIPT KILL...");
        lua::lua_error(l);
    }
    if !(*inner).loading.is_null() {
        (*(*inner).loading).looks += 1;
        if (*(*inner).loading).looks > LOADING_LOOKS_MAX {
            lua::lua_sethook(l, Some(hook), lua::LUA_MASKLINE | lua::LUA_MASKCOUNT, 1);
            push_error(l, b"ERR FUNCTION LOAD timeout");
            lua::lua_error(l);
        }
    }
}

/// The server, while a script runs or a library is loaded.
pub unsafe fn host<'h>(inner: *mut Inner) -> Option<&'h mut dyn Host> {
    if !(*inner).run.is_null() {
        return Some(&mut *ptr::from_mut((*(*inner).run).cx.host));
    }
    if !(*inner).loading.is_null() {
        return Some(&mut *(*(*inner).loading).host);
    }
    None
}
