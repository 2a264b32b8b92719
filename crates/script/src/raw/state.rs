//! One Lua state: its memory with a limit, and what its C functions share.
//!
//! **Invariant:** `Inner` does not move while its state lives: the state's allocator and all C
//! functions have its address.

use std::alloc::{alloc, dealloc, realloc};
use std::ffi::{c_int, c_void};
use std::ptr;

use mlua::ffi as lua;
use resp::OwnedArgs;

use super::json::Settings;
use super::library::Loading;
use super::run::HOOK_INSTRUCTIONS;
use super::spare::{Spare, layout};
use super::stack::{State, pop};
use super::wanted::try_wanted;
use super::{random, sandbox};
use crate::run::Run;

/// What the state is for: scripts see KEYS and ARGV as globals, functions get them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// EVAL and its like.
    Scripts,
    /// FUNCTION LOAD and FCALL.
    Functions,
}

/// A state's memory.
#[derive(Debug)]
pub struct Memory {
    /// Bytes in use.
    pub used: usize,
    /// More than this is refused.
    pub limit: usize,
    /// Whether anything was refused: the state is thrown away then.
    pub was_short: bool,
    /// Small blocks that have been given back: see [`Spare`].
    pub spare: Spare,
}

/// Places in the registry of what every run needs.
#[derive(Debug, Default)]
pub struct References {
    /// The function that adds a place to an error.
    pub handler: c_int,
    /// The function that runs inside the protected call.
    pub runner: c_int,
    /// The globals, behind the proxy that scripts see.
    pub globals: c_int,
    /// The metatable of that proxy.
    pub globals_meta: c_int,
    /// The globals while a library is loaded.
    pub loading_globals: c_int,
    /// The words `ok`, `OK` and `err` of nearly every reply: to fetch them costs less than to make
    /// them.
    pub ok: c_int,
    /// See `ok`.
    pub ok_text: c_int,
    /// See `ok`.
    pub err: c_int,
    /// KEYS and ARGV of the last script, each with its length; 0 before the first one.
    pub words: [(c_int, c_int); 2],
}

/// What C functions reach through their state; see the module.
pub struct Inner {
    /// See [`Kind`].
    pub kind: Kind,
    /// The allocator's counts.
    pub memory: Memory,
    /// The script that runs, if one does.
    pub run: *mut Run<'static, 'static>,
    /// The library that is being loaded, if one is.
    pub loading: *mut Loading,
    /// The state's main thread: coroutines are others.
    pub main: State,
    /// What the call at hand is to do.
    pub job: *mut c_void,
    /// Percent to which memory grows before it is collected.
    pub pace: c_int,
    /// Scratch bytes.
    pub buffer: Vec<u8>,
    /// Scratch text.
    pub message: String,
    /// The words of the command that the script calls.
    pub words: OwnedArgs,
    /// cjson's settings.
    pub json: Settings,
    /// math.random's state.
    pub random: u64,
    /// Whether [`super::wanted`] can be believed.
    pub sees_wanted: bool,
    /// See [`References`].
    pub references: References,
}

/// A Lua state.
pub struct Vm {
    l: State,
    inner: *mut Inner,
}

/// Lua's allocator; see `lua_Alloc` in its manual.
unsafe extern "C" fn allocate(
    inner: *mut c_void,
    block: *mut c_void,
    old: usize,
    new: usize,
) -> *mut c_void {
    let memory = &mut (*inner.cast::<Inner>()).memory;
    let block = block.cast::<u8>();
    if new == 0 {
        if !block.is_null() {
            memory.used -= old;
            if !memory.spare.keep(block, old) {
                dealloc(block, layout(old));
            }
        }
        return ptr::null_mut();
    }
    let old = if block.is_null() { 0 } else { old };
    if new > old && memory.used + (new - old) > memory.limit {
        memory.was_short = true;
        return ptr::null_mut();
    }
    let moved = if !block.is_null() {
        realloc(block, layout(old), layout(new).size())
    } else {
        let spare = memory.spare.take(new);
        if spare.is_null() { alloc(layout(new)) } else { spare }
    };
    if !moved.is_null() {
        memory.used = memory.used - old + new;
    }
    moved.cast()
}

/// What the C functions of a state share.
#[inline]
pub unsafe fn inner_of(l: State) -> *mut Inner {
    let mut inner = ptr::null_mut();
    lua::lua_getallocf(l, &mut inner);
    inner.cast()
}

unsafe extern "C-unwind" fn open(l: State) -> c_int {
    try_wanted(l);
    sandbox::open(l)
}

