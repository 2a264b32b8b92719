//! What the services stand on: implementations of their traits `Store` and `Database`. No rule of
//! any service is in here.

pub mod compress;
pub mod embedded;
pub mod journal;
pub mod shelf;
pub mod sqlite;
