//! Making pending entries those of another consumer.

use keyspace::effects::class;
use keyspace::types::stream::{ConsumerNumber, Pending, Stream, StreamId};
use resp::{Args, Writer};

use super::log::GroupName;
use super::read::see;
use super::{id, lossy, no_key_or_group, range_start, write_entry, write_id};
use crate::context::Context;
use crate::error::Error;
use crate::words::{integer, is};

/// An integer, with a text of its own for what is none.
fn number(word: &[u8], error: &'static str) -> Result<i64, Error> {
    integer(word).map_err(|_| Error::text(error))
}

/// How entries are claimed.
struct Claim {
    min_idle_ms: i64,
    /// The time of delivery that the entries get.
    delivered_ms: i64,
    /// The count that they get; `None` = one more, or the same with `just_ids`.
    count: Option<u64>,
    /// Entries that are not pending are made so.
    force: bool,
    /// Only ids are returned.
    just_ids: bool,
    now_ms: i64,
}

/// What came of a claim, for the log.
#[derive(Default)]
struct Claimed {
    given: Vec<StreamId>,
    deleted: Vec<StreamId>,
}

impl Claim {
    fn is_too_fresh(&self, pending: &Pending) -> bool {
        self.min_idle_ms > 0 && self.now_ms - pending.delivered_ms < self.min_idle_ms
    }

    /// Claims one entry for a consumer and writes it; true if it is now that consumer's.
    fn take(
        &self,
        out: &mut Writer,
        stream: &mut Stream,
        name: &[u8],
        consumer: ConsumerNumber,
        id: StreamId,
        claimed: &mut Claimed,
    ) -> bool {
        let pending = stream.group(name).and_then(|group| group.pending(id)).copied();
        if stream.get(id).is_none() {
            if pending.is_some() {
                stream.group_mut(name).map(|group| group.acknowledge(id));
                claimed.deleted.push(id);
            }
            return false;
        }
        let count = match pending {
            None if !self.force => return false,
            Some(old) if self.is_too_fresh(&old) => return false,
            Some(old) => old.count,
            // Being made pending counts as a delivery, as in Redis.
            None => 1,
        };
        let count = self.count.unwrap_or(count + u64::from(!self.just_ids));
        if let Some(group) = stream.group_mut(name) {
            group.give(id, Pending { delivered_ms: self.delivered_ms, count, consumer });
            group.consumer_mut(consumer).active_ms = Some(self.now_ms);
        }
        match stream.get(id) {
            Some(entry) if !self.just_ids => write_entry(out, &entry),
            _ => write_id(out, id),
        }
        claimed.given.push(id);
        true
    }
}

/// Logs what a claim did.
fn log_claim(
    cx: &mut Context<'_>,
    name: GroupName<'_>,
    new_consumer: Option<&[u8]>,
    claimed: &Claimed,
) {
    if let Some(consumer) = new_consumer {
        name.log_consumer(cx, consumer);
    }
    name.log_acknowledged(cx, &claimed.deleted);
    name.log_pending(cx, &claimed.given);
}

/// What a claim leaves: counts, events, records.
fn settle(
    cx: &mut Context<'_>,
    name: GroupName<'_>,
    new_consumer: Option<&[u8]>,
    claimed: &Claimed,
) {
    if new_consumer.is_some() {
        cx.keys.notify(class::STREAM, "xgroup-createconsumer", name.key);
    }
    let changes = claimed.given.len() + claimed.deleted.len();
    cx.keys.changed_within(changes + usize::from(new_consumer.is_some()));
    if cx.keys.space().is_logging() {
        cx.keys.rewrite_to_nothing();
        log_claim(cx, name, new_consumer, claimed);
    }
}

