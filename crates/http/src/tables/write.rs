//! Changes: insert, patch, replace, delete, undelete.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;
use services::database::Value;
use services::tables::ask::{Change, Changed, Fault, Served, Verb};
use services::tables::change::{BadBody, Item, item};
use services::tables::query::{Shape, id_of};
use services::tables::row_etag;
use services::tables::rows::write_row;
use services::tables::schema::Operation;
use services::tables::widen::missing;
use tokio::sync::oneshot;

use super::read::bare_tag;
use super::{Caller, Tables, faulty, headers, nothing, refuse};
use crate::alone::is_alone;
use crate::body::Response;
use crate::problem::with_type;

fn bad_body(bad: &BadBody) -> Box<Response> {
    refuse(StatusCode::BAD_REQUEST, &bad.why, &[("column", json!(bad.column))])
}

/// The version that `If-Match` wants.
fn if_match(parts: &Parts) -> Result<Option<String>, Box<Response>> {
    let Some(tag) = parts.headers.get(header::IF_MATCH) else { return Ok(None) };
    let tag = bare_tag(tag.to_str().unwrap_or(""));
    if tag == "*" {
        return Ok(None);
    }
    let inner = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
    let inner = inner.ok_or_else(|| {
        refuse(StatusCode::BAD_REQUEST, "If-Match is one entity tag, in quotes", &[])
    })?;
    let bare = ["-gzip", "-br", "-zstd"].iter().find_map(|end| inner.strip_suffix(end));
    Ok(Some(bare.unwrap_or(inner).replace("\\\"", "\"")))
}

fn row_json(served: &Served, row: &Vec<Value>) -> String {
    let table = &served.table;
    let places: Vec<usize> = (0..table.columns.len()).collect();
    let mut body = Vec::with_capacity(256);
    write_row(&mut body, row, &places, table);
    String::from_utf8(body).unwrap_or_default()
}

/// A row as an answer, with its tag.
fn row_answer(
    status: StatusCode,
    served: &Served,
    row: Option<&Vec<Value>>,
    version: Option<i64>,
) -> Response {
    let body = row.map(|row| row_json(served, row)).unwrap_or_default();
    let mut response = with_type(status, "application/json; charset=utf-8", body);
    let place = served.table.version;
    let tag = row.zip(place).map(|(row, place)| row_etag(row[place].text()));
    headers::changed(response.headers_mut(), version, tag.as_deref());
    response
}

/// A new id where the client gives none: 128 random bits as a UUID (RFC 9562, version 4).
fn fresh_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    let bits = || RandomState::new().hash_one(0u8);
    let high = bits() & 0xffff_ffff_ffff_0fff | 0x4000;
    let low = bits() & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000;
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

impl Tables {
    /// A table with the columns that a body wants, where it may make them.
    pub(super) async fn widened(
        &self,
        served: Arc<Served>,
        operation: Operation,
        body: &[u8],
    ) -> Result<Arc<Served>, Box<Response>> {
        let makes = matches!(operation, Operation::Insert | Operation::Update);
        if !(makes && served.table.is_dynamic) {
            return Ok(served);
        }
        let columns = missing(body, &served.table).map_err(|bad| bad_body(&bad))?;
        if columns.is_empty() {
            return Ok(served);
        }
        let (sender, receiver) = oneshot::channel();
        let done = Box::new(move |widened: Result<(), Fault>| {
            // If nobody waits any more, the client has gone.
            let _ = sender.send(widened);
        });
        self.service.widen(&served.table.name, columns, done);
        let widened = receiver.await.unwrap_or(Err(Fault::Busy("the server is about to end")));
        widened.map_err(|fault| faulty(&fault))?;
        Ok(self.service.find(&served.table.name).unwrap_or(served))
    }

    /// Everything but GET.
    pub(super) async fn write(
        &self,
        parts: &Parts,
        served: &Arc<Served>,
        operation: Operation,
        id: Option<String>,
        caller: &Caller,
        body: &[u8],
    ) -> Result<Response, Box<Response>> {
        let mut change = self.plan(parts, served, operation, id, body)?;
        change.owner = served.table.owner.and(caller.user.clone());
        let has_if_match = parts.headers.contains_key(header::IF_MATCH);
        let changed = self.made(change).await.map_err(|fault| faulty(&fault))?;
        Ok(told(served, operation, caller.shape, changed, has_if_match, body))
    }

