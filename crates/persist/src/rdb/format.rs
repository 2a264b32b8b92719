//! The numbers of the RDB format: opcodes, value types, encodings, versions.
//!
//! They are Redis's (`rdb.h`); where Valkey 9 gives a number another meaning the name says so.

use super::error::Why;

/// Loads of a module's aux data, and Valkey 9's slot import or Redis 8.6's key metadata.
pub const OP_KEY_META: u8 = 243;
/// A cluster slot with its sizes: a hint.
pub const OP_SLOT_INFO: u8 = 244;
/// A library of functions.
pub const OP_FUNCTION2: u8 = 245;
/// A library as release candidates of Redis 7.0 wrote it.
pub const OP_FUNCTION_PRE_GA: u8 = 246;
/// Data of a module that belongs to no key.
pub const OP_MODULE_AUX: u8 = 247;
/// Seconds since the next key's last use.
pub const OP_IDLE: u8 = 248;
/// How often the next key was used: LFU's counter.
pub const OP_FREQ: u8 = 249;
/// A name and a value about the file.
pub const OP_AUX: u8 = 250;
/// How many keys the database has, and how many of them expire: a hint.
pub const OP_RESIZEDB: u8 = 251;
/// When the next key expires, in milliseconds.
pub const OP_EXPIRETIME_MS: u8 = 252;
/// When the next key expires, in seconds.
pub const OP_EXPIRETIME: u8 = 253;
/// The database of the keys that follow.
pub const OP_SELECTDB: u8 = 254;
/// The end; the checksum follows.
pub const OP_EOF: u8 = 255;

/// Bytes or a number.
pub const STRING: u8 = 0;
/// Elements one by one.
pub const LIST: u8 = 1;
/// Members one by one.
pub const SET: u8 = 2;
/// Members with scores as text.
pub const ZSET: u8 = 3;
/// Fields and values one by one.
pub const HASH: u8 = 4;
/// Members with scores in binary.
pub const ZSET_2: u8 = 5;
/// A module's value of the time before Redis 4.0.
pub const MODULE_PRE_GA: u8 = 6;
/// A module's value.
pub const MODULE_2: u8 = 7;
/// A hash as a zipmap (before Redis 2.6).
pub const HASH_ZIPMAP: u8 = 9;
/// A list as one ziplist.
pub const LIST_ZIPLIST: u8 = 10;
/// A set of integers.
pub const SET_INTSET: u8 = 11;
/// A sorted set as a ziplist.
pub const ZSET_ZIPLIST: u8 = 12;
/// A hash as a ziplist.
pub const HASH_ZIPLIST: u8 = 13;
/// A list of ziplists.
pub const LIST_QUICKLIST: u8 = 14;
/// A stream as Redis 5 and 6 have it.
pub const STREAM_LISTPACKS: u8 = 15;
/// A hash as a listpack.
pub const HASH_LISTPACK: u8 = 16;
/// A sorted set as a listpack.
pub const ZSET_LISTPACK: u8 = 17;
/// A list of listpacks and of plain long elements.
pub const LIST_QUICKLIST_2: u8 = 18;
/// A stream with the extents of Redis 7.0.
pub const STREAM_LISTPACKS_2: u8 = 19;
/// A set as a listpack (RDB 11).
pub const SET_LISTPACK: u8 = 20;
/// A stream with the consumers' active times (RDB 11).
pub const STREAM_LISTPACKS_3: u8 = 21;
/// In Redis a hash with field times of a release candidate; in Valkey 9 (version 80) HASH_2.
pub const TYPE_22: u8 = 22;
/// A hash with field times as a listpack, of a release candidate.
pub const HASH_LISTPACK_EX_PRE_GA: u8 = 23;
/// A hash with field times (RDB 12).
pub const HASH_METADATA: u8 = 24;
/// A hash with field times as a listpack (RDB 12).
pub const HASH_LISTPACK_EX: u8 = 25;

