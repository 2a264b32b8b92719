//! Loads a library's code, and takes down the functions that it registers.

use std::ffi::c_int;
use std::ptr;

use commands::context::Host;
use mlua::ffi as lua;

use super::redis::add_log_and_version;
use super::run::{HOOK_INSTRUCTIONS, hook};
use super::sandbox::{protect, refuse_unknown};
use super::stack::type_of;
use super::stack::{
    State, bytes_at, pop, push_ref, raise_error, set_field, set_function, take_ref,
};
use super::state::{Vm, inner_of};
use crate::shebang::Flags;

/// A function as its library registered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// What FCALL calls it.
    pub name: Vec<u8>,
    /// What it is for.
    pub description: Option<Vec<u8>>,
    /// See [`Flags`].
    pub flags: Flags,
    /// Where it is in the registry.
    pub reference: c_int,
}

/// A library while its code runs.
pub struct Loading {
    code: *const [u8],
    /// For redis.log.
    pub host: *mut dyn Host,
    /// Times that the hook was called.
    pub looks: u32,
    registered: Vec<Registered>,
    /// The function that is being registered.
    next: Registered,
    /// It has been compiled.
    is_running: bool,
}

/// Pushes the globals that libraries see while they are loaded.
pub unsafe fn open(l: State) {
    lua::lua_createtable(l, 0, 2);
    lua::lua_createtable(l, 0, 16);
    set_function(l, -1, "register_function", register_function);
    add_log_and_version(l);
    refuse_unknown(l);
    protect(l);
    lua::lua_pushvalue(l, -1);
    set_field(l, -3, b"server");
    set_field(l, -2, b"redis");
}

/// Runs a library's code (without its first line); the functions that it registers, or what is
/// wrong.
pub fn load(vm: &mut Vm, code: &[u8], host: &mut dyn Host) -> Result<Vec<Registered>, String> {
    let (l, inner) = (vm.state(), vm.inner());
    let mut loading = Loading {
        code: ptr::from_ref(code),
        host: ptr::from_mut(host),
        looks: 0,
        registered: Vec::new(),
        next: empty(),
        is_running: false,
    };
    if code.first() == Some(&0x1b) {
        return Err("Error compiling function: bytecode cannot be loaded".into());
    }
    // SAFETY: `loading` outlives the call, after which its address is forgotten; what may raise an
    // error runs in protected mode, and the error is read with no limit on memory.
    let failed = unsafe {
        (*inner).loading = &raw mut loading;
        let status = lua::lua_cpcall(l, load_protected, ptr::null_mut());
        (*inner).loading = ptr::null_mut();
        let limit = std::mem::replace(&mut (*inner).memory.limit, usize::MAX);
        let failed = (status != lua::LUA_OK).then(|| error_text(l, loading.is_running));
        lua::lua_cpcall(l, restore_globals, ptr::null_mut());
        (*inner).memory.limit = limit;
        lua::lua_sethook(l, Some(hook), lua::LUA_MASKCOUNT, HOOK_INSTRUCTIONS);
        lua::lua_settop(l, 0);
        failed
    };
    match failed {
        None => Ok(loading.registered),
        Some(text) => {
            loading.registered.iter().for_each(|function| vm.forget(function.reference));
            let stage =
                if loading.is_running { "registering functions" } else { "compiling function" };
            Err(format!("Error {stage}: {text}"))
        }
    }
}

fn empty() -> Registered {
    Registered { name: Vec::new(), description: None, flags: Flags::default(), reference: 0 }
}

unsafe fn error_text(l: State, is_running: bool) -> String {
    let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    if type_of(l, -1) == lua::LUA_TTABLE {
        super::stack::get_field(l, -1, b"err");
        return bytes_at(l, -1).map_or_else(|| "ERR unknown error".into(), lossy);
    }
    let text = bytes_at(l, -1).map_or_else(|| "unknown error".into(), lossy);
    if is_running { format!("ERR {text}") } else { text }
}

unsafe fn set_globals(l: State, reference: c_int) {
    push_ref(l, (*inner_of(l)).references.globals_meta);
    push_ref(l, reference);
    set_field(l, -2, b"__index");
    pop(l, 1);
}

unsafe extern "C-unwind" fn restore_globals(l: State) -> c_int {
    set_globals(l, (*inner_of(l)).references.globals);
    0
}

unsafe extern "C-unwind" fn load_protected(l: State) -> c_int {
    let inner = inner_of(l);
    let loading = (*inner).loading;
    set_globals(l, (*inner).references.loading_globals);
    let code = &*(*loading).code;
    let name = c"@user_function".as_ptr();
    if lua::luaL_loadbuffer(l, code.as_ptr().cast(), code.len(), name) != 0 {
        lua::lua_error(l);
    }
    (*loading).is_running = true;
    lua::lua_call(l, 0, 0);
    0
}

