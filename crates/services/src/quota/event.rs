//! What a body of an ingest request holds: one record, an array, lines, CloudEvents.
//!
//! **Invariant:** what is stored is the text that came, byte for byte.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::period::from_rfc3339;
use super::plan::NUMBER_MAX;
use super::secret::digest;

/// Records in one request at most.
pub const RECORDS_MAX: usize = 1000;
/// Longest `type`, `source` and `subject`, in bytes.
const WORD_BYTES_MAX: usize = 255;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `application/json`: a record, or an array of records.
    Json,
    /// `application/x-ndjson`: a record or a CloudEvent a line.
    Lines,
    /// `application/cloudevents+json`.
    CloudEvent,
    /// `application/cloudevents-batch+json`.
    CloudEvents,
}

/// A record to be stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// The record as it came.
    pub data: String,
    /// Its type.
    pub kind: Option<String>,
    /// Where it is from.
    pub source: Option<String>,
    /// What it is about.
    pub subject: Option<String>,
    /// The same for all copies of one event; none if it does not say who it is.
    pub event_key: Option<String>,
    /// Its cost, if it says so itself.
    pub cost: Option<i64>,
    /// When it happened, if it says so, in milliseconds since 1970.
    pub at_ms: Option<i64>,
}

/// The members that mean something; all others are only checked for being JSON.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    specversion: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    source: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow, default)]
    subject: Option<&'a RawValue>,
    #[serde(borrow, default)]
    time: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cost: Option<&'a RawValue>,
}

/// Records in their order, each with what is wrong with it if something is; `Err` if the body as a
/// whole makes no sense.
pub type Parsed = Result<Vec<Result<Event, String>>, String>;

/// Reads a body.
pub fn parse(body: &str, format: Format) -> Parsed {
    let malformed = |error: serde_json::Error| format!("the body is not JSON: {error}");
    match format {
        Format::Lines => {
            let lines = body.split('\n').map(|line| line.trim_matches([' ', '\t', '\r']));
            Ok(lines.filter(|line| !line.is_empty()).map(line).collect())
        }
        Format::CloudEvent => Ok(vec![Ok(cloud_event(body.trim())?)]),
        Format::Json if !body.trim_start().starts_with('[') => Ok(vec![Ok(
            plain(body.trim()).map_err(|error| format!("the body is not JSON: {error}"))?
        )]),
        Format::Json => {
            let items: Vec<&RawValue> = serde_json::from_str(body).map_err(malformed)?;
            Ok(items.into_iter().map(|item| plain(item.get())).collect())
        }
        Format::CloudEvents => {
            let items: Vec<&RawValue> = serde_json::from_str(body).map_err(malformed)?;
            Ok(items.into_iter().map(|item| cloud_event(item.get())).collect())
        }
    }
}

fn head(text: &str) -> Result<Option<Head<'_>>, String> {
    if text.starts_with('{') {
        return serde_json::from_str(text).map(Some).map_err(|error| error.to_string());
    }
    let other: Result<&RawValue, _> = serde_json::from_str(text);
    other.map(|_| None).map_err(|error| error.to_string())
}

fn line(text: &str) -> Result<Event, String> {
    match head(text)? {
        Some(head) if head.specversion.is_some() => from_cloud_event(text, &head),
        head => Ok(from_plain(text, head.as_ref())),
    }
}

fn plain(text: &str) -> Result<Event, String> {
    let head = head(text)?;
    Ok(from_plain(text, head.as_ref()))
}

fn from_plain(text: &str, head: Option<&Head<'_>>) -> Event {
    let kind = head.and_then(|head| word("type", head.kind).ok().flatten());
    Event { data: text.to_string(), kind: kind.map(Cow::into_owned), ..Event::default() }
}

fn cloud_event(text: &str) -> Result<Event, String> {
    match head(text)? {
        Some(head) => from_cloud_event(text, &head),
        None => Err("a CloudEvent is an object".into()),
    }
}

fn from_cloud_event(text: &str, head: &Head<'_>) -> Result<Event, String> {
    let need = |name: &'static str, value| {
        word(name, value)?.ok_or_else(|| format!("a CloudEvent needs {name}"))
    };
    if need("specversion", head.specversion)? != "1.0" {
        return Err("specversion is 1.0".into());
    }
    let (id, source) = (need("id", head.id)?, need("source", head.source)?);
    let time = word("time", head.time)?;
    let at_ms = match &time {
        None => None,
        Some(time) => Some(from_rfc3339(time).ok_or("time is as RFC 3339 has it")?),
    };
    let cost = head.cost.map(|cost| cost_of(cost.get())).transpose()?;
    let mut event_key = digest(format!("{source}\0{id}").as_bytes());
    event_key.truncate(40);
    Ok(Event {
        data: text.to_string(),
        kind: Some(need("type", head.kind)?.into_owned()),
        source: Some(source.into_owned()),
        subject: word("subject", head.subject)?.map(Cow::into_owned),
        event_key: Some(event_key),
        cost,
        at_ms,
    })
}

