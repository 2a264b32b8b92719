//! Which transactions there are by status and kind, by name and by age, for lists and for
//! retention; and where the log's oldest records of them are.
//!
//! Ids ascend with time and carry it (`ID_TIME_SHIFT`), so a range of ages is a range of ids and
//! every list is newest first without sorting.
//!
//! **Invariant:** a page looks at no more than `LOOKED_AT_MAX` transactions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use persist::journal::Position;

use super::codec::Outline;
use super::transaction::Transaction;
use super::words::{Hold, Kind, Status};

/// Ids are milliseconds since 1970 shifted by this, and a count within them.
pub const ID_TIME_SHIFT: u32 = 20;
/// Transactions that one page may look at before it ends with fewer than were asked for.
pub const LOOKED_AT_MAX: usize = 10_000;

const STATUSES: usize = Status::ALL.len();
const KINDS: usize = Kind::ALL.len();

/// What a list is to hold. Empty = everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these.
    pub status: Option<Status>,
    /// Only those that stand still in this way.
    pub hold: Option<Hold>,
    /// Only these.
    pub kind: Option<Kind>,
    /// Only those with this name.
    pub name: Option<Box<str>>,
    /// Only those made at or after, in ms since 1970.
    pub from_ms: Option<u64>,
    /// Only those made before, in ms since 1970.
    pub to_ms: Option<u64>,
    /// Only those before this id: the last one of the page before.
    pub before: Option<u64>,
}

/// What of a transaction the index knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    status: Status,
    kind: Kind,
    hold: Hold,
    name: Box<str>,
}

impl Entry {
    /// What the index is to know of a transaction.
    pub fn of(t: &Transaction) -> Entry {
        Entry { status: t.status, kind: t.kind, hold: t.hold, name: t.name.clone() }
    }

    /// The same for one that is known as its snapshot.
    pub fn of_outline(outline: &Outline) -> Entry {
        let Outline { status, kind, hold, name, .. } = *outline;
        Entry { status, kind, hold, name: name.into() }
    }
}

/// See the module.
#[derive(Default)]
pub struct Index {
    by_status: [[BTreeSet<u64>; KINDS]; STATUSES],
    by_hold: [BTreeSet<u64>; 3],
    by_name: BTreeMap<Box<str>, BTreeSet<u64>>,
    /// Finished ones, in the order of their ends: succeeded and failed.
    finished: [VecDeque<Finished>; 2],
    /// Where the log has the whole of each, in the order of places.
    bases: VecDeque<(Position, u64)>,
    /// Bytes of all finished ones.
    pub finished_bytes: u64,
}

/// A finished transaction, for retention.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    /// Its id.
    pub id: u64,
    /// When it ended, in ms since 1970.
    pub at_ms: u64,
    /// Its size in memory.
    pub bytes: u32,
}

