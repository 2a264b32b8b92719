//! Chance by a seed, and filters by chance: what people write, with values that products, types and
//! languages take for different things.

/// Splitmix64: a seed makes a run again.
pub struct Dice(u64);

const WORDS: &[&str] = &[
    "", " ", "a", "a ", " a", "A", "ab", "b", "e", "é", "É", "e\u{301}", "1", "1.0", "1e0", "NaN",
    "ß", "ss", "i", "I", "İ", "ı", "%", "_", "\\", "'", "😀", "ж",
];
const WHOLES: &[i64] =
    &[0, 1, -1, 2, 7, 1 << 53, (1 << 53) + 1, -(1 << 53) - 1, i64::MAX, i64::MIN];
const REALS: &[f64] =
    &[0.0, -0.0, 1.0, 1.5, 0.1, -2.25, 1e308, -1e308, 1e-300, 9_007_199_254_740_992.0, 1e19];

impl Dice {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }

    /// One of them.
    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }

    /// A text.
    pub fn word(&mut self) -> String {
        match self.roll(6) {
            0 => format!("{}{}", self.pick(WORDS), self.pick(WORDS)),
            _ => self.pick(WORDS).to_string(),
        }
    }

    /// A whole number.
    pub fn whole(&mut self) -> i64 {
        let all = if self.roll(4) == 0 { WHOLES.len() } else { 5 };
        WHOLES[self.roll(all)]
    }

    /// Any number.
    pub fn real(&mut self) -> f64 {
        let all = if self.roll(4) == 0 { REALS.len() } else { 6 };
        REALS[self.roll(all)]
    }

    /// Milliseconds since 1970.
    pub fn moment(&mut self) -> i64 {
        (self.roll(400) as i64 - 100) * 86_400_000 + self.roll(3) as i64
    }
}

/// A filter of the columns text, note, rank, price, done, due.
pub fn filter(dice: &mut Dice, depth: usize) -> String {
    if depth > 0 {
        let deeper = |dice: &mut Dice| filter(dice, depth - 1);
        match dice.roll(4) {
            0 | 1 => return format!("({} and {})", deeper(dice), deeper(dice)),
            2 => return format!("({} or {})", deeper(dice), deeper(dice)),
            _ => return format!("not ({})", deeper(dice)),
        }
    }
    let op = dice.pick(&["eq", "eq", "ne", "gt", "ge", "lt", "le"]);
    match dice.roll(10) {
        0 => dice.pick(&["done", "not done", "done eq true", "done ne false", "true"]).into(),
        1 => {
            let column = dice.pick(&["text", "rank", "price", "done", "due", "(price div rank)"]);
            format!("{column} {} null", dice.pick(&["eq", "ne"]))
        }
        2 => {
            let function = dice.pick(&["substringof", "startswith", "endswith"]);
            format!("{function}({},{})", text(dice), text(dice))
        }
        3 | 4 => format!("{} {op} {}", text(dice), quoted(&dice.word())),
        5 => format!("due {op} datetime'{}'", services::tables::date::text(dice.moment())),
        6 => {
            let part = dice.pick(&["year(due)", "month(due)", "day(due)", "length(text)"]);
            format!("{part} {op} {}", dice.roll(5))
        }
        7 => {
            // What is not worked out in memory.
            let strange = ["round(price) eq 1", "trim(text) eq 'a'", "indexof(text,'a') eq 0"];
            dice.pick(&[&strange[..], &["(rank mod 2) eq 1", "floor(price) gt 0"]].concat()).into()
        }
        _ => format!("{} {op} {}", number(dice), number(dice)),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn text(dice: &mut Dice) -> String {
    match dice.roll(6) {
        0 => quoted(&dice.word()),
        1 => "tolower(text)".into(),
        2 => "toupper(note)".into(),
        3 => "note".into(),
        _ => "text".into(),
    }
}

fn number(dice: &mut Dice) -> String {
    match dice.roll(7) {
        0 | 1 => "rank".into(),
        2 => "price".into(),
        3 => {
            let op = dice.pick(&["add", "sub", "mul", "div"]);
            format!("(price {op} {})", dice.real())
        }
        4 => format!("{:?}", dice.real()),
        _ => dice.whole().to_string(),
    }
}

/// A value in an address.
pub fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