impl Vm {
    /// A state with everything that scripts may use; `None` without memory for it.
    pub fn new(kind: Kind, limit: usize) -> Option<Vm> {
        let inner = Box::into_raw(Box::new(Inner {
            kind,
            memory: Memory { used: 0, limit, was_short: false, spare: Spare::NONE },
            run: ptr::null_mut(),
            loading: ptr::null_mut(),
            main: ptr::null_mut(),
            job: ptr::null_mut(),
            pace: 200,
            buffer: Vec::new(),
            message: String::new(),
            words: OwnedArgs::default(),
            json: Settings::default(),
            random: random::START,
            sees_wanted: false,
            references: References::default(),
        }));
        // SAFETY: the allocator gets the address of what lives as long as the state.
        let l = unsafe { lua::lua_newstate(allocate, inner.cast()) };
        let vm = Vm { l, inner };
        if l.is_null() {
            return None;
        }
        // SAFETY: `open` is called in protected mode on a fresh state.
        let is_open = unsafe {
            (*inner).main = l;
            let is_open = lua::lua_cpcall(l, open, ptr::null_mut()) == lua::LUA_OK;
            lua::lua_sethook(l, Some(super::run::hook), lua::LUA_MASKCOUNT, HOOK_INSTRUCTIONS);
            lua::lua_settop(l, 0);
            is_open
        };
        is_open.then_some(vm)
    }

    /// The state itself.
    pub fn state(&self) -> State {
        self.l
    }

    /// What its C functions share.
    pub fn inner(&mut self) -> *mut Inner {
        self.inner
    }

    /// Bytes in use by Lua.
    pub fn used_memory(&self) -> usize {
        // SAFETY: `inner` lives as long as the state, and no script runs now.
        unsafe { (*self.inner).memory.used }
    }

    /// Changes the limit of its memory, in bytes.
    pub fn set_limit(&mut self, bytes: usize) {
        // SAFETY: as above.
        unsafe { (*self.inner).memory.limit = bytes }
    }

    /// Whether memory was refused: what was being built may be half there.
    pub fn is_spoilt(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.inner).memory.was_short }
    }

    /// Forgets what `reference` stands for.
    pub fn forget(&mut self, reference: c_int) {
        // SAFETY: a registry slot that `take_ref` gave out; putting it back allocates nothing new,
        // as the slot exists.
        unsafe { lua::luaL_unref(self.l, lua::LUA_REGISTRYINDEX, reference) }
    }

    /// Empties the stack.
    pub fn clear_stack(&mut self) {
        // SAFETY: no script runs now.
        unsafe {
            let top = lua::lua_gettop(self.l);
            pop(self.l, top);
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // SAFETY: both were made in `new`, nobody else has them.
        unsafe {
            if !self.l.is_null() {
                lua::lua_close(self.l);
            }
            drop(Box::from_raw(self.inner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::spare::SPARE_BYTES_MAX;

    /// Blocks that were given back are used again, up to a limit, and the count of bytes is right.
    #[test]
    fn lua_lies_in_memory_as_it_is_read() {
        for kind in [Kind::Scripts, Kind::Functions] {
            let mut vm = Vm::new(kind, 1 << 30).expect("there is memory");
            // SAFETY: the state lives.
            assert!(unsafe { (*vm.inner()).sees_wanted });
        }
    }

    #[test]
    fn small_blocks_are_kept_and_counted() {
        for kind in [Kind::Scripts, Kind::Functions] {
            let mut vm = Vm::new(kind, 64 << 20).expect("there is memory");
            let inner = vm.inner();
            // SAFETY: `inner` lives as long as the state; blocks are given back with their length.
            unsafe {
                assert!((*inner).sees_wanted, "Lua keeps what is wanted elsewhere");
                let used = (*inner).memory.used;
                for len in [1, 15, 16, 17, 40, 64, 127, 128, 129, 4096] {
                    let take = || allocate(inner.cast(), ptr::null_mut(), 0, len);
                    let give = |block| allocate(inner.cast(), block, len, 0);
                    let one = take();
                    give(one);
                    let again = take();
                    assert!(len > 128 || again == one, "{len} bytes");
                    assert_eq!((*inner).memory.used, used + len);
                    give(allocate(inner.cast(), again, len, len));
                    let blocks: Vec<_> = (0..20_000).map(|_| take()).collect();
                    for block in blocks {
                        give(block);
                    }
                    assert_eq!((*inner).memory.used, used);
                    assert!((*inner).memory.spare.bytes() <= SPARE_BYTES_MAX);
                }
            }
        }
    }
}
