//! `Store` over the keyspace of this process: counters are keys that anybody can look at.
//!
//! Each operation is one command, so what holds for commands holds for it: one key, under its lock,
//! logged, evicted and expired as any other.

use services::store::{Charge, Store, StoreError, Throttle, Throttled};

/// Runs a command on the keyspace; `read` is shown its reply in RESP2.
pub trait Engine: Send + Sync {
    /// See the trait.
    fn run(&self, words: &[&[u8]], now_ms: i64, read: &mut dyn FnMut(&[u8]));
}

/// See the module.
pub struct Embedded<E>(pub E);

/// A reply, as far as these commands have it.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Null,
    Numbers(Vec<i64>),
    Text(String),
}

fn line(reply: &[u8]) -> Option<(u8, &str, &[u8])> {
    let end = reply.windows(2).position(|pair| pair == b"\r\n")?;
    let text = std::str::from_utf8(reply.get(1..end)?).ok()?;
    Some((reply[0], text, &reply[end + 2..]))
}

fn read(reply: &[u8]) -> Result<Reply, StoreError> {
    let strange = || StoreError("a strange reply".into());
    let (kind, text, mut rest) = line(reply).ok_or_else(strange)?;
    match kind {
        b'-' => Err(StoreError(text.to_string())),
        b'+' => Ok(Reply::Text(text.to_string())),
        b':' => Ok(Reply::Numbers(vec![text.parse().map_err(|_| strange())?])),
        b'$' | b'*' if text == "-1" => Ok(Reply::Null),
        b'$' => {
            let len: usize = text.parse().map_err(|_| strange())?;
            let text = rest.get(..len).ok_or_else(strange)?;
            Ok(Reply::Text(String::from_utf8_lossy(text).into_owned()))
        }
        b'*' => {
            let mut numbers = Vec::new();
            while !rest.is_empty() {
                let (_, number, after) = line(rest).ok_or_else(strange)?;
                numbers.push(number.parse().map_err(|_| strange())?);
                rest = after;
            }
            Ok(Reply::Numbers(numbers))
        }
        _ => Err(strange()),
    }
}

impl<E: Engine> Embedded<E> {
    fn run(&self, words: &[&[u8]], now_ms: i64) -> Result<Reply, StoreError> {
        let mut result = Err(StoreError("no reply".into()));
        self.0.run(words, now_ms, &mut |reply| result = read(reply));
        result
    }
}

impl<E: Engine> Store for Embedded<E> {
    fn is_own(&self) -> bool {
        true
    }

    fn charge(&self, key: &str, cost: i64, limit: i64, now_ms: i64) -> Result<Charge, StoreError> {
        let (mut cost_text, mut limit_text) = (itoa::Buffer::new(), itoa::Buffer::new());
        let cost = cost_text.format(cost).as_bytes();
        let limit = limit_text.format(limit).as_bytes();
        match self.run(&[b"QUOTA.CHARGE", key.as_bytes(), cost, limit], now_ms)? {
            Reply::Null => Ok(Charge::Missing),
            Reply::Numbers(numbers) => match numbers[..] {
                [1, used] => Ok(Charge::Done(used)),
                [0, used] => Ok(Charge::Over(used)),
                _ => Err(StoreError("a strange reply".into())),
            },
            Reply::Text(text) => Err(StoreError(text)),
        }
    }

    fn put(&self, key: &str, used: i64, expire_at_ms: i64, now_ms: i64) -> Result<(), StoreError> {
        self.set_text(key, &used.to_string(), expire_at_ms, now_ms)
    }

    fn read(&self, key: &str, now_ms: i64) -> Result<Option<i64>, StoreError> {
        match self.run(&[b"GET", key.as_bytes()], now_ms)? {
            Reply::Null => Ok(None),
            Reply::Text(text) => {
                text.parse().map(Some).map_err(|_| StoreError(format!("{key} holds no number")))
            }
            Reply::Numbers(_) => Err(StoreError("a strange reply".into())),
        }
    }

