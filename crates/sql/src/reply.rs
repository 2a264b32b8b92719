//! The forms in which rows and counts are answered: one per dialect.
//!
//! ```text
//! V1      [[cell ...] ...]                                     ["DONE", changes]
//! V2      [["RESULT"], [name ...], [type ...], [cell ...] ...] [["DONE"], [changes]]
//! JSON    {"rows":[...],"number_of_rows":n,"columns":{...}}    {"result":"done",...}
//! Native  {columns: [...], types: [...], rows: [[...] ...], changes: n, last_rowid: n}
//! ```

use resp::Writer;
use resp::number::write_double;

use crate::error::Failure;
use crate::raw::statement::{Cell, Statement};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Rows alone.
    V1,
    /// Rows under a header; without names and types if not `header`.
    V2 {
        /// Names and types are wanted.
        header: bool,
    },
    /// One string of JSON.
    Json {
        /// The number of rows and the columns are wanted.
        header: bool,
    },
    /// A map.
    Native,
    /// Nothing is written: the rows are for a stream.
    Kept,
}

/// What bounds an answer.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Rows, at most.
    pub rows_max: usize,
    /// Bytes, at most.
    pub bytes_max: usize,
}

/// One row for a stream: fields with their values.
pub type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// An answer being written.
pub struct Answer<'w> {
    out: &'w mut Writer,
    shape: Shape,
    bounds: Bounds,
    start: usize,
    rows: usize,
    place: Option<resp::Later>,
    json: Vec<u8>,
    columns: Vec<(Vec<u8>, &'static str)>,
    /// Rows for a stream.
    pub kept: Vec<Fields>,
}

/// What a command did, beside its rows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Rows inserted, changed, deleted, triggers' and cascades' included.
    pub changes: i64,
    /// The last inserted row, if any was.
    pub last_rowid: Option<i64>,
}

