//! Pseudonyms: keyed hashes of texts (HMAC-SHA-256, RFC 2104).
//!
//! The same text gets the same pseudonym, so messages can still be joined and counted. Without the secret, a
//! pseudonym cannot be found by hashing all card numbers or addresses; of a plain hash it can.

use std::io::Write;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use thalweg_config::Mistake;

/// The shortest secret, in bytes.
const SHORTEST: usize = 8;

/// The state of the hash after the secret.
#[derive(Clone)]
pub(crate) struct Pseudonyms(Option<Hmac<Sha256>>);

impl Pseudonyms {
    /// Creates pseudonyms of a secret.
    pub(crate) fn new(secret: &str) -> Self {
        // A key of any length is possible.
        Self(Hmac::new_from_slice(secret.as_bytes()).ok())
    }

    /// Appends the pseudonym of a text, in hexadecimal digits.
    pub(crate) fn write(&self, text: &[u8], out: &mut Vec<u8>) {
        if let Some(mut hash) = self.0.clone() {
            hash.update(text);
            // Writing to memory does not fail.
            let _ = write!(out, "{:x}", hash.finalize().into_bytes());
        }
    }
}

/// Returns the mistake in the option `secret`, if there is one.
pub(crate) fn check(secret: Option<&str>) -> Option<Mistake> {
    let secret = secret.filter(|secret| secret.len() < SHORTEST)?;
    let message = format!("`secret` has {} bytes, which can be guessed.", secret.len());
    let help =
        format!("Use at least {SHORTEST} bytes, from a variable or a file: `${{file:/run/secrets/key}}`.");
    Some(Mistake::new("secret", message).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of test case 2 of RFC 4231.
    #[test]
    fn a_pseudonym_is_the_hmac_of_the_standard() {
        let mut out = b"id-".to_vec();
        Pseudonyms::new("Jefe").write(b"what do ya want for nothing?", &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "id-5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_short_secret_is_a_mistake() {
        assert!(check(None).is_none() && check(Some("long enough")).is_none());
        assert_eq!(check(Some("Jefe")).unwrap().message, "`secret` has 4 bytes, which can be guessed.");
    }
}
