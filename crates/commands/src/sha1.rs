//! SHA-1 (FIPS 180-4), by which scripts are named. Nothing here needs it to be secure.

/// The digest of a text.
pub fn digest(text: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut blocks = text.chunks_exact(64);
    for block in &mut blocks {
        add_block(&mut state, block);
    }
    let rest = blocks.remainder();
    let mut last = [0u8; 128];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let end = if rest.len() < 56 { 64 } else { 128 };
    last[end - 8..end].copy_from_slice(&(8 * text.len() as u64).to_be_bytes());
    last[..end].chunks_exact(64).for_each(|block| add_block(&mut state, block));
    let mut digest = [0; 20];
    for (place, word) in digest.chunks_exact_mut(4).zip(state) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn add_block(state: &mut [u32; 5], block: &[u8]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..80 {
        let mixed = words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16];
        words[at] = mixed.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (round, word) in words.iter().enumerate() {
        let (mixed, constant) = match round {
            0..20 => (b & c | !b & d, 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6u32),
        };
        let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e);
        let next = sum.wrapping_add(constant).wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(more);
    }
}

/// A digest as forty hexadecimal digits.
pub fn hex(digest: &[u8; 20]) -> [u8; 40] {
    let mut text = [0; 40];
    for (place, byte) in text.chunks_exact_mut(2).zip(digest) {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
        place.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

/// The digest of a text as forty hexadecimal digits.
pub fn hex_digest(text: &[u8]) -> [u8; 40] {
    hex(&digest(text))
}

/// Reads forty hexadecimal digits, in either case.
pub fn from_hex(text: &[u8]) -> Option<[u8; 20]> {
    if text.len() != 40 {
        return None;
    }
    let (mut digest, mut all) = ([0; 20], 0);
    for (place, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
        let (high, low) = (DIGITS[usize::from(pair[0])], DIGITS[usize::from(pair[1])]);
        *place = high << 4 | low & 0xf;
        all |= high | low;
    }
    (all < NO_DIGIT).then_some(digest)
}

const NO_DIGIT: u8 = 0x10;
/// What each byte stands for as a digit of base 16.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        let digit = b"0123456789abcdef"[value];
        digits[digit as usize] = value as u8;
        digits[digit.to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    digits
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_the_standards() {
        let cases = [
            ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ];
        for (text, want) in cases {
            assert_eq!(hex_digest(text.as_bytes()), want.as_bytes(), "{text}");
            assert_eq!(from_hex(want.to_uppercase().as_bytes()), Some(digest(text.as_bytes())));
        }
        let million = vec![b'a'; 1_000_000];
        assert_eq!(&hex_digest(&million), b"34aa973cd4c4daa4f61eeb2bdbad27316534016f");
        assert_eq!(from_hex(b"x"), None);
        for wrong in [b'g', b'G', b'/', b':', b'@', b'`', 0xb0, 0] {
            let mut text = [b'a'; 40];
            text[17] = wrong;
            assert_eq!(from_hex(&text), None, "{wrong}");
        }
    }
}
