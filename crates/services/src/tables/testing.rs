//! What the tests of tables share.

use super::schema::{Column, Kind, Table};

/// A table with every type, system columns and an owner.
pub fn table() -> Table {
    let column = |(name, kind): (&str, Kind)| Column { name: name.to_string(), kind };
    let columns = [
        ("id", Kind::Text),
        ("text", Kind::Text),
        ("note", Kind::Text),
        ("rank", Kind::Int),
        ("price", Kind::Real),
        ("done", Kind::Bool),
        ("due", Kind::Date),
        ("createdAt", Kind::Date),
        ("updatedAt", Kind::Date),
        ("version", Kind::Text),
        ("deleted", Kind::Bool),
        ("owner", Kind::Text),
    ];
    let mut table = Table::new("todo", columns.map(column).into()).expect("it is well-formed");
    table.owner = table.find("owner");
    table
}
