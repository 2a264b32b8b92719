//! HyperLogLog in a plain string, bit for bit Redis's.
//!
//! ```text
//!  +------+---+-------+-------------------+-----------
//!  | HYLL | E | 0 0 0 | cardinality: 8 LE | registers
//!  +------+---+-------+-------------------+-----------
//!
//!  E = 0, dense:  16384 registers of 6 bits, lowest bits first: 12288 bytes
//!  E = 1, sparse: a run-length code of the same registers
//!         00xxxxxx            ZERO    x + 1 registers are 0
//!         01xxxxxx xxxxxxxx   XZERO   x + 1 registers are 0
//!         1vvvvvxx            VAL     x + 1 registers are v + 1
//! ```
//!
//! The cardinality is the last count; its top bit says that the registers have changed since. An
//! element's hash (MurmurHash64A) gives 14 bits of register index and, by its trailing zeros, the
//! value that the register is raised to. A sparse string becomes dense when a value above 32 or
//! more than `hll-sparse-max-bytes` are needed.
//!
//! The count is Otmar Ertl's estimator ("New cardinality estimation algorithms for HyperLogLog
//! sketches", arXiv:1702.01284), as in Redis since 5.0.
//!
//! Strings come from clients, by SET as well: [`is_valid`] looks at the header as Redis does, and
//! every function that reads registers says [`Corrupted`] where the code does not add up.

use crate::random::Random;

/// The registers do not add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrupted;

/// How the registers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Six bits each.
    Dense,
    /// As runs.
    Sparse,
}

impl Encoding {
    /// The name in PFDEBUG ENCODING.
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Dense => "dense",
            Encoding::Sparse => "sparse",
        }
    }
}

/// Number of registers.
pub const REGISTERS: usize = 1 << INDEX_BITS;

const INDEX_BITS: u32 = 14;
/// Bits of the hash that are looked through for its first one.
const VALUE_BITS: u32 = 64 - INDEX_BITS;
const REGISTER_MAX: u8 = 63;
const HEADER: usize = 16;
const ENCODING: usize = 4;
const CARDINALITY: usize = 8;
const DENSE_BYTES: usize = HEADER + REGISTERS * 6 / 8;

const SPARSE_VALUE_MAX: u8 = 32;
const VAL_RUN_MAX: usize = 4;
const ZERO_RUN_MAX: usize = 64;

/// Every register's value, one byte each: to merge and count several at once.
pub type Registers = [u8; REGISTERS];

