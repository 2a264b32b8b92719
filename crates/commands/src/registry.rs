//! All commands by name: built once from the families that the binary brings together.

use std::any::Any;
use std::sync::OnceLock;

use resp::Args;

use crate::command::{BLOCKING, Command, FAST, Family, Find, Flags, Group, KeySpec, MOVABLE_KEYS};
use crate::error::Error;
use crate::words::is;

const SLOTS: usize = 2048;
/// Families with a state of their own, at most.
const STATES_MAX: usize = 4;

/// A command in its place.
#[derive(Debug)]
pub struct Entry {
    /// Its row of the table.
    pub command: Command,
    /// What clients call it: its name, unless `rename-command` gave it another one; empty if that
    /// took it away.
    pub word: &'static str,
    /// Its group.
    pub group: Group,
    /// Lower case, subcommands as `config|get`.
    pub full_name: String,
    /// Its own number: counters and histograms are arrays indexed by it.
    pub index: usize,
    /// Where its subcommands are in the registry.
    pub subs: Vec<usize>,
    /// Whether it is a subcommand.
    pub is_sub: bool,
    /// Number of words, the name and a subcommand's container included; negative: at least.
    pub arity: i32,
    /// Whether its only key is its first word.
    pub one_key: bool,
    /// Whether it may run in a batch: one key, and quick whatever its words say.
    pub batches: bool,
}

impl Entry {
    /// Whether `len` words, the name included, are a possible call.
    #[inline]
    pub fn takes(&self, len: usize) -> bool {
        if self.arity >= 0 { len as i32 == self.arity } else { len as i32 >= -self.arity }
    }

    /// The command's flags, those that follow from its keys included.
    pub fn flags(&self) -> Flags {
        if self.key_range().1 { self.command.flags.with(MOVABLE_KEYS) } else { self.command.flags }
    }

    /// The keys as one range of first word, last word (negative: from the end) and step, all 0 if
    /// there is none; and whether there are keys outside it.
    pub fn key_range(&self) -> ((usize, i32, usize), bool) {
        if let [KeySpec { find: Find::Range { first, last, step }, flags }] = self.command.keys {
            return ((*first, *last, *step), flags.contains(&"incomplete"));
        }
        let (mut all, mut movable) = ((0, 0, 0), false);
        for spec in self.command.keys {
            movable |= spec.flags.contains(&"incomplete");
            match spec.find {
                Find::Range { first, last, step: 1 } if all.0 == 0 => all = (first, last, 1),
                Find::Range { first, last, step: 1 } if all.1 + 1 == first as i32 => all.1 = last,
                _ => movable = true,
            }
        }
        (all, movable)
    }
}

/// See the module.
pub struct Registry {
    entries: Vec<Entry>,
    /// Top-level commands by hashed name: number + 1, 0 = empty; open addressing.
    table: Box<[u16; SLOTS]>,
    /// The entries' words, to be compared with what clients send.
    folded: Vec<Folded>,
    /// What families keep besides keys: see [`Registry::state`].
    states: [OnceLock<Box<dyn Any + Send + Sync>>; STATES_MAX],
}

/// A name in lower case as three numbers: its first and last eight bytes, which overlap or are
/// parts of fewer, and its length. Up to 16 bytes they tell two names apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Folded {
    head: u64,
    tail: u64,
    len: u64,
}

impl Folded {
    /// Names up to this length have one form each.
    const WHOLE: usize = 16;

    #[inline]
    fn new(name: &[u8]) -> Folded {
        let half =
            |bytes: Option<&[u8; 4]>| bytes.map_or(0, |it| u64::from(u32::from_le_bytes(*it)));
        let (head, tail) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(head), Some(tail)) => (u64::from_le_bytes(*head), u64::from_le_bytes(*tail)),
            _ if name.len() >= 4 => (half(name.first_chunk()), half(name.last_chunk())),
            _ => (name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)), 0),
        };
        Folded { head: lower_case(head), tail: lower_case(tail), len: name.len() as u64 }
    }

    #[inline]
    fn slot(&self) -> usize {
        let mixed = self.head ^ self.tail.rotate_left(29) ^ self.len << 20;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53) as usize % SLOTS
    }
}

