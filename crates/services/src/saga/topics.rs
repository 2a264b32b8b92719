//! Topics: names under which several addresses receive the same message (dtm,
//! `dtmsvr/topics.go`; the error texts are its own).

use std::collections::BTreeMap;

use super::codec::{Reader, TOPIC, Writer};

/// Subscribers a topic may have.
pub const SUBSCRIBERS_MAX: usize = 1000;

/// One topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topic {
    /// Ascends with every change.
    pub version: u64,
    /// Addresses with remarks.
    pub subscribers: Vec<(Box<str>, Box<str>)>,
}

/// All topics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topics(pub BTreeMap<Box<str>, Topic>);

impl Topics {
    /// The addresses of a topic's subscribers; none if there is no such topic.
    pub fn urls(&self, topic: &str) -> Vec<&str> {
        let topic = self.0.get(topic);
        topic.iter().flat_map(|topic| &topic.subscribers).map(|(url, _)| &**url).collect()
    }

    /// Adds a subscriber, and the topic if it is new. Gives the record for the log.
    pub fn subscribe(&mut self, topic: &str, url: &str, remark: &str) -> Result<Vec<u8>, String> {
        check(topic, url)?;
        let known = self.0.entry(topic.into()).or_default();
        if known.subscribers.iter().any(|(known, _)| &**known == url) {
            return Err("this url exists".into());
        }
        if known.subscribers.len() >= SUBSCRIBERS_MAX {
            return Err(format!("a topic has at most {SUBSCRIBERS_MAX} subscribers"));
        }
        known.version += 1;
        known.subscribers.push((url.into(), remark.into()));
        Ok(record(topic, known))
    }

    /// Takes a subscriber away. Gives the record for the log.
    pub fn unsubscribe(&mut self, topic: &str, url: &str) -> Result<Vec<u8>, String> {
        check(topic, url)?;
        let known = self.0.get_mut(topic).ok_or("no such a topic")?;
        if known.subscribers.is_empty() {
            return Err("this topic is empty".into());
        }
        let before = known.subscribers.len();
        known.subscribers.retain(|(known, _)| &**known != url);
        if known.subscribers.len() == before {
            return Err("no such an url ".into());
        }
        known.version += 1;
        Ok(record(topic, known))
    }

    /// Removes a topic. Gives the record for the log.
    pub fn remove(&mut self, topic: &str) -> Result<Vec<u8>, String> {
        match self.0.remove(topic) {
            Some(_) => Ok(record(topic, &Topic::default())),
            None => Err("no such a topic".into()),
        }
    }

    /// Makes a change that was recorded; `None` = the record is damaged.
    pub fn replay(&mut self, bytes: &[u8]) -> Option<()> {
        let mut r = Reader(bytes);
        (r.byte()? == TOPIC).then_some(())?;
        let name = r.text()?;
        let mut topic = Topic { version: r.number()?, subscribers: Vec::new() };
        for _ in 0..r.number()? {
            topic.subscribers.push((r.text()?, r.text()?));
        }
        match topic.version {
            0 => drop(self.0.remove(&name)),
            _ => drop(self.0.insert(name, topic)),
        }
        Some(())
    }

    /// All topics as records.
    pub fn records(&self) -> Vec<Vec<u8>> {
        self.0.iter().map(|(name, topic)| record(name, topic)).collect()
    }
}

fn check(topic: &str, url: &str) -> Result<(), String> {
    match (topic, url) {
        ("", _) => Err("empty topic".into()),
        (_, "") => Err("empty url".into()),
        _ => Ok(()),
    }
}

fn record(name: &str, topic: &Topic) -> Vec<u8> {
    let mut w = Writer::default();
    w.byte(TOPIC);
    w.text(name);
    w.number(topic.version);
    w.number(topic.subscribers.len() as u64);
    for (url, remark) in &topic.subscribers {
        w.text(url);
        w.text(remark);
    }
    w.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribing_and_its_errors() {
        let mut topics = Topics::default();
        let mut log = vec![topics.subscribe("t", "u", "r").unwrap()];
        assert_eq!(topics.subscribe("t", "u", "").unwrap_err(), "this url exists");
        assert_eq!(topics.subscribe("", "u", "").unwrap_err(), "empty topic");
        assert_eq!(topics.subscribe("t", "", "").unwrap_err(), "empty url");
        log.push(topics.subscribe("t", "v", "").unwrap());
        assert_eq!(topics.urls("t"), ["u", "v"]);
        assert_eq!(topics.unsubscribe("t", "w").unwrap_err(), "no such an url ");
        assert_eq!(topics.unsubscribe("s", "w").unwrap_err(), "no such a topic");
        log.push(topics.unsubscribe("t", "u").unwrap());
        let mut replayed = Topics::default();
        log.iter().for_each(|record| replayed.replay(record).unwrap());
        assert_eq!(replayed, topics);
        topics.unsubscribe("t", "v").unwrap();
        assert_eq!(topics.unsubscribe("t", "v").unwrap_err(), "this topic is empty");
        let gone = topics.remove("t").unwrap();
        assert_eq!(topics.remove("t").unwrap_err(), "no such a topic");
        replayed.replay(&gone).unwrap();
        assert!(replayed.0.is_empty());
    }
}
