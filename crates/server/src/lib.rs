//! The RESP server: event loops, connections, TLS, configuration, and the commands about them.

pub mod access;
pub mod admin;
pub mod apply;
pub mod client;
pub mod conf_file;
pub mod connection;
pub mod families;
pub mod histogram;
pub mod hub;
pub mod listener;
pub mod message;
pub mod monitor;
pub mod option_table;
pub mod option_words;
pub mod options;
pub mod pubsub;
pub mod records;
pub mod shared;
pub mod start;
pub mod sys;
pub mod tls;
pub mod worker;

#[cfg(test)]
mod testing;

/// The families of this crate.
pub const FAMILIES: &[commands::command::Family] = &{
    let (clients, server) = (families::FAMILIES, admin::FAMILIES);
    let mut all = [clients[0]; families::FAMILIES.len() + admin::FAMILIES.len()];
    let mut index = 0;
    while index < all.len() {
        all[index] =
            if index < clients.len() { clients[index] } else { server[index - clients.len()] };
        index += 1;
    }
    all
};
