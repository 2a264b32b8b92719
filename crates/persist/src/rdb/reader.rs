//! Cuts a file into entries, in order and in batches, from anything that can be read.
//!
//! A [`Framer`] reads ahead in chunks and finds where each entry ends without building it; a batch
//! of whole entries can then be decoded on any thread. A [`Reader`] does both on one.
//!
//! ```text
//!  chunk:  | entry | entry | entry | ent       batch = the whole ones, the rest begins the next
//! ```
//!
//! **Invariant:** a chunk grows only as bytes really arrive, at most twofold at a time; a length
//! beyond the source's end is refused before anything is read for it, where the end is known.

use std::io::Read;

use crc_fast::{CrcAlgorithm, Digest};
use keyspace::value::Value;

use super::cursor::{Cursor, Scratch};
use super::decode::{Decoder, Limits};
use super::error::{Error, Why};
use super::format::{self, HEADER_BYTES, Version};
use super::skip::{module_name, skip_module_data, skip_value};

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 << 10;
/// What is being read where a file's checksum is wrong.
pub const CHECKSUM: &str = "the checksum";
/// Bytes of the checksum.
const TRAILER_BYTES: usize = 8;

/// How recently or how often a key was used, where the file tells.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It does not.
    #[default]
    Unknown,
    /// So many seconds ago.
    IdleSeconds(u64),
    /// LFU's counter.
    Frequency(u8),
}

/// Where an entry lies in its batch, and what is known without decoding it.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Where it begins, with its time to live, in bytes from the batch's start.
    pub start: usize,
    /// Where its key begins, in bytes from the batch's start.
    pub key_at: usize,
    /// Where its value ends.
    pub end: usize,
    /// The value's type.
    pub kind: u8,
    /// Its database.
    pub db: usize,
    /// When it expires, in milliseconds since 1970.
    pub expire_at: Option<i64>,
    /// What the eviction policy knew.
    pub last_use: Use,
}

/// What a file tells beside entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A name and its value, about the file.
    Aux(Vec<u8>, Vec<u8>),
    /// A library's source.
    Function(Vec<u8>),
    /// Data of a module, with its name, that belongs to no key.
    ModuleAux(String),
    /// How many keys this database has, and how many of them expire.
    Sizes {
        /// The database.
        db: usize,
        /// Its keys.
        keys: u64,
        /// Those that expire.
        volatile: u64,
    },
}

/// Whole entries, to be decoded anywhere.
pub struct Batch {
    bytes: Vec<u8>,
    base: u64,
    /// Whether the opcode of the file's end is the last byte.
    has_end: bool,
    /// The entries.
    pub frames: Vec<Frame>,
    /// The file's version.
    pub version: Version,
}

impl Default for Batch {
    fn default() -> Self {
        let version = Version { number: format::VERSION_WRITTEN };
        Batch { bytes: Vec::new(), base: 0, has_end: false, frames: Vec::new(), version }
    }
}

impl Batch {
    /// Where the batch ends in the file, without the opcode of the file's end.
    pub fn sound_end(&self) -> u64 {
        self.base + self.bytes.len() as u64 - u64::from(self.has_end)
    }

    /// Where a place in the batch lies in the file.
    pub fn offset(&self, at: usize) -> u64 {
        self.base + at as u64
    }

    /// A cursor at a frame's key that ends with its value.
    #[inline]
    pub fn cursor(&self, frame: &Frame) -> Cursor<'_> {
        Cursor::new(&self.bytes[frame.key_at..frame.end], self.base + frame.key_at as u64)
    }
}

/// How a file's checksum is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// It must be right, or 0.
    Verify,
    /// It is not looked at: `rdbchecksum no`.
    Ignore,
}

/// See the module.
pub struct Framer<R> {
    source: R,
    /// Bytes of the source in all, where that is known.
    total: Option<u64>,
    chunk: Vec<u8>,
    /// Where the chunk begins in the source.
    base: u64,
    is_drained: bool,
    is_done: bool,
    digest: Option<Digest>,
    version: Version,
    db: usize,
    /// What was found beside entries since they were last taken out, each with its offset.
    pub notes: Vec<(u64, Note)>,
}

/// What comes before an entry's key.
#[derive(Default)]
struct Head {
    expire_at: Option<i64>,
    last_use: Use,
}

/// What one step of the scan found.
enum Step {
    Entry(Frame),
    Note(Note),
    Select(usize),
    Nothing,
    End,
}

