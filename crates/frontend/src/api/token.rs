//! The token of the API.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use thalweg_engine::Error;
use thalweg_redact::{is_same_secret, keep_credential};

/// A shorter token can be guessed.
const SHORTEST: usize = 16;
/// The longest file that is read, in bytes.
const LONGEST: u64 = 4096;

/// A secret that clients send with each request.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// Reads a token: the only line of a file.
    ///
    /// # Errors
    /// If the file cannot be read, or has no token that is long enough and can be sent.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let name = path.display();
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text))
            .map_err(|error| Error::permanent(format!("the token `{name}` cannot be read: {error}")))?;
        let token = text.trim();
        keep_credential(token);
        if text.len() as u64 > LONGEST || !token.chars().all(|c| c.is_ascii_graphic()) {
            return Err(Error::permanent(format!(
                "`{name}` is not a token: it must be one line of at most {LONGEST} letters, digits and signs of ASCII"
            )));
        }
        if token.len() < SHORTEST {
            return Err(Error::permanent(format!(
                "the token in `{name}` has {} characters, and needs {SHORTEST}: make one with `openssl rand -hex 32`",
                token.len()
            )));
        }
        Ok(Self(token.to_owned()))
    }

    /// The text that a client sends.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// True if the value of a header `Authorization` has this token.
    pub(crate) fn fits(&self, header: &[u8]) -> bool {
        const SCHEME: &[u8] = b"bearer ";
        let Some((scheme, token)) = header.split_at_checked(SCHEME.len()) else { return false };
        scheme.eq_ignore_ascii_case(SCHEME) && is_same_secret(token.trim_ascii(), self.0.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Token, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, text).unwrap();
        Token::read(&path).map_err(|error| error.full())
    }

    #[test]
    fn only_the_token_itself_fits() {
        let token = read("0123456789abcdef\n").unwrap();
        for fits in ["Bearer 0123456789abcdef", "bearer  0123456789abcdef"] {
            assert!(token.fits(fits.as_bytes()), "{fits}");
        }
        for other in
            ["", "Bearer", "Bearer ", "0123456789abcdef", "Basic 0123456789abcdef", "Bearer 0123456789abcdeg"]
        {
            assert!(!token.fits(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_token_that_is_short_or_cannot_be_sent_is_refused() {
        let refused = |text: &str| read(text).err().unwrap();
        assert!(refused("short\n").contains("has 5 characters, and needs 16"), "{}", refused("short\n"));
        for text in ["0123456789abcdef\n0123456789abcdef", "0123456789 abcdef", "0123456789abcdéf"] {
            assert!(refused(text).contains("is not a token"), "{text:?}");
        }
        assert!(refused(&"x".repeat(5000)).contains("is not a token"));
    }
}
