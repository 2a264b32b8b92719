//! How a stream is cut, as XADD and XTRIM are told, and as the log is told.

use keyspace::types::stream::{Cut, Keep, Stream};
use resp::Args;

use super::{IdText, id};
use crate::context::Context;
use crate::error::Error;
use crate::words::{integer, is};

/// The threshold and how exactly it is meant.
#[derive(Debug, Clone, Copy)]
pub struct Trim {
    pub keep: Keep,
    pub cut: Cut,
}

/// The options in front of an XADD's id, or all of XTRIM's.
#[derive(Default)]
pub struct Options {
    keep: Option<Keep>,
    about: bool,
    limit: Option<usize>,
    /// NOMKSTREAM.
    pub only_if_there: bool,
}

impl Options {
    /// Takes the option at `at`, if it is one; returns how many words it has.
    pub fn take(&mut self, args: Args<'_>, at: usize) -> Result<Option<usize>, Error> {
        let word = args.word(at);
        match args.get(at + 1) {
            Some(next) if is(word, "MAXLEN") || is(word, "MINID") => {
                if self.keep.is_some() {
                    return Err(Error::text(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not \
                         compatible",
                    ));
                }
                let threshold = args.get(at + 2).filter(|_| matches!(next, b"~" | b"="));
                self.about = threshold.is_some() && next == b"~";
                let by_length = is(word, "MAXLEN");
                self.keep = Some(keep(by_length, threshold.unwrap_or(next))?);
                Ok(Some(2 + usize::from(threshold.is_some())))
            }
            Some(next) if is(word, "LIMIT") => {
                const ERROR: Error = Error::text("ERR The LIMIT argument must be >= 0.");
                self.limit = Some(usize::try_from(integer(next)?).map_err(|_| ERROR)?);
                Ok(Some(2))
            }
            _ => Ok(None),
        }
    }

    /// What they say together.
    pub fn trim(&self, cx: &Context<'_>) -> Result<Option<Trim>, Error> {
        let Some(keep) = self.keep else {
            return match self.limit {
                Some(1..) => Err(Error::text(
                    "ERR syntax error, LIMIT cannot be used without specifying a trimming \
                     strategy",
                )),
                _ => Ok(None),
            };
        };
        let cut = match (self.about, self.limit) {
            (false, None) => Cut::Exact,
            (false, Some(_)) => {
                return Err(Error::text(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ));
            }
            (true, Some(limit)) => Cut::Blocks(limit),
            (true, None) => {
                // As Redis: a hundred blocks at once, so that no trim takes long.
                let block = cx.keys.space().settings.stream_limits().node_entries;
                let limit = block.saturating_mul(100);
                Cut::Blocks(if limit == 0 { 10_000 } else { limit.min(1_000_000) })
            }
        };
        Ok(Some(Trim { keep, cut }))
    }
}

fn keep(by_length: bool, threshold: &[u8]) -> Result<Keep, Error> {
    if !by_length {
        return id(threshold).map(Keep::From);
    }
    const ERROR: Error = Error::text("ERR The MAXLEN argument must be >= 0.");
    usize::try_from(integer(threshold)?).map(Keep::Last).map_err(|_| ERROR)
}

/// A trim's words for the log: what it came to, exactly.
pub struct ExactWords {
    name: &'static [u8],
    threshold: Vec<u8>,
}

impl ExactWords {
    /// The words that cut another copy of the stream to what `stream` has now.
    pub fn new(keep: Keep, stream: &Stream) -> ExactWords {
        match keep {
            Keep::From(_) if !stream.is_empty() => {
                let threshold = IdText::new(stream.first_id()).bytes().to_vec();
                ExactWords { name: b"MINID", threshold }
            }
            _ => ExactWords { name: b"MAXLEN", threshold: stream.len().to_string().into_bytes() },
        }
    }

    /// `MAXLEN = 10`.
    pub fn words(&self) -> [&[u8]; 3] {
        [self.name, b"=", &self.threshold]
    }
}
