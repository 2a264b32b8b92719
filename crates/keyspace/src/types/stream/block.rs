//! One block of a stream: up to a hundred entries in a listpack, laid out as Redis lays out its
//! nodes (t_stream.c), so that RDB files hold blocks as they are.
//!
//! ```text
//!  | bytes u32 | elements u16 | master | entry | entry | ... | ff |
//!
//!  master:  count | deleted | fields | name ... name | 0
//!  entry:   flags | ms | seq | value ... value | back               SAME_FIELDS
//!           flags | ms | seq | fields | name | value | ... | back   otherwise
//! ```
//!
//! `count` and `deleted` say how many entries are live and how many are only marked; the names are
//! those of the block's first entry; `ms` and `seq` are differences to the block's first id; `back`
//! is the number of elements from `flags` to itself, so that entries can be read from the right.
//!
//! **Invariant:** every entry is whole and ids ascend: [`Block::from_listpack`] checks what comes
//! from outside.

use super::id::StreamId;
use crate::raw::listpack::{self, Element, Encoded};
use crate::raw::packed::{Malformed, size_class};

/// The entry is only marked as deleted.
const DELETED: i64 = 1;
/// The entry's field names are the block's.
const SAME_FIELDS: i64 = 2;

const HEADER: usize = 6;
const END: u8 = 0xff;
/// Elements of an entry besides names and values: flags, ms, seq, back.
const FIXED: i64 = 4;

/// See the module.
#[derive(Clone)]
pub struct Block {
    /// The whole listpack.
    listpack: Vec<u8>,
}

/// What stands before a block's entries.
#[derive(Clone, Copy)]
struct Master {
    /// Number of names.
    fields: usize,
    /// Where the first name is.
    names_at: usize,
    /// Where the first entry is.
    entries_at: usize,
}

/// One live or deleted entry, as it lies in its block.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// Its id.
    pub id: StreamId,
    bytes: &'a [u8],
    flags_at: usize,
    is_deleted: bool,
    fields: usize,
    /// Where the block's names are, if they are this entry's.
    names_at: Option<usize>,
    values_at: usize,
}

/// An entry's names and values.
#[derive(Clone)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    name_at: Option<usize>,
    value_at: usize,
    left: usize,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Element<'a>, Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.name_at {
            Some(at) => take(self.bytes, at),
            None => take(self.bytes, &mut self.value_at),
        };
        Some((name, take(self.bytes, &mut self.value_at)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Fields<'_> {}

impl<'a> Entry<'a> {
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.fields
    }

    /// Whether there is no field: never, for an entry that was added.
    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    /// The names and values, in order.
    pub fn fields(&self) -> Fields<'a> {
        let (bytes, left) = (self.bytes, self.fields);
        Fields { bytes, name_at: self.names_at, value_at: self.values_at, left }
    }
}

/// The element at `at`, which moves on.
#[inline]
fn take<'a>(bytes: &'a [u8], at: &mut usize) -> Element<'a> {
    let element = listpack::read(bytes, *at);
    *at = listpack::after(bytes, *at);
    element
}

/// The integer at `at`, which moves on.
#[inline]
fn take_int(bytes: &[u8], at: &mut usize) -> i64 {
    take(bytes, at).int().unwrap_or(0)
}

fn skip(bytes: &[u8], at: usize, count: usize) -> usize {
    (0..count).fold(at, |at, _| listpack::after(bytes, at))
}

