//! Requests as clients send them, and as the commit log keeps them: arrays of bulk strings.

/// Writes a command as clients send it: an array of bulk strings.
pub fn write_request<'w>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'w [u8]>) {
    write_head(out, b'*', words.len());
    for word in words {
        write_head(out, b'$', word.len());
        out.reserve(word.len() + 2);
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A mark, a number, the end of the line. Most numbers have one or two digits.
#[inline]
fn write_head(out: &mut Vec<u8>, mark: u8, number: usize) {
    match number {
        0..10 => out.extend_from_slice(&[mark, b'0' + number as u8, b'\r', b'\n']),
        10..100 => {
            let (tens, ones) = (number as u8 / 10, number as u8 % 10);
            out.extend_from_slice(&[mark, b'0' + tens, b'0' + ones, b'\r', b'\n']);
        }
        _ => {
            out.push(mark);
            out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}