/// An empty, sparse string.
pub fn new() -> Vec<u8> {
    let mut hll = Vec::with_capacity(HEADER + 2);
    hll.extend_from_slice(b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\0");
    Run::Zero(REGISTERS).write(&mut hll);
    hll
}

/// Whether the string has a HyperLogLog's header and, if it is dense, its length.
pub fn is_valid(hll: &[u8]) -> bool {
    hll.len() >= HEADER
        && hll.starts_with(b"HYLL")
        && match hll[ENCODING] {
            0 => hll.len() == DENSE_BYTES,
            encoding => encoding == 1,
        }
}

/// How the registers are kept. The string [`is_valid`].
pub fn encoding(hll: &[u8]) -> Encoding {
    if hll[ENCODING] == 0 { Encoding::Dense } else { Encoding::Sparse }
}

/// Adds an element; says whether a register changed. The string [`is_valid`].
pub fn add(hll: &mut Vec<u8>, element: &[u8], sparse_bytes_max: usize) -> Result<bool, Corrupted> {
    let (index, value) = register_of(element);
    raise(hll, index, value, sparse_bytes_max)
}

/// Raises a register to `value`; says whether that changed it.
pub fn raise(
    hll: &mut Vec<u8>,
    index: usize,
    value: u8,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupted> {
    match encoding(hll) {
        Encoding::Dense => Ok(raise_dense(&mut hll[HEADER..], index, value)),
        Encoding::Sparse => raise_sparse(hll, index, value, sparse_bytes_max),
    }
}

/// Adds an element to a dense string, in place; says whether a register changed.
///
/// # Panics
/// If the string is sparse.
pub fn add_dense(hll: &mut [u8], element: &[u8]) -> bool {
    assert_eq!(encoding(hll), Encoding::Dense);
    let (index, value) = register_of(element);
    raise_dense(&mut hll[HEADER..], index, value)
}

/// Says that the kept count no longer holds.
pub fn invalidate(hll: &mut [u8]) {
    hll[CARDINALITY + 7] |= 0x80;
}

/// The kept count, where it still holds.
pub fn cached_count(hll: &[u8]) -> Option<u64> {
    let bytes = hll[CARDINALITY..HEADER].try_into().expect("eight bytes");
    let count = u64::from_le_bytes(bytes);
    (count >> 63 == 0).then_some(count)
}

/// Keeps a count.
pub fn cache_count(hll: &mut [u8], count: u64) {
    hll[CARDINALITY..HEADER].copy_from_slice(&count.to_le_bytes());
}

/// Estimates how many different elements were added, without the kept count.
pub fn count(hll: &[u8]) -> Result<u64, Corrupted> {
    let mut histogram = [0; 64];
    match encoding(hll) {
        Encoding::Dense => {
            dense_values(&hll[HEADER..]).for_each(|value| histogram[usize::from(value)] += 1);
        }
        Encoding::Sparse => {
            for_each_run(&hll[HEADER..], |_, run| {
                let (value, len) = run.parts();
                histogram[usize::from(value)] += len as u32;
            })?;
        }
    }
    Ok(estimate(&histogram))
}

/// Estimates how many different elements were added to all that were merged.
pub fn count_registers(registers: &Registers) -> u64 {
    let mut histogram = [0; 64];
    registers.iter().for_each(|value| histogram[usize::from(*value & REGISTER_MAX)] += 1);
    estimate(&histogram)
}

/// Raises each register to the string's.
pub fn merge(registers: &mut Registers, hll: &[u8]) -> Result<(), Corrupted> {
    match encoding(hll) {
        Encoding::Dense => {
            for (register, value) in registers.iter_mut().zip(dense_values(&hll[HEADER..])) {
                *register = value.max(*register);
            }
            Ok(())
        }
        Encoding::Sparse => for_each_run(&hll[HEADER..], |first, run| {
            if let (value @ 1.., len) = run.parts() {
                let registers = &mut registers[first..first + len];
                registers.iter_mut().for_each(|register| *register = value.max(*register));
            }
        }),
    }
}

/// Makes a sparse string dense; says whether it was sparse.
pub fn make_dense(hll: &mut Vec<u8>) -> Result<bool, Corrupted> {
    if encoding(hll) == Encoding::Dense {
        return Ok(false);
    }
    let mut dense = vec![0; DENSE_BYTES];
    for_each_run(&hll[HEADER..], |first, run| {
        if let (value @ 1.., len) = run.parts() {
            (first..first + len).for_each(|index| set_dense(&mut dense[HEADER..], index, value));
        }
    })?;
    dense[..HEADER].copy_from_slice(&hll[..HEADER]);
    dense[ENCODING] = 0;
    *hll = dense;
    Ok(true)
}

/// The sparse code in words, as PFDEBUG DECODE shows it; nothing if the string is dense.
pub fn decode(hll: &[u8]) -> Option<String> {
    if encoding(hll) == Encoding::Dense {
        return None;
    }
    let mut words = Vec::new();
    let mut code = &hll[HEADER..];
    while let Some((run, size)) = Run::read(code) {
        words.push(match run {
            Run::Zero(len) if size == 1 => format!("z:{len}"),
            Run::Zero(len) => format!("Z:{len}"),
            Run::Value(value, len) => format!("v:{value},{len}"),
        });
        code = &code[size..];
    }
    Some(words.join(" "))
}

// The hash.

/// MurmurHash2 in its 64-bit form, as Austin Appleby published it, always little-endian.
fn murmur(key: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut hash = seed ^ (key.len() as u64).wrapping_mul(M);
    let (words, tail) = key.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> R;
        hash = (hash ^ word.wrapping_mul(M)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> R)).wrapping_mul(M);
    hash ^ (hash >> R)
}

/// Which register an element belongs to, and the value it raises that to.
fn register_of(element: &[u8]) -> (usize, u8) {
    let hash = murmur(element, 0xadc8_3b19);
    let index = hash as usize & (REGISTERS - 1);
    let rest = hash >> INDEX_BITS | 1 << VALUE_BITS;
    (index, rest.trailing_zeros() as u8 + 1)
}

// Dense registers.

/// The byte and the bit in it where a register starts.
fn dense_place(index: usize) -> (usize, usize) {
    (index * 6 / 8, index * 6 % 8)
}

fn get_dense(registers: &[u8], index: usize) -> u8 {
    let (byte, bit) = dense_place(index);
    let next = registers.get(byte + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([registers[byte], next]) >> bit) as u8 & REGISTER_MAX
}

fn set_dense(registers: &mut [u8], index: usize, value: u8) {
    let (byte, bit) = dense_place(index);
    let [mask, mask_next] = (u16::from(REGISTER_MAX) << bit).to_le_bytes();
    let [bits, bits_next] = (u16::from(value) << bit).to_le_bytes();
    registers[byte] = registers[byte] & !mask | bits;
    if let Some(next) = registers.get_mut(byte + 1) {
        *next = *next & !mask_next | bits_next;
    }
}

fn raise_dense(registers: &mut [u8], index: usize, value: u8) -> bool {
    let raised = value > get_dense(registers, index);
    if raised {
        set_dense(registers, index, value);
    }
    raised
}

/// Every register's value: four of them in each three bytes.
fn dense_values(registers: &[u8]) -> impl Iterator<Item = u8> {
    registers.as_chunks::<3>().0.iter().flat_map(|[a, b, c]| {
        let word = u32::from_le_bytes([*a, *b, *c, 0]);
        [0, 6, 12, 18].map(|shift| (word >> shift) as u8 & REGISTER_MAX)
    })
}

// Sparse registers.

/// A run of equal registers.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    /// So many are 0.
    Zero(usize),
    /// Registers of this value, and how many.
    Value(u8, usize),
}

