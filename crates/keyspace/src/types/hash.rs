//! A hash of field names and values: a listpack, then a hash table.
//!
//! ```text
//!   listpack    | field | value | field | value | ...    up to 512 fields of up to 64 bytes
//!   hashtable   thin pairs, name and value (and when it expires) in one allocation
//! ```
//!
//! A listpack becomes a hash table at the first field or value that is too long, at the first
//! field too many, as in Redis 7.2, or at the first field that expires, as in Valkey 9; a hash
//! table stays one. A field past its time is there until [`Hash::take_due`] takes it out.
//!
//! **Invariant:** no form holds a field twice; a listpack has an even number of elements; the
//! hash table's `bytes` are the sum of its pairs' allocations; each field that expires has an item
//! in its `due` with exactly that time.

use std::fmt;

use crate::due::{Due, DueKey};
use crate::hasher;
use crate::random::Random;
use crate::raw::compact::{Compact, View, ViewMut};
use crate::raw::packed::{Element, Malformed, Packed};
use crate::raw::table::{Item, Table};
use crate::raw::thin::Field;

/// When a hash changes its form.
#[derive(Debug, Clone, Copy)]
pub struct HashLimits {
    /// `hash-max-listpack-entries`.
    pub listpack_entries: usize,
    /// `hash-max-listpack-value`.
    pub listpack_value: usize,
}

impl Default for HashLimits {
    fn default() -> Self {
        HashLimits { listpack_entries: 512, listpack_value: 64 }
    }
}

/// A hash; see the module's own text.
#[repr(transparent)]
#[derive(Default, Clone)]
pub struct Hash(Compact<Fields>);

/// The large form.
#[derive(Default)]
pub struct Fields {
    table: Table<Field>,
    bytes: usize,
    /// Which fields expire when; none without such fields.
    due: Option<Box<Due>>,
}