/// `redis.register_function(name, function)`, or with one table of named arguments.
unsafe extern "C-unwind" fn register_function(l: State) -> c_int {
    let loading = (*inner_of(l)).loading;
    if loading.is_null() {
        const LATE: &[u8] =
            b"ERR redis.register_function can only be called on FUNCTION LOAD command";
        raise_error(l, LATE);
    }
    (*loading).next = empty();
    let wrong = match lua::lua_gettop(l) {
        1 => read_named(l, &mut (*loading).next),
        2 => read_positional(l, &mut (*loading).next),
        _ => Some("wrong number of arguments to redis.register_function"),
    };
    let wrong = wrong.or_else(|| check(&*loading));
    if let Some(text) = wrong {
        let inner = inner_of(l);
        (*inner).message.clear();
        (*inner).message.push_str("ERR ");
        (*inner).message.push_str(text);
        raise_error(l, (*inner).message.as_bytes());
    }
    let next = std::mem::replace(&mut (*loading).next, empty());
    (*loading).registered.push(next);
    0
}

fn check(loading: &Loading) -> Option<&'static str> {
    let name = &loading.next.name;
    if !is_name(name) {
        return Some(BAD_NAME);
    }
    let is_known = loading.registered.iter().any(|function| function.name == *name);
    is_known.then_some("Function already exists in the library")
}

/// What is wrong with a name of a library or function.
pub const BAD_NAME: &str = "Library names can only contain letters, numbers, or underscores(_) \
                            and must be at least one character long";

/// Whether a library or a function may have this name.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

unsafe fn string_at<'s>(l: State, index: c_int) -> Option<&'s [u8]> {
    if type_of(l, index) == lua::LUA_TSTRING { bytes_at(l, index) } else { None }
}

unsafe fn read_positional(l: State, next: &mut Registered) -> Option<&'static str> {
    match string_at(l, 1) {
        Some(name) => next.name = name.to_vec(),
        None => return Some("first argument to redis.register_function must be a string"),
    }
    if type_of(l, 2) != lua::LUA_TFUNCTION {
        return Some("second argument to redis.register_function must be a function");
    }
    lua::lua_settop(l, 2);
    next.reference = take_ref(l);
    None
}

unsafe fn read_named(l: State, next: &mut Registered) -> Option<&'static str> {
    if type_of(l, 1) != lua::LUA_TTABLE {
        return Some(
            "calling redis.register_function with a single argument is only applicable to Lua \
             table (representing named arguments).",
        );
    }
    let (mut has_name, mut has_callback) = (false, false);
    lua::lua_pushnil(l);
    while lua::lua_next(l, 1) != 0 {
        let Some(key) = string_at(l, -2) else {
            return Some("named argument key given to redis.register_function is not a string");
        };
        if key.eq_ignore_ascii_case(b"function_name") {
            match string_at(l, -1) {
                Some(name) => next.name = name.to_vec(),
                None => {
                    return Some(
                        "function_name argument given to redis.register_function must be a string",
                    );
                }
            }
            has_name = true;
        } else if key.eq_ignore_ascii_case(b"description") {
            match string_at(l, -1) {
                Some(text) => next.description = Some(text.to_vec()),
                None => {
                    return Some(
                        "description argument given to redis.register_function must be a string",
                    );
                }
            }
        } else if key.eq_ignore_ascii_case(b"callback") {
            if type_of(l, -1) != lua::LUA_TFUNCTION {
                return Some(
                    "callback argument given to redis.register_function must be a function",
                );
            }
            lua::lua_pushvalue(l, -1);
            next.reference = take_ref(l);
            has_callback = true;
        } else if key.eq_ignore_ascii_case(b"flags") {
            if let Some(wrong) = read_flags(l, &mut next.flags) {
                return Some(wrong);
            }
        } else {
            return Some("unknown argument given to redis.register_function");
        }
        pop(l, 1);
    }
    match (has_name, has_callback) {
        (false, _) => Some("redis.register_function must get a function name argument"),
        (_, false) => Some("redis.register_function must get a callback argument"),
        _ => None,
    }
}

/// Reads the list of flags at the top.
unsafe fn read_flags(l: State, flags: &mut Flags) -> Option<&'static str> {
    if type_of(l, -1) != lua::LUA_TTABLE {
        return Some(
            "flags argument to redis.register_function must be a table representing function \
             flags",
        );
    }
    for index in 1.. {
        lua::lua_rawgeti_(l, -1, index);
        if type_of(l, -1) == lua::LUA_TNIL {
            break;
        }
        match string_at(l, -1).and_then(Flags::named) {
            Some(flag) => *flags = flags.with(flag),
            None => return Some("unknown flag given"),
        }
        pop(l, 1);
    }
    pop(l, 1);
    None
}
