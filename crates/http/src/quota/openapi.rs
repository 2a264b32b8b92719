//! The OpenAPI document, made from the table of routes.

use std::fmt::Write;

use serde_json::{Map, Value, json};
use services::quota::plan::Plan;

use super::{ROUTES, Route, Run};

/// The whole document.
pub(super) fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Forebay: metered ingest",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Records stored and counted against a quota in one transaction.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "key": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            "schemas": all_schemas(),
        },
    })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn whole() -> Value {
    json!({ "type": "integer", "format": "int64" })
}

fn to(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn all_schemas() -> Value {
    let mut all = schemas();
    all["Webhook"] = object(
        &["id", "org", "url", "enabled", "created_at"],
        json!({
            "id": text(), "org": text(), "url": text(), "enabled": { "type": "boolean" },
            "created_at": json!({ "type": "string", "format": "date-time" }), "secret": text(),
        }),
    );
    all["NewWebhook"] = json!({
        "type": "object", "additionalProperties": false, "required": ["url"],
        "properties": {
            "url": { "type": "string", "maxLength": 2000 },
            "secret": { "type": ["string", "null"] },
        },
    });
    all["NewSecret"] = json!({
        "type": "object", "additionalProperties": false,
        "properties": { "secret": { "type": ["string", "null"] } },
    });
    all["FreshSecret"] = object(
        &["secret", "old_until"],
        json!({ "secret": text(), "old_until": { "type": "string", "format": "date-time" } }),
    );
    all
}

fn schemas() -> Value {
    let percent = json!({ "type": "integer", "minimum": 1, "maximum": 1000 });
    let count = json!({ "type": "integer", "minimum": 0, "maximum": 1_i64 << 53 });
    let moment = json!({ "type": "string", "format": "date-time" });
    json!({
        "Problem": object(&["type", "title", "status", "detail"], json!({
            "type": text(), "title": text(), "status": whole(), "detail": text(),
            "violated-policies": { "type": "array", "items": text() },
        })),
        "Usage": object(&["org", "period", "used", "every", "resets_at"], json!({
            "org": text(), "period": text(), "used": whole(), "limit": whole(),
            "remaining": whole(), "over_limit": { "type": "boolean" }, "because": text(),
            "every": text(), "resets_at": moment,
        })),
        "Ingested": object(&["accepted", "duplicate", "rejected", "usage", "mode"], json!({
            "accepted": whole(), "duplicate": whole(), "usage": to("Usage"),
            "mode": { "enum": ["sync", "group", "journal"] },
            "rejected": { "type": "array", "items": object(&["index", "reason", "detail"], json!({
                "index": whole(), "reason": text(), "detail": text(),
            })) },
        })),
        "Plan": json!({ "type": "object", "additionalProperties": false, "properties": {
            "limit": { "type": ["integer", "null"], "minimum": 0, "maximum": 1_i64 << 53 },
            "period": { "enum": ["minute", "hour", "day", "week", "month", "year"] },
            "anchor_day": { "type": "integer", "minimum": 1, "maximum": 31 },
            "tz": text(), "soft": { "type": "boolean" }, "dry_run": { "type": "boolean" },
            "burst": { "anyOf": [{ "type": "null" }, { "type": "object",
                "additionalProperties": false, "required": ["rate"], "properties": {
                    "rate": { "type": "integer", "minimum": 1, "maximum": 1_000_000 },
                    "per": { "type": "integer", "minimum": 1, "maximum": 86_400 },
                    "max": { "type": "integer", "minimum": 0, "maximum": 1_000_000 },
                } }] },
            "costs": { "type": "object", "additionalProperties": count },
            "thresholds": { "type": "array", "maxItems": 10, "items": percent },
        }, "example": Plan { limit: Some(5000), ..Plan::default() } }),
        "Standing": object(&["usage", "plan"], json!({ "usage": to("Usage"), "plan": to("Plan") })),
        "Key": object(&["id", "org", "prefix", "name", "scopes", "enabled", "created_at"], json!({
            "id": text(), "org": text(), "prefix": text(), "name": text(),
            "scopes": { "type": "array", "items": text() }, "enabled": { "type": "boolean" },
            "expires_at": { "type": ["string", "null"] }, "created_at": moment, "secret": text(),
        })),
        "NewKey": { "type": "object", "additionalProperties": false, "properties": {
            "name": { "type": "string", "maxLength": 255 },
            "scopes": { "type": ["array", "null"], "minItems": 1,
                "items": { "enum": ["ingest", "read", "manage"] } },
            "expires_at": { "type": ["string", "null"], "format": "date-time" },
        } },
        "Adjustment": { "type": "object", "additionalProperties": false,
            "required": ["delta", "reason", "idempotency_key"], "properties": {
                "delta": whole(), "reason": { "type": "string", "maxLength": 1000 },
                "idempotency_key": { "type": "string", "minLength": 1, "maxLength": 200 },
            } },
    })
}

/// What a route takes in its body, and what it answers when all is well.
fn shape(run: Run) -> (Option<Value>, &'static str, Value) {
    let any = || json!({ "type": "object" });
    let listed = |item: Value| json!({ "type": "array", "items": item });
    match run {
        Run::Ingest => (Some(json!({})), "200", to("Ingested")),
        Run::OpenSession => (Some(any()), "201", any()),
        Run::CloseSession => (None, "200", any()),
        Run::OwnQuota | Run::GetQuota => (None, "200", to("Standing")),
        Run::PutQuota => (Some(to("Plan")), "200", any()),
        Run::Usage => (None, "200", listed(any())),
        Run::Adjust => (Some(to("Adjustment")), "200", to("Standing")),
        Run::Keys => (None, "200", listed(to("Key"))),
        Run::MakeKey => (Some(to("NewKey")), "201", to("Key")),
        Run::DisableKey => (None, "204", Value::Null),
        Run::Audit => (None, "200", listed(any())),
        Run::Webhooks => (None, "200", listed(to("Webhook"))),
        Run::MakeWebhook => (Some(to("NewWebhook")), "201", to("Webhook")),
        Run::RemoveWebhook => (None, "204", Value::Null),
        Run::TestWebhook => (None, "202", any()),
        Run::RotateSecret => (Some(to("NewSecret")), "200", to("FreshSecret")),
        Run::Deliveries => (None, "200", listed(any())),
        Run::Verify => (None, "200", any()),
        Run::Document => (None, "200", any()),
        Run::Page => (None, "200", Value::Null),
    }
}

/// What can go wrong, besides.
fn problems(run: Run) -> &'static [&'static str] {
    match run {
        Run::Ingest => &["400", "401", "403", "409", "413", "422", "429", "503"],
        Run::Document | Run::Page => &["413"],
        Run::PutQuota | Run::OpenSession | Run::Usage | Run::Audit => {
            &["400", "401", "403", "404", "413", "503"]
        }
        Run::Adjust => &["400", "401", "403", "404", "413", "422", "503"],
        Run::MakeKey => &["400", "401", "403", "404", "413", "503"],
        _ => &["400", "401", "403", "404", "413", "503"],
    }
}