/// The options of XCLAIM, from the first word that is no id.
fn options(args: Args<'_>, at: usize, claim: &mut Claim) -> Result<StreamId, Error> {
    let mut last = StreamId::MIN;
    let mut at = at;
    let now_ms = claim.now_ms;
    while at < args.len() {
        let word = args.word(at);
        at += 1;
        match args.get(at) {
            _ if is(word, "FORCE") => claim.force = true,
            _ if is(word, "JUSTID") => claim.just_ids = true,
            Some(value) if is(word, "IDLE") => {
                let idle = number(value, "ERR Invalid IDLE option argument for XCLAIM")?;
                claim.delivered_ms = now_ms.wrapping_sub(idle);
                at += 1;
            }
            Some(value) if is(word, "TIME") => {
                claim.delivered_ms = number(value, "ERR Invalid TIME option argument for XCLAIM")?;
                at += 1;
            }
            Some(value) if is(word, "RETRYCOUNT") => {
                let count = number(value, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                claim.count = u64::try_from(count).ok();
                at += 1;
            }
            Some(value) if is(word, "LASTID") => {
                last = id(value)?;
                at += 1;
            }
            _ => {
                let word = lossy(word);
                return Err(Error::new(format!("ERR Unrecognized XCLAIM option '{word}'")));
            }
        }
    }
    // A client's clock may be wrong: what cannot be means now.
    if !(0..=now_ms).contains(&claim.delivered_ms) {
        claim.delivered_ms = now_ms;
    }
    Ok(last)
}

pub(super) fn xclaim(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let name = GroupName::of(args);
    let now_ms = cx.keys.now_ms();
    let found = cx.keys.stream(name.key)?.and_then(|stream| stream.group(name.group));
    found.ok_or_else(|| no_key_or_group(name.key, name.group))?;
    let min_idle = number(args.word(4), "ERR Invalid min-idle-time argument for XCLAIM")?;
    let ids: Vec<StreamId> = (5..args.len()).map_while(|at| id(args.word(at)).ok()).collect();
    let mut claim = Claim {
        min_idle_ms: min_idle.max(0),
        delivered_ms: now_ms,
        count: None,
        force: false,
        just_ids: false,
        now_ms,
    };
    let last = options(args, 5 + ids.len(), &mut claim)?;
    let Some(stream) = cx.keys.stream_mut(name.key)? else { return Ok(()) };
    let Some(group) = stream.group_mut(name.group) else { return Ok(()) };
    let moves = last > group.last_id;
    group.last_id = group.last_id.max(last);
    let (consumer, is_new) = see(group, args.word(3), now_ms);
    let mut claimed = Claimed::default();
    let place = cx.out.later();
    for id in ids {
        claim.take(cx.out, stream, name.group, consumer, id, &mut claimed);
    }
    cx.out.array_at(place, claimed.given.len());
    cx.keys.changed_within(usize::from(moves));
    settle(cx, name, is_new.then_some(args.word(3)), &claimed);
    if moves && claimed.given.is_empty() {
        name.log_place(cx);
    }
    Ok(())
}

/// XAUTOCLAIM looks at so many pending entries for each that it may claim.
const LOOKS_PER_CLAIM: usize = 10;
const COUNT_DEFAULT: usize = 100;

pub(super) fn xautoclaim(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let name = GroupName::of(args);
    let now_ms = cx.keys.now_ms();
    let min_idle = number(args.word(4), "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let start = range_start(args.word(5))?;
    let (mut left, mut just_ids) = (COUNT_DEFAULT, false);
    let mut at = 6;
    while at < args.len() {
        match args.get(at + 1) {
            Some(value) if is(args.word(at), "COUNT") => {
                const ERROR: Error = Error::text("ERR COUNT must be > 0");
                let most = i64::MAX / size_of::<StreamId>() as i64;
                let count = integer(value).map_err(|_| ERROR)?;
                left =
                    Some(count).filter(|count| (1..=most).contains(count)).ok_or(ERROR)? as usize;
                at += 2;
            }
            _ if is(args.word(at), "JUSTID") => {
                just_ids = true;
                at += 1;
            }
            _ => return Err(Error::SYNTAX),
        }
    }
    let found = cx.keys.stream_mut(name.key)?;
    let stream = found.ok_or_else(|| no_key_or_group(name.key, name.group))?;
    let found = stream.group_mut(name.group);
    let group = found.ok_or_else(|| no_key_or_group(name.key, name.group))?;
    let (consumer, is_new) = see(group, args.word(3), now_ms);
    let min_idle_ms = min_idle.max(0);
    let claim =
        Claim { min_idle_ms, delivered_ms: now_ms, count: None, force: false, just_ids, now_ms };
    cx.out.array(3);
    let mut entries = Writer::new(cx.out.is_resp3());
    let mut claimed = Claimed::default();
    let mut next = Some(start);
    let mut looks = left.saturating_mul(LOOKS_PER_CLAIM);
    while left > 0 && looks > 0 {
        let Some(from) = next else { break };
        let Some(id) = pending_from(stream, name.group, from) else {
            next = None;
            break;
        };
        let deleted = claimed.deleted.len();
        let taken = claim.take(&mut entries, stream, name.group, consumer, id, &mut claimed);
        left -= usize::from(taken || claimed.deleted.len() > deleted);
        looks -= 1;
        next = id.next();
    }
    let next = next.and_then(|from| pending_from(stream, name.group, from));
    write_id(cx.out, next.unwrap_or(StreamId::MIN));
    cx.out.array(claimed.given.len());
    cx.out.append(&entries);
    cx.out.array(claimed.deleted.len());
    claimed.deleted.iter().for_each(|id| write_id(cx.out, *id));
    settle(cx, name, is_new.then_some(args.word(3)), &claimed);
    Ok(())
}

/// The first pending entry from an id on.
fn pending_from(stream: &Stream, group: &[u8], from: StreamId) -> Option<StreamId> {
    let mut pending = stream.group(group)?.pending_range(from, StreamId::MAX);
    pending.next().map(|(id, _)| id)
}
