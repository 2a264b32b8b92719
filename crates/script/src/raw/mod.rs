//! The one place that talks to Lua's C interface: states, their memory, values back and forth.
//!
//! ```text
//!   state.rs    one Lua state: its allocator with a limit, what its C functions share
//!   stack.rs    bytes, numbers and errors to and from the Lua stack
//!   sandbox.rs  which globals there are, tables that cannot be changed, guarded pcall
//!   random.rs   math.random as Redis has it
//!   redis.rs    the `redis` table
//!   reply.rs    a command's reply as a Lua value, a script's value as a reply
//!   run.rs      compiles and calls, with the error handler, limits and the instruction hook
//!   library.rs  loads a library and takes down what it registers
//!   json.rs, msgpack.rs, pack.rs, bit.rs  the modules cjson, cmsgpack, struct and bit
//! ```
//!
//! Why not through mlua's own types: a call of `redis.call` costs 250 ns there, most of it for
//! values that are wrapped and unwrapped, and its error texts are not Redis's.
//!
//! Lua leaves a C function by `longjmp` when it raises an error, and any call that may allocate may
//! raise one. **Invariant:** no frame that calls such a function owns anything with a destructor:
//! what has one lies in [`state::Inner`] (which outlives every call) and is only borrowed, or is
//! dropped before Lua is called. **Invariant:** everything that may raise runs inside `lua_pcall`.
//! **Invariant:** the pointers in `Inner` are set for exactly as long as what they point to lives.

#![allow(unsafe_code, unsafe_op_in_unsafe_fn)]

pub mod bit;
pub mod json;
pub mod library;
pub mod msgpack;
pub mod pack;
pub mod random;
pub mod redis;
pub mod reply;
pub mod run;
pub mod sandbox;
pub mod spare;
pub mod stack;
pub mod state;
pub mod wanted;
