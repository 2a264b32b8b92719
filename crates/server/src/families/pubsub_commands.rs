//! SUBSCRIBE, PUBLISH and their like: who listens is in [`crate::pubsub`], which all threads share,
//! and in the client's peer, for its own sake.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};

use commands::command::{
    Command, FAST, Family, Flags, Group, LOADING, MAY_REPLICATE, NO_SCRIPT, PUBSUB, STALE,
    SUBSCRIBED,
};
use commands::context::Context;
use commands::error::Error;
use commands::help::HELP;
use commands::pattern;
use resp::Args;

use super::hub;
use crate::connection::Peer;
use crate::hub::Hub;
use crate::pubsub::Channel;

const FLAGS: Flags = PUBSUB.with(LOADING).with(STALE);
const LISTEN: Flags = FLAGS.with(NO_SCRIPT).with(SUBSCRIBED);
const SEND: Flags = FLAGS.with(FAST).with(MAY_REPLICATE);

const ASKS: Command = Command { flags: FLAGS, since: "2.8.0", ..Command::DEFAULT };

/// The family.
pub const FAMILY: Family = Family {
    group: Group::PubSub,
    commands: &[
        Command {
            name: "PSUBSCRIBE",
            run: psubscribe,
            flags: LISTEN,
            usage: "pattern [pattern ...]",
            summary: "Listens to the channels whose names match patterns.",
            complexity: "O(N), N = patterns",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "PUBLISH",
            run: publish,
            flags: SEND,
            usage: "channel message",
            summary: "Sends a message to those who listen to a channel.",
            complexity: "O(N+M), N = listeners of the channel, M = patterns",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "PUBSUB",
            summary: "Tells who listens.",
            complexity: "Depends on the subcommand",
            since: "2.8.0",
            sub: PUBSUB_SUB,
            ..Command::DEFAULT
        },
        Command {
            name: "PUNSUBSCRIBE",
            run: punsubscribe,
            flags: LISTEN,
            usage: "[pattern [pattern ...]]",
            summary: "Stops listening by patterns, or by all.",
            complexity: "O(N), N = patterns",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SPUBLISH",
            run: spublish,
            flags: SEND,
            usage: "shardchannel message",
            summary: "Sends a message to those who listen to a shard channel.",
            complexity: "O(N), N = listeners",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SSUBSCRIBE",
            run: ssubscribe,
            flags: LISTEN,
            usage: "shardchannel [shardchannel ...]",
            summary: "Listens to shard channels.",
            complexity: "O(N), N = channels",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SUBSCRIBE",
            run: subscribe,
            flags: LISTEN,
            usage: "channel [channel ...]",
            summary: "Listens to channels.",
            complexity: "O(N), N = channels",
            since: "2.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "SUNSUBSCRIBE",
            run: sunsubscribe,
            flags: LISTEN,
            usage: "[shardchannel [shardchannel ...]]",
            summary: "Stops listening to shard channels, or to all.",
            complexity: "O(N), N = channels",
            since: "7.0.0",
            ..Command::DEFAULT
        },
        Command {
            name: "UNSUBSCRIBE",
            run: unsubscribe,
            flags: LISTEN,
            usage: "[channel [channel ...]]",
            summary: "Stops listening to channels, or to all.",
            complexity: "O(N), N = channels",
            since: "2.0.0",
            ..Command::DEFAULT
        },
    ],
};

const PUBSUB_SUB: &[Command] = &[
    Command {
        name: "CHANNELS",
        run: channels,
        usage: "[pattern]",
        summary: "Returns the channels that anybody listens to.",
        complexity: "O(N), N = channels",
        ..ASKS
    },
    Command { since: "6.2.0", ..HELP },
    Command {
        name: "NUMPAT",
        run: numpat,
        summary: "Returns how many patterns are listened by.",
        ..ASKS
    },
    Command {
        name: "NUMSUB",
        run: numsub,
        usage: "[channel [channel ...]]",
        summary: "Returns how many listen to channels.",
        complexity: "O(N), N = channels asked for",
        ..ASKS
    },
    Command {
        name: "SHARDCHANNELS",
        run: shardchannels,
        usage: "[pattern]",
        summary: "Returns the shard channels that anybody listens to.",
        complexity: "O(N), N = channels",
        since: "7.0.0",
        ..ASKS
    },
    Command {
        name: "SHARDNUMSUB",
        run: shardnumsub,
        usage: "[shardchannel [shardchannel ...]]",
        summary: "Returns how many listen to shard channels.",
        complexity: "O(N), N = channels asked for",
        since: "7.0.0",
        ..ASKS
    },
];

/// A client's own list of a kind.
fn names(peer: &mut Peer, kind: Channel) -> &mut HashSet<Vec<u8>> {
    match kind {
        Channel::Exact => &mut peer.channels,
        Channel::Pattern => &mut peer.patterns,
        Channel::Shard => &mut peer.shard_channels,
    }
}

/// The number that confirmations tell: shard channels are counted by themselves.
fn told_count(peer: &Peer, kind: Channel) -> usize {
    match kind {
        Channel::Shard => peer.shard_channels.len(),
        Channel::Exact | Channel::Pattern => peer.channels.len() + peer.patterns.len(),
    }
}

