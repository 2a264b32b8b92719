//! Placeholder until the crate has content.
pub mod reply;
