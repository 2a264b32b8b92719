//! The commands about clients, connections and channels: those that need the server around them.
//!
//! A handler gets at its thread's server by [`hub`]. What all threads know of a client is in its
//! [`crate::client::Client`]; what only its own commands may touch is in its peer.

pub mod client_commands;
pub mod client_list;
pub mod connection;
pub mod dump;
pub mod migrate;
pub mod pubsub_commands;

use commands::command::Family;
use commands::context::Context;

use crate::hub::Hub;

/// The families of this folder.
pub const FAMILIES: &[Family] = &[
    connection::FAMILY,
    client_commands::FAMILY,
    pubsub_commands::FAMILY,
    dump::FAMILY,
    migrate::FAMILY,
];

/// The server as the running command's thread has it.
///
/// # Panics
/// If the command runs in another server than this crate's.
pub fn hub<'a>(cx: &'a mut Context<'_>) -> &'a mut Hub {
    Hub::of(cx.host)
}