fn queries(run: Run) -> &'static [(&'static str, &'static str)] {
    match run {
        Run::Ingest => &[
            ("session", "A session, instead of a key."),
            ("cost", "What each record costs that does not say so itself."),
        ],
        Run::Usage => &[
            ("from", "RFC 3339; a day before to unless given."),
            ("to", "RFC 3339; now unless given."),
            ("window", "minute, hour, day, week, month or year; day unless given."),
            ("tz", "The time zone of the windows; UTC unless given."),
            ("group_by", "key, type, or both with a comma."),
        ],
        Run::Deliveries => &[("limit", "Lines at most; 100 unless given, 1000 at most.")],
        Run::Audit => &[
            ("org", "The organisation; the key's own unless given."),
            ("before", "Only lines with a smaller id."),
            ("limit", "Lines at most; 100 unless given, 1000 at most."),
        ],
        _ => &[],
    }
}

/// What a parameter of the query is, the same for all routes.
fn query_schema(name: &str) -> Value {
    match name {
        "from" | "to" => json!({ "type": "string", "format": "date-time" }),
        "window" => json!({ "enum": ["minute", "hour", "day", "week", "month", "year"] }),
        "group_by" => json!({ "enum": ["key", "type", "key,type"] }),
        "cost" => json!({ "type": "integer", "minimum": 0, "maximum": 1_i64 << 53 }),
        "before" | "limit" => json!({ "type": "integer", "minimum": 1, "maximum": 1_i64 << 53 }),
        _ => text(),
    }
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut all = Vec::new();
    for name in route.path.split('/').filter_map(|word| word.strip_prefix('{')) {
        let name = name.trim_end_matches('}');
        all.push(json!({ "name": name, "in": "path", "required": true, "schema": text() }));
    }
    for (name, doc) in queries(route.run) {
        let schema = query_schema(name);
        all.push(json!({ "name": name, "in": "query", "description": doc, "schema": schema }));
    }
    if route.run == Run::Ingest {
        let doc = "The same request is done once; kept as long as its record.";
        all.push(json!({
            "name": "Idempotency-Key", "in": "header", "description": doc, "schema": text(),
        }));
    }
    all
}

fn operation(route: &Route) -> Value {
    let (takes, status, gives) = shape(route.run);
    let content = match route.run {
        Run::Page => json!({ "text/html": {} }),
        Run::Usage => json!({ "application/json": { "schema": gives }, "text/csv": {} }),
        _ => json!({ "application/json": { "schema": gives } }),
    };
    let mut good = json!({ "description": "Done." });
    if status != "204" {
        good["content"] = content;
    }
    let mut responses = json!({ status: good });
    match route.run {
        Run::Ingest => responses["202"] = responses["200"].clone(),
        Run::PutQuota => responses["201"] = responses["200"].clone(),
        _ => {}
    }
    for status in problems(route.run) {
        responses[*status] = json!({
            "description": "Refused.",
            "content": { "application/problem+json": { "schema": to("Problem") } },
        });
    }
    let mut operation = json!({
        "summary": route.doc,
        "operationId": format!("{:?}", route.run),
        "parameters": parameters(route),
        "responses": responses,
    });
    if let Some(takes) = takes {
        let mut content = json!({ "application/json": { "schema": takes } });
        if route.run == Run::Ingest {
            let kinds = ["x-ndjson", "cloudevents+json", "cloudevents-batch+json"];
            for kind in kinds {
                content[format!("application/{kind}")] = json!({});
            }
        }
        operation["requestBody"] = json!({ "required": false, "content": content });
    }
    match route.run {
        Run::Document | Run::Page => operation["security"] = json!([]),
        // A session is enough.
        Run::Ingest | Run::CloseSession => operation["security"] = json!([{}, { "key": [] }]),
        _ => {}
    }
    operation
}

/// The routes as a page, without anything from elsewhere.
pub(super) fn page() -> String {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Forebay: metered ingest\
         </title><style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
         td{padding:.2em 1em .2em 0;vertical-align:top}code{white-space:nowrap}</style>\
         <h1>Metered ingest</h1><p>As a document for programs: \
         <a href=\"/openapi.json\">/openapi.json</a><table>",
    );
    for route in ROUTES {
        let (method, path, doc) = (&route.method, route.path, route.doc);
        let _ = write!(page, "<tr><td><code>{method} {path}</code><td>{doc}");
    }
    page + "</table></html>\n"
}