/// The form a hash has, for those who write it out.
pub enum HashView<'a> {
    /// A block of fields and values.
    Packed(&'a Packed),
    /// The hash table.
    Fields(&'a Fields),
}

impl Hash {
    /// Takes the large form at once where `count` further fields with strings of up to
    /// `longest_bytes` would lead there.
    pub fn expect_fields(&mut self, count: usize, longest_bytes: usize, limits: HashLimits) {
        if self.0.is_small()
            && (count > limits.listpack_entries || longest_bytes > limits.listpack_value)
        {
            self.make_large();
        }
    }

    /// The form it has.
    #[inline]
    pub fn view(&self) -> HashView<'_> {
        match self.0.view() {
            View::Small(packed) => HashView::Packed(packed),
            View::Large(fields) => HashView::Fields(fields),
        }
    }

    /// What OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        if self.0.is_small() { "listpack" } else { "hashtable" }
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        match self.0.view() {
            View::Small(packed) => packed.len() / 2,
            View::Large(fields) => fields.table.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        match self.0.view() {
            View::Small(packed) => packed.is_empty(),
            View::Large(fields) => fields.table.is_empty(),
        }
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        match self.0.view() {
            View::Small(packed) => packed.memory(),
            View::Large(fields) => fields.memory(),
        }
    }

    /// How many allocations it takes to free it.
    pub fn free_effort(&self) -> usize {
        match self.0.view() {
            View::Small(_) => 1,
            View::Large(fields) => fields.table.len() + fields.table.shape().0 + 2,
        }
    }

    /// The value of `field`.
    #[inline]
    pub fn get(&self, field: &[u8]) -> Option<Element<'_>> {
        match self.0.view() {
            View::Small(packed) => {
                let offset = packed.find(field, 0, 2)?;
                Some(packed.element(packed.after(offset)))
            }
            View::Large(fields) => fields
                .table
                .find(hasher::hash(field), |other| other.name() == field)
                .map(|field| Element::Str(field.into_parts().1)),
        }
    }

    /// Asks the processor for the line where the search for a field with this hash starts.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let View::Large(fields) = self.0.view() {
            fields.table.prefetch(hash);
        }
    }

    /// Asks the processor for the field that this hash most likely means.
    #[inline]
    pub fn prefetch_field(&self, hash: u64) {
        if let View::Large(fields) = self.0.view() {
            fields.table.prefetch_item(hash);
        }
    }

    /// Whether `field` is there.
    pub fn contains(&self, field: &[u8]) -> bool {
        self.get(field).is_some()
    }

    /// Gives `field` that value, for ever; returns whether the field is new.
    #[inline]
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: HashLimits) -> bool {
        if let ViewMut::Large(fields) = self.0.view_mut() {
            fields.set_expire_at(field, None);
        }
        self.change(field, value, limits)
    }

    /// As [`Hash::set`], but a field that expires goes on doing so.
    #[inline]
    pub fn change(&mut self, field: &[u8], value: &[u8], limits: HashLimits) -> bool {
        let packed = match self.0.view_mut() {
            ViewMut::Large(fields) => return fields.set(field, value),
            ViewMut::Small(packed) => packed,
        };
        if field.len().max(value.len()) > limits.listpack_value {
            return self.make_large().set(field, value);
        }
        if let Some(offset) = packed.find(field, 0, 2) {
            packed.replace(packed.after(offset), value);
            return false;
        }
        packed.insert_pair(packed.bytes().len(), Element::new(field), Element::new(value));
        if packed.len() / 2 > limits.listpack_entries {
            self.make_large();
        }
        true
    }

    /// Takes `field` out; returns false if it was not there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match self.0.view_mut() {
            ViewMut::Small(packed) => match packed.find(field, 0, 2) {
                Some(offset) => packed.remove(offset, 2) == 2,
                None => false,
            },
            ViewMut::Large(fields) => fields.remove(field),
        }
    }

    /// When `field` expires, in milliseconds since 1970: `Some(None)` = never, `None` = no such
    /// field.
    pub fn expire_at(&self, field: &[u8]) -> Option<Option<i64>> {
        match self.0.view() {
            View::Small(packed) => packed.find(field, 0, 2).map(|_| None),
            View::Large(fields) => {
                let found =
                    fields.table.find(hasher::hash(field), |other| other.name() == field)?;
                Some(found.expire_at())
            }
        }
    }

    /// Sets when `field` expires, in milliseconds since 1970, or that it does not; false if there
    /// is no such field.
    pub fn set_expire_at(&mut self, field: &[u8], at: Option<i64>) -> bool {
        if !self.contains(field) {
            return false;
        }
        match self.0.view_mut() {
            ViewMut::Large(fields) => fields.set_expire_at(field, at),
            ViewMut::Small(_) if at.is_none() => {}
            ViewMut::Small(_) => self.make_large().set_expire_at(field, at),
        }
        true
    }

    /// A time before which no field expires, which may be early; `None` if none ever does.
    #[inline]
    pub fn next_expire_at(&self) -> Option<i64> {
        let View::Large(Fields { due: Some(due), .. }) = self.0.view() else { return None };
        due.peek().map(|item| item.at_ms)
    }

    /// Takes the fields out that expire at `now_ms` or before.
    pub fn take_due(&mut self, now_ms: i64) -> Vec<Vec<u8>> {
        match self.0.view_mut() {
            ViewMut::Small(_) => Vec::new(),
            ViewMut::Large(fields) => fields.take_due(now_ms),
        }
    }

    /// Every field with its value: a listpack's as they came, a hash table's by hash.
    pub fn iter(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
        let (packed, fields) = match self.0.view() {
            View::Small(packed) => (Some(packed), None),
            View::Large(fields) => (None, Some(fields)),
        };
        let packed = packed.into_iter().flat_map(|packed| {
            let mut elements = packed.iter();
            std::iter::from_fn(move || elements.next().zip(elements.next()))
        });
        let fields = fields.into_iter().flat_map(|fields| {
            fields.table.iter().map(|field| {
                let (name, value) = field.into_parts();
                (Element::Str(name), Element::Str(value))
            })
        });
        packed.chain(fields)
    }

    /// A random field with its value.
    pub fn random(&self, random: &mut Random) -> Option<(Element<'_>, Element<'_>)> {
        match self.0.view() {
            View::Small(packed) => {
                let offset = packed.offset(random.below(packed.len() / 2) * 2)?;
                let mut elements = packed.iter_from(offset);
                elements.next().zip(elements.next())
            }
            View::Large(fields) => fields.table.random(|| random.bits()).map(|field| {
                let (name, value) = field.into_parts();
                (Element::Str(name), Element::Str(value))
            }),
        }
    }

    /// Visits `count` random fields, none twice, in no special order; all if there are fewer.
    pub fn sample<'a>(
        &'a self,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(Element<'a>, Element<'a>),
    ) {
        let draw = |random: &mut Random| {
            let View::Large(fields) = self.0.view() else { return None };
            let (name, value) = fields.table.random(|| random.bits())?.into_parts();
            Some((name.as_ptr(), (Element::Str(name), Element::Str(value))))
        };
        let visit = |(name, value)| visit(name, value);
        super::sample(self.len(), count, random, draw, self.iter(), visit);
    }

    /// Visits about `count` fields from `cursor` (0 = the start) and returns the cursor to go on
    /// from, 0 at the end. A listpack is visited at once.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element, Element)) -> u64 {
        let View::Large(fields) = self.0.view() else {
            self.iter().for_each(|(name, value)| visit(name, value));
            return 0;
        };
        super::scan(&fields.table, cursor, count, |field| {
            let (name, value) = field.parts();
            visit(Element::Str(name), Element::Str(value));
        })
    }

    /// The hash of a listpack from outside; refused if a field comes twice or has no value.
    pub fn from_packed(packed: Packed, limits: HashLimits) -> Result<Hash, Malformed> {
        if !packed.len().is_multiple_of(2) {
            return Err(Malformed);
        }
        let longest = packed.iter().map(Element::len).max().unwrap_or(0);
        if !packed.is_distinct(2) {
            return Err(Malformed);
        }
        let mut hash = Hash(Compact::small(packed));
        if hash.len() > limits.listpack_entries || longest > limits.listpack_value {
            hash.make_large();
        }
        Ok(hash)
    }

    fn make_large(&mut self) -> &mut Fields {
        let mut fields = Fields::default();
        let (mut first, mut second) = (itoa::Buffer::new(), itoa::Buffer::new());
        for (name, value) in self.iter() {
            fields.set(name.text(&mut first), value.text(&mut second));
        }
        self.0.set_large(fields);
        match self.0.view_mut() {
            ViewMut::Large(fields) => fields,
            ViewMut::Small(_) => unreachable!("just made large"),
        }
    }
}

