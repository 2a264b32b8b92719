//! Who calls: JSON web tokens (RFC 7519) signed with HMAC-SHA-256, as `x-zumo-auth` carries them.
//!
//! **Invariant:** a token is believed only if its signature is ours and its time has come and not
//! passed; no other algorithm is known, so none can be chosen by a caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use aws_lc_rs::hmac;
use serde_json::Value;

/// Tokens whose signature is remembered at most.
const KNOWN_MAX: usize = 10_000;
/// Longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 8192;
/// Clocks may differ by so much, in seconds.
const LEEWAY_S: i64 = 30;

/// What is demanded of a token.
pub struct Verifier {
    key: hmac::Key,
    issuer: String,
    audience: String,
    known: Mutex<HashMap<Box<str>, Known>>,
}

#[derive(Clone)]
struct Known {
    user: Arc<str>,
    from_s: i64,
    until_s: i64,
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

impl Verifier {
    /// Believes what is signed with `secret`; where `issuer` or `audience` is empty, any will do.
    pub fn new(secret: &[u8], issuer: &str, audience: &str) -> Verifier {
        Verifier {
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            issuer: issuer.to_string(),
            audience: audience.to_string(),
            known: Mutex::default(),
        }
    }

    /// The user that a token speaks for.
    pub fn user(&self, token: &str, now_ms: i64) -> Result<Arc<str>, &'static str> {
        let now_s = now_ms / 1000;
        let mut all = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let known = match all.get(token) {
            Some(known) => known.clone(),
            None => {
                let known = self.read(token)?;
                if all.len() >= KNOWN_MAX {
                    all.clear();
                }
                all.insert(token.into(), known.clone());
                known
            }
        };
        if now_s > known.until_s.saturating_add(LEEWAY_S) {
            return Err("the token has expired");
        }
        if now_s < known.from_s.saturating_sub(LEEWAY_S) {
            return Err("the token is not valid yet");
        }
        Ok(known.user)
    }

    fn read(&self, token: &str) -> Result<Known, &'static str> {
        let shape = "the token is no JSON web token";
        if token.len() > TOKEN_BYTES_MAX {
            return Err(shape);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(shape)?;
        let (header, claims) = signed.split_once('.').ok_or(shape)?;
        let json = |text| serde_json::from_slice::<Value>(&decode(text)?).ok();
        let header = json(header).ok_or(shape)?;
        if header["alg"] != "HS256" {
            return Err("the token is not signed with HS256");
        }
        let signature = decode(signature).ok_or(shape)?;
        hmac::verify(&self.key, signed.as_bytes(), &signature)
            .map_err(|_| "the token's signature is wrong")?;
        let claims = json(claims).ok_or(shape)?;
        if !self.issuer.is_empty() && claims["iss"] != self.issuer.as_str() {
            return Err("the token's issuer is another one");
        }
        let is_meant = |claim: &Value| *claim == self.audience.as_str();
        let audience = &claims["aud"];
        let is_ours =
            is_meant(audience) || audience.as_array().is_some_and(|all| all.iter().any(is_meant));
        if !self.audience.is_empty() && !is_ours {
            return Err("the token is for another audience");
        }
        let seconds = |name: &str, without: i64| match &claims[name] {
            Value::Null => Ok(without),
            claim => claim.as_f64().map(|seconds| seconds as i64).ok_or(shape),
        };
        let user = claims["sub"].as_str().filter(|user| !user.is_empty() && !user.contains('\0'));
        let user = user.ok_or("the token does not say who it speaks for")?.into();
        Ok(Known { user, from_s: seconds("nbf", i64::MIN)?, until_s: seconds("exp", i64::MAX)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::secret::{base64, sign};

    fn token(header: &str, claims: &str, secret: &[u8]) -> String {
        let encode = |bytes: &[u8]| {
            base64(bytes).replace('+', "-").replace('/', "_").trim_end_matches('=').to_string()
        };
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        let signature = encode(&sign(secret, signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;

    #[test]
    fn only_our_tokens_are_believed() {
        let verifier = Verifier::new(b"secret", "urn:i", "urn:a");
        let ask = |header: &str, claims: &str, secret: &[u8], now_ms| {
            let user = verifier.user(&token(header, claims, secret), now_ms);
            user.map(|user| user.to_string())
        };
        let good = r#"{"sub":"ann","iss":"urn:i","aud":["urn:b","urn:a"],"exp":1000,"nbf":500}"#;
        assert_eq!(ask(HEADER, good, b"secret", 600_000), Ok("ann".into()));
        assert_eq!(ask(HEADER, good, b"secret", 2_000_000), Err("the token has expired"));
        assert_eq!(ask(HEADER, good, b"secret", 100_000), Err("the token is not valid yet"));
        assert_eq!(ask(HEADER, good, b"Secret", 600_000), Err("the token's signature is wrong"));
        let none = r#"{"alg":"none"}"#;
        assert_eq!(ask(none, good, b"secret", 0), Err("the token is not signed with HS256"));
        for claims in [
            r#"{"sub":"ann","iss":"urn:x","aud":"urn:a"}"#,
            r#"{"sub":"ann","iss":"urn:i","aud":"urn:x"}"#,
            r#"{"iss":"urn:i","aud":"urn:a"}"#,
            r#"{"sub":"","iss":"urn:i","aud":"urn:a"}"#,
            r#"{"sub":"ann","iss":"urn:i","aud":"urn:a","exp":"soon"}"#,
            "[]",
        ] {
            assert!(ask(HEADER, claims, b"secret", 0).is_err(), "{claims}");
        }
        for wrong in ["", "a.b.c", "..", "a.b", "é.é.é"] {
            assert!(verifier.user(wrong, 0).is_err(), "{wrong}");
        }
        let mut bent = token(HEADER, good, b"secret");
        bent.insert(40, 'A');
        assert!(verifier.user(&bent, 600_000).is_err());
    }

    #[test]
    fn a_token_signed_elsewhere_is_understood() {
        // RFC 7515, appendix A.1: it has no sub, so only the signature can be looked at.
        let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1\
                   Z9CAow";
        let key = decode(key).expect("base 64");
        let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4M\
                     TkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27\
                     uhbUJU1p1r_wW1gFWFOEjXk";
        let verifier = Verifier::new(&key, "joe", "");
        let want = "the token does not say who it speaks for";
        assert_eq!(verifier.user(token, 0).expect_err("no sub"), want);
    }
}
