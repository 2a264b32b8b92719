//! A set of byte strings: sorted integers, then a listpack, then a hash table.
//!
//! ```text
//!   first member         more                       encoding
//!   integer              integers, up to 512        intset      sorted, 2 to 8 bytes each
//!   anything short       up to 128 of 64 bytes      listpack    one block, searched from its start
//!   anything                                        hashtable   thin strings, 24 + 11 bytes for 16
//! ```
//!
//! When a set changes its form is Redis 7.2's rule, down to the order in which members arrive: an
//! intset becomes a listpack at the first member that is no integer, and a hash table if it is
//! already too long for a listpack. A hash table stays one.
//!
//! **Invariant:** no form holds a member twice, and the hash table's `bytes` are the sum of its
//! members' allocations.

use std::fmt;

use super::intset::{self, Ints};
use crate::hasher;
use crate::random::Random;
use crate::raw::compact::{Compact, View, ViewMut};
use crate::raw::packed::{Element, Malformed, Packed, canonical_int, decimal_len};
use crate::raw::table::{Item, Table};
use crate::raw::thin::Member;

/// When a set changes its form.
#[derive(Debug, Clone, Copy)]
pub struct SetLimits {
    /// `set-max-intset-entries`.
    pub intset_entries: usize,
    /// `set-max-listpack-entries`.
    pub listpack_entries: usize,
    /// `set-max-listpack-value`.
    pub listpack_value: usize,
}

impl Default for SetLimits {
    fn default() -> Self {
        SetLimits { intset_entries: 512, listpack_entries: 128, listpack_value: 64 }
    }
}

/// A set; see the module's own text.
#[repr(transparent)]
#[derive(Default, Clone)]
pub struct Set(Compact<Members>);

/// The large form.
#[derive(Default)]
pub struct Members {
    table: Table<Member>,
    bytes: usize,
}