impl Fields {
    /// Number of fields.
    pub fn count(&self) -> usize {
        self.table.len()
    }

    /// Every field with its value and when it expires.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], Option<i64>)> {
        self.table.iter().map(|field| {
            let at = field.expire_at();
            let (name, value) = field.into_parts();
            (name, value, at)
        })
    }

    fn memory(&self) -> usize {
        let due = self.due.as_ref().map_or(0, |due| size_of::<Due>() + due.memory());
        size_of::<Fields>() + self.table.memory() + self.bytes + due
    }

    fn remove(&mut self, name: &[u8]) -> bool {
        let removed = self.table.remove(hasher::hash(name), |other| other.name() == name);
        let Some(field) = removed else { return false };
        self.bytes -= field.memory();
        if field.expire_at().is_some() {
            self.count_timed(-1);
        }
        true
    }

    fn set_expire_at(&mut self, name: &[u8], at: Option<i64>) {
        if self.due.is_none() && at.is_none() {
            return;
        }
        let hash = hasher::hash(name);
        let Some(mut field) = self.table.find_mut(hash, |other| other.name() == name) else {
            return;
        };
        let had = field.expire_at();
        if had == at {
            return;
        }
        self.bytes -= field.memory();
        field.set_expire_at(at);
        self.bytes += field.memory();
        drop(field);
        if let Some(at) = at {
            self.due.get_or_insert_default().push(DueKey::new(at, hash, 0));
        }
        self.count_timed(isize::from(at.is_some()) - isize::from(had.is_some()));
    }

    /// Notes that so many more fields expire, and clears up after those that do no longer.
    fn count_timed(&mut self, more: isize) {
        let Some(due) = &mut self.due else { return };
        due.live = due.live.wrapping_add_signed(more);
        if due.live == 0 {
            self.due = None;
        } else if due.wants_rebuild() {
            let timed = self.table.iter().filter_map(|field| {
                field.expire_at().map(|at| DueKey::new(at, hasher::hash(field.name()), 0))
            });
            due.rebuild(timed.collect());
        }
    }

    fn take_due(&mut self, now_ms: i64) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        while let Some(item) = self.due.as_mut().and_then(|due| due.pop_due(now_ms)) {
            let is_meant = |field: &Field| field.expire_at() == Some(item.at_ms);
            let found = self.table.find(item.table_hash(), is_meant);
            if let Some(name) = found.map(|field| field.into_parts().0.to_vec()) {
                self.remove(&name);
                taken.push(name);
            }
        }
        taken
    }

    #[inline]
    fn set(&mut self, name: &[u8], value: &[u8]) -> bool {
        let hash = hasher::hash(name);
        if let Some(mut field) = self.table.find_mut(hash, |other| other.name() == name) {
            let old = field.memory();
            field.set_value(value);
            self.bytes = self.bytes - old + field.memory();
            return false;
        }
        let field = Field::new(name, value);
        self.bytes += field.memory();
        self.table.insert(hash, field);
        true
    }
}

