//! The report.
use crate::harness::{Chart, Results};
/// The page.
pub fn page(_results: &Results, _charts: &[Chart]) -> String {
    String::new()
}