/// A cost as a word: a whole number, not below 0.
pub fn cost_of(text: &str) -> Result<i64, String> {
    let cost: Option<i64> = text.parse().ok().filter(|cost| (0..=NUMBER_MAX).contains(cost));
    cost.ok_or_else(|| format!("cost is a whole number from 0 to {NUMBER_MAX}"))
}

fn word<'a>(name: &str, value: Option<&'a RawValue>) -> Result<Option<Cow<'a, str>>, String> {
    let Some(value) = value.filter(|value| value.get() != "null") else { return Ok(None) };
    let text = value.get();
    let inside = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let inside = inside.ok_or_else(|| format!("{name} is a text"))?;
    let word = if inside.contains('\\') {
        Cow::Owned(serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))?)
    } else {
        Cow::Borrowed(inside)
    };
    if word.is_empty() || word.len() > WORD_BYTES_MAX || word.contains('\0') {
        return Err(format!("{name} has from 1 to {WORD_BYTES_MAX} bytes, none of them 0"));
    }
    Ok(Some(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLOUD: &str = r#"{"specversion":"1.0","id":"7","source":"/a","type":"t",
        "subject":"s\u0041","time":"2026-11-01T00:00:00+01:00","cost":3,"data":{"x":[1,2]}}"#;

    fn count(body: &str, format: Format) -> (usize, usize) {
        let items = parse(body, format).expect("a body");
        let good = items.iter().filter(|item| item.is_ok()).count();
        (good, items.len() - good)
    }

    #[test]
    fn a_record_is_kept_as_it_came() {
        let items = parse(" {\"type\": \"a\", \"n\":1.50} ", Format::Json).expect("a body");
        let event = items[0].as_ref().expect("a record");
        assert_eq!(event.data, "{\"type\": \"a\", \"n\":1.50}");
        assert_eq!((event.kind.as_deref(), &event.event_key), (Some("a"), &None));
        assert_eq!(count("5", Format::Json), (1, 0));
        assert_eq!(count("[1, {\"type\": 7}, \"x\"]", Format::Json), (3, 0));
        assert_eq!(count("[]", Format::Json), (0, 0));
    }

    #[test]
    fn cloud_events_say_who_they_are() {
        let items = parse(CLOUD, Format::CloudEvent).expect("a body");
        let event = items[0].as_ref().expect("an event");
        assert_eq!(event.subject.as_deref(), Some("sA"));
        assert_eq!((event.cost, event.at_ms), (Some(3), from_rfc3339("2026-10-31T23:00:00Z")));
        let other = CLOUD.replace("\"7\"", "\"8\"");
        let again = parse(&format!("[{CLOUD},{other}]"), Format::CloudEvents).expect("a body");
        assert_eq!(again[0].as_ref(), Ok(event));
        assert_ne!(again[1].as_ref().expect("an event").event_key, event.event_key);
    }

    #[test]
    fn lines_are_judged_one_by_one() {
        let cloud = CLOUD.replace('\n', "");
        let body = format!("{{\"a\":1}}\r\n\n{{bad\n{cloud}\n{}\n", cloud.replace("1.0", "0.3"));
        assert_eq!(count(&body, Format::Lines), (2, 2));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for body in ["", "{", "[1,", "{\"a\":1} x", "nope", "{\"type\":1,\"type\":2}"] {
            assert!(parse(body, Format::Json).is_err(), "{body}");
        }
        for (from, to) in [
            ("\"1.0\"", "\"2.0\""),
            ("\"7\"", "7"),
            ("\"7\"", "\"\""),
            ("\"/a\"", "null"),
            ("3,", "-3,"),
            ("3,", "1.5,"),
            ("2026-11-01", "yesterday"),
        ] {
            assert!(parse(&CLOUD.replace(from, to), Format::CloudEvent).is_err(), "{to}");
        }
    }

    proptest! {
        #[test]
        fn no_body_takes_it_down(body in ".{0,200}") {
            for format in
                [Format::Json, Format::Lines, Format::CloudEvent, Format::CloudEvents]
            {
                let _ = parse(&body, format);
            }
        }
    }
}
