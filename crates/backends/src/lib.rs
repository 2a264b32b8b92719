//! What the services stand on: implementations of their traits `Store` and `Database`. No rule of
//! any service is in here.

pub mod address;
pub mod compress;
pub mod embedded;
pub mod journal;
mod marks;
pub mod mysql;
pub mod postgres;
mod postgres_values;
mod runtime;
pub mod shelf;
pub mod sqlite;
mod unit;
