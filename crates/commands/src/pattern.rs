//! Glob patterns as Redis's `stringmatchlen`: `*`, `?`, `[a-z]`, `[^a]`, backslash.
//!
//! **Invariant:** time is bounded by length of text times length of pattern: a `*` is retried from
//! its last place only, never recursively.

/// Whether `text` matches `pattern` as a whole.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, false)
}

/// As [`matches()`], upper and lower case being the same.
pub fn matches_any_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, true)
}

fn matches_with(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where the last star was, and how much text it has swallowed up to.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        match one(&pattern[p.min(pattern.len())..], text[t], any_case) {
            Some(used) => {
                p += used;
                t += 1;
            }
            None => match star {
                Some((after, from)) => {
                    star = Some((after, from + 1));
                    (p, t) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p.min(pattern.len())..].iter().all(|byte| *byte == b'*')
}

/// Matches one byte; how much of the pattern that took.
fn one(pattern: &[u8], byte: u8, any_case: bool) -> Option<usize> {
    let fold = |byte: u8| if any_case { byte.to_ascii_lowercase() } else { byte };
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => class(rest, byte, fold).map(|used| used + 1),
        [b'\\', escaped, ..] => (fold(*escaped) == fold(byte)).then_some(2),
        [plain, ..] => (fold(*plain) == fold(byte)).then_some(1),
    }
}

/// Matches a class, given without its opening bracket.
fn class(pattern: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> Option<usize> {
    let negated = pattern.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &pattern[at.min(pattern.len())..] {
            // An unclosed class ends with the pattern.
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= fold(*escaped) == fold(byte);
                at += 2;
            }
            [low, b'-', high, ..] => {
                let (low, high) = (fold(*low).min(fold(*high)), fold(*low).max(fold(*high)));
                found |= (low..=high).contains(&fold(byte));
                at += 3;
            }
            [plain, ..] => {
                found |= fold(*plain) == fold(byte);
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        let cases = [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hxllo", false),
            ("a*b*c", "aXXbYYc", true),
            ("a*b*c", "aXXbYY", false),
            ("[abc", "a", true),
            ("", "", true),
            ("", "a", false),
            ("a\\", "a\\", true),
            ("*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, text, want) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), want, "{pattern} {text}");
        }
        assert!(matches_any_case(b"H[A-C]*", b"hbLLO"));
    }
}
