//! The services behind HTTP and the `QUOTA` and `SAGA` commands, as logic over two traits:
//! [`store::Store`], where counters live, and [`database::Database`], where everything lives that
//! must last. Sagas keep theirs in a log of their own.
//!
//! **Invariant:** nothing in here knows a product, a socket, a file or the clock: databases and
//! stores come in through the traits, time and random bits are passed in.

pub mod append;
pub mod database;
pub mod pace;
pub mod quota;
pub mod saga;
pub mod store;
pub mod tables;
pub mod testing;