/// The form a set has, for those who write it out.
pub enum SetView<'a> {
    /// Sorted integers.
    Ints(Ints<'a>),
    /// A block of members.
    Packed(&'a Packed),
    /// The hash table.
    Members(&'a Members),
}

impl Set {
    /// An empty set for `value` and `count - 1` more.
    pub fn for_members(value: &[u8], count: usize, limits: SetLimits) -> Set {
        if canonical_int(value).is_some() && count <= limits.intset_entries {
            Set(Compact::small(intset::new()))
        } else if count <= limits.listpack_entries {
            Set::default()
        } else {
            Set(Compact::large(Box::default()))
        }
    }

    /// Takes the form at once to which `value` and `count - 1` further members would lead.
    pub fn expect_members(&mut self, value: &[u8], count: usize, limits: SetLimits) {
        if self.is_empty() {
            *self = Set::for_members(value, count, limits);
            return;
        }
        let large = match self.view() {
            SetView::Ints(_) => count > limits.intset_entries,
            SetView::Packed(_) => count > limits.listpack_entries,
            SetView::Members(_) => false,
        };
        if large {
            self.make_large();
        }
    }

    /// The form it has.
    #[inline]
    pub fn view(&self) -> SetView<'_> {
        match self.0.view() {
            View::Small(packed) => match Ints::of(packed) {
                Some(ints) => SetView::Ints(ints),
                None => SetView::Packed(packed),
            },
            View::Large(members) => SetView::Members(members),
        }
    }

    /// What OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        match self.view() {
            SetView::Ints(_) => "intset",
            SetView::Packed(_) => "listpack",
            SetView::Members(_) => "hashtable",
        }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        match self.view() {
            SetView::Ints(ints) => ints.len(),
            SetView::Packed(packed) => packed.len(),
            SetView::Members(members) => members.table.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        match self.0.view() {
            View::Small(packed) => packed.memory(),
            View::Large(members) => size_of::<Members>() + members.table.memory() + members.bytes,
        }
    }

    /// How many allocations it takes to free it.
    pub fn free_effort(&self) -> usize {
        match self.0.view() {
            View::Small(_) => 1,
            View::Large(members) => members.table.len() + members.table.shape().0 + 2,
        }
    }

    /// Asks the processor for the line where the search for a member with this hash starts.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let View::Large(members) = self.0.view() {
            members.table.prefetch(hash);
        }
    }

    /// Asks the processor for the member that this hash most likely means.
    #[inline]
    pub fn prefetch_member(&self, hash: u64) {
        if let View::Large(members) = self.0.view() {
            members.table.prefetch_item(hash);
        }
    }

    /// Whether `value` is a member.
    #[inline]
    pub fn contains(&self, value: &[u8]) -> bool {
        match self.view() {
            SetView::Ints(ints) => canonical_int(value).is_some_and(|number| ints.contains(number)),
            SetView::Packed(packed) => packed.find(value, 0, 1).is_some(),
            SetView::Members(members) => members.contains(value),
        }
    }

    /// Whether what another set has as `element` is a member here.
    #[inline]
    pub fn contains_element(&self, element: Element) -> bool {
        match (self.view(), element) {
            (SetView::Ints(ints), Element::Int(number)) => ints.contains(number),
            _ => self.contains(element.text(&mut itoa::Buffer::new())),
        }
    }

    /// Adds `value`; returns false if it was a member.
    pub fn insert(&mut self, value: &[u8], limits: SetLimits) -> bool {
        match self.0.view_mut() {
            ViewMut::Large(members) => members.insert(value),
            ViewMut::Small(packed) if packed.is_empty() => {
                *self = Set::for_members(value, 1, limits);
                self.insert_small(value, limits)
            }
            ViewMut::Small(_) => self.insert_small(value, limits),
        }
    }

    /// Adds what another set has as `element`.
    pub fn insert_element(&mut self, element: Element, limits: SetLimits) -> bool {
        self.insert(element.text(&mut itoa::Buffer::new()), limits)
    }

    fn insert_small(&mut self, value: &[u8], limits: SetLimits) -> bool {
        let ViewMut::Small(packed) = self.0.view_mut() else {
            return self.insert(value, limits);
        };
        if let Some(ints) = Ints::of(packed) {
            if let Some(number) = canonical_int(value) {
                let inserted = intset::insert(packed, number);
                if inserted
                    && Ints::of(packed).is_some_and(|ints| ints.len() > limits.intset_entries)
                {
                    self.make_large();
                }
                return inserted;
            }
            let longest = [ints.get(0), ints.iter().next_back()].into_iter().flatten();
            let longest = longest.map(decimal_len).max().unwrap_or(0).max(value.len());
            if ints.len() < limits.listpack_entries && longest <= limits.listpack_value {
                *packed = listpack_of(ints);
                packed.push_back(value);
                return true;
            }
        } else if packed.find(value, 0, 1).is_some() {
            return false;
        } else if packed.len() < limits.listpack_entries && value.len() <= limits.listpack_value {
            packed.push_back(value);
            return true;
        }
        self.make_large().insert(value)
    }

    /// Takes `value` out; returns false if it was no member.
    pub fn remove(&mut self, value: &[u8]) -> bool {
        match self.0.view_mut() {
            ViewMut::Large(members) => members.remove(value),
            ViewMut::Small(packed) if Ints::of(packed).is_some() => {
                canonical_int(value).is_some_and(|number| intset::remove(packed, number))
            }
            ViewMut::Small(packed) => {
                let found = packed.find(value, 0, 1);
                found.is_some_and(|offset| packed.remove(offset, 1) == 1)
            }
        }
    }

    /// Every member: an intset's ascending, a listpack's as they came, a hash table's by hash.
    pub fn iter(&self) -> impl Iterator<Item = Element<'_>> {
        let (ints, packed, members) = match self.view() {
            SetView::Ints(ints) => (Some(ints), None, None),
            SetView::Packed(packed) => (None, Some(packed), None),
            SetView::Members(members) => (None, None, Some(members)),
        };
        let ints = ints.into_iter().flat_map(|ints| ints.iter().map(Element::Int));
        let packed = packed.into_iter().flat_map(Packed::iter);
        let members = members.into_iter().flat_map(|members| {
            members.table.iter().map(|member| Element::Str(member.into_bytes()))
        });
        ints.chain(packed).chain(members)
    }

    /// A random member.
    pub fn random(&self, random: &mut Random) -> Option<Element<'_>> {
        match self.view() {
            SetView::Ints(ints) => ints.get(random.below(ints.len())).map(Element::Int),
            SetView::Packed(packed) => packed.get(random.below(packed.len())),
            SetView::Members(members) => members
                .table
                .random(|| random.bits())
                .map(|member| Element::Str(member.into_bytes())),
        }
    }

    /// Visits `count` random members, none twice, in no special order; all if there are fewer.
    pub fn sample<'a>(&'a self, count: usize, random: &mut Random, visit: impl FnMut(Element<'a>)) {
        let draw = |random: &mut Random| {
            let SetView::Members(members) = self.view() else { return None };
            let bytes = members.table.random(|| random.bits())?.into_bytes();
            Some((bytes.as_ptr(), Element::Str(bytes)))
        };
        super::sample(self.len(), count, random, draw, self.iter(), visit);
    }

    /// Takes a random member out and shows it to `visit`.
    pub fn pop<R>(&mut self, random: &mut Random, visit: impl FnOnce(Element) -> R) -> Option<R> {
        match self.0.view_mut() {
            ViewMut::Large(members) => {
                let member = members.table.random(|| random.bits())?;
                let (raw, hash) = (member.as_raw(), member.hash());
                let member = members.take(hash, |other| other.is_at(raw))?;
                Some(visit(Element::Str(member.bytes())))
            }
            ViewMut::Small(packed) => {
                if let Some(ints) = Ints::of(packed) {
                    let number = ints.get(random.below(ints.len()))?;
                    intset::remove(packed, number);
                    return Some(visit(Element::Int(number)));
                }
                let offset = packed.offset(random.below(packed.len()))?;
                if packed.is_empty() {
                    return None;
                }
                let result = visit(packed.element(offset));
                packed.remove(offset, 1);
                Some(result)
            }
        }
    }

    /// Visits about `count` members from `cursor` (0 = the start) and returns the cursor to go on
    /// from, 0 at the end. The small forms are visited at once.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element)) -> u64 {
        let SetView::Members(members) = self.view() else {
            self.iter().for_each(visit);
            return 0;
        };
        super::scan(&members.table, cursor, count, |member| visit(Element::Str(member.bytes())))
    }

    /// The set of a listpack from outside; refused if a member comes twice.
    pub fn from_packed(packed: Packed, limits: SetLimits) -> Result<Set, Malformed> {
        if !packed.is_distinct(1) {
            return Err(Malformed);
        }
        let longest = packed.iter().map(Element::len).max().unwrap_or(0);
        let large = packed.len() > limits.listpack_entries || longest > limits.listpack_value;
        let mut set = Set(Compact::small(packed));
        if large {
            set.make_large();
        }
        Ok(set)
    }

    /// The set of an intset from outside, which [`intset::from_redis`] has checked.
    pub fn from_intset(packed: Packed, limits: SetLimits) -> Set {
        let large = Ints::of(&packed).is_some_and(|ints| ints.len() > limits.intset_entries);
        let mut set = Set(Compact::small(packed));
        if large {
            set.make_large();
        }
        set
    }

    /// Becomes an intset where every member is an integer and there are not too many, which is
    /// what SINTERSTORE does with its result.
    pub fn compact_to_intset(&mut self, limits: SetLimits) {
        if matches!(self.view(), SetView::Ints(_)) || self.len() > limits.intset_entries {
            return;
        }
        let mut packed = intset::new();
        let mut buffer = itoa::Buffer::new();
        for element in self.iter() {
            match canonical_int(element.text(&mut buffer)) {
                Some(number) => intset::insert(&mut packed, number),
                None => return,
            };
        }
        self.0.set_small(packed);
    }

    fn make_large(&mut self) -> &mut Members {
        let mut members = Members::default();
        let mut buffer = itoa::Buffer::new();
        for element in self.iter() {
            members.insert(element.text(&mut buffer));
        }
        self.0.set_large(members);
        match self.0.view_mut() {
            ViewMut::Large(members) => members,
            ViewMut::Small(_) => unreachable!("just made large"),
        }
    }
}

