//! The OpenAPI document: the same operations for every table, with its own columns.

use serde_json::{Value, json};
use services::tables::schema::{Kind, Table};
use services::tables::service::Tables as Service;

fn kind_schema(kind: Kind) -> Value {
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Int => json!({ "type": "integer", "format": "int64" }),
        Kind::Real => json!({ "type": "number", "format": "double" }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Date => json!({ "type": "string", "format": "date-time" }),
    }
}

fn row_schema(table: &Table) -> Value {
    let columns = table.columns.iter();
    let members = columns.map(|column| (column.name.clone(), kind_schema(column.kind)));
    json!({ "type": "object", "properties": Value::Object(members.collect()) })
}

const PARAMETERS: &[(&str, &str, &str)] = &[
    ("$filter", "string", "An OData expression."),
    ("$orderby", "string", "Keys with asc or desc."),
    ("$skip", "integer", "Rows left out."),
    ("$top", "integer", "Rows at most."),
    ("$select", "string", "Columns."),
    ("$inlinecount", "string", "allpages: count what matches."),
    ("__includeDeleted", "boolean", "Rows marked as deleted, too."),
];

fn operation(summary: &str, id: &str, answers: &[(&str, &str)]) -> Value {
    let answers =
        answers.iter().map(|(status, text)| (status.to_string(), json!({ "description": text })));
    json!({ "summary": summary, "operationId": id, "responses": Value::Object(answers.collect()) })
}

fn with_body(mut operation: Value, table: &str) -> Value {
    let schema = json!({ "$ref": format!("#/components/schemas/{table}") });
    operation["requestBody"] = json!({ "content": { "application/json": { "schema": schema } } });
    operation
}

fn paths(table: &Table) -> [(String, Value); 2] {
    let name = &table.name;
    let mut list = operation(
        "Rows that match.",
        &format!("query_{name}"),
        &[("200", "The rows."), ("304", "They have not changed."), ("400", "Not understood.")],
    );
    list["parameters"] = PARAMETERS
        .iter()
        .map(|(name, kind, text)| {
            json!({ "name": name, "in": "query", "description": text,
                    "schema": { "type": kind } })
        })
        .collect();
    let insert = operation(
        "A new row.",
        &format!("insert_{name}"),
        &[("201", "The row."), ("400", "It does not fit."), ("409", "The id is there already.")],
    );
    let one = [("200", "The row."), ("304", "It has not changed."), ("404", "It is not there.")];
    let changed =
        [("200", "The row."), ("404", "It is not there."), ("412", "It has another version.")];
    let patch = operation("Changes columns.", &format!("update_{name}"), &changed);
    let id = json!([{ "name": "id", "in": "path", "required": true,
                      "schema": kind_schema(table.columns[0].kind) }]);
    let row = json!({
        "parameters": id,
        "get": operation("One row.", &format!("read_{name}"), &one),
        "patch": with_body(patch, name),
        "delete": operation("Removes a row, or marks it.", &format!("delete_{name}"), &changed),
        "post": operation("Takes the mark away.", &format!("undelete_{name}"), &changed),
    });
    [
        (format!("/tables/{name}"), json!({ "get": list, "post": with_body(insert, name) })),
        (format!("/tables/{name}/{{id}}"), row),
    ]
}

/// The document.
pub(super) fn document(service: &Service) -> Value {
    let names = service.names();
    let served: Vec<_> = names.iter().filter_map(|name| service.find(name)).collect();
    let tables: Vec<&Table> = served.iter().map(|served| &served.table).collect();
    let paths: serde_json::Map<String, Value> =
        tables.iter().flat_map(|table| paths(table)).collect();
    let schemas = tables.iter().map(|table| (table.name.clone(), row_schema(table)));
    let token = json!({ "type": "apiKey", "in": "header", "name": "x-zumo-auth" });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Forebay: cached tables", "version": "1" },
        "paths": paths,
        "components": {
            "schemas": Value::Object(schemas.collect()),
            "securitySchemes": { "token": token },
        },
    })
}