/// Writes the counts where other threads see them.
fn note(peer: &Peer) {
    let set = |cell: &AtomicU32, count: usize| cell.store(count as u32, Ordering::Relaxed);
    set(&peer.client.channels, peer.channels.len());
    set(&peer.client.patterns, peer.patterns.len());
    set(&peer.client.shard_channels, peer.shard_channels.len());
}

fn confirm(cx: &mut Context<'_>, word: &str, name: Option<&[u8]>, count: usize) {
    let hub = Hub::of(cx.host);
    hub.confirm(cx.session, cx.out, |out| {
        out.push(3);
        out.text(word);
        match name {
            Some(name) => out.bulk(name),
            None => out.null(),
        }
        out.count(count);
    });
}

fn join(cx: &mut Context<'_>, args: Args<'_>, kind: Channel, word: &str) -> Result<(), Error> {
    for name in args.iter().skip(1) {
        let id = cx.session.id;
        let hub = hub(cx);
        let thread = hub.thread;
        if names(hub.peer(), kind).insert(name.to_vec()) {
            hub.shared.subscriptions.add(kind, name, (thread, id));
        }
        let peer = hub.peer();
        note(peer);
        let count = told_count(peer, kind);
        confirm(cx, word, Some(name), count);
    }
    Ok(())
}

/// Takes a subscription back; false if there was none.
fn remove(hub: &mut Hub, id: u64, kind: Channel, name: &[u8]) -> bool {
    let thread = hub.thread;
    let peer = hub.peer();
    let was_there = names(peer, kind).remove(name);
    note(peer);
    if was_there {
        hub.shared.subscriptions.remove(kind, name, (thread, id));
    }
    was_there
}

fn leave(cx: &mut Context<'_>, args: Args<'_>, kind: Channel, word: &str) -> Result<(), Error> {
    let id = cx.session.id;
    let chosen: Vec<Vec<u8>> = if args.len() > 1 {
        args.iter().skip(1).map(<[u8]>::to_vec).collect()
    } else {
        names(hub(cx).peer(), kind).iter().cloned().collect()
    };
    for name in &chosen {
        if remove(hub(cx), id, kind, name) {
            write_claimed(cx);
        }
        let count = told_count(hub(cx).peer(), kind);
        confirm(cx, word, Some(name), count);
    }
    if chosen.is_empty() {
        let count = told_count(hub(cx).peer(), kind);
        confirm(cx, word, None, count);
    }
    Ok(())
}

/// What was sent to the client before it stopped listening comes before the confirmation.
fn write_claimed(cx: &mut Context<'_>) {
    let hub = Hub::of(cx.host);
    hub.write_claimed(cx.session, cx.out);
}

/// Takes all subscriptions back, without confirmations.
pub fn leave_all(cx: &mut Context<'_>) {
    let id = cx.session.id;
    let hub = hub(cx);
    for kind in [Channel::Exact, Channel::Pattern, Channel::Shard] {
        for name in names(hub.peer(), kind).clone() {
            remove(hub, id, kind, &name);
        }
    }
    write_claimed(cx);
}

fn subscribe(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    join(cx, args, Channel::Exact, "subscribe")
}

fn unsubscribe(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    leave(cx, args, Channel::Exact, "unsubscribe")
}

fn psubscribe(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    join(cx, args, Channel::Pattern, "psubscribe")
}

fn punsubscribe(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    leave(cx, args, Channel::Pattern, "punsubscribe")
}

fn ssubscribe(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    join(cx, args, Channel::Shard, "ssubscribe")
}

fn sunsubscribe(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    leave(cx, args, Channel::Shard, "sunsubscribe")
}

fn publish(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let count = hub(cx).publish(Channel::Exact, args.word(1), args.word(2));
    cx.out.count(count);
    Ok(())
}

fn spublish(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    let count = hub(cx).publish(Channel::Shard, args.word(1), args.word(2));
    cx.out.count(count);
    Ok(())
}

fn list(cx: &mut Context<'_>, args: Args<'_>, kind: Channel) {
    let mut names = hub(cx).shared.subscriptions.names(kind);
    if let Some(wanted) = args.get(2) {
        names.retain(|(name, _)| pattern::matches(wanted, name));
    }
    cx.out.array(names.len());
    names.iter().for_each(|(name, _)| cx.out.bulk(name));
}

fn channels(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len() > 3 {
        return Err(Error::wrong_arity("pubsub|channels"));
    }
    list(cx, args, Channel::Exact);
    Ok(())
}

fn shardchannels(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    if args.len() > 3 {
        return Err(Error::wrong_arity("pubsub|shardchannels"));
    }
    list(cx, args, Channel::Shard);
    Ok(())
}

fn counts(cx: &mut Context<'_>, args: Args<'_>, kind: Channel) {
    cx.out.array((args.len() - 2) * 2);
    for name in args.iter().skip(2) {
        let count = hub(cx).shared.subscriptions.count(kind, name);
        cx.out.bulk(name);
        cx.out.count(count);
    }
}

fn numsub(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    counts(cx, args, Channel::Exact);
    Ok(())
}

fn shardnumsub(cx: &mut Context<'_>, args: Args<'_>) -> Result<(), Error> {
    counts(cx, args, Channel::Shard);
    Ok(())
}

fn numpat(cx: &mut Context<'_>, _: Args<'_>) -> Result<(), Error> {
    let count = hub(cx).shared.subscriptions.name_count(Channel::Pattern);
    cx.out.count(count);
    Ok(())
}