fn type_name(cell: Cell<'_>) -> &'static str {
    match cell {
        Cell::Null => "NULL",
        Cell::Int(_) => "INT",
        Cell::Real(_) => "FLOAT",
        Cell::Text(_) => "TEXT",
        Cell::Blob(_) => "BLOB",
    }
}

impl<'w> Answer<'w> {
    /// Begins an answer at the end of `out`.
    pub fn new(out: &'w mut Writer, shape: Shape, bounds: Bounds) -> Answer<'w> {
        let start = out.bytes().len();
        Answer {
            out,
            shape,
            bounds,
            start,
            rows: 0,
            place: None,
            json: Vec::new(),
            columns: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// Takes back what was written.
    pub fn clear(&mut self) {
        self.out.truncate(self.start);
        (self.rows, self.place) = (0, None);
        self.json.clear();
        self.columns.clear();
        self.kept.clear();
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If the answer has become larger than its bounds.
    pub fn row(&mut self, row: &Statement) -> Result<bool, Failure> {
        if self.rows == 0 {
            self.first(row);
        }
        self.rows += 1;
        match self.shape {
            Shape::V1 | Shape::V2 { .. } | Shape::Native => self.cells(row),
            Shape::Json { .. } => self.json_row(row),
            Shape::Kept => self.keep(row),
        }
        let bytes = self.out.len() - self.start + self.json.len();
        if self.rows > self.bounds.rows_max || bytes > self.bounds.bytes_max {
            return Err(Failure::refused("ERR the result has more rows or bytes than allowed"));
        }
        Ok(true)
    }

    fn first(&mut self, row: &Statement) {
        let columns = row.columns();
        match self.shape {
            Shape::V1 => self.place = Some(self.out.later()),
            Shape::V2 { header } => {
                self.place = Some(self.out.later());
                self.out.array(1);
                self.out.bulk(b"RESULT");
                if header {
                    self.out.array(columns);
                    (0..columns).for_each(|index| self.out.bulk(row.column_name(index)));
                    self.out.array(columns);
                    (0..columns).for_each(|index| self.out.text(type_name(row.cell(index))));
                }
            }
            Shape::Native => self.native_header(row),
            Shape::Json { .. } => {
                let column = |index| (row.column_name(index).to_vec(), type_name(row.cell(index)));
                self.columns = (0..columns).map(column).collect();
            }
            Shape::Kept => {}
        }
    }

    fn native_header(&mut self, row: &Statement) {
        self.out.map(5);
        native_columns(self.out, row);
        self.out.text("rows");
        self.place = Some(self.out.later());
    }

    fn cells(&mut self, row: &Statement) {
        row_cells(self.out, row);
    }

    fn json_row(&mut self, row: &Statement) {
        self.json.extend_from_slice(if self.json.is_empty() { b"{" } else { b",{" });
        for index in 0..row.columns() {
            if index > 0 {
                self.json.push(b',');
            }
            json_string(&mut self.json, row.column_name(index));
            self.json.push(b':');
            json_cell(&mut self.json, row.cell(index));
        }
        self.json.push(b'}');
    }

    fn keep(&mut self, row: &Statement) {
        let field = |index: usize| {
            let (kind, value) = match row.cell(index) {
                Cell::Null => ("null", b"(null)".to_vec()),
                Cell::Int(number) => ("int", number.to_string().into_bytes()),
                Cell::Real(number) => ("real", resp::number::double_text(number).into_bytes()),
                Cell::Text(bytes) => ("text", bytes.to_vec()),
                Cell::Blob(bytes) => ("blob", bytes.to_vec()),
            };
            ([kind.as_bytes(), b":", row.column_name(index)].concat(), value)
        };
        self.kept.push((0..row.columns()).map(field).collect());
    }

    /// Begins the header of a statement that gave no row (native form).
    pub fn no_rows(&mut self, statement: &Statement) {
        if self.shape == Shape::Native && self.rows == 0 && statement.columns() > 0 {
            self.native_header(statement);
        }
    }

    /// Ends the answer.
    pub fn finish(mut self, counts: Counts) -> Vec<Fields> {
        let rows = self.rows;
        match (self.shape, self.place.take()) {
            (Shape::V1, Some(place)) => self.out.array_at(place, rows),
            (Shape::V1, None) => {
                self.out.raw(b"*2\r\n+DONE\r\n");
                self.out.int(counts.changes);
            }
            (Shape::V2 { header }, Some(place)) => {
                self.out.array_at(place, rows + if header { 3 } else { 1 });
            }
            (Shape::V2 { .. }, None) => {
                self.out.array(2);
                self.out.array(1);
                self.out.bulk(b"DONE");
                self.out.array(1);
                self.out.int(counts.changes);
            }
            (Shape::Native, place) => self.finish_native(place, counts),
            (Shape::Json { header }, _) => self.finish_json(header, counts),
            (Shape::Kept, _) => {}
        }
        self.kept
    }

    fn finish_native(&mut self, place: Option<resp::Later>, counts: Counts) {
        match place {
            Some(place) => self.out.array_at(place, self.rows),
            None => self.out.map(2),
        }
        self.out.text("changes");
        self.out.int(counts.changes);
        self.out.text("last_rowid");
        match counts.last_rowid {
            Some(rowid) => self.out.int(rowid),
            None => self.out.null(),
        }
    }

    fn finish_json(&mut self, header: bool, counts: Counts) {
        let mut text = Vec::with_capacity(self.json.len() + 64);
        if self.rows == 0 {
            text = format!("{{\"result\":\"done\",\"modified_rows\":{}}}", counts.changes).into();
            return self.out.bulk(&text);
        }
        text.extend_from_slice(b"{\"rows\":[");
        text.extend_from_slice(&self.json);
        text.push(b']');
        if header {
            let count = format!(",\"number_of_rows\":{},\"columns\":{{", self.rows);
            text.extend_from_slice(count.as_bytes());
            for (index, (name, kind)) in self.columns.iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                json_string(&mut text, name);
                text.extend_from_slice(format!(":\"{kind}\"").as_bytes());
            }
            text.push(b'}');
        }
        text.push(b'}');
        self.out.bulk(&text);
    }
}

/// Writes the names of a statement's columns and the types they were declared with.
pub fn native_columns(out: &mut Writer, row: &Statement) {
    let columns = row.columns();
    out.text("columns");
    out.array(columns);
    (0..columns).for_each(|index| out.bulk(row.column_name(index)));
    out.text("types");
    out.array(columns);
    for index in 0..columns {
        match row.declared_type(index) {
            Some(name) => out.bulk(name),
            None => out.null(),
        }
    }
}

/// Writes a row as an array.
pub fn row_cells(out: &mut Writer, row: &Statement) {
    let columns = row.columns();
    out.array(columns);
    for index in 0..columns {
        match row.cell(index) {
            Cell::Null => out.null(),
            Cell::Int(number) => out.int(number),
            Cell::Real(number) => out.double(number),
            Cell::Text(bytes) | Cell::Blob(bytes) => out.bulk(bytes),
        }
    }
}

fn json_cell(out: &mut Vec<u8>, cell: Cell<'_>) {
    match cell {
        Cell::Null => out.extend_from_slice(b"null"),
        Cell::Int(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Cell::Real(number) if number.is_finite() => write_double(out, number),
        Cell::Real(_) => out.extend_from_slice(b"null"),
        Cell::Text(bytes) => json_string(out, bytes),
        Cell::Blob(bytes) => json_string(out, hex(bytes).as_bytes()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Appends a JSON string; bytes that are no UTF-8 are replaced.
fn json_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for char in String::from_utf8_lossy(bytes).chars() {
        match char {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            char if (char as u32) < 0x20 => {
                out.extend_from_slice(format!("\\u{:04x}", char as u32).as_bytes());
            }
            char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}
