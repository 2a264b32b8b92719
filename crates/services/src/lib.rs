//! Quota, tables and sagas: what they decide, without products, sockets or clocks.

pub mod saga;