    /// Makes a change: in this thread if it is short work and nobody else wants the thread.
    async fn made(&self, change: Change) -> Result<Changed, Fault> {
        let change = match is_alone().await {
            true => match self.service.change_here(change) {
                Ok(made) => return made,
                Err(change) => change,
            },
            false => change,
        };
        let (sender, receiver) = oneshot::channel();
        let done = Box::new(move |changed: Result<Changed, Fault>| {
            // If nobody waits any more, the client has gone.
            let _ = sender.send(changed);
        });
        self.service.change(change, done);
        receiver.await.unwrap_or(Err(Fault::Busy("the server is about to end")))
    }

    fn plan(
        &self,
        parts: &Parts,
        served: &Arc<Served>,
        operation: Operation,
        id: Option<String>,
        body: &[u8],
    ) -> Result<Change, Box<Response>> {
        let table = &served.table;
        let has_item = matches!(operation, Operation::Insert | Operation::Update);
        let item = match has_item {
            true => item(body, table, self.service.dialect()).map_err(|bad| bad_body(&bad))?,
            false => Item::default(),
        };
        let named =
            id.map(|id| id_of(table, &id).ok_or_else(|| nothing("The item does not exist")));
        let id = match (named.transpose()?, item.id) {
            (Some(named), Some(own)) if named != own => {
                let why = "the id in the body is not that in the address";
                return Err(refuse(StatusCode::BAD_REQUEST, why, &[("column", json!("id"))]));
            }
            (named, own) => named.or(own),
        };
        let id = match (operation, id) {
            (_, Some(id)) => id,
            (Operation::Insert, None) if table.has_number_id() => Value::Null,
            (Operation::Insert, None) => fresh_id().into(),
            _ => return Err(refuse(StatusCode::BAD_REQUEST, "which row? there is no id", &[])),
        };
        let is_put = parts.method == "PUT";
        let verb = match operation {
            Operation::Insert => Verb::Insert,
            Operation::Delete => Verb::Delete,
            Operation::Undelete => Verb::Undelete,
            _ if is_put => Verb::Replace,
            _ => Verb::Update,
        };
        let mut sets = item.sets;
        if is_put {
            let given: Vec<usize> = sets.iter().map(|(place, _)| *place).collect();
            let system = [table.created_at, table.updated_at, table.version, table.deleted];
            let missing = (1..table.columns.len())
                .filter(|place| !given.contains(place) && !system.contains(&Some(*place)));
            sets.extend(missing.map(|place| (place, Value::Null)));
        }
        let condition = if_match(parts)?.or(match operation {
            Operation::Insert => None,
            _ => item.version,
        });
        Ok(Change { served: Arc::clone(served), verb, id, sets, owner: None, condition })
    }
}

fn told(
    served: &Served,
    operation: Operation,
    shape: Shape,
    changed: Changed,
    has_if_match: bool,
    body: &[u8],
) -> Response {
    match changed {
        Changed::Done { row, version } => {
            let (status, row) = match (operation, shape) {
                (Operation::Insert, _) => (StatusCode::CREATED, row),
                (Operation::Delete, Shape::Datasync3) => (StatusCode::NO_CONTENT, None),
                _ => (StatusCode::OK, row),
            };
            let mut response = row_answer(status, served, row.as_ref(), Some(version));
            if operation == Operation::Insert
                && let Some(Value::Text(id)) = row.as_ref().map(|row| &row[0])
                && let Ok(place) =
                    HeaderValue::from_str(&format!("/tables/{}/{id}", served.table.name))
            {
                response.headers_mut().insert(header::LOCATION, place);
            }
            response
        }
        Changed::NotFound => *nothing("The item does not exist"),
        Changed::Deleted if shape == Shape::Datasync3 => {
            *refuse(StatusCode::GONE, "The item is deleted", &[])
        }
        Changed::Deleted => *nothing("The item does not exist"),
        Changed::Mismatch(row) => {
            let status = match has_if_match {
                true => StatusCode::PRECONDITION_FAILED,
                false => StatusCode::CONFLICT,
            };
            row_answer(status, served, Some(&row), None)
        }
        Changed::Exists => {
            let body = String::from_utf8_lossy(body).into_owned();
            let kind = "application/json; charset=utf-8";
            let mut response = with_type(StatusCode::CONFLICT, kind, body);
            headers::changed(response.headers_mut(), None, None);
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids() {
        let id = fresh_id();
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'4'));
        assert!(b"89ab".contains(&id.as_bytes()[19]));
        assert_ne!(id, fresh_id());
    }
}
