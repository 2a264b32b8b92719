//! Tables as they are declared in a file, or found in the database.
//!
//! ```json
//! { "discover": true,
//!   "tables": { "todo": {
//!     "columns": { "text": "text", "done": "bool", "rank": "int", "due": "date" },
//!     "id": "text", "softDelete": true, "perUser": "owner", "pageSize": 50, "maxTop": 1000,
//!     "dynamicSchema": false,
//!     "access": { "read": "anonymous", "insert": "authenticated", "delete": "disabled" },
//!     "cache": { "ttlMs": 60000, "staleMs": 10000, "staleIfErrorMs": 86400000,
//!                "negativeMs": 5000, "bodyBytesMax": 1048576, "refreshBeta": 1.0 } } } }
//! ```
//!
//! **Invariant:** the name of a table and of a column is [`is_name`]: it can stand in SQL, quoted,
//! and in an address. Column 0 is `id`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::odata::lex::is_name;

/// Records of a page unless a table says otherwise.
const PAGE_SIZE: u32 = 50;
/// Largest `$top` unless a table says otherwise.
const TOP_MAX: u32 = 1000;
/// Tables that are looked after at most.
pub const TABLES_MAX: usize = 1000;
/// Columns of a table at most.
pub const COLUMNS_MAX: usize = 500;
/// Names that the table API gives a meaning.
pub(super) const SYSTEM: [&str; 5] = ["id", "createdAt", "updatedAt", "version", "deleted"];

/// The type of a column or an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// UTF-8.
    Text,
    /// A whole number of 64 bits.
    Int,
    /// A number in double precision.
    Real,
    /// True or false.
    Bool,
    /// A point in time, UTC, to the millisecond.
    Date,
}

impl Kind {
    /// Whether it is a number.
    pub fn is_number(self) -> bool {
        matches!(self, Kind::Int | Kind::Real)
    }

    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Text => "text",
            Kind::Int => "a whole number",
            Kind::Real => "a number",
            Kind::Bool => "true or false",
            Kind::Date => "a date",
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
}

/// Who may do something to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// Anybody.
    #[default]
    Anonymous,
    /// Whoever shows a token.
    Authenticated,
    /// Nobody.
    Disabled,
}

/// What is done to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Query, or one row.
    Read,
    /// A new row.
    Insert,
    /// A row changed.
    Update,
    /// A row removed, or marked as such.
    Delete,
    /// The mark taken away.
    Undelete,
}

impl Operation {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Insert => "insert",
            Operation::Update => "update",
            Operation::Delete => "delete",
            Operation::Undelete => "undelete",
        }
    }
}

/// Who may do what.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Access {
    read: Who,
    insert: Who,
    update: Who,
    delete: Who,
    undelete: Who,
}

impl Access {
    /// Who may do this.
    pub fn of(&self, operation: Operation) -> Who {
        match operation {
            Operation::Read => self.read,
            Operation::Insert => self.insert,
            Operation::Update => self.update,
            Operation::Delete => self.delete,
            Operation::Undelete => self.undelete,
        }
    }
}

/// How answers of a table are cached. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Caching {
    /// Fresh for so long; 0 = the table is not cached.
    pub ttl_ms: u64,
    /// After that, served for so long while it is renewed.
    pub stale_ms: u64,
    /// Served for so long when the database does not answer.
    pub stale_if_error_ms: u64,
    /// How long an empty list, or that a row is not there, is fresh.
    pub negative_ms: u64,
    /// Larger bodies are not kept, in bytes.
    pub body_bytes_max: u64,
    /// Answers that took less than this are kept only when asked for a second time, in
    /// microseconds.
    pub admit_us: u64,
    /// For so many seconds clients and proxies may use an answer without asking; they do not hear
    /// of changes.
    pub client_seconds: u64,
    /// How eagerly an answer is renewed before its time is over; 0 = never.
    pub refresh_beta: f64,
}