impl Block {
    /// A block without entries whose names will be those of `fields`.
    pub fn new<'f>(fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])>) -> Block {
        let mut listpack = vec![0; HEADER];
        let count = fields.len();
        for number in [0, 0, count as i64] {
            Encoded::element(Element::Int(number)).append_to(&mut listpack);
        }
        fields.for_each(|(name, _)| Encoded::new(name).append_to(&mut listpack));
        Encoded::element(Element::Int(0)).append_to(&mut listpack);
        listpack.push(END);
        let mut block = Block { listpack };
        block.set_header(Some(count + 4));
        block
    }

    /// The whole listpack, as RDB files hold it.
    pub fn listpack(&self) -> &[u8] {
        &self.listpack
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        size_class(self.listpack.capacity())
    }

    /// Gives back what a block that takes no more entries has too much.
    pub fn seal(&mut self) {
        self.listpack.shrink_to_fit();
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.listpack[HEADER..self.listpack.len() - 1]
    }

    fn set_header(&mut self, elements: Option<usize>) {
        let total = u32::try_from(self.listpack.len()).unwrap_or(u32::MAX);
        self.listpack[..4].copy_from_slice(&total.to_le_bytes());
        let count = elements.and_then(|count| u16::try_from(count).ok()).unwrap_or(u16::MAX);
        self.listpack[4..6].copy_from_slice(&count.to_le_bytes());
    }

    fn element_count(&self) -> Option<usize> {
        let count = u16::from_le_bytes([self.listpack[4], self.listpack[5]]);
        (count != u16::MAX).then_some(count.into())
    }

    #[inline]
    fn master(&self) -> Master {
        let bytes = self.bytes();
        let mut at = skip(bytes, 0, 2);
        let fields = take_int(bytes, &mut at) as usize;
        Master { fields, names_at: at, entries_at: skip(bytes, at, fields + 1) }
    }

    /// Number of live entries, and of those only marked as deleted.
    #[inline]
    pub fn counts(&self) -> (usize, usize) {
        let mut at = 0;
        let live = take_int(self.bytes(), &mut at);
        (live as usize, take_int(self.bytes(), &mut at) as usize)
    }

    fn set_counts(&mut self, live: usize, deleted: usize) {
        let second = listpack::after(self.bytes(), 0);
        self.replace(second, deleted as i64);
        self.replace(0, live as i64);
    }

    /// Puts an integer in the place of an element.
    #[inline]
    fn replace(&mut self, at: usize, number: i64) {
        let old = listpack::after(self.bytes(), at) - at;
        let at = at + HEADER;
        let element = Encoded::element(Element::Int(number));
        if element.size() == 2 && old == 2 {
            self.listpack[at] = number as u8;
            return;
        }
        let mut bytes = Vec::with_capacity(element.size());
        element.append_to(&mut bytes);
        self.listpack.splice(at..at + old, bytes);
        self.set_header(self.element_count());
    }

    /// Adds an entry behind all others; `first` is the block's first id, `id` comes after all.
    pub fn push<'f, I>(&mut self, first: StreamId, id: StreamId, fields: I)
    where
        I: ExactSizeIterator<Item = (&'f [u8], &'f [u8])> + Clone,
    {
        let count = fields.len();
        let same = self.has_names(fields.clone());
        self.make_room(fields.clone());
        let (live, deleted) = self.counts();
        let elements = self.element_count();
        self.listpack.pop();
        let out = &mut self.listpack;
        let number = |out: &mut Vec<u8>, number: i64| {
            Encoded::element(Element::Int(number)).append_to(out);
        };
        number(out, if same { SAME_FIELDS } else { 0 });
        number(out, id.ms.wrapping_sub(first.ms) as i64);
        number(out, id.seq.wrapping_sub(first.seq) as i64);
        let back = if same { count as i64 + FIXED - 1 } else { 2 * count as i64 + FIXED };
        if same {
            fields.for_each(|(_, value)| Encoded::new(value).append_to(out));
        } else {
            number(out, count as i64);
            for (name, value) in fields {
                Encoded::new(name).append_to(out);
                Encoded::new(value).append_to(out);
            }
        }
        number(out, back);
        out.push(END);
        self.set_header(elements.map(|elements| elements + back as usize + 1));
        self.set_counts(live + 1, deleted);
    }

    /// Grows by a quarter, so that a small stream wastes little and a large one seldom moves.
    #[inline]
    fn make_room<'f>(&mut self, fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) {
        let bytes: usize = fields.map(|(name, value)| name.len() + value.len() + 4).sum();
        let (len, room) = (self.listpack.len(), self.listpack.capacity() - self.listpack.len());
        if room < bytes + 32 {
            let wanted = size_class(len + (bytes + 32).max(len / 4));
            self.listpack.reserve_exact(wanted - len);
        }
    }

    /// Whether the block's names are those of `fields`.
    #[inline]
    fn has_names<'f>(&self, fields: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])>) -> bool {
        let bytes = self.bytes();
        let mut at = skip(bytes, 0, 2);
        let count = take_int(bytes, &mut at) as usize;
        count == fields.len() && fields.into_iter().all(|(name, _)| take(bytes, &mut at).is(name))
    }

    #[inline]
    fn entry(&self, first: StreamId, master: &Master, flags_at: usize) -> (Entry<'_>, usize) {
        let bytes = self.bytes();
        let mut at = flags_at;
        let flags = take_int(bytes, &mut at);
        let ms = take_int(bytes, &mut at) as u64;
        let seq = take_int(bytes, &mut at) as u64;
        let same = flags & SAME_FIELDS != 0;
        let fields = if same { master.fields } else { take_int(bytes, &mut at) as usize };
        let entry = Entry {
            id: StreamId::new(first.ms.wrapping_add(ms), first.seq.wrapping_add(seq)),
            bytes,
            flags_at,
            is_deleted: flags & DELETED != 0,
            fields,
            names_at: same.then_some(master.names_at),
            values_at: at,
        };
        let values = if same { fields } else { 2 * fields };
        (entry, skip(bytes, at, values + 1))
    }

    /// Every live entry, from either end, of a block that has this first id.
    pub fn entries(&self, first: StreamId) -> Entries<'_> {
        let master = self.master();
        let (front, back) = (master.entries_at, self.bytes().len());
        Entries { block: self, first, master, front, back }
    }

    /// The id of the last entry, deleted or not.
    pub fn last_id(&self, first: StreamId) -> Option<StreamId> {
        let mut entries = self.entries(first);
        entries.previous().map(|entry| entry.id)
    }

    /// Marks the entry with this id as deleted; false if there is no such live entry.
    pub fn delete(&mut self, first: StreamId, id: StreamId) -> bool {
        let found = self.entries(first).find(|entry| entry.id >= id);
        let Some(at) = found.filter(|entry| entry.id == id).map(|entry| entry.flags_at) else {
            return false;
        };
        self.mark(at);
        let (live, deleted) = self.counts();
        self.set_counts(live - 1, deleted + 1);
        true
    }

    /// Marks entries from the first on as deleted as long as `stop` allows; returns how many.
    pub fn delete_front(
        &mut self,
        first: StreamId,
        mut stop: impl FnMut(StreamId) -> bool,
    ) -> usize {
        let entries = self.entries(first).take_while(|entry| !stop(entry.id));
        let places: Vec<usize> = entries.map(|entry| entry.flags_at).collect();
        // A mark is as long as none: the places stay.
        places.iter().for_each(|at| self.mark(*at));
        let (live, deleted) = self.counts();
        self.set_counts(live - places.len(), deleted + places.len());
        places.len()
    }

    fn mark(&mut self, flags_at: usize) {
        let flags = listpack::read(self.bytes(), flags_at).int().unwrap_or(0);
        self.replace(flags_at, flags | DELETED);
    }

    /// The block of a listpack from anywhere, with its first id; every byte is checked.
    pub fn from_listpack(first: StreamId, listpack: &[u8]) -> Result<Block, Malformed> {
        let (header, rest) = listpack.split_first_chunk::<HEADER>().ok_or(Malformed)?;
        let [a, b, c, d, low, high] = *header;
        let (end, bytes) = rest.split_last().ok_or(Malformed)?;
        if u32::from_le_bytes([a, b, c, d]) as usize != listpack.len() || *end != END {
            return Err(Malformed);
        }
        let sound = listpack::validate(bytes).ok_or(Malformed)?;
        let stated = u16::from_le_bytes([low, high]);
        if stated != u16::MAX && usize::from(stated) != sound.count {
            return Err(Malformed);
        }
        check(first, bytes)?;
        let block = Block { listpack: listpack.to_vec() };
        Ok(block)
    }
}