impl Run {
    /// The run at the start of `code` and the bytes it takes.
    #[inline]
    fn read(code: &[u8]) -> Option<(Run, usize)> {
        let head = *code.first()?;
        Some(match head >> 6 {
            0 => (Run::Zero(usize::from(head & 0x3f) + 1), 1),
            1 => {
                let low = *code.get(1)?;
                (Run::Zero((usize::from(head & 0x3f) << 8 | usize::from(low)) + 1), 2)
            }
            _ => (Run::Value((head >> 2 & 0x1f) + 1, usize::from(head & 3) + 1), 1),
        })
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            Run::Zero(0) | Run::Value(_, 0) => {}
            Run::Zero(len) if len <= ZERO_RUN_MAX => out.push(len as u8 - 1),
            Run::Zero(len) => {
                let [low, high] = (len as u16 - 1).to_le_bytes();
                out.extend_from_slice(&[0x40 | high, low]);
            }
            Run::Value(value, len) => out.push(0x80 | (value - 1) << 2 | (len as u8 - 1)),
        }
    }

    /// The registers' value and their number.
    fn parts(self) -> (u8, usize) {
        match self {
            Run::Zero(len) => (0, len),
            Run::Value(value, len) => (value, len),
        }
    }
}

/// Calls `visit` with each run and the index of its first register.
fn for_each_run(code: &[u8], mut visit: impl FnMut(usize, Run)) -> Result<(), Corrupted> {
    let mut index = 0;
    let mut rest = code;
    while !rest.is_empty() {
        let (run, size) = Run::read(rest).ok_or(Corrupted)?;
        let len = run.parts().1;
        if index + len > REGISTERS {
            return Err(Corrupted);
        }
        visit(index, run);
        index += len;
        rest = &rest[size..];
    }
    if index == REGISTERS { Ok(()) } else { Err(Corrupted) }
}

/// The run that covers a register.
struct Found {
    /// Where it starts in the string, and where the run before it does (the first run's own
    /// start, for the first).
    at: usize,
    before: usize,
    run: Run,
    size: usize,
    /// Its first register.
    first: usize,
}

fn find_run(hll: &[u8], index: usize) -> Result<Found, Corrupted> {
    let (mut at, mut before, mut first) = (HEADER, HEADER, 0);
    loop {
        let (run, size) = Run::read(&hll[at..]).ok_or(Corrupted)?;
        let len = run.parts().1;
        if index < first + len {
            return Ok(Found { at, before, run, size, first });
        }
        before = at;
        at += size;
        first += len;
    }
}