impl<R: Read> Framer<R> {
    /// Reads the header. `total` are the bytes of the source, if it is known how many there are.
    pub fn new(source: R, total: Option<u64>, checksum: Checksum) -> Result<Framer<R>, Error> {
        let mut framer = Framer {
            source,
            total,
            chunk: Vec::new(),
            base: 0,
            is_drained: false,
            is_done: false,
            digest: None,
            version: Version { number: format::VERSION_WRITTEN },
            db: 0,
            notes: Vec::new(),
        };
        framer.fill(HEADER_BYTES)?;
        let mut cursor = Cursor::new(&framer.chunk, 0);
        let header = cursor.reading("the header").array()?;
        let refuse = |why| Error { offset: 0, reading: "the header", why };
        framer.version = Version::of_header(&header).map_err(refuse)?;
        if checksum == Checksum::Verify && framer.version.has_checksum() {
            framer.digest = Some(Digest::new(CrcAlgorithm::Crc64Redis));
        }
        framer.give(HEADER_BYTES, &mut Vec::new());
        Ok(framer)
    }

    /// The file's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes of the source that were taken so far.
    pub fn offset(&self) -> u64 {
        self.base
    }

    /// Whether the file's end was found, if not its checksum.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// The database that was selected last.
    pub fn db(&self) -> usize {
        self.db
    }

    /// After an error: the key and the type of the entry that could not be read, if that can be
    /// told.
    pub fn broken_key(&self) -> Option<(Vec<u8>, u8)> {
        let mut cursor = Cursor::new(&self.chunk, self.base);
        loop {
            match cursor.byte().ok()? {
                format::OP_EXPIRETIME_MS => drop(cursor.take(8).ok()?),
                format::OP_EXPIRETIME => drop(cursor.take(4).ok()?),
                format::OP_IDLE => drop(cursor.length().ok()?),
                format::OP_FREQ => drop(cursor.byte().ok()?),
                kind if kind <= format::HASH_LISTPACK_EX => {
                    return Some((cursor.string(&mut Scratch::default()).ok()?.to_vec(), kind));
                }
                _ => return None,
            }
        }
    }

    /// Reads until the chunk has at least `wanted` bytes, or a chunk's worth, or the source ends.
    fn fill(&mut self, wanted: usize) -> Result<(), Error> {
        let wanted = wanted.max(CHUNK_BYTES);
        if self.is_drained || self.chunk.len() >= wanted {
            return Ok(());
        }
        let more = (wanted - self.chunk.len()) as u64;
        let read = self.source.by_ref().take(more).read_to_end(&mut self.chunk);
        let read = read.map_err(|error| Error {
            offset: self.base + self.chunk.len() as u64,
            reading: "the file",
            why: Why::Read(error),
        })?;
        self.is_drained = (read as u64) < more;
        Ok(())
    }

