//! A sorted set: members in the order of (score, member); a listpack, then hash table and tree.
//!
//! ```text
//!   listpack    | member | score | member | score | ...   in order; up to 128 members of 64 bytes
//!   skiplist    Ranked: hash table for members, B+tree for the order ("skiplist" is Redis's name)
//! ```
//!
//! A score in a listpack is an integer where it is whole, else the shortest text that reads back
//! the same. When a set changes its form is Redis 7.2's rule; a large set stays large.
//!
//! A range is two ranks here, whatever it is asked by: [`Zset::score_range`] and
//! [`Zset::lex_range`] find them in O(log n), [`Zset::range`] walks them from either end.
//!
//! **Invariant:** no form holds a member twice, no score is NaN, and a listpack is in order.

use std::fmt;
use std::ops::Range;

use crate::random::Random;
use crate::raw::compact::{Compact, View, ViewMut};
use crate::raw::packed::{Element, Malformed, Packed};
use crate::raw::ranked::{self, Ranked};

pub use crate::raw::ranked::{Edge, Outcome};

/// When a sorted set changes its form.
#[derive(Debug, Clone, Copy)]
pub struct ZsetLimits {
    /// `zset-max-listpack-entries`.
    pub listpack_entries: usize,
    /// `zset-max-listpack-value`, in bytes.
    pub listpack_value: usize,
}

impl Default for ZsetLimits {
    fn default() -> Self {
        ZsetLimits { listpack_entries: 128, listpack_value: 64 }
    }
}

/// A place in the order of members, where all have one score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LexEdge<'a> {
    /// Before every member: `-`.
    First,
    /// Before this member: `[member` as a minimum, `(member` as a maximum.
    Before(&'a [u8]),
    /// After this member: `(member` as a minimum, `[member` as a maximum.
    After(&'a [u8]),
    /// After every member: `+`.
    Last,
}

/// A sorted set; see the module's own text.
#[repr(transparent)]
#[derive(Default, Clone)]
pub struct Zset(Compact<Ranked>);

/// The form a sorted set has, for those who write it out.
pub enum ZsetView<'a> {
    /// A block of members and scores, in order.
    Packed(&'a Packed),
    /// The large form.
    Ranked(&'a Ranked),
}

/// A score's number or text in a listpack. The sign of -0 is lost here, as in Redis.
fn score_element(score: f64, buffer: &mut ryu::Buffer) -> Element<'_> {
    let whole = score as i64;
    // Up to 2^53 each whole number is itself.
    if whole as f64 == score && whole.unsigned_abs() <= 1 << 53 {
        return Element::Int(whole);
    }
    Element::new(buffer.format(score).as_bytes())
}

/// The score an element means; NaN if it is none.
#[inline]
fn element_score(element: Element<'_>) -> f64 {
    match element {
        Element::Int(number) => number as f64,
        Element::Str(text) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
        }
    }
}

impl Zset {
    /// A sorted set of these members, which need no order; where one comes twice, its last score
    /// holds.
    pub fn build(members: &[(&[u8], f64)], limits: ZsetLimits) -> Zset {
        let longest = members.iter().map(|(member, _)| member.len()).max().unwrap_or(0);
        if members.len() > limits.listpack_entries || longest > limits.listpack_value {
            return Zset(Compact::large(Box::new(Ranked::build(members.iter().copied()))));
        }
        let mut set = Zset::default();
        members.iter().for_each(|(member, score)| {
            set.set(member, *score, limits);
        });
        set
    }

    /// Takes the large form at once where `count` further members of up to `longest_bytes` would
    /// lead there.
    pub fn expect_members(&mut self, count: usize, longest_bytes: usize, limits: ZsetLimits) {
        let large = count > limits.listpack_entries || longest_bytes > limits.listpack_value;
        if large && self.0.is_small() {
            self.make_large();
        }
    }

