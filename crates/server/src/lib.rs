//! The RESP server: event loops, connections, TLS, configuration, and the commands about them.

pub mod access;
pub mod admin;
pub mod aof;
pub mod apply;
pub mod busy;
pub mod client;
pub mod client_memory;
pub mod conf_file;
pub mod connection;
pub mod crash;
pub mod families;
mod held;
pub mod histogram;
pub mod hub;
pub mod inner;
pub mod listener;
pub mod message;
pub mod monitor;
pub mod option_table;
pub mod option_words;
pub mod options;
pub mod persistence;
pub mod pubsub;
mod read_ahead;
pub mod records;
pub mod scripting;
pub mod shared;
pub mod start;
pub mod sys;
pub mod tls;
pub mod worker;
mod worker_commands;
mod worker_input;

#[cfg(test)]
mod testing;

/// The families of this crate: clients and channels, and the server itself.
pub fn families() -> Vec<commands::command::Family> {
    [families::FAMILIES, admin::FAMILIES, &[aof::commands::FAMILY]].concat()
}