    /// Hands out the first `len` bytes of the chunk in `out`; what follows begins the next chunk.
    fn give(&mut self, len: usize, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.chunk[len..]);
        std::mem::swap(&mut self.chunk, out);
        out.truncate(len);
        self.base += len as u64;
        if let Some(digest) = &mut self.digest {
            digest.update(out);
        }
    }

    /// Takes the next whole entries; false at the file's end. On an error the batch has the whole
    /// entries before it.
    pub fn batch(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.frames.clear();
        batch.bytes.clear();
        batch.has_end = false;
        batch.base = self.base;
        batch.version = self.version;
        let mut room = CHUNK_BYTES;
        while !self.is_done {
            self.fill(room)?;
            let result = self.scan(batch);
            match result {
                Ok(()) => return Ok(!batch.frames.is_empty() || !self.is_done),
                Err(error) if error.is_short() && self.may_fit(&error) => {
                    if !batch.frames.is_empty() {
                        return Ok(true);
                    }
                    room = self.chunk.len() * 2;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Whether reading on may bring the bytes that an error says are missing.
    fn may_fit(&self, error: &Error) -> bool {
        let Why::Short(missing) = error.why else { return false };
        let have = self.base + self.chunk.len() as u64;
        !self.is_drained && self.total.is_none_or(|total| missing <= total.saturating_sub(have))
    }

    /// Finds whole entries in the chunk, until it ends in the middle of one.
    fn scan(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let mut cursor = Cursor::new(&self.chunk, self.base);
        let mut sound = 0;
        let mut outcome = Ok(());
        while outcome.is_ok() && cursor.left() > 0 {
            let offset = cursor.offset();
            match step(&mut cursor, self.version, self.db) {
                Ok(Step::End) => {
                    self.is_done = true;
                    sound = cursor.position();
                    break;
                }
                Ok(Step::Entry(frame)) => batch.frames.push(frame),
                Ok(Step::Note(note)) => self.notes.push((offset, note)),
                Ok(Step::Select(db)) => self.db = db,
                Ok(Step::Nothing) => {}
                Err(error) => outcome = Err(error),
            }
            if outcome.is_ok() {
                sound = cursor.position();
            }
        }
        let ended = *cursor.reading("the end");
        if self.is_drained && outcome.is_ok() && !self.is_done && cursor.left() == 0 {
            outcome = Err(ended.error(Why::Short(1)));
        }
        batch.base = self.base;
        batch.has_end = self.is_done;
        let mut bytes = std::mem::take(&mut batch.bytes);
        self.give(sound, &mut bytes);
        batch.bytes = bytes;
        if self.is_done { self.trailer() } else { outcome }
    }

    /// Reads the checksum and compares it.
    fn trailer(&mut self) -> Result<(), Error> {
        if !self.version.has_checksum() {
            return Ok(());
        }
        self.fill(TRAILER_BYTES)?;
        let mut cursor = Cursor::new(&self.chunk, self.base);
        let stated = u64::from_le_bytes(cursor.reading(CHECKSUM).array()?);
        let computed = self.digest.take().map(|digest| digest.finalize());
        if let Some(computed) = computed
            && stated != 0
            && stated != computed
        {
            let text = format!(
                "Wrong RDB checksum expected: ({stated:x}) but got ({computed:x}). Aborting now."
            );
            let why = Why::Refused(text);
            return Err(Error { offset: self.base, reading: CHECKSUM, why });
        }
        self.give(TRAILER_BYTES, &mut Vec::new());
        Ok(())
    }

    /// What follows the file in its source, as far as it has been read, and the source: after the
    /// end an append-only file may go on.
    pub fn into_rest(self) -> (Vec<u8>, R) {
        (self.chunk, self.source)
    }
}

/// Reads one thing: an entry, or one of the opcodes between entries.
fn step(cursor: &mut Cursor<'_>, version: Version, db: usize) -> Result<Step, Error> {
    let start = cursor.position();
    let mut head = Head::default();
    let mut is_entry = false;
    loop {
        let at = *cursor;
        let code = cursor.reading("an opcode").byte()?;
        match code {
            format::OP_EXPIRETIME_MS => {
                head.expire_at = Some(cursor.reading("a time to live").milliseconds()?);
            }
            format::OP_EXPIRETIME => {
                let seconds = i32::from_le_bytes(cursor.reading("a time to live").array()?);
                head.expire_at = Some(i64::from(seconds) * 1000);
            }
            format::OP_IDLE => {
                head.last_use = Use::IdleSeconds(cursor.reading("an idle time").length()?);
            }
            format::OP_FREQ => {
                head.last_use = Use::Frequency(cursor.reading("a frequency").byte()?);
            }
            format::OP_SLOT_INFO..=format::OP_EOF if is_entry => {
                return Err(at.damaged("a key's time to live without the key"));
            }
            format::OP_KEY_META => {
                let what = if version.is_valkey() {
                    "a slot that is being imported (Valkey 9)"
                } else {
                    "metadata of keys (Redis 8.6)"
                };
                return Err(at.error(Why::Refused(format!("{what} cannot be read"))));
            }
            format::OP_SLOT_INFO..=format::OP_EOF => return opcode(code, cursor, db),
            kind => return entry(kind, start, head, cursor, version, db),
        }
        is_entry = true;
    }
}

/// Reads what stands between entries.
fn opcode(code: u8, cursor: &mut Cursor<'_>, db: usize) -> Result<Step, Error> {
    let mut scratch = Scratch::default();
    Ok(match code {
        format::OP_EOF => Step::End,
        format::OP_SELECTDB => {
            let start = *cursor.reading("a database's number");
            let db = cursor.length()?;
            let db = usize::try_from(db).ok().filter(|db| *db < u32::MAX as usize);
            Step::Select(db.ok_or_else(|| start.damaged("no such database"))?)
        }
        format::OP_RESIZEDB => {
            cursor.reading("a database's size");
            Step::Note(Note::Sizes { db, keys: cursor.length()?, volatile: cursor.length()? })
        }
        format::OP_AUX => {
            cursor.reading("an AUX field");
            let name = cursor.string(&mut scratch)?.to_vec();
            Step::Note(Note::Aux(name, cursor.string(&mut scratch)?.to_vec()))
        }
        format::OP_FUNCTION2 => {
            cursor.reading("a library of functions");
            Step::Note(Note::Function(cursor.string(&mut scratch)?.to_vec()))
        }
        format::OP_SLOT_INFO => {
            cursor.reading("a slot's size");
            (0..3).try_for_each(|_| cursor.length().map(|_| ()))?;
            Step::Nothing
        }
        format::OP_MODULE_AUX => {
            let number = cursor.reading("a module's data").length()?;
            if cursor.length()? != 2 {
                return Err(cursor.damaged("a module's data that does not say when it is for"));
            }
            cursor.length()?;
            skip_module_data(cursor)?;
            Step::Note(Note::ModuleAux(module_name(number)))
        }
        _ => {
            let text = "Pre-release function format not supported.";
            return Err(cursor.error(Why::Refused(text.into())));
        }
    })
}

fn entry(
    kind: u8,
    start: usize,
    head: Head,
    cursor: &mut Cursor<'_>,
    version: Version,
    db: usize,
) -> Result<Step, Error> {
    let key_at = cursor.position();
    if kind > format::HASH_LISTPACK_EX || kind == 8 {
        let text = format!("Unknown RDB encoding type {kind}");
        return Err(cursor.error(Why::Refused(text)));
    }
    cursor.reading("a key").skip_text()?;
    skip_value(kind, version, cursor)?;
    let (expire_at, last_use) = (head.expire_at, head.last_use);
    Ok(Step::Entry(Frame { start, key_at, end: cursor.position(), kind, db, expire_at, last_use }))
}

/// An entry by itself.
pub struct Entry {
    /// Its database.
    pub db: usize,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value; nothing if it is a collection without elements.
    pub value: Option<Value>,
    /// When it expires, in milliseconds since 1970.
    pub expire_at: Option<i64>,
    /// What the eviction policy knew.
    pub last_use: Use,
}

/// What a [`Reader`] finds.
pub enum Item {
    /// Something beside entries.
    Note(Note),
    /// A key with its value.
    Entry(Entry),
}

/// Reads a file on one thread, one thing after the other.
pub struct Reader<R> {
    framer: Framer<R>,
    batch: Batch,
    next: usize,
    decoder: Decoder,
    /// An error of the framer, which comes after the entries before it.
    pending: Option<Error>,
}

impl<R: Read> Reader<R> {
    /// Reads the header. `total` are the bytes of the source, if it is known how many there are.
    pub fn new(
        source: R,
        total: Option<u64>,
        checksum: Checksum,
        limits: Limits,
    ) -> Result<Reader<R>, Error> {
        let framer = Framer::new(source, total, checksum)?;
        let decoder = Decoder::new(limits, framer.version());
        Ok(Reader { framer, batch: Batch::default(), next: 0, decoder, pending: None })
    }

    /// The file's version.
    pub fn version(&self) -> Version {
        self.framer.version()
    }

    /// The next thing; nothing at the file's end.
    #[allow(clippy::should_implement_trait)] // It fails for good, an iterator's item does not.
    pub fn next(&mut self) -> Result<Option<Item>, Error> {
        loop {
            if !self.framer.notes.is_empty() {
                return Ok(Some(Item::Note(self.framer.notes.remove(0).1)));
            }
            if let Some(frame) = self.batch.frames.get(self.next) {
                self.next += 1;
                return decoded(&mut self.decoder, &self.batch, frame)
                    .map(|e| Some(Item::Entry(e)));
            }
            if let Some(error) = self.pending.take() {
                return Err(error);
            }
            self.next = 0;
            match self.framer.batch(&mut self.batch) {
                Ok(false) if self.framer.notes.is_empty() => return Ok(None),
                Ok(_) => {}
                Err(error) => self.pending = Some(error),
            }
        }
    }

    /// Bytes of the source that have been cut into entries.
    pub fn offset(&self) -> u64 {
        self.framer.offset()
    }

    /// What follows the file in its source; see [`Framer::into_rest`].
    pub fn into_rest(self) -> (Vec<u8>, R) {
        self.framer.into_rest()
    }
}

/// The entry of a frame.
pub fn decoded(decoder: &mut Decoder, batch: &Batch, frame: &Frame) -> Result<Entry, Error> {
    let mut cursor = batch.cursor(frame);
    let key = cursor.reading("a key").string(&mut decoder.scratch)?.to_vec();
    let value = decoder.value(frame.kind, &mut cursor)?;
    let Frame { db, expire_at, last_use, .. } = *frame;
    Ok(Entry { db, key, value, expire_at, last_use })
}