    /// The form it has.
    #[inline]
    pub fn view(&self) -> ZsetView<'_> {
        match self.0.view() {
            View::Small(packed) => ZsetView::Packed(packed),
            View::Large(ranked) => ZsetView::Ranked(ranked),
        }
    }

    /// What OBJECT ENCODING says.
    pub fn encoding(&self) -> &'static str {
        if self.0.is_small() { "listpack" } else { "skiplist" }
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0.view() {
            View::Small(packed) => packed.len() / 2,
            View::Large(ranked) => ranked.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        match self.0.view() {
            View::Small(packed) => packed.is_empty(),
            View::Large(ranked) => ranked.is_empty(),
        }
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        match self.0.view() {
            View::Small(packed) => packed.memory(),
            View::Large(ranked) => size_of::<Ranked>() + ranked.memory(),
        }
    }

    /// How many allocations it takes to free it, about.
    pub fn free_effort(&self) -> usize {
        match self.0.view() {
            View::Small(_) => 1,
            View::Large(ranked) => ranked.len() + ranked.len() / 32 + 2,
        }
    }

    /// Asks the processor for the line where the search for a member with this hash starts.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let View::Large(ranked) = self.0.view() {
            ranked.prefetch(hash);
        }
    }

    /// Asks the processor for the member that this hash most likely means.
    #[inline]
    pub fn prefetch_member(&self, hash: u64) {
        if let View::Large(ranked) = self.0.view() {
            ranked.prefetch_member(hash);
        }
    }

    /// The member's score.
    #[inline]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match self.0.view() {
            View::Small(packed) => {
                let offset = packed.find(member, 0, 2)?;
                Some(element_score(packed.element(packed.after(offset))))
            }
            View::Large(ranked) => ranked.score(member),
        }
    }

    /// Gives the member this score, which is not NaN, adding it if it is not there.
    #[inline]
    pub fn set(&mut self, member: &[u8], score: f64, limits: ZsetLimits) -> Outcome {
        debug_assert!(!score.is_nan());
        let packed = match self.0.view_mut() {
            ViewMut::Large(ranked) => return ranked.set(member, score),
            ViewMut::Small(packed) => packed,
        };
        if let Some(offset) = packed.find(member, 0, 2) {
            let old = element_score(packed.element(packed.after(offset)));
            if old == score {
                return Outcome::Same;
            }
            packed.remove(offset, 2);
            insert_packed(packed, member, score);
            return Outcome::Updated(old);
        }
        if packed.len() / 2 >= limits.listpack_entries || member.len() > limits.listpack_value {
            return self.make_large().set(member, score);
        }
        insert_packed(packed, member, score);
        Outcome::Added
    }

    /// Takes a member out; returns the score it had.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match self.0.view_mut() {
            ViewMut::Small(packed) => {
                let offset = packed.find(member, 0, 2)?;
                let score = element_score(packed.element(packed.after(offset)));
                packed.remove(offset, 2);
                Some(score)
            }
            ViewMut::Large(ranked) => ranked.remove(member),
        }
    }

    /// Takes out the members of these ranks; returns how many there were.
    pub fn remove_range(&mut self, ranks: Range<usize>) -> usize {
        let ranks = self.clip(ranks);
        let count = ranks.len();
        match self.0.view_mut() {
            _ if count == 0 => {}
            ViewMut::Small(packed) => {
                if let Some(offset) = packed.offset(ranks.start * 2) {
                    packed.remove(offset, count * 2);
                }
            }
            ViewMut::Large(ranked) => ranked.remove_range(ranks),
        }
        count
    }

    /// How many members stand before this one, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match self.0.view() {
            View::Small(packed) => {
                let offset = packed.find(member, 0, 2)?;
                let mut elements = packed.iter();
                let mut before = 0;
                while elements.offset() < offset {
                    elements.nth(1);
                    before += 1;
                }
                Some((before, element_score(packed.element(packed.after(offset)))))
            }
            View::Large(ranked) => ranked.rank(member),
        }
    }

    /// The member of this rank and its score.
    pub fn get(&self, rank: usize) -> Option<(Element<'_>, f64)> {
        self.range(rank..rank.saturating_add(1)).next()
    }

    /// How many members stand before the edge.
    pub fn rank_of_edge(&self, edge: Edge) -> usize {
        match self.0.view() {
            View::Small(_) => {
                let before = |score: f64| match edge {
                    Edge::Before(other) => score < other,
                    Edge::After(other) => score <= other,
                };
                self.iter().take_while(|(_, score)| before(*score)).count()
            }
            View::Large(ranked) => ranked.rank_of_edge(edge),
        }
    }

    /// The ranks between two edges.
    pub fn score_range(&self, min: Edge, max: Edge) -> Range<usize> {
        let start = self.rank_of_edge(min);
        start..self.rank_of_edge(max).max(start)
    }

    /// How many members stand before the edge. Where not all members have one score the order of
    /// members is not the set's, and the answer is some number, as in Redis.
    pub fn rank_of_lex_edge(&self, edge: LexEdge<'_>) -> usize {
        let successor;
        let member = match edge {
            LexEdge::First => return 0,
            LexEdge::Last => return self.len(),
            LexEdge::Before(member) => member,
            LexEdge::After(member) => {
                // Nothing lies between a string and itself with a zero byte at its end.
                successor = [member, &[0]].concat();
                &successor
            }
        };
        match self.0.view() {
            View::Small(_) => {
                self.iter().take_while(|(other, _)| other.compare(member).is_lt()).count()
            }
            View::Large(ranked) => ranked.rank_of_member(member),
        }
    }

    /// The ranks between two edges.
    pub fn lex_range(&self, min: LexEdge<'_>, max: LexEdge<'_>) -> Range<usize> {
        let start = self.rank_of_lex_edge(min);
        start..self.rank_of_lex_edge(max).max(start)
    }

    fn clip(&self, ranks: Range<usize>) -> Range<usize> {
        let end = ranks.end.min(self.len());
        ranks.start.min(end)..end
    }

    /// The members of these ranks with their scores, in order, from both ends.
    pub fn range(&self, ranks: Range<usize>) -> Members<'_> {
        let ranks = self.clip(ranks);
        match self.0.view() {
            View::Large(ranked) => Members(Form::Ranked(ranked.range(ranks))),
            View::Small(packed) => {
                let front = packed.offset(ranks.start * 2).unwrap_or(0);
                let back = packed.offset(ranks.end * 2).unwrap_or(0);
                Members(Form::Packed { packed, front, back, left: ranks.len() })
            }
        }
    }

    /// All members with their scores, in order.
    pub fn iter(&self) -> Members<'_> {
        self.range(0..self.len())
    }

    /// A random member with its score.
    pub fn random(&self, random: &mut Random) -> Option<(Element<'_>, f64)> {
        match self.0.view() {
            View::Small(packed) => self.get(random.below(packed.len() / 2)),
            View::Large(ranked) => ranked.random(|| random.bits()).map(as_element),
        }
    }

    /// Visits `count` random members, none twice, in no special order; all if there are fewer.
    pub fn sample<'a>(
        &'a self,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(Element<'a>, f64),
    ) {
        let draw = |random: &mut Random| {
            let View::Large(ranked) = self.0.view() else { return None };
            let (member, score) = ranked.random(|| random.bits())?;
            Some((member.as_ptr(), (Element::Str(member), score)))
        };
        let visit = |(member, score)| visit(member, score);
        super::sample(self.len(), count, random, draw, self.iter(), visit);
    }

    /// Visits about `count` members from `cursor` (0 = the start) and returns the cursor to go on
    /// from, 0 at the end. A listpack is visited at once.
    pub fn scan(&self, cursor: u64, count: usize, mut visit: impl FnMut(Element, f64)) -> u64 {
        match self.0.view() {
            View::Small(_) => {
                self.iter().for_each(|(member, score)| visit(member, score));
                0
            }
            View::Large(ranked) => super::scan(ranked.table(), cursor, count, |item| {
                visit(Element::Str(item.member()), item.score());
            }),
        }
    }

    /// The sorted set of a listpack from outside; refused if a member comes twice or has no score.
    pub fn from_packed(packed: Packed, limits: ZsetLimits) -> Result<Zset, Malformed> {
        if !packed.len().is_multiple_of(2) || !packed.is_distinct(2) {
            return Err(Malformed);
        }
        let small = Zset(Compact::small(packed));
        if small.iter().any(|(_, score)| score.is_nan()) {
            return Err(Malformed);
        }
        let in_order = small.iter().is_sorted_by(|(member, score), (other, next)| {
            let follows = || member.compare(other.text(&mut itoa::Buffer::new())).is_lt();
            score < next || score == next && follows()
        });
        let longest = small.iter().map(|(member, _)| member.len()).max().unwrap_or(0);
        if in_order && small.len() <= limits.listpack_entries && longest <= limits.listpack_value {
            return Ok(small);
        }
        let members: Vec<_> = small.iter().map(|(m, score)| (m.to_vec(), score)).collect();
        let members: Vec<_> = members.iter().map(|(m, score)| (&m[..], *score)).collect();
        Ok(Zset::build(&members, limits))
    }

    fn make_large(&mut self) -> &mut Ranked {
        if self.0.is_small() {
            let members: Vec<_> =
                self.iter().map(|(member, score)| (member.to_vec(), score)).collect();
            let members = members.iter().map(|(member, score)| (&member[..], *score));
            self.0.set_large(Ranked::build(members));
        }
        match self.0.view_mut() {
            ViewMut::Large(ranked) => ranked,
            ViewMut::Small(_) => unreachable!("just made large"),
        }
    }
}

