//! FUNCTION DUMP's payload: the sources of libraries as an RDB file has them, with a footer.
//!
//! ```text
//!   (245 source)*  version u16  CRC-64 of all before it        Redis's functions.c
//! ```

use persist::rdb::cursor::{Cursor, Scratch};
use persist::rdb::dump::{opened, seal};
use persist::rdb::encode::{Compression, Encoder};
use persist::rdb::format::{OP_FUNCTION_PRE_GA, OP_FUNCTION2};
use persist::rdb::reader::Checksum;

/// The payload of these sources.
pub fn dump<'s>(sources: impl Iterator<Item = &'s [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(Compression::Lzf);
    for source in sources {
        out.push(OP_FUNCTION2);
        encoder.string(source, &mut out);
    }
    seal(&mut out);
    out
}

/// A payload with this content, whatever it is, and a footer that is right.
pub fn sealed(mut content: Vec<u8>) -> Vec<u8> {
    seal(&mut content);
    content
}

/// The sources in a payload; `Err` says what is wrong with it.
pub fn sources(payload: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let Some((_, content)) = opened(payload, Checksum::Verify) else {
        return Err("DUMP payload version or checksum are wrong".into());
    };
    let mut cursor = Cursor::new(content, 0);
    let mut scratch = Scratch::default();
    let mut sources = Vec::new();
    while cursor.left() > 0 {
        let kind = cursor.byte().map_err(|_| "can not read data type")?;
        match kind {
            OP_FUNCTION2 => {}
            OP_FUNCTION_PRE_GA => {
                return Err("Pre-release function format not supported.".into());
            }
            _ => return Err("given type is not a function".into()),
        }
        cursor.reading("a library of functions");
        let source = cursor.string(&mut scratch);
        let source = source
            .map_err(|error| format!("failed loading the given functions payload: {error}"))?;
        sources.push(source.to_vec());
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_come_back() {
        let all: [&[u8]; 2] = [b"#!lua name=a\nx", b"#!lua name=b\ny"];
        let payload = dump(all.into_iter());
        assert_eq!(sources(&payload).expect("sound"), all);
        for at in 0..payload.len() {
            let mut wrong = payload.clone();
            wrong[at] ^= 0x11;
            assert!(sources(&wrong).is_err(), "{at}");
        }
        let mut other = vec![0, 1, b'x'];
        seal(&mut other);
        assert_eq!(sources(&other), Err("given type is not a function".into()));
    }
}
