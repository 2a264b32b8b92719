//! Texts that are put together piece by piece, for those that every request needs: a format string
//! costs several times as much.

/// What appends to a text.
pub trait Append {
    /// A piece of text.
    fn text(&mut self, text: &str) -> &mut Self;

    /// A number in decimal digits.
    fn number(&mut self, number: i64) -> &mut Self;
}

impl Append for String {
    fn text(&mut self, text: &str) -> &mut String {
        self.push_str(text);
        self
    }

    fn number(&mut self, number: i64) -> &mut String {
        self.text(itoa::Buffer::new().format(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_stand_one_after_the_other() {
        let mut text = String::from("a");
        text.text("b").number(-7).text("").number(i64::MAX);
        assert_eq!(text, "ab-79223372036854775807");
    }
}