impl Default for Caching {
    fn default() -> Caching {
        Caching {
            ttl_ms: 60_000,
            stale_ms: 10_000,
            stale_if_error_ms: 86_400_000,
            negative_ms: 5_000,
            body_bytes_max: 1 << 20,
            admit_us: 0,
            client_seconds: 0,
            refresh_beta: 1.0,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Declared {
    #[serde(default)]
    columns: BTreeMap<String, Kind>,
    id: Option<Kind>,
    #[serde(default)]
    soft_delete: bool,
    #[serde(default)]
    dynamic_schema: bool,
    per_user: Option<String>,
    page_size: Option<u32>,
    max_top: Option<u32>,
    #[serde(default)]
    access: Access,
    #[serde(default)]
    cache: Caching,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    discover: bool,
    tables: BTreeMap<String, Declared>,
}

/// What a file declares.
#[derive(Debug, Default)]
pub struct Declarations {
    /// Whether other tables of the database are served, too.
    pub discover: bool,
    /// The tables.
    pub tables: Vec<Table>,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its columns, `id` first.
    pub columns: Vec<Column>,
    /// The column that holds whose row it is: everybody sees only their own.
    pub owner: Option<usize>,
    /// The place of `createdAt`, if there is one.
    pub created_at: Option<usize>,
    /// The place of `updatedAt`.
    pub updated_at: Option<usize>,
    /// The place of `version`.
    pub version: Option<usize>,
    /// The place of `deleted`: rows are marked instead of removed.
    pub deleted: Option<usize>,
    /// Whether a body may make columns.
    pub is_dynamic: bool,
    /// Who may do what.
    pub access: Access,
    /// Records of a page.
    pub page_size: u32,
    /// Largest `$top`.
    pub top_max: u32,
    /// How answers are cached.
    pub caching: Caching,
}

impl Table {
    /// A table of these columns, `id` among them; those with the names of system columns are taken
    /// as such.
    pub fn new(name: &str, mut columns: Vec<Column>) -> Result<Table, String> {
        let bad = |what: &str| Err(format!("table {name:?}: {what}"));
        if !is_name(name) {
            return bad("the name is letters, digits and _, and begins with no digit");
        }
        if let Some(column) = columns.iter().find(|column| !is_name(&column.name)) {
            return bad(&format!("{:?} is no name for a column", column.name));
        }
        let mut names: Vec<String> =
            columns.iter().map(|column| column.name.to_ascii_lowercase()).collect();
        names.sort();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return bad("two columns have the same name");
        }
        if columns.len() > COLUMNS_MAX {
            return bad(&format!("more than {COLUMNS_MAX} columns"));
        }
        let Some(id) = columns.iter().position(|column| column.name == "id") else {
            return bad("it has no column id");
        };
        if !matches!(columns[id].kind, Kind::Text | Kind::Int) {
            return bad("id is text or int");
        }
        columns[..=id].rotate_right(1);
        let place = |name: &str, kind: Kind| {
            columns.iter().position(|column| column.name == name && column.kind == kind)
        };
        Ok(Table {
            name: name.to_string(),
            owner: None,
            created_at: place("createdAt", Kind::Date),
            updated_at: place("updatedAt", Kind::Date),
            version: place("version", Kind::Text),
            deleted: place("deleted", Kind::Bool),
            columns,
            is_dynamic: false,
            access: Access::default(),
            page_size: PAGE_SIZE,
            top_max: TOP_MAX,
            caching: Caching::default(),
        })
    }

    /// The place of a column.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Whether `id` is a number that the database gives.
    pub fn has_number_id(&self) -> bool {
        self.columns[0].kind == Kind::Int
    }

    fn declared(name: &str, declared: Declared) -> Result<Table, String> {
        let column = |name: &str, kind| Column { name: name.to_string(), kind };
        let mut columns = vec![column("id", declared.id.unwrap_or(Kind::Text))];
        if let Some(system) = declared
            .columns
            .keys()
            .find(|name| SYSTEM.iter().any(|system| system.eq_ignore_ascii_case(name)))
        {
            return Err(format!("table {name:?}: {system} is always there; do not declare it"));
        }
        columns.extend(declared.columns.iter().map(|(name, kind)| column(name, *kind)));
        columns.push(column("createdAt", Kind::Date));
        columns.push(column("updatedAt", Kind::Date));
        columns.push(column("version", Kind::Text));
        if declared.soft_delete {
            columns.push(column("deleted", Kind::Bool));
        }
        if let Some(owner) = &declared.per_user
            && !declared.columns.contains_key(owner)
        {
            columns.push(column(owner, Kind::Text));
        }
        let mut table = Table::new(name, columns)?;
        if let Some(owner) = &declared.per_user {
            table.owner = table.find(owner).filter(|at| table.columns[*at].kind == Kind::Text);
            if table.owner.is_none() {
                return Err(format!("table {name:?}: perUser {owner:?} is no text column"));
            }
        }
        table.access = declared.access;
        table.is_dynamic = declared.dynamic_schema;
        table.caching = declared.cache;
        table.top_max = declared.max_top.unwrap_or(TOP_MAX).max(1);
        table.page_size = declared.page_size.unwrap_or(PAGE_SIZE).clamp(1, table.top_max);
        Ok(table)
    }
}

impl Declarations {
    /// Reads a file's text.
    pub fn read(text: &str) -> Result<Declarations, String> {
        let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if file.tables.len() > TABLES_MAX {
            return Err(format!("more than {TABLES_MAX} tables"));
        }
        let tables =
            file.tables.into_iter().map(|(name, declared)| Table::declared(&name, declared));
        Ok(Declarations { discover: file.discover, tables: tables.collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_declare_tables() {
        let text = r#"{"tables": {"todo": {"columns": {"text": "text", "rank": "int"},
            "perUser": "owner", "softDelete": true, "cache": {"ttlMs": 5}}}}"#;
        let read = Declarations::read(text).expect("a declaration");
        let todo = &read.tables[0];
        let names: Vec<&str> = todo.columns.iter().map(|column| column.name.as_str()).collect();
        let want = "id rank text createdAt updatedAt version deleted owner";
        assert_eq!(names.join(" "), want);
        assert_eq!(todo.owner, Some(7));
        assert_eq!((todo.deleted, todo.version), (Some(6), Some(5)));
        assert_eq!((todo.caching.ttl_ms, todo.caching.negative_ms), (5, 5000));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in [
            r#"{"tables": {"to do": {}}}"#,
            r#"{"tables": {"todo": {"columns": {"a\"b": "text"}}}}"#,
            r#"{"tables": {"todo": {"columns": {"a": "text", "A": "int"}}}}"#,
            r#"{"tables": {"todo": {"columns": {"Version": "int"}}}}"#,
            r#"{"tables": {"todo": {"columns": {"a": "blob"}}}}"#,
            r#"{"tables": {"todo": {"id": "real"}}}"#,
            r#"{"tables": {"todo": {"columns": {"a": "int"}, "perUser": "a"}}}"#,
            r#"{"tables": {"todo": {"cached": true}}}"#,
            r#"{"table": {}}"#,
        ] {
            assert!(Declarations::read(text).is_err(), "{text}");
        }
    }
}