/// A node of LIST_QUICKLIST_2 that is one long element.
pub const NODE_PLAIN: u64 = 1;
/// A node of LIST_QUICKLIST_2 that is a listpack.
pub const NODE_PACKED: u64 = 2;

/// The version of the files that we write: the lowest that holds all our types but one.
pub const VERSION_WRITTEN: u32 = 10;
/// The version with hashes whose fields expire.
pub const VERSION_FIELD_TIMES: u32 = 12;
/// The newest version of Redis's that we read.
pub const VERSION_MAX: u32 = 14;
/// Valkey's version, under a magic of its own.
pub const VERSION_VALKEY: u32 = 80;
/// The first version whose files end in a checksum.
pub const VERSION_CHECKSUM: u32 = 5;
/// Bytes of magic and version.
pub const HEADER_BYTES: usize = 9;

/// Which family's meaning of a number holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// The number in the header or footer.
    pub number: u32,
}

impl Version {
    /// A version by its number.
    pub fn new(number: u32) -> Result<Version, Why> {
        match number {
            1..=VERSION_MAX | VERSION_VALKEY => Ok(Version { number }),
            _ => Err(Why::Refused(format!("Can't handle RDB format version {number}"))),
        }
    }

    /// The version that a file's first nine bytes tell.
    pub fn of_header(header: &[u8; HEADER_BYTES]) -> Result<Version, Why> {
        let (magic, digits): (&[u8], &[u8]) = match header {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => (b"REDIS", digits),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => (b"VALKEY", digits),
            _ => return Err(Why::Damaged("Wrong signature trying to load DB from file")),
        };
        let number = digits.iter().try_fold(0u32, |number, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0'))
        });
        let number = number.ok_or(Why::Damaged("the version in the header is no number"))?;
        let version = Version::new(number)?;
        if version.is_valkey() != (magic == b"VALKEY") {
            return Err(Why::Refused(format!("Can't handle RDB format version {number}")));
        }
        Ok(version)
    }

    /// Whether Valkey's meanings hold.
    pub fn is_valkey(self) -> bool {
        self.number == VERSION_VALKEY
    }

    /// Whether the file ends in a checksum.
    pub fn has_checksum(self) -> bool {
        self.number >= VERSION_CHECKSUM
    }
}

/// What a value of this type is, for messages: redis-check-rdb's words.
pub fn type_name(kind: u8) -> &'static str {
    const NAMES: [&str; 26] = [
        "string",
        "list-linked",
        "set-hashtable",
        "zset-v1",
        "hash-hashtable",
        "zset-v2",
        "module-pre-release",
        "module-value",
        "",
        "hash-zipmap",
        "list-ziplist",
        "set-intset",
        "zset-ziplist",
        "hash-ziplist",
        "quicklist",
        "stream",
        "hash-listpack",
        "zset-listpack",
        "quicklist-v2",
        "stream-v2",
        "set-listpack",
        "stream-v3",
        "hash-metadata-pre-release",
        "hash-listpack-md-pre-release",
        "hash-metadata",
        "hash-listpack-md",
    ];
    NAMES.get(usize::from(kind)).copied().filter(|name| !name.is_empty()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_both_magics() {
        assert_eq!(Version::of_header(b"REDIS0010"), Ok(Version { number: 10 }));
        assert_eq!(Version::of_header(b"VALKEY080"), Ok(Version { number: 80 }));
        for wrong in [b"REDIS0015", b"REDIS0000", b"REDIS0080", b"VALKEY011", b"VALKEY079"] {
            let Err(Why::Refused(text)) = Version::of_header(wrong) else { panic!("{wrong:?}") };
            assert!(text.starts_with("Can't handle RDB format version "), "{text}");
        }
        assert!(matches!(Version::of_header(b"REDIS00x1"), Err(Why::Damaged(_))));
        assert!(matches!(Version::of_header(b"SQLite fo"), Err(Why::Damaged(_))));
    }
}
