//! OData expressions, as `$filter` and `$orderby` have them: read, typed against a table's columns,
//! written in one canonical form, turned into SQL with a mark for every value, and worked out in
//! memory: as it has to be for tests, as far as it is certain for kept answers.
//!
//! ```text
//!   lex.rs        letters to tokens, each with its place
//!   parse.rs      tokens to a typed tree; every error has a place
//!   expr.rs       the tree, its operators, its functions as a table
//!   canonical.rs  the tree as text: equal queries have equal text
//!   sql.rs        the tree as SQL of three dialects
//!   model.rs      the tree worked out on a row: what SQL has to agree with
//!   possible.rs   what SQL can find on a row, as far as that is certain
//! ```
//!
//! **Invariant:** what a client writes reaches SQL only as a value beside the text; names in the
//! text are those of the declared columns.
//! **Invariant:** an expression has [`parse::NODES_MAX`] nodes and [`parse::DEPTH_MAX`] levels at
//! most, so that nothing here recurses further.
//!
//! What is counted, compared and cut is the same on every database: letters are code points, text
//! is compared by its bytes, arithmetic is done in double precision, a division by zero is null,
//! times are in UTC to the millisecond. Null goes through as in SQL: a row stays when the filter is
//! true, not when it is unknown.

pub mod canonical;
pub mod expr;
pub mod lex;
pub mod model;
pub mod parse;
pub mod possible;
pub mod sql;