fn raise_sparse(
    hll: &mut Vec<u8>,
    index: usize,
    value: u8,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupted> {
    if value > SPARSE_VALUE_MAX {
        return raise_promoted(hll, index, value);
    }
    let Found { at, before, run, size, first } = find_run(hll, index)?;
    let (old, len) = run.parts();
    if old >= value {
        return Ok(false);
    }
    let last = first + len - 1;
    let part = |len| match run {
        Run::Zero(_) => Run::Zero(len),
        Run::Value(value, _) => Run::Value(value, len),
    };
    // Up to three runs in place of one: what was before the register, the register, the rest.
    let mut code = Vec::with_capacity(5);
    part(index - first).write(&mut code);
    Run::Value(value, 1).write(&mut code);
    part(last - index).write(&mut code);
    if code.len() > size && hll.len() + code.len() - size > sparse_bytes_max {
        return raise_promoted(hll, index, value);
    }
    hll.splice(at..at + size, code);
    join_values(hll, before);
    invalidate(hll);
    Ok(true)
}

/// Becomes dense and raises the register then.
fn raise_promoted(hll: &mut Vec<u8>, index: usize, value: u8) -> Result<bool, Corrupted> {
    make_dense(hll)?;
    Ok(raise_dense(&mut hll[HEADER..], index, value))
}

/// Joins neighbouring runs of one value among the five runs from `at` on: as many steps as Redis
/// takes, so that the bytes stay the same.
fn join_values(hll: &mut Vec<u8>, at: usize) {
    let mut at = at;
    for _ in 0..5 {
        let Some((run, size)) = Run::read(&hll[at..]) else { return };
        if let Run::Value(value, len) = run
            && let Some((Run::Value(next, next_len), _)) = Run::read(&hll[at + 1..])
            && next == value
            && len + next_len <= VAL_RUN_MAX
        {
            let mut joined = Vec::with_capacity(1);
            Run::Value(value, len + next_len).write(&mut joined);
            hll.splice(at..at + 2, joined);
            // The joined run may join its next one in turn.
            continue;
        }
        at += size;
    }
}

// The count.

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let mut y = 1.0;
    let mut z = x;
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let mut y = 1.0;
    let mut z = 1.0 - x;
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// The cardinality that a histogram of register values speaks for.
fn estimate(histogram: &[u32; 64]) -> u64 {
    /// 0.5 / ln(2).
    const ALPHA_INFINITE: f64 = 0.721_347_520_444_481_7;
    let m = REGISTERS as f64;
    let largest = VALUE_BITS as usize + 1;
    let mut z = m * tau((m - f64::from(histogram[largest])) / m);
    for count in histogram[1..largest].iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += m * sigma(f64::from(histogram[0]) / m);
    (ALPHA_INFINITE * m * m / z).round() as u64
}

/// What PFSELFTEST does: every register can be set and read, and both encodings estimate alike
/// and well. Says what failed.
pub fn self_test(
    random: &mut Random,
    sparse_bytes_max: usize,
    elements: u64,
) -> Result<(), String> {
    let mut dense = new();
    make_dense(&mut dense).map_err(|_| "TESTFAILED conversion to dense".to_owned())?;
    for _ in 0..1000 {
        let values: Vec<u8> = (0..REGISTERS).map(|_| random.bits() as u8 & REGISTER_MAX).collect();
        for (index, value) in values.iter().enumerate() {
            set_dense(&mut dense[HEADER..], index, *value);
        }
        for (index, value) in values.iter().enumerate() {
            let read = get_dense(&dense[HEADER..], index);
            if read != *value {
                let text = format!("TESTFAILED Register {index} should be {value} but is {read}");
                return Err(text);
            }
        }
    }
    dense[HEADER..].fill(0);
    let mut sparse = new();
    let error = 1.04 / (REGISTERS as f64).sqrt();
    let seed = random.bits();
    let mut checkpoint = 1;
    for number in 1..=elements {
        let element = (number ^ seed).to_le_bytes();
        let corrupted = |_| "TESTFAILED registers do not add up".to_owned();
        add(&mut dense, &element, sparse_bytes_max).map_err(corrupted)?;
        add(&mut sparse, &element, sparse_bytes_max).map_err(corrupted)?;
        if number != checkpoint {
            continue;
        }
        if number < sparse_bytes_max as u64 / 2 && encoding(&sparse) != Encoding::Sparse {
            return Err("TESTFAILED sparse encoding not used".to_owned());
        }
        let estimate = count(&dense).map_err(corrupted)?;
        if Ok(estimate) != count(&sparse) {
            return Err("TESTFAILED dense/sparse disagree".to_owned());
        }
        // Ten elements are off by one now and then; no more.
        let most = if number == 10 { 1.0 } else { (error * 6.0 * number as f64).ceil() };
        let off = estimate.abs_diff(number);
        if off as f64 > most {
            return Err(format!("TESTFAILED Too big error. card:{number} abserr:{off}"));
        }
        checkpoint *= 10;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPARSE_MAX: usize = 3000;

    /// What redis-server 7.0.15 answers.
    #[test]
    fn bytes_and_counts_are_those_of_redis() {
        let mut hll = new();
        for element in [b"a", b"b", b"c"] {
            assert_eq!(add(&mut hll, element, SPARSE_MAX), Ok(true));
            assert_eq!(add(&mut hll, element, SPARSE_MAX), Ok(false));
        }
        let wanted = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80`\xf3\x80P\xb1\x84K\xfb\x80BZ";
        assert_eq!(hll, wanted);
        let words = "Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603";
        assert_eq!(decode(&hll).as_deref(), Some(words));
        assert_eq!(count(&hll), Ok(3));
        for (elements, estimate, form) in [
            (100, 100, Encoding::Sparse),
            (1000, 1001, Encoding::Sparse),
            (5000, 4985, Encoding::Dense),
            (100_000, 99_565, Encoding::Dense),
        ] {
            if cfg!(miri) && elements > 100 {
                return;
            }
            let mut hll = new();
            for number in 0..elements {
                add(&mut hll, number.to_string().as_bytes(), SPARSE_MAX).expect("sound");
            }
            assert_eq!((count(&hll), encoding(&hll)), (Ok(estimate), form));
            assert!(is_valid(&hll));
        }
    }

    #[test]
    fn both_encodings_say_the_same() {
        let mut sparse = new();
        let mut dense = new();
        assert_eq!(make_dense(&mut dense), Ok(true));
        assert_eq!(make_dense(&mut dense), Ok(false));
        for number in 0..if cfg!(miri) { 20u32 } else { 800 } {
            let element = number.to_le_bytes();
            let changed = add(&mut sparse, &element, SPARSE_MAX);
            assert_eq!(add(&mut dense, &element, SPARSE_MAX), changed);
        }
        assert_eq!(encoding(&sparse), Encoding::Sparse);
        assert_eq!(count(&sparse), count(&dense));
        let (mut one, mut other) = ([0; REGISTERS], [0; REGISTERS]);
        merge(&mut one, &sparse).expect("sound");
        merge(&mut other, &dense).expect("sound");
        assert!(one == other);
        assert_eq!(Ok(count_registers(&one)), count(&dense));
        make_dense(&mut sparse).expect("sound");
        assert_eq!(sparse[HEADER..], dense[HEADER..]);
    }

    #[test]
    fn a_large_value_makes_it_dense() {
        let mut hll = new();
        assert_eq!(raise(&mut hll, 5, 33, SPARSE_MAX), Ok(true));
        assert_eq!(encoding(&hll), Encoding::Dense);
        assert_eq!(get_dense(&hll[HEADER..], 5), 33);
        let mut hll = new();
        assert_eq!(raise(&mut hll, REGISTERS - 1, 51, 0), Ok(true));
        assert_eq!(get_dense(&hll[HEADER..], REGISTERS - 1), 51);
    }

    #[test]
    fn counts_are_kept_until_they_no_longer_hold() {
        let mut hll = new();
        assert_eq!(cached_count(&hll), Some(0));
        add(&mut hll, b"x", SPARSE_MAX).expect("sound");
        assert_eq!(cached_count(&hll), None);
        cache_count(&mut hll, 1);
        assert_eq!(cached_count(&hll), Some(1));
        invalidate(&mut hll);
        assert_eq!(cached_count(&hll), None);
    }

    #[test]
    fn the_self_test_passes() {
        if !cfg!(miri) {
            assert_eq!(self_test(&mut Random::new(2), SPARSE_MAX, 10_000), Ok(()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn damaged_strings_never_panic(
            elements in proptest::collection::vec(any::<u32>(), 0..50),
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in 0usize..4,
        ) {
            let mut hll = new();
            for element in elements {
                add(&mut hll, &element.to_le_bytes(), SPARSE_MAX).expect("sound");
            }
            for (index, byte) in damage {
                let index = HEADER + index.index(hll.len() - HEADER);
                hll[index] = byte;
            }
            hll.truncate(hll.len().saturating_sub(cut).max(HEADER));
            prop_assert!(is_valid(&hll));
            let counted = count(&hll);
            let mut registers = [0; REGISTERS];
            prop_assert_eq!(merge(&mut registers, &hll).is_ok(), counted.is_ok());
            decode(&hll);
            for index in [0, 1, 77, 8000, REGISTERS - 1] {
                let _ = raise(&mut hll, index, 20, SPARSE_MAX);
                let _ = raise(&mut hll, index, 33, SPARSE_MAX);
            }
        }
    }

    #[test]
    fn other_strings_are_refused() {
        for bad in [
            &b""[..],
            b"HYLL",
            b"HYLL\x02\0\0\0\0\0\0\0\0\0\0\0",
            b"HYLL\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ] {
            assert!(!is_valid(bad));
        }
    }
}