impl Clone for Fields {
    fn clone(&self) -> Self {
        let mut table = Table::new();
        for field in self.table.iter() {
            table.insert(field.hash(), Field::clone(&field));
        }
        Fields { table, bytes: self.bytes, due: self.due.clone() }
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const SMALL: HashLimits = HashLimits { listpack_entries: 8, listpack_value: 12 };

    fn word() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (0..20u8).prop_map(|n| format!("f{n}").into_bytes()),
            1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            1 => (0..20u8).prop_map(|n| n.to_string().into_bytes()),
            1 => proptest::collection::vec(any::<u8>(), 0..16),
        ]
    }

    fn fields(hash: &Hash) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let fields: Vec<_> = hash.iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
        assert_eq!(fields.len(), hash.len());
        fields.into_iter().collect()
    }

    fn check(hash: &Hash, model: &BTreeMap<Vec<u8>, Vec<u8>>, random: &mut Random) {
        assert_eq!(&fields(hash), model);
        assert_eq!(&fields(&hash.clone()), model);
        assert_eq!(hash.is_empty(), model.is_empty());
        let one = hash.random(random);
        assert_eq!(one.is_none(), model.is_empty());
        assert!(one.is_none_or(|(n, v)| model.get(&n.to_vec()) == Some(&v.to_vec())));
        for count in [0, 1, 2, model.len(), model.len() + 5] {
            let mut sample = BTreeMap::new();
            hash.sample(count, random, |name, value| {
                assert!(sample.insert(name.to_vec(), value.to_vec()).is_none());
            });
            assert_eq!(sample.len(), count.min(model.len()));
            assert!(sample.iter().all(|(name, value)| model.get(name) == Some(value)));
        }
        let mut seen = BTreeMap::new();
        let mut cursor = 0;
        loop {
            cursor = hash.scan(cursor, 3, |name, value| {
                seen.insert(name.to_vec(), value.to_vec());
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
        fn holds_what_a_btree_map_holds(
            steps in proptest::collection::vec((0..10u8, word(), word()), 0..60), seed: u64
        ) {
            let mut random = Random::new(seed);
            let mut hash = Hash::default();
            let mut model = BTreeMap::new();
            for (kind, name, value) in steps {
                if kind < 7 {
                    let is_new = model.insert(name.clone(), value.clone()).is_none();
                    prop_assert_eq!(hash.set(&name, &value, SMALL), is_new);
                } else {
                    prop_assert_eq!(hash.remove(&name), model.remove(&name).is_some());
                }
                let found = hash.get(&name).map(Element::to_vec);
                prop_assert_eq!(found.as_ref(), model.get(&name));
            }
            check(&hash, &model, &mut random);
            if let HashView::Packed(packed) = hash.view() {
                let packed = Packed::from_listpack(&packed.to_listpack()).expect("our own");
                let again = Hash::from_packed(packed, SMALL).expect("no field twice");
                prop_assert_eq!(again.encoding(), hash.encoding());
                check(&again, &model, &mut random);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn fields_expire_at_their_times(
            steps in proptest::collection::vec((0..10u8, 0..12u8, 1..40i64), 0..120)
        ) {
            let mut hash = Hash::default();
            let mut model: BTreeMap<Vec<u8>, Option<i64>> = BTreeMap::new();
            let mut now = 0;
            for (kind, name, time) in steps {
                let name = format!("field {name}").into_bytes();
                match kind {
                    0..3 => {
                        hash.set(&name, b"v", SMALL);
                        model.insert(name.clone(), None);
                    }
                    3 => {
                        hash.change(&name, b"changed", SMALL);
                        model.entry(name.clone()).or_default();
                    }
                    4..7 => {
                        let at = (time < 36).then_some(now + time);
                        prop_assert_eq!(hash.set_expire_at(&name, at), model.contains_key(&name));
                        model.entry(name.clone()).and_modify(|had| *had = at);
                    }
                    7 => prop_assert_eq!(hash.remove(&name), model.remove(&name).is_some()),
                    _ => {
                        now += time / 4;
                        let mut taken = hash.take_due(now);
                        taken.sort();
                        let due = |at: &Option<i64>| at.is_some_and(|at| at <= now);
                        let gone: Vec<_> =
                            model.extract_if(.., |_, at| due(at)).map(|(name, _)| name).collect();
                        prop_assert_eq!(taken, gone);
                    }
                }
                prop_assert_eq!(hash.expire_at(&name), model.get(&name).copied());
                prop_assert_eq!(hash.len(), model.len());
                let first = model.values().flatten().min().copied();
                prop_assert!(hash.next_expire_at() <= first || first.is_none());
                prop_assert_eq!(hash.next_expire_at().is_some(), first.is_some());
                if let View::Large(fields) = hash.0.view() {
                    let bytes: usize = fields.table.iter().map(|field| field.memory()).sum();
                    prop_assert_eq!(fields.bytes, bytes);
                }
            }
            let copy = hash.clone();
            for (name, at) in &model {
                prop_assert_eq!(copy.expire_at(name), Some(*at));
            }
            let timed = model.values().flatten().count();
            prop_assert_eq!(hash.clone().take_due(i64::MAX).len(), timed);
            prop_assert_eq!(hash.take_due(i64::MAX).len(), timed);
        }
    }

    #[test]
    fn encodings_change_as_in_redis() {
        let limits = HashLimits { listpack_entries: 128, listpack_value: 64 };
        let mut hash = Hash::default();
        for number in 0..128 {
            hash.set(number.to_string().as_bytes(), b"x", limits);
        }
        assert_eq!(hash.encoding(), "listpack");
        hash.set(b"one more", b"x", limits);
        assert_eq!(hash.encoding(), "hashtable");
        for (name, value, encoding) in
            [(64, 64, "listpack"), (65, 1, "hashtable"), (1, 65, "hashtable")]
        {
            let mut hash = Hash::default();
            hash.set(&vec![b'n'; name], &vec![b'v'; value], limits);
            assert_eq!(hash.encoding(), encoding);
        }
        let mut hash = Hash::default();
        hash.expect_fields(129, 1, limits);
        assert_eq!(hash.encoding(), "hashtable");
    }

    #[test]
    fn damaged_listpacks_are_refused() {
        let limits = HashLimits::default();
        let odd: Packed = [b"a".as_slice(), b"b", b"c"].into_iter().collect();
        assert!(Hash::from_packed(odd, limits).is_err());
        let twice: Packed = [b"a".as_slice(), b"b", b"a", b"c"].into_iter().collect();
        assert!(Hash::from_packed(twice, limits).is_err());
    }

    #[test]
    fn bytes_follow_the_values() {
        let mut hash = Hash::default();
        let limits = HashLimits { listpack_entries: 0, listpack_value: 0 };
        hash.set(b"field", &[b'x'; 1000], limits);
        let before = hash.memory();
        hash.set(b"field", b"x", limits);
        assert!(hash.memory() + 900 < before);
        hash.remove(b"field");
        let View::Large(fields) = hash.0.view() else { panic!("large") };
        assert_eq!(fields.bytes, 0);
    }
}