impl Index {
    /// Notes what a transaction is now, and what it was.
    pub fn update(&mut self, id: u64, before: Option<&Entry>, after: Option<&Entry>) {
        if before == after {
            return;
        }
        if let Some(entry) = before {
            self.by_status[entry.status as usize][entry.kind as usize].remove(&id);
            self.by_hold[entry.hold as usize].remove(&id);
        }
        if let Some(entry) = after {
            self.by_status[entry.status as usize][entry.kind as usize].insert(id);
            if entry.hold != Hold::None {
                self.by_hold[entry.hold as usize].insert(id);
            }
        }
        let (old, new) = (before.map(|e| &e.name), after.map(|e| &e.name));
        if old == new {
            return;
        }
        if let Some(name) = old.filter(|name| !name.is_empty())
            && let Some(ids) = self.by_name.get_mut(name)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_name.remove(name);
            }
        }
        if let Some(name) = new.filter(|name| !name.is_empty()) {
            self.by_name.entry(name.clone()).or_default().insert(id);
        }
    }

    /// Notes that the log has the whole of a transaction at a place.
    pub fn based(&mut self, position: Position, id: u64) {
        self.bases.push_back((position, id));
    }

    /// Takes out the oldest transaction whose whole lies before a place, if any.
    pub fn take_based_before(&mut self, position: Position) -> Option<(Position, u64)> {
        self.bases.pop_front_if(|(at, _)| *at < position)
    }

    /// Whether nothing lies before a place any more.
    pub fn is_based_from(&self, position: Position) -> bool {
        self.bases.front().is_none_or(|(at, _)| *at >= position)
    }

    /// Notes that a transaction has ended.
    pub fn finish(&mut self, status: Status, finished: Finished) {
        self.finished_bytes += u64::from(finished.bytes);
        self.finished[usize::from(status == Status::Failed)].push_back(finished);
    }

    /// Takes out the finished transaction that is to be forgotten next, if any: of this status,
    /// ended before this time; or any if there are too many or they are too large.
    pub fn take_finished(
        &mut self,
        status: Status,
        before_ms: u64,
        is_too_much: bool,
    ) -> Option<Finished> {
        let queue = &mut self.finished[usize::from(status == Status::Failed)];
        let taken = queue.pop_front_if(|oldest| is_too_much || oldest.at_ms < before_ms)?;
        self.finished_bytes -= u64::from(taken.bytes);
        Some(taken)
    }

    /// How many have ended.
    pub fn finished_count(&self) -> usize {
        self.finished.iter().map(VecDeque::len).sum()
    }

    /// How many have this status.
    pub fn count(&self, status: Status) -> usize {
        self.by_status[status as usize].iter().map(BTreeSet::len).sum()
    }

    /// How many stand still in this way.
    pub fn held_count(&self, hold: Hold) -> usize {
        self.by_hold[hold as usize].len()
    }

    /// When the oldest that is not finished was made, in ms since 1970.
    pub fn oldest_open_ms(&self) -> Option<u64> {
        let open = Status::ALL.iter().filter(|status| !status.is_final());
        let sets = open.flat_map(|&status| &self.by_status[status as usize]);
        let oldest = sets.filter_map(BTreeSet::first).min()?;
        Some(oldest >> ID_TIME_SHIFT)
    }

    /// Ids that match, newest first, and the id to go on from, where there may be more.
    pub fn list(&self, filter: &Filter, limit: usize) -> (Vec<u64>, Option<u64>) {
        let from = filter.from_ms.unwrap_or(0) << ID_TIME_SHIFT;
        let to = filter.to_ms.map_or(u64::MAX, |ms| ms << ID_TIME_SHIFT);
        let to = to.min(filter.before.unwrap_or(u64::MAX));
        let sets = self.sets(filter);
        let mut ranges: Vec<_> = Vec::new();
        if from < to {
            ranges.extend(sets.iter().map(|set| set.range(from..to).rev().copied().peekable()));
        }
        let mut found = Vec::new();
        let (mut looked_at, mut last) = (0, None);
        while found.len() < limit && looked_at < LOOKED_AT_MAX {
            let heads = ranges.iter_mut().enumerate();
            let newest = heads.filter_map(|(place, range)| Some((*range.peek()?, place))).max();
            let Some((id, place)) = newest else { return (found, None) };
            ranges[place].next();
            looked_at += 1;
            last = Some(id);
            let is_named = || match &filter.name {
                Some(name) => self.by_name.get(name).is_some_and(|ids| ids.contains(&id)),
                None => true,
            };
            let is_held = || match filter.hold {
                Some(hold) => self.by_hold[hold as usize].contains(&id),
                None => true,
            };
            if is_named() && is_held() && self.is_like(id, filter) {
                found.push(id);
            }
        }
        (found, last)
    }

    /// The smallest sets that hold all that can match.
    fn sets(&self, filter: &Filter) -> Vec<&BTreeSet<u64>> {
        if let Some(name) = &filter.name {
            return self.by_name.get(name).into_iter().collect();
        }
        match filter.hold {
            Some(hold) => vec![&self.by_hold[hold as usize]],
            None => self.of_status_and_kind(filter).collect(),
        }
    }

    /// The sets of the status and the kind that are asked for.
    fn of_status_and_kind(&self, filter: &Filter) -> impl Iterator<Item = &BTreeSet<u64>> {
        let (status, kind) = (filter.status, filter.kind);
        let is_meant = move |place: usize| status.is_none_or(|status| status as usize == place);
        let is_kind = move |place: usize| kind.is_none_or(|kind| kind as usize == place);
        let rows = self.by_status.iter().enumerate().filter(move |(place, _)| is_meant(*place));
        let sets = rows.flat_map(|(_, row)| row.iter().enumerate());
        sets.filter(move |(place, _)| is_kind(*place)).map(|(_, set)| set)
    }

    /// Whether a transaction has the status and the kind that are asked for.
    fn is_like(&self, id: u64, filter: &Filter) -> bool {
        let is_in_set = filter.name.is_none() && filter.hold.is_none();
        is_in_set || self.of_status_and_kind(filter).any(|set| set.contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(status: Status, name: &str) -> Entry {
        Entry { status, kind: Kind::Saga, hold: Hold::None, name: name.into() }
    }

    #[test]
    fn lists_are_newest_first_and_go_on_where_they_ended() {
        let mut index = Index::default();
        for id in 1..=10u64 {
            let status = if id % 2 == 0 { Status::Succeed } else { Status::Failed };
            index.update(id << ID_TIME_SHIFT, None, Some(&entry(status, "n")));
        }
        let mut filter = Filter::default();
        let (page, next) = index.list(&filter, 4);
        let times: Vec<u64> = page.iter().map(|id| id >> ID_TIME_SHIFT).collect();
        assert_eq!(times, [10, 9, 8, 7]);
        filter.before = next;
        filter.status = Some(Status::Succeed);
        let times = |filter: &Filter| -> Vec<u64> {
            index.list(filter, 100).0.iter().map(|id| id >> ID_TIME_SHIFT).collect()
        };
        assert_eq!(times(&filter), [6, 4, 2]);
        (filter.from_ms, filter.to_ms, filter.before) = (Some(4), Some(8), None);
        assert_eq!(times(&filter), [6, 4]);
        filter.name = Some("n".into());
        assert_eq!(times(&filter), [6, 4]);
        filter.name = Some("other".into());
        assert!(times(&filter).is_empty());
    }

    #[test]
    fn what_changes_or_goes_is_found_under_its_new_words_only() {
        let mut index = Index::default();
        let (open, done) = (entry(Status::Submitted, "a"), entry(Status::Succeed, "a"));
        index.update(5, None, Some(&open));
        index.update(5, Some(&open), Some(&done));
        assert_eq!((index.count(Status::Submitted), index.count(Status::Succeed)), (0, 1));
        index.update(5, Some(&done), None);
        assert_eq!(index.count(Status::Succeed), 0);
        assert!(index.by_name.is_empty());
    }

    #[test]
    fn a_page_ends_when_it_has_looked_long_enough() {
        let mut index = Index::default();
        for id in 0..2 * LOOKED_AT_MAX as u64 {
            index.update(id, None, Some(&entry(Status::Succeed, "a")));
        }
        let name = Some("a".into());
        let filter = Filter { status: Some(Status::Failed), name, ..Filter::default() };
        let (found, next) = index.list(&filter, 10);
        assert!(found.is_empty());
        assert_eq!(next, Some(LOOKED_AT_MAX as u64));
    }

    #[test]
    fn every_filter_finds_what_looking_at_all_finds() {
        let mut index = Index::default();
        let mut all = Vec::new();
        for id in 0..600u64 {
            let status = Status::ALL[id as usize % STATUSES];
            let kind = Kind::ALL[id as usize / 7 % KINDS];
            let hold = [Hold::None, Hold::Paused, Hold::Dead][id as usize / 3 % 3];
            let name: Box<str> = ["", "a", "b"][id as usize / 11 % 3].into();
            let entry = Entry { status, kind, hold, name };
            index.update(id, None, Some(&entry));
            all.push((id, entry));
        }
        fn each<T: Copy>(values: &[T]) -> impl Iterator<Item = Option<T>> {
            values.iter().copied().map(Some).chain([None])
        }
        for status in each(Status::ALL) {
            for kind in each(Kind::ALL) {
                for hold in each(&[Hold::Paused, Hold::Dead]) {
                    for name in each(&["a", "b"]) {
                        let filter = Filter {
                            status,
                            kind,
                            hold,
                            name: name.map(Into::into),
                            ..Filter::default()
                        };
                        let is_meant = |entry: &Entry| {
                            status.is_none_or(|status| entry.status == status)
                                && kind.is_none_or(|kind| entry.kind == kind)
                                && hold.is_none_or(|hold| entry.hold == hold)
                                && name.is_none_or(|name| &*entry.name == name)
                        };
                        let wanted = all.iter().rev().filter(|(_, entry)| is_meant(entry));
                        let wanted: Vec<u64> = wanted.map(|(id, _)| *id).collect();
                        assert_eq!(index.list(&filter, 1000), (wanted, None), "{filter:?}");
                    }
                }
            }
        }
    }
}
