//! Lua 5.1 scripts and functions: the sandbox, the `redis` API, the EVAL and FUNCTION families.
//!
//! ```text
//!   eval.rs       EVAL, EVALSHA, SCRIPT            functions.rs  FCALL, FUNCTION
//!   scripts.rs    scripts by digest, all threads   libraries.rs  libraries, all threads
//!   engines.rs    each thread's Lua states and what they have compiled
//!   run.rs        one run: what its redis.call may do
//!   shebang.rs    the first line: engine, name, flags
//!   raw/          everything that touches Lua itself
//! ```
//!
//! A script runs inside the handler of its command, on its connection's thread, in that thread's
//! own Lua state: scripts whose keys do not meet run side by side. The sources are shared; each
//! thread compiles what it runs. **Invariant:** what a script leaves behind in its state (a
//! library's local variables apart) is not seen by another.
//!
//! `redis.set_repl` checks its argument as Redis does and then changes nothing: what a script wrote
//! is always logged, since a log that lacks some writes would not lead to the same keys.

pub mod dump;
pub mod engines;
pub mod eval;
pub mod functions;
pub mod libraries;
mod raw;
pub mod run;
pub mod scripts;
pub mod shebang;

use commands::command::Family;

/// The version of Redis that scripts are told, as text.
pub const LUA_REDIS_VERSION: &str = "7.2.4";
/// The same, a byte a part.
pub const LUA_REDIS_VERSION_NUMBER: u32 = 7 << 16 | 2 << 8 | 4;

/// The families of this crate.
pub const FAMILIES: &[Family] = &[eval::FAMILY, functions::FAMILY];