/// Reads elements whose number is not known to suffice.
struct Checked<'a> {
    bytes: &'a [u8],
    at: usize,
    read: i64,
}

impl Checked<'_> {
    fn int(&mut self) -> Result<i64, Malformed> {
        if self.at >= self.bytes.len() {
            return Err(Malformed);
        }
        self.read += 1;
        take(self.bytes, &mut self.at).int().ok_or(Malformed)
    }

    fn count(&mut self) -> Result<usize, Malformed> {
        // No more elements than bytes: what follows is bounded by the block.
        let count = usize::try_from(self.int()?).map_err(|_| Malformed)?;
        if count > self.bytes.len() { Err(Malformed) } else { Ok(count) }
    }

    fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        for _ in 0..count {
            if self.at >= self.bytes.len() {
                return Err(Malformed);
            }
            self.at = listpack::after(self.bytes, self.at);
        }
        self.read += count as i64;
        Ok(())
    }
}

/// Checks that sound elements are a block: counts, flags, order of ids, every `back`.
fn check(first: StreamId, bytes: &[u8]) -> Result<(), Malformed> {
    let mut reader = Checked { bytes, at: 0, read: 0 };
    let (live, deleted, names) = (reader.count()?, reader.count()?, reader.count()?);
    reader.skip(names)?;
    if reader.int()? != 0 {
        return Err(Malformed);
    }
    let (mut seen, mut marked) = (0, 0);
    let mut last = None;
    while reader.at < bytes.len() {
        reader.read = 0;
        let flags = reader.int()?;
        let (ms, seq) = (reader.int()? as u64, reader.int()? as u64);
        let id = StreamId::new(first.ms.wrapping_add(ms), first.seq.wrapping_add(seq));
        if flags & !(DELETED | SAME_FIELDS) != 0 || id < first || last.is_some_and(|l| l >= id) {
            return Err(Malformed);
        }
        last = Some(id);
        let values = if flags & SAME_FIELDS != 0 { names } else { 2 * reader.count()? };
        reader.skip(values)?;
        let back = reader.read;
        if reader.int()? != back {
            return Err(Malformed);
        }
        seen += 1;
        marked += usize::from(flags & DELETED != 0);
    }
    if marked == deleted && seen - marked == live { Ok(()) } else { Err(Malformed) }
}

/// The live entries of a block, from either end.
#[derive(Clone)]
pub struct Entries<'a> {
    block: &'a Block,
    first: StreamId,
    master: Master,
    front: usize,
    back: usize,
}

impl<'a> Entries<'a> {
    /// The next entry from the right, deleted or not.
    fn previous(&mut self) -> Option<Entry<'a>> {
        if self.front >= self.back {
            return None;
        }
        let bytes = self.block.bytes();
        let mut at = listpack::before(bytes, self.back);
        let back = listpack::read(bytes, at).int().unwrap_or(0);
        for _ in 0..back {
            at = listpack::before(bytes, at);
        }
        self.back = at;
        Some(self.block.entry(self.first, &self.master, at).0)
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'a>> {
        while self.front < self.back {
            let (entry, after) = self.block.entry(self.first, &self.master, self.front);
            self.front = after;
            if !entry.is_deleted {
                return Some(entry);
            }
        }
        None
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        loop {
            let entry = self.previous()?;
            if !entry.is_deleted {
                return Some(entry);
            }
        }
    }
}
