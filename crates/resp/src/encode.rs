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
