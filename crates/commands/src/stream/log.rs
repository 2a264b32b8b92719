//! What a group's changes are in the commit log: commands that lead to the same state whatever
//! the clock says and however often they are run (t_stream.c, streamPropagateXCLAIM and its kin).

use keyspace::types::stream::{Group, StreamId};
use resp::Args;

use super::IdText;
use crate::context::Context;

/// A group of a key, by name.
#[derive(Debug, Clone, Copy)]
pub struct GroupName<'a> {
    pub key: &'a [u8],
    pub group: &'a [u8],
}

impl<'a> GroupName<'a> {
    /// The key and group in the first two words after the name.
    pub fn of(args: Args<'a>) -> GroupName<'a> {
        GroupName { key: args.word(1), group: args.word(2) }
    }

    /// The group itself.
    pub fn find<'k>(self, cx: &'k Context<'_>) -> Option<&'k Group> {
        cx.keys.stream(self.key).ok().flatten()?.group(self.group)
    }

    /// That these entries are pending as they are now.
    pub fn log_pending(self, cx: &mut Context<'_>, ids: &[StreamId]) {
        for id in ids {
            if let Some(words) = self.find(cx).and_then(|group| self.claim_words(group, *id)) {
                let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                cx.keys.rewrite(&words);
            }
        }
    }

    fn claim_words(self, group: &Group, id: StreamId) -> Option<Vec<Vec<u8>>> {
        let pending = group.pending(id)?;
        let consumer = &group.consumer(pending.consumer).name;
        let word = |text: &[u8]| text.to_vec();
        Some(vec![
            word(b"XCLAIM"),
            word(self.key),
            word(self.group),
            word(consumer),
            word(b"0"),
            word(IdText::new(id).bytes()),
            word(b"TIME"),
            pending.delivered_ms.to_string().into_bytes(),
            word(b"RETRYCOUNT"),
            pending.count.to_string().into_bytes(),
            word(b"FORCE"),
            word(b"JUSTID"),
            word(b"LASTID"),
            word(IdText::new(group.last_id).bytes()),
        ])
    }

    /// How far the group has read.
    pub fn log_place(self, cx: &mut Context<'_>) {
        let Some(group) = self.find(cx) else { return };
        let last = IdText::new(group.last_id);
        let read = group.entries_read.map_or_else(|| "-1".to_string(), |read| read.to_string());
        cx.keys.rewrite(&[
            b"XGROUP",
            b"SETID",
            self.key,
            self.group,
            last.bytes(),
            b"ENTRIESREAD",
            read.as_bytes(),
        ]);
    }

    /// That there is this consumer.
    pub fn log_consumer(self, cx: &mut Context<'_>, consumer: &[u8]) {
        cx.keys.rewrite(&[b"XGROUP", b"CREATECONSUMER", self.key, self.group, consumer]);
    }

    /// That these entries are no longer pending.
    pub fn log_acknowledged(self, cx: &mut Context<'_>, ids: &[StreamId]) {
        for id in ids {
            cx.keys.rewrite(&[b"XACK", self.key, self.group, IdText::new(*id).bytes()]);
        }
    }
}