fn listpack_of(ints: Ints) -> Packed {
    let mut packed = Packed::new();
    for number in ints.iter() {
        packed.insert_element(packed.bytes().len(), Element::Int(number));
    }
    packed
}

impl Members {
    #[inline]
    fn contains(&self, value: &[u8]) -> bool {
        self.table.find(hasher::hash(value), |member| member.bytes() == value).is_some()
    }

    #[inline]
    fn insert(&mut self, value: &[u8]) -> bool {
        let hash = hasher::hash(value);
        if self.table.find(hash, |member| member.bytes() == value).is_some() {
            return false;
        }
        let member = Member::new(value);
        self.bytes += member.memory();
        self.table.insert(hash, member);
        true
    }

    fn remove(&mut self, value: &[u8]) -> bool {
        self.take(hasher::hash(value), |member| member.bytes() == value).is_some()
    }

    fn take(&mut self, hash: u64, same: impl FnMut(&Member) -> bool) -> Option<Member> {
        let member = self.table.remove(hash, same)?;
        self.bytes -= member.memory();
        Some(member)
    }
}

impl Clone for Members {
    fn clone(&self) -> Self {
        let mut table = Table::new();
        for member in self.table.iter() {
            table.insert(member.hash(), Member::clone(&member));
        }
        Members { table, bytes: self.bytes }
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const SMALL: SetLimits =
        SetLimits { intset_entries: 6, listpack_entries: 8, listpack_value: 12 };

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (-9i64..9).prop_map(|number| number.to_string().into_bytes()),
            1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            1 => (0..20u8).prop_map(|n| format!("m{n}").into_bytes()),
            1 => proptest::collection::vec(any::<u8>(), 0..16),
        ]
    }

    fn members(set: &Set) -> BTreeSet<Vec<u8>> {
        let members: Vec<_> = set.iter().map(Element::to_vec).collect();
        assert_eq!(members.len(), set.len());
        members.into_iter().collect()
    }

    fn check(set: &Set, model: &BTreeSet<Vec<u8>>, random: &mut Random) {
        assert_eq!(&members(set), model);
        assert_eq!(&members(&set.clone()), model);
        assert_eq!(set.clone().encoding(), set.encoding());
        assert_eq!(set.random(random).is_some(), !model.is_empty());
        for count in [0, 1, 2, model.len(), model.len() + 5] {
            let mut sample = Vec::new();
            set.sample(count, random, |element| sample.push(element.to_vec()));
            assert_eq!(sample.len(), count.min(model.len()));
            assert!(sample.iter().all(|value| model.contains(value)));
            assert_eq!(sample.iter().collect::<BTreeSet<_>>().len(), sample.len());
        }
        let mut seen = BTreeSet::new();
        let mut cursor = 0;
        loop {
            cursor = set.scan(cursor, 3, |element| {
                seen.insert(element.to_vec());
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(&seen, model);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn holds_what_a_btree_set_holds(
            steps in proptest::collection::vec((0..10u8, member()), 0..60), seed: u64
        ) {
            let mut random = Random::new(seed);
            let mut set = Set::default();
            let mut model = BTreeSet::new();
            for (kind, value) in steps {
                match kind {
                    0..6 => prop_assert_eq!(
                        set.insert(&value, SMALL), model.insert(value.clone())),
                    6..9 => prop_assert_eq!(set.remove(&value), model.remove(&value)),
                    _ => {
                        let popped = set.pop(&mut random, |element| element.to_vec());
                        prop_assert_eq!(popped.is_none(), model.is_empty());
                        prop_assert!(popped.is_none_or(|value| model.remove(&value)));
                    }
                }
                prop_assert_eq!(set.contains(&value), model.contains(&value));
                let element = Element::new(&value);
                prop_assert_eq!(set.contains_element(element), model.contains(&value));
            }
            check(&set, &model, &mut random);
            let again = match set.view() {
                SetView::Ints(ints) => {
                    let packed = intset::from_redis(&ints.to_redis()).expect("our own");
                    Set::from_intset(packed, SMALL)
                }
                SetView::Packed(packed) => {
                    let packed = Packed::from_listpack(&packed.to_listpack()).expect("our own");
                    Set::from_packed(packed, SMALL).expect("no member twice")
                }
                SetView::Members(_) => set.clone(),
            };
            prop_assert_eq!(again.encoding(), set.encoding());
            check(&again, &model, &mut random);
        }
    }

    #[test]
    fn encodings_change_as_in_redis() {
        let limits = SetLimits::default();
        let encoding = |count: usize, last: &[u8]| {
            let mut set = Set::default();
            for number in 0..count {
                set.insert(number.to_string().as_bytes(), limits);
            }
            set.insert(last, limits);
            set.encoding()
        };
        assert_eq!(encoding(511, b"-1"), "intset");
        assert_eq!(encoding(512, b"-1"), "hashtable");
        assert_eq!(encoding(127, b"x"), "listpack");
        assert_eq!(encoding(128, b"x"), "hashtable");
        assert_eq!(encoding(1, &[b'x'; 64]), "listpack");
        assert_eq!(encoding(1, &[b'x'; 65]), "hashtable");
        assert_eq!(Set::for_members(b"1", 512, limits).encoding(), "intset");
        assert_eq!(Set::for_members(b"1", 513, limits).encoding(), "hashtable");
        assert_eq!(Set::for_members(b"x", 128, limits).encoding(), "listpack");
        assert_eq!(Set::for_members(b"x", 129, limits).encoding(), "hashtable");
    }

    #[test]
    fn a_large_set_of_integers_becomes_an_intset_where_it_may() {
        let limits = SetLimits::default();
        let mut set = Set::default();
        for value in ["x", "1", "2"] {
            set.insert(value.as_bytes(), limits);
        }
        set.compact_to_intset(limits);
        assert_eq!(set.encoding(), "listpack");
        set.remove(b"x");
        set.compact_to_intset(limits);
        assert_eq!((set.encoding(), set.len()), ("intset", 2));
    }

    #[test]
    fn twice_the_same_member_is_refused() {
        let packed: Packed = [b"a".as_slice(), b"b", b"a"].into_iter().collect();
        assert!(Set::from_packed(packed, SetLimits::default()).is_err());
    }

    #[test]
    fn a_million_short_members_take_36_bytes_each() {
        let count = if cfg!(miri) { return } else { 1_000_000 };
        let mut set = Set::default();
        for number in 0..count {
            set.insert(format!("member:{number:09}").as_bytes(), SetLimits::default());
        }
        let each = set.memory() as f64 / f64::from(count);
        assert!(each < 36.0, "{each} bytes");
    }
}
