//! Lua 5.1 scripts and functions: the sandbox, the `redis` API, the EVAL and FUNCTION families.