/// Eight bytes with their capital letters of ASCII made small.
#[inline]
fn lower_case(bytes: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let low = bytes & (EACH * 0x7f);
    let from_a = low + EACH * u64::from(0x80 - b'A');
    let behind_z = low + EACH * u64::from(0x7f - b'Z');
    let capitals = (from_a ^ behind_z) & !bytes & (EACH * 0x80);
    bytes | capitals >> 2
}

impl Registry {
    /// Brings families together. A container that several families have gets the subcommands of
    /// all of them.
    ///
    /// # Panics
    /// If two commands have one name.
    pub fn new(families: &[Family]) -> Registry {
        let (entries, folded, states) = Default::default();
        let mut registry = Registry { entries, table: Box::new([0; SLOTS]), folded, states };
        for family in families {
            for command in family.commands {
                let known = registry.lookup(command.name.as_bytes()).map(|entry| entry.index);
                let index = known.unwrap_or_else(|| registry.add(command, family.group, None));
                let is_container = !command.sub.is_empty();
                let more =
                    known.is_none() || is_container && !registry.entries[index].subs.is_empty();
                assert!(more, "two commands are called {}", command.name);
                for sub in command.sub {
                    let entry = &registry.entries[index];
                    if registry.lookup_sub(entry, sub.name.as_bytes()).is_none() {
                        let sub = registry.add(sub, family.group, Some(command));
                        registry.entries[index].subs.push(sub);
                    }
                }
                if known.is_none() {
                    registry.place(index);
                }
            }
        }
        registry
    }

    /// Enters a command under its word.
    fn place(&mut self, index: usize) {
        self.folded.resize(self.entries.len(), Folded::new(b""));
        self.folded[index] = Folded::new(self.entries[index].word.as_bytes());
        let mut at = self.folded[index].slot();
        while self.table[at] != 0 {
            at = (at + 1) % SLOTS;
        }
        self.table[at] = index as u16 + 1;
    }

