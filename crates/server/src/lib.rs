//! Placeholder until the crate has content.