/// Puts a member that is not there in its place.
fn insert_packed(packed: &mut Packed, member: &[u8], score: f64) {
    let mut elements = packed.iter();
    let mut offset = 0;
    while let Some(other) = elements.next() {
        let other_score = elements.next().map_or(f64::NAN, element_score);
        let after = other_score > score || other_score == score && other.compare(member).is_gt();
        if after {
            break;
        }
        offset = elements.offset();
    }
    let mut buffer = ryu::Buffer::new();
    packed.insert_pair(offset, Element::new(member), score_element(score, &mut buffer));
}

fn as_element<'a>((member, score): (&'a [u8], f64)) -> (Element<'a>, f64) {
    (Element::Str(member), score)
}

impl fmt::Debug for Zset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Members of a sorted set with their scores, in order, from both ends.
#[derive(Clone)]
pub struct Members<'a>(Form<'a>);

#[derive(Clone)]
enum Form<'a> {
    Packed { packed: &'a Packed, front: usize, back: usize, left: usize },
    Ranked(ranked::Members<'a>),
}

impl<'a> Iterator for Members<'a> {
    type Item = (Element<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Form::Ranked(members) => members.next().map(as_element),
            Form::Packed { packed, front, left, .. } => {
                *left = left.checked_sub(1)?;
                let member = packed.element(*front);
                *front = packed.after(*front);
                let score = element_score(packed.element(*front));
                *front = packed.after(*front);
                Some((member, score))
            }
        }
    }

    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        if let Form::Ranked(members) = &mut self.0 {
            return members.nth(count).map(as_element);
        }
        for _ in 0..count {
            self.next()?;
        }
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.0 {
            Form::Ranked(members) => members.len(),
            Form::Packed { left, .. } => *left,
        };
        (left, Some(left))
    }
}