    fn throttle(
        &self,
        key: &str,
        throttle: Throttle,
        quantity: i64,
        now_ms: i64,
    ) -> Result<Throttled, StoreError> {
        let Throttle { burst_max, count, period_ms } = throttle;
        let numbers =
            [burst_max, count, period_ms / 1000, quantity].map(|number| number.to_string());
        let [burst, count, period, quantity] = numbers.each_ref().map(|text| text.as_bytes());
        let words = [b"CL.THROTTLE".as_slice(), key.as_bytes(), burst, count, period, quantity];
        match self.run(&words, now_ms)? {
            Reply::Numbers(numbers) if numbers.len() == 5 => Ok(Throttled {
                is_limited: numbers[0] == 1,
                limit: numbers[1],
                remaining: numbers[2],
                retry_after_ms: (numbers[3] >= 0).then(|| numbers[3] * 1000),
                reset_after_ms: numbers[4] * 1000,
            }),
            _ => Err(StoreError("a strange reply".into())),
        }
    }

    fn set_text(
        &self,
        key: &str,
        text: &str,
        expire_at_ms: i64,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let at = expire_at_ms.to_string();
        let words = [b"SET", key.as_bytes(), text.as_bytes(), b"PXAT", at.as_bytes()];
        self.run(&words, now_ms).map(drop)
    }

    fn touch_text(
        &self,
        key: &str,
        expire_at_ms: i64,
        now_ms: i64,
    ) -> Result<Option<String>, StoreError> {
        let at = expire_at_ms.to_string();
        match self.run(&[b"GETEX", key.as_bytes(), b"PXAT", at.as_bytes()], now_ms)? {
            Reply::Text(text) => Ok(Some(text)),
            _ => Ok(None),
        }
    }

    fn remove(&self, key: &str, now_ms: i64) -> Result<bool, StoreError> {
        Ok(self.run(&[b"DEL", key.as_bytes()], now_ms)? == Reply::Numbers(vec![1]))
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Mutex;

    use commands::testing::Client;

    use super::Engine;

    /// A keyspace of a test's own.
    #[derive(Default)]
    pub(crate) struct Keys(pub(crate) Mutex<Client>);

    impl Engine for Keys {
        fn run(&self, words: &[&[u8]], now_ms: i64, read: &mut dyn FnMut(&[u8])) {
            let mut client = self.0.lock().expect("no test panics in here");
            client.now_ms = now_ms;
            read(&client.reply(words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Keys;
    use super::*;

    #[test]
    fn counters_are_keys() {
        let store = Embedded(Keys::default());
        let now = 1_700_000_000_000;
        assert_eq!(store.charge("c", 1, 9, now), Ok(Charge::Missing));
        store.put("c", 7, now + 1000, now).expect("a key");
        assert_eq!(store.charge("c", 2, 9, now), Ok(Charge::Done(9)));
        assert_eq!(store.charge("c", 1, 9, now), Ok(Charge::Over(9)));
        assert_eq!(store.charge("c", -3, 0, now), Ok(Charge::Done(6)));
        assert_eq!(store.0.0.lock().expect("unpoisoned").run("GET c"), "$1 6");
        assert_eq!(store.read("c", now + 1000), Ok(None));
        store.0.0.lock().expect("unpoisoned").run("RPUSH list a");
        assert!(store.charge("list", 1, 9, now).is_err());
    }

    #[test]
    fn throttles_and_texts_are_keys() {
        let store = Embedded(Keys::default());
        let now = 1_700_000_000_000;
        let throttle = Throttle { burst_max: 0, count: 1, period_ms: 2000 };
        let ask = || store.throttle("t", throttle, 1, now).expect("a verdict");
        assert!(!ask().is_limited);
        assert_eq!((ask().is_limited, ask().retry_after_ms), (true, Some(2000)));
        store.set_text("s", "hello", now + 10, now).expect("a key");
        assert_eq!(store.touch_text("s", now + 50, now), Ok(Some("hello".into())));
        assert_eq!(store.touch_text("s", now + 90, now + 49), Ok(Some("hello".into())));
        assert_eq!(store.touch_text("s", now + 99, now + 90), Ok(None));
        assert_eq!(store.remove("s", now), Ok(false));
    }
}
