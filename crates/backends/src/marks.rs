//! Where the `?` of a statement stand: not those in quotes or comments.
//!
//! **Invariant:** the pieces with a `?` between each two are the statement.

/// What a scan is inside of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Nothing,
    Quotes(u8),
    Line,
    Block,
}

/// The text before, between and behind the marks.
pub fn pieces(sql: &str) -> Vec<&str> {
    let bytes = sql.as_bytes();
    let mut pieces = Vec::new();
    let (mut start, mut index, mut inside) = (0, 0, Inside::Nothing);
    while index < bytes.len() {
        let (byte, next) = (bytes[index], bytes.get(index + 1).copied());
        inside = match (inside, byte, next) {
            (Inside::Nothing, b'?', _) => {
                pieces.push(&sql[start..index]);
                start = index + 1;
                Inside::Nothing
            }
            (Inside::Nothing, b'\'' | b'"' | b'`', _) => Inside::Quotes(byte),
            (Inside::Nothing, b'-', Some(b'-')) => Inside::Line,
            (Inside::Nothing, b'/', Some(b'*')) => {
                index += 1;
                Inside::Block
            }
            // A doubled quote closes and opens again.
            (Inside::Quotes(quote), _, _) if quote == byte => Inside::Nothing,
            (Inside::Line, b'\n', _) => Inside::Nothing,
            (Inside::Block, b'*', Some(b'/')) => {
                index += 1;
                Inside::Nothing
            }
            (inside, _, _) => inside,
        };
        index += 1;
    }
    pieces.push(&sql[start..]);
    pieces
}

/// The statement with `$1`, `$2` ... for its marks.
pub fn numbered(sql: &str) -> String {
    let mut text = String::with_capacity(sql.len() + 16);
    for (index, piece) in pieces(sql).into_iter().enumerate() {
        if index > 0 {
            text.push_str(&format!("${index}"));
        }
        text.push_str(piece);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_in_quotes_and_comments_are_text() {
        assert_eq!(pieces("a = ? AND b IN (?, ?)"), ["a = ", " AND b IN (", ", ", ")"]);
        assert_eq!(
            pieces("a = '?''?' AND \"?\" = `?` -- ?\n?"),
            ["a = '?''?' AND \"?\" = `?` -- ?\n", ""]
        );
        assert_eq!(pieces("/* ? */ ? /*/ ? */"), ["/* ? */ ", " /*/ ? */"]);
        assert_eq!(numbered("? + ?"), "$1 + $2");
        assert_eq!(numbered("é ?"), "é $1");
    }

    proptest! {
        #[test]
        fn nothing_gets_lost(sql in "[?'\"`/*\\- aé\n]{0,40}") {
            prop_assert_eq!(pieces(&sql).join("?"), sql);
        }
    }
}