    /// Gives a command another word, or none (`to` is empty). Only before the server serves.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), &'static str> {
        let index = self.lookup(from.as_bytes()).ok_or("No such command in rename-command")?.index;
        if !to.is_empty() && self.lookup(to.as_bytes()).is_some_and(|other| other.index != index) {
            return Err("Target command name already exists");
        }
        // Leaked: the words of a server's commands live as long as it does.
        self.entries[index].word = Box::leak(to.to_ascii_uppercase().into_boxed_str());
        self.table.fill(0);
        for index in 0..self.entries.len() {
            if !self.entries[index].is_sub && !self.entries[index].word.is_empty() {
                self.place(index);
            }
        }
        Ok(())
    }

    fn add(&mut self, command: &Command, group: Group, parent: Option<&Command>) -> usize {
        let name = command.name.to_ascii_lowercase();
        let full_name = match parent {
            Some(parent) => format!("{}|{name}", parent.name.to_ascii_lowercase()),
            None => name,
        };
        let one_key = command.wants_all_keys.is_none()
            && matches!(
                command.keys,
                [KeySpec { find: Find::Range { first: 1, last: 1, .. }, .. }]
            );
        let index = self.entries.len();
        let is_sub = parent.is_some();
        let subs = Vec::new();
        let quick = command.flags.has(FAST) || matches!(command.name, "SET" | "SETEX" | "PSETEX");
        let batches = one_key && quick && !command.flags.has(BLOCKING);
        let arity = command.arity();
        let arity = if is_sub { arity + arity.signum() } else { arity };
        let command = *command;
        let entry = Entry {
            command,
            word: command.name,
            group,
            full_name,
            index,
            subs,
            is_sub,
            arity,
            one_key,
            batches,
        };
        self.entries.push(entry);
        index
    }

    /// What a family keeps for all threads besides keys (scripts, libraries): made when it is first
    /// asked for, one of each type.
    ///
    /// # Panics
    /// With more types than there is room for: a matter of which families are built in.
    pub fn state<T: Any + Send + Sync + Default>(&self) -> &T {
        for slot in &self.states {
            if let Some(state) = slot.get_or_init(|| Box::<T>::default()).downcast_ref() {
                return state;
            }
        }
        unreachable!("more families with a state than STATES_MAX");
    }

    /// Every command and subcommand.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The top-level command of this name, in either case.
    #[inline]
    pub fn lookup(&self, name: &[u8]) -> Option<&Entry> {
        let folded = Folded::new(name);
        let mut at = folded.slot();
        loop {
            let index = usize::from(self.table[at].checked_sub(1)?);
            if self.folded[index] == folded {
                let entry = &self.entries[index];
                let is_whole = name.len() <= Folded::WHOLE;
                if is_whole || entry.word.as_bytes().eq_ignore_ascii_case(name) {
                    return Some(entry);
                }
            }
            at = (at + 1) % SLOTS;
        }
    }

    /// The subcommand of this name.
    pub fn lookup_sub(&self, entry: &Entry, name: &[u8]) -> Option<&Entry> {
        let mut subs = entry.subs.iter().map(|index| &self.entries[*index]);
        subs.find(|sub| sub.command.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// A command by its name in COMMAND INFO's form: `get`, `config|get`.
    pub fn by_full_name(&self, name: &[u8]) -> Option<&Entry> {
        match name.iter().position(|byte| *byte == b'|') {
            Some(bar) => self.lookup_sub(self.lookup(&name[..bar])?, &name[bar + 1..]),
            None => self.lookup(name),
        }
    }

    /// The command that these words call, their number checked.
    #[inline]
    pub fn find(&self, args: Args<'_>) -> Result<&Entry, Error> {
        let entry = self.named(args)?;
        if entry.takes(args.len()) { Ok(entry) } else { Err(Error::wrong_arity(&entry.full_name)) }
    }

    /// The command that these words name, however many there are. COMMAND is both: a command by
    /// itself and a container.
    #[inline]
    pub fn named(&self, args: Args<'_>) -> Result<&Entry, Error> {
        let Some(entry) = self.lookup(args.word(0)) else { return Err(unknown(args)) };
        match args.get(1) {
            Some(name) if !entry.subs.is_empty() => {
                self.lookup_sub(entry, name).ok_or_else(|| unknown_sub(entry, name))
            }
            _ => Ok(entry),
        }
    }
}

fn lossy(word: &[u8], bytes_max: usize) -> String {
    String::from_utf8_lossy(&word[..word.len().min(bytes_max)]).into_owned()
}

fn unknown(args: Args<'_>) -> Error {
    let mut rest = String::new();
    for word in args.iter().skip(1) {
        if rest.len() >= 128 {
            break;
        }
        rest += &format!("'{}' ", lossy(word, 128 - rest.len()));
    }
    let name = lossy(args.word(0), 128);
    Error::new(format!("ERR unknown command '{name}', with args beginning with: {rest}"))
}

fn unknown_sub(entry: &Entry, name: &[u8]) -> Error {
    let container = entry.command.name;
    let name = lossy(name, 128);
    Error::new(format!("ERR unknown subcommand '{name}'. Try {container} HELP."))
}

/// A count of keys among the words of a command that is no number, or more than there are words.
#[derive(Debug)]
pub struct WrongKeyCount;

/// Calls `visit` with the index of each word that is a key, with its specification.
pub fn each_key(
    command: &Command,
    args: Args<'_>,
    mut visit: impl FnMut(usize, &KeySpec),
) -> Result<(), WrongKeyCount> {
    for spec in command.keys {
        match spec.find {
            Find::Range { first, last, step } => {
                let last = if last < 0 { args.len() as i64 + i64::from(last) } else { last.into() };
                let mut index = first;
                while (index as i64) <= last && index < args.len() {
                    visit(index, spec);
                    index += step;
                }
            }
            Find::Count { at } => {
                let count = args.get(at).and_then(resp::number::integer).ok_or(WrongKeyCount)?;
                let count = usize::try_from(count).map_err(|_| WrongKeyCount)?;
                if count > args.len() - at - 1 {
                    return Err(WrongKeyCount);
                }
                (at + 1..at + 1 + count).for_each(|index| visit(index, spec));
            }
            Find::After { keyword, from } => {
                // The last one counts.
                let places = (from..args.len().saturating_sub(1)).rev();
                let found = places.into_iter().find(|at| is(args.word(*at), keyword));
                found.into_iter().for_each(|at| visit(at + 1, spec));
            }
            Find::Option { keyword, from, others } => {
                let found = value_of(args, keyword, from, others);
                found.into_iter().for_each(|index| visit(index, spec));
            }
            Find::HalfAfter { keyword, from } => {
                if let Some(at) = (from..args.len()).find(|at| is(args.word(*at), keyword)) {
                    let count = (args.len() - at - 1) / 2;
                    (at + 1..at + 1 + count).for_each(|index| visit(index, spec));
                }
            }
            Find::Unless { at, keyword, from, others } => {
                if place_of(args, keyword, from, others).is_none() && at < args.len() {
                    visit(at, spec);
                }
            }
            Find::Rest { keyword, from, others } => {
                if let Some(at) = place_of(args, keyword, from, others) {
                    (at + 1..args.len()).for_each(|index| visit(index, spec));
                }
            }
            Find::Unknown => {}
        }
    }
    Ok(())
}

/// Where an option stands, from `from` on; `others` take so many words of their own.
fn place_of(args: Args<'_>, keyword: &str, from: usize, others: &[(&str, usize)]) -> Option<usize> {
    let mut index = from;
    while index < args.len() {
        let word = args.word(index);
        if is(word, keyword) {
            return Some(index);
        }
        let own = others.iter().find(|(name, _)| is(word, name));
        index += 1 + own.map_or(0, |(_, words)| *words);
    }
    None
}

/// Where the value of an option stands that may come anywhere from `from` on, the last one if it
/// comes more than once; `others` take so many words of their own.
fn value_of(args: Args<'_>, keyword: &str, from: usize, others: &[(&str, usize)]) -> Option<usize> {
    let mut found = None;
    let mut index = from;
    while index < args.len() {
        let word = args.word(index);
        let own = others.iter().find(|(name, _)| is(word, name));
        if is(word, keyword) && index + 1 < args.len() {
            index += 1;
            found = Some(index);
        }
        index += 1 + own.map_or(0, |(_, words)| *words);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every name is found in any case, and nothing that differs from it by more than that, such
    /// as by bytes that only look like letters when one bit is dropped.
    #[test]
    fn names_are_found_in_any_case_and_exactly() {
        let registry = Registry::new(crate::FAMILIES);
        let slowly = |name: &[u8]| {
            let is_it = |it: &&Entry| !it.is_sub && it.word.as_bytes().eq_ignore_ascii_case(name);
            registry.entries().iter().find(is_it).map(|entry| entry.index)
        };
        let found = |name: &[u8]| registry.lookup(name).map(|entry| entry.index);
        for entry in registry.entries().iter().filter(|entry| !entry.is_sub) {
            let name = entry.word.to_ascii_lowercase().into_bytes();
            assert_eq!(found(&name), Some(entry.index), "{}", entry.word);
            assert_eq!(found(&name.to_ascii_uppercase()), Some(entry.index));
            for at in 0..name.len() {
                for bit in 0..8 {
                    let mut other = name.clone();
                    other[at] ^= 1 << bit;
                    assert_eq!(found(&other), slowly(&other), "{other:?}");
                }
                let shorter = [&name[..at], &name[at + 1..]].concat();
                let longer = [&name[..at], &name[at..=at], &name[at..]].concat();
                assert_eq!(found(&shorter), slowly(&shorter));
                assert_eq!(found(&longer), slowly(&longer));
            }
        }
        assert_eq!(found(b""), None);
    }

    #[test]
    fn commands_get_other_words() {
        let mut registry = Registry::new(crate::FAMILIES);
        assert_eq!(registry.rename("nope", "x"), Err("No such command in rename-command"));
        assert_eq!(registry.rename("get", "SET"), Err("Target command name already exists"));
        assert_eq!(registry.rename("get", "fetch"), Ok(()));
        assert_eq!(registry.rename("SET", ""), Ok(()));
        assert!(registry.lookup(b"GET").is_none() && registry.lookup(b"set").is_none());
        assert_eq!(registry.lookup(b"FETCH").map(|entry| entry.command.name), Some("GET"));
        assert!(registry.lookup(b"GETRANGE").is_some());
    }
}
