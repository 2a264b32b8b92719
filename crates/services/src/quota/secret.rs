//! Secrets: API keys, sessions, signatures. Only digests of secrets are kept.

use aws_lc_rs::digest::{SHA256, digest as sha};
use aws_lc_rs::hmac;

/// SHA-256 of some bytes in hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    hex(sha(&SHA256, bytes).as_ref())
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    // Worked out, not looked up: so the compiler does many at once.
    let digit = |nibble: u8| nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
    let digits = bytes.iter().map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    let digits = digits.collect::<Vec<_>>().into_flattened();
    String::from_utf8(digits).expect("digits are text")
}

/// HMAC-SHA-256.
pub fn sign(key: &[u8], text: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text).as_ref().to_vec()
}

/// Base 64 with padding (RFC 4648).
pub fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| chunk.get(index).copied().map_or(0, u32::from);
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

/// 48 hexadecimal digits from random bits.
pub fn fresh(random: &mut dyn FnMut() -> u64) -> String {
    (0..3).map(|_| format!("{:016x}", random())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_and_letters() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc"), abc);
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        // RFC 4231, test case 2.
        let mac = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(hex(&sign(b"Jefe", b"what do ya want for nothing?")), mac);
    }
}