impl DoubleEndedIterator for Members<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Form::Ranked(members) => members.next_back().map(as_element),
            Form::Packed { packed, back, left, .. } => {
                *left = left.checked_sub(1)?;
                *back = packed.before(*back)?;
                let score = element_score(packed.element(*back));
                *back = packed.before(*back)?;
                Some((packed.element(*back), score))
            }
        }
    }

    fn nth_back(&mut self, count: usize) -> Option<Self::Item> {
        if let Form::Ranked(members) = &mut self.0 {
            return members.nth_back(count).map(as_element);
        }
        for _ in 0..count {
            self.next_back()?;
        }
        self.next_back()
    }
}

impl ExactSizeIterator for Members<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};

    const SMALL: ZsetLimits = ZsetLimits { listpack_entries: 100_000, listpack_value: 100_000 };
    const LARGE: ZsetLimits = ZsetLimits { listpack_entries: 0, listpack_value: 0 };

    /// The order of the model: scores as bits that sort, then members.
    fn key(score: f64, member: &[u8]) -> (i64, Vec<u8>) {
        let bits = (score + 0.0).to_bits() as i64;
        (bits ^ (((bits >> 63) as u64) >> 1) as i64, member.to_vec())
    }

    #[derive(Default)]
    struct Model {
        scores: HashMap<Vec<u8>, f64>,
        order: BTreeMap<(i64, Vec<u8>), f64>,
    }

    impl Model {
        fn set(&mut self, member: &[u8], score: f64) -> Outcome {
            let old = self.scores.get(member).copied();
            if old == Some(score) {
                return Outcome::Same;
            }
            self.scores.insert(member.to_vec(), score);
            if let Some(old) = old {
                self.order.remove(&key(old, member));
            }
            self.order.insert(key(score, member), score);
            old.map_or(Outcome::Added, Outcome::Updated)
        }

        fn remove(&mut self, member: &[u8]) -> Option<f64> {
            let old = self.scores.remove(member)?;
            self.order.remove(&key(old, member));
            Some(old)
        }

        fn list(&self) -> Vec<(Vec<u8>, f64)> {
            self.order.iter().map(|((_, member), score)| (member.clone(), *score)).collect()
        }
    }

    fn check(set: &Zset, model: &Model) {
        if let ZsetView::Ranked(ranked) = set.view() {
            ranked.check();
        }
        let list = model.list();
        assert_eq!(set.len(), list.len());
        assert_eq!(set.is_empty(), list.is_empty());
        let pairs = |(member, score): (Element<'_>, f64)| (member.to_vec(), score);
        assert_eq!(set.iter().map(pairs).collect::<Vec<_>>(), list);
        let back: Vec<_> = set.iter().rev().map(pairs).collect();
        assert!(back.iter().rev().eq(&list));
        for (rank, (member, score)) in list.iter().enumerate().step_by(list.len() / 50 + 1) {
            assert_eq!(set.rank(member), Some((rank, *score)));
            assert_eq!(set.score(member), Some(*score));
            assert_eq!(set.get(rank).map(|(member, _)| member.to_vec()).as_ref(), Some(member));
            for (edge, count) in [
                (Edge::Before(*score), list.iter().filter(|other| other.1 < *score).count()),
                (Edge::After(*score), list.iter().filter(|other| other.1 <= *score).count()),
            ] {
                assert_eq!(set.rank_of_edge(edge), count);
            }
        }
        assert_eq!(set.get(list.len()), None);
        assert_eq!(set.rank_of_edge(Edge::Before(f64::NEG_INFINITY)), 0);
        assert_eq!(set.rank_of_edge(Edge::After(f64::INFINITY)), list.len());
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set(Vec<u8>, f64),
        Remove(Vec<u8>),
        RemoveRange(usize, usize),
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0u32..3000).prop_map(|number| format!("element:{number:012}").into_bytes()),
            1 => (0u32..300).prop_map(|number| number.to_string().into_bytes()),
            1 => proptest::collection::vec(0u8..3, 0..12),
            1 => (0usize..40).prop_map(|len| vec![b'x'; len * 20]),
        ]
    }

    fn score() -> impl Strategy<Value = f64> {
        prop_oneof![
            3 => Just(0.0),
            3 => (-4i32..4).prop_map(f64::from),
            2 => (0u32..100_000).prop_map(|number| f64::from(number) / 8.0),
            1 => prop_oneof![
                Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(-0.0), Just(1e300),
                Just(-1e-300), Just(9007199254740993.0), Just(1e17), Just(0.1),
            ],
        ]
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            30 => (member(), score()).prop_map(|(member, score)| Step::Set(member, score)),
            15 => member().prop_map(Step::Remove),
            1 => (0usize..2000, 0usize..60).prop_map(|(at, count)| Step::RemoveRange(at, count)),
        ];
        proptest::collection::vec(step, 0..if cfg!(miri) { 60 } else { 1500 })
    }

    fn run(steps: &[Step], limits: ZsetLimits) {
        let mut set = Zset::default();
        set.expect_members(1, 1, limits);
        let mut model = Model::default();
        for (index, step) in steps.iter().enumerate() {
            match step {
                Step::Set(member, score) => {
                    assert_eq!(set.set(member, *score, limits), model.set(member, *score));
                }
                Step::Remove(member) => assert_eq!(set.remove(member), model.remove(member)),
                Step::RemoveRange(at, count) => {
                    let list = model.list();
                    let gone = list.iter().skip(*at).take(*count);
                    assert_eq!(set.remove_range(*at..at + count), gone.clone().count());
                    gone.for_each(|(member, _)| {
                        model.remove(member);
                    });
                }
            }
            if index % 256 == 0 {
                check(&set, &model);
            }
        }
        check(&set, &model);
        check(&set.clone(), &model);
        let list = model.list();
        let mut pairs: Vec<_> = list.iter().map(|(member, score)| (&member[..], *score)).collect();
        pairs.reverse();
        let built = Zset::build(&pairs, limits);
        assert_eq!(built.encoding(), if pairs.is_empty() { "listpack" } else { set.encoding() });
        check(&built, &model);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 96 }))]

        #[test]
        fn small_sets_hold_what_the_model_holds(steps in steps()) {
            run(&steps[..steps.len().min(300)], SMALL);
        }

        #[test]
        fn large_sets_hold_what_the_model_holds(steps in steps()) {
            run(&steps, LARGE);
        }

        #[test]
        fn lexical_ranges_are_those_of_the_order(
            members in proptest::collection::btree_set(member(), 0..200),
            edge in member(),
            limits in prop_oneof![Just(SMALL), Just(LARGE)],
        ) {
            let pairs: Vec<(&[u8], f64)> =
                members.iter().map(|member| (&member[..], 3.0)).collect();
            let set = Zset::build(&pairs, limits);
            let below = members.iter().filter(|member| **member < edge).count();
            let up_to = members.iter().filter(|member| **member <= edge).count();
            prop_assert_eq!(set.rank_of_lex_edge(LexEdge::Before(&edge)), below);
            prop_assert_eq!(set.rank_of_lex_edge(LexEdge::After(&edge)), up_to);
            prop_assert_eq!(set.lex_range(LexEdge::First, LexEdge::Last), 0..members.len());
            let nothing = set.lex_range(LexEdge::After(&edge), LexEdge::Before(&edge));
            prop_assert_eq!(nothing, up_to..up_to);
        }
    }

    #[test]
    fn many_members_in_every_order() {
        let count = if cfg!(miri) { 300u64 } else { 60_000 };
        let mix = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let scores: [fn(u64) -> f64; 4] = [
            |_| 0.0,
            |n| n as f64,
            |n| -(n as f64),
            |n| (n.wrapping_mul(0x9e37_79b9) % 1000) as f64,
        ];
        for score in scores {
            let mut set = Zset::default();
            let mut model = Model::default();
            for number in 0..count {
                let member = format!("element:{:012}", mix(number) % count);
                let score = score(number);
                let outcome = set.set(member.as_bytes(), score, ZsetLimits::default());
                assert_eq!(outcome, model.set(member.as_bytes(), score));
            }
            check(&set, &model);
            // Down to nothing, in another order.
            for number in 0..count {
                let member = format!("element:{:012}", (number * 7919) % count);
                assert_eq!(set.remove(member.as_bytes()), model.remove(member.as_bytes()));
                if number % (count / 4) == 0 {
                    check(&set, &model);
                }
            }
            check(&set, &model);
        }
    }

    #[test]
    fn forms_change_as_in_redis() {
        let limits = ZsetLimits { listpack_entries: 3, listpack_value: 5 };
        let mut set = Zset::default();
        for member in [b"a", b"b", b"c"] {
            set.set(member, 1.0, limits);
        }
        assert_eq!(set.encoding(), "listpack");
        assert_eq!(set.set(b"a", 2.0, limits), Outcome::Updated(1.0));
        assert_eq!(set.encoding(), "listpack");
        set.set(b"d", 1.0, limits);
        assert_eq!(set.encoding(), "skiplist");
        let mut set = Zset::default();
        set.set(b"12345", 1.0, limits);
        assert_eq!(set.encoding(), "listpack");
        set.set(b"123456", 1.0, limits);
        assert_eq!(set.encoding(), "skiplist");
        assert_eq!(size_of::<Zset>(), 8);
    }

    #[test]
    fn scan_and_sample_see_every_member() {
        let count = if cfg!(miri) { 60 } else { 5000 };
        for limits in [SMALL, LARGE] {
            let names: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
            let pairs: Vec<(&[u8], f64)> =
                names.iter().zip(0..).map(|(name, n)| (name.as_bytes(), f64::from(n))).collect();
            let set = Zset::build(&pairs, limits);
            let mut seen = std::collections::HashSet::new();
            let mut cursor = 0;
            loop {
                cursor = set.scan(cursor, 10, |member, score| {
                    assert_eq!(set.score(&member.to_vec()), Some(score));
                    seen.insert(member.to_vec());
                });
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(seen.len(), pairs.len());
            let mut random = Random::new(5);
            for wanted in [0, 1, 10, pairs.len() - 1, pairs.len() + 5] {
                let mut drawn = std::collections::HashSet::new();
                set.sample(wanted, &mut random, |member, score| {
                    assert_eq!(set.score(&member.to_vec()), Some(score));
                    drawn.insert(member.to_vec());
                });
                assert_eq!(drawn.len(), wanted.min(pairs.len()));
            }
            assert!(set.random(&mut random).is_some());
        }
        assert_eq!(Zset::default().random(&mut Random::new(1)), None);
    }

    #[test]
    fn listpacks_from_outside_are_checked() {
        let pack = |words: &[&str]| words.iter().map(|word| word.as_bytes()).collect::<Packed>();
        let limits = ZsetLimits::default();
        let set = Zset::from_packed(pack(&["b", "2.5", "a", "1", "c", "inf"]), limits);
        let set = set.expect("sound");
        assert_eq!(set.rank(b"a"), Some((0, 1.0)));
        assert_eq!(set.rank(b"c"), Some((2, f64::INFINITY)));
        for words in [&["a"][..], &["a", "x"], &["a", "nan"], &["a", "1", "a", "2"]] {
            assert!(Zset::from_packed(pack(words), limits).is_err(), "{words:?}");
        }
        let limits = ZsetLimits { listpack_entries: 1, listpack_value: 64 };
        let set = Zset::from_packed(pack(&["b", "2", "a", "1"]), limits).expect("sound");
        assert_eq!(set.encoding(), "skiplist");
    }
}
