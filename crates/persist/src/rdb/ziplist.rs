//! The small encodings of older Redis versions, turned into listpacks: ziplists and zipmaps.
//!
//! ```text
//!  ziplist: | bytes u32 | tail u32 | count u16 | entries | ff |
//!  entry:   | previous entry's bytes: 1, or fe + 4 | encoding | data |
//!  zipmap:  | count | length key length free value .. | ff |      length: 1 byte, or fe + 4
//! ```
//!
//! The formats' source is Redis 6's `ziplist.c` and `zipmap.c`.

use keyspace::raw::packed::{Element, Malformed, Packed};

const HEADER_BYTES: usize = 10;
/// Marks a length of four bytes, in both formats.
const LONG: u8 = 254;
const END: u8 = 255;

/// Takes bytes off the front, or fails.
fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
    let (front, rest) = bytes.split_at_checked(len).ok_or(Malformed)?;
    *bytes = rest;
    Ok(front)
}

fn array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (front, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    Ok(*front)
}

/// The elements of a ziplist.
pub fn packed_of_ziplist(ziplist: &[u8]) -> Result<Packed, Malformed> {
    let mut rest = ziplist;
    let total = u32::from_le_bytes(array(&mut rest)?) as usize;
    let tail = u32::from_le_bytes(array(&mut rest)?) as usize;
    let count = u16::from_le_bytes(array(&mut rest)?);
    if total != ziplist.len() || rest.last() != Some(&END) {
        return Err(Malformed);
    }
    let mut rest = &rest[..rest.len() - 1];
    let mut packed = Packed::new();
    let mut previous = 0;
    let mut last = HEADER_BYTES;
    let mut entries = 0usize;
    while !rest.is_empty() {
        last = ziplist.len() - 1 - rest.len();
        let stated = match array(&mut rest)? {
            [LONG] => u32::from_le_bytes(array(&mut rest)?) as usize,
            [END] => return Err(Malformed),
            [short] => usize::from(short),
        };
        if stated != previous {
            return Err(Malformed);
        }
        let element = entry(&mut rest)?;
        // What looks like an integer is one here, however it was written there.
        match element {
            Element::Str(bytes) => packed.push_back(bytes),
            number => packed.insert_element(packed.bytes().len(), number),
        }
        previous = ziplist.len() - 1 - rest.len() - last;
        entries += 1;
    }
    let sound = tail == last && (count == u16::MAX || usize::from(count) == entries);
    if sound { Ok(packed) } else { Err(Malformed) }
}

fn entry<'a>(rest: &mut &'a [u8]) -> Result<Element<'a>, Malformed> {
    let [first] = array(rest)?;
    let len = match first >> 6 {
        0 => usize::from(first & 0x3f),
        1 => {
            let [low] = array(rest)?;
            usize::from(first & 0x3f) << 8 | usize::from(low)
        }
        2 => u32::from_be_bytes(array(rest)?) as usize,
        _ => return integer(first, rest).map(Element::Int),
    };
    take(rest, len).map(Element::Str)
}

fn integer(first: u8, rest: &mut &[u8]) -> Result<i64, Malformed> {
    Ok(match first {
        0xc0 => i64::from(i16::from_le_bytes(array(rest)?)),
        0xd0 => i64::from(i32::from_le_bytes(array(rest)?)),
        0xe0 => i64::from_le_bytes(array(rest)?),
        0xf0 => {
            let [a, b, c] = array(rest)?;
            i64::from(i32::from_le_bytes([0, a, b, c]) >> 8)
        }
        0xfe => i64::from(i8::from_le_bytes(array(rest)?)),
        0xf1..=0xfd => i64::from(first) - 0xf1,
        _ => return Err(Malformed),
    })
}

/// The fields and values of a zipmap.
pub fn packed_of_zipmap(zipmap: &[u8]) -> Result<Packed, Malformed> {
    let mut rest = zipmap;
    let [count] = array(&mut rest)?;
    if rest.last() != Some(&END) {
        return Err(Malformed);
    }
    rest = &rest[..rest.len() - 1];
    let mut packed = Packed::new();
    let mut pairs = 0usize;
    while !rest.is_empty() {
        let len = zipmap_length(&mut rest)?;
        packed.push_back(take(&mut rest, len)?);
        let len = zipmap_length(&mut rest)?;
        let [free] = array(&mut rest)?;
        packed.push_back(take(&mut rest, len)?);
        take(&mut rest, usize::from(free))?;
        pairs += 1;
    }
    if pairs == 0 || count < LONG && usize::from(count) != pairs {
        return Err(Malformed);
    }
    Ok(packed)
}

fn zipmap_length(rest: &mut &[u8]) -> Result<usize, Malformed> {
    match array(rest)? {
        // Four bytes for what one can hold is what nobody ever wrote.
        [LONG] => match u32::from_le_bytes(array(rest)?) as usize {
            short if short < usize::from(LONG) => Err(Malformed),
            long => Ok(long),
        },
        [END] => Err(Malformed),
        [short] => Ok(usize::from(short)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(packed: &Packed) -> Vec<String> {
        let text = |element: Element<'_>| String::from_utf8_lossy(&element.to_vec()).into_owned();
        packed.iter().map(text).collect()
    }

    /// "2", "5", "hi", -100 in one byte, 70000 in three.
    const ZIPLIST: [u8; 27] = [
        27, 0, 0, 0, 21, 0, 0, 0, 5, 0, 0, 0xf3, 2, 0xf6, 2, 2, b'h', b'i', 4, 0xfe, 0x9c, 3, 0xf0,
        0x70, 0x11, 0x01, 0xff,
    ];

    #[test]
    fn ziplists_are_read() {
        let packed = packed_of_ziplist(&ZIPLIST).expect("sound");
        assert_eq!(words(&packed), ["2", "5", "hi", "-100", "70000"]);
        assert!(packed_of_ziplist(&[11, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0xff]).is_ok());
        for cut in 0..ZIPLIST.len() {
            assert!(packed_of_ziplist(&ZIPLIST[..cut]).is_err());
        }
        for (at, byte) in [(4, 22), (8, 4), (10, 1), (12, 3), (22, 0xff), (15, 0x3f)] {
            let mut wrong = ZIPLIST;
            wrong[at] = byte;
            assert!(packed_of_ziplist(&wrong).is_err(), "{at}");
        }
    }

    #[test]
    fn zipmaps_are_read() {
        let zipmap = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world..\xff";
        let packed = packed_of_zipmap(zipmap).expect("sound");
        assert_eq!(words(&packed), ["foo", "bar", "hello", "world"]);
        for cut in 0..zipmap.len() {
            assert!(packed_of_zipmap(&zipmap[..cut]).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..60),
            damage in proptest::collection::vec((0..ZIPLIST.len(), any::<u8>()), 0..3)
        ) {
            let _ = packed_of_zipmap(&bytes);
            bytes.push(0xff);
            let _ = packed_of_zipmap(&bytes);
            let mut ziplist = ZIPLIST;
            damage.iter().for_each(|(at, byte)| ziplist[*at] = *byte);
            if let Ok(packed) = packed_of_ziplist(&ziplist) {
                prop_assert_eq!(packed.iter().count(), packed.len());
            }
        }
    }
}
