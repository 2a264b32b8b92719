//! What is shown of results: a table on the terminal, results.json, and a page with charts.

pub mod format;
pub mod html;
mod ribbons;
pub mod svg;
pub mod terminal;

use crate::harness::Results;

/// Results as JSON.
pub fn json(results: &Results) -> String {
    // Only maps with keys that are not strings could fail, and there are none.
    serde_json::to_string_pretty(results)
        .unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"))
}
