//! The user of a connection.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use thalweg_engine::Error;

use crate::options::Auth;
use crate::wire::Connect;

/// The user of a connection, ready to introduce itself.
pub(super) enum User {
    Nobody,
    Password(String, String),
    Token(String),
    /// The key signs what the server asks for.
    Key(KeyPair),
    /// The token of an account, and the key that it names.
    Jwt(String, KeyPair),
}

impl User {
    /// Prepares a user. Reads the credentials file.
    ///
    /// # Errors
    /// If the file or a key cannot be used.
    pub(super) async fn new(auth: Option<&Auth>) -> Result<Self, Error> {
        let Some(auth) = auth else { return Ok(Self::Nobody) };
        if let (Some(user), Some(password)) = (&auth.user, &auth.password) {
            return Ok(Self::Password(user.clone(), password.clone()));
        }
        if let Some(token) = &auth.token {
            return Ok(Self::Token(token.clone()));
        }
        if let Some(seed) = &auth.nkey {
            let key = KeyPair::from_seed(seed);
            let unusable = |error: nkeys::error::Error| {
                Error::permanent("the key in `auth` cannot be used").caused_by(text(&error))
            };
            return Ok(Self::Key(key.map_err(unusable)?));
        }
        match &auth.credentials_file {
            Some(path) => Self::read(path).await,
            None => Ok(Self::Nobody),
        }
    }

    async fn read(path: &Path) -> Result<Self, Error> {
        let failed = |reason: String| {
            Error::permanent(format!("cannot read credentials from `{}`", path.display())).caused_by(reason)
        };
        let content = tokio::fs::read_to_string(path).await.map_err(|error| failed(error.to_string()))?;
        let sections = sections(&content);
        let [jwt, seed, ..] = &sections[..] else {
            let expected = "it must have a JWT and the seed of an NKey, each between two lines of dashes";
            return Err(failed(expected.to_owned()));
        };
        let key = KeyPair::from_seed(seed).map_err(|error| failed(text(&error)))?;
        Ok(Self::Jwt(jwt.clone(), key))
    }

    /// Says who it is. `nonce` is what a key is to sign.
    ///
    /// # Errors
    /// If the key cannot sign.
    pub(super) fn introduce<'a>(&'a self, connect: &mut Connect<'a>, nonce: &str) -> Result<(), Error> {
        match self {
            Self::Nobody => {}
            Self::Password(user, password) => {
                (connect.user, connect.pass) = (Some(user.as_str()), Some(password.as_str()));
            }
            Self::Token(token) => connect.auth_token = Some(token.as_str()),
            Self::Key(key) => {
                (connect.nkey, connect.sig) = (Some(key.public_key()), Some(signature(key, nonce)?));
            }
            Self::Jwt(jwt, key) => {
                (connect.jwt, connect.sig) = (Some(jwt.as_str()), Some(signature(key, nonce)?));
            }
        }
        Ok(())
    }
}

fn signature(key: &KeyPair, nonce: &str) -> Result<String, Error> {
    let signed = key.sign(nonce.as_bytes());
    let signed =
        signed.map_err(|error| Error::permanent("the key in `auth` cannot sign").caused_by(text(&error)))?;
    Ok(URL_SAFE_NO_PAD.encode(signed))
}

fn text(error: &nkeys::error::Error) -> String {
    error.to_string()
}

/// Returns the texts between lines such as `-----BEGIN NATS USER JWT-----` and `------END NATS USER
/// JWT------`.
fn sections(content: &str) -> Vec<String> {
    let mut sections = Vec::new();
    let mut section: Option<String> = None;
    for line in content.lines().map(str::trim) {
        let is_mark = |word| line.starts_with("---") && line.contains(word);
        if is_mark("BEGIN") {
            section = Some(String::new());
        } else if is_mark("END") {
            sections.extend(section.take());
        } else if let Some(section) = &mut section {
            section.push_str(line);
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "SUAHKLHMY45Y3MOYAOCSJNSP6MRWP3SWQXH3JY3CYESPZ3RTDZ4TY7KBBA";
    const KEY: &str = "UCVGYVHB2DD46OI2TRMPXGT7MKJJ7KHZRGBGOUN3AZLCO3ZHDLIQBUHY";

    #[tokio::test]
    async fn credentials_are_a_token_and_a_key_and_a_wrong_file_is_named_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("user.creds");
        let auth = Auth { credentials_file: Some(path.clone()), ..Auth::default() };
        let good = format!(
            "-----BEGIN NATS USER JWT-----\r\nabc.def-1\r\n------END NATS USER JWT------\r\n\r\n\
             *** IMPORTANT ***\r\n-----BEGIN USER NKEY SEED-----\r\n{SEED}\r\n------END USER NKEY SEED------\r\n"
        );
        std::fs::write(&path, &good).unwrap();
        let user = User::new(Some(&auth)).await.unwrap();
        let mut connect = Connect::default();
        user.introduce(&mut connect, "nonce").unwrap();
        // 64 bytes.
        assert_eq!((connect.jwt, connect.sig.map(|text| text.len())), (Some("abc.def-1"), Some(86)));
        for (content, expected) in [
            ("secret-text", "it must have a JWT"),
            (&good.replace("SUAHK", "SUAHJ"), "Checksum"),
            (&good.replace(SEED, "secret-text"), ""),
        ] {
            std::fs::write(&path, content).unwrap();
            let Err(error) = User::new(Some(&auth)).await else { panic!("{content}") };
            let error = error.full();
            assert!(
                error.starts_with(&format!("cannot read credentials from `{}`", path.display())),
                "{error}"
            );
            assert!(error.contains(expected) && !error.contains("secret-text"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_key_signs_and_names_its_public_half() {
        let auth = Auth { nkey: Some(SEED.to_owned()), ..Auth::default() };
        let user = User::new(Some(&auth)).await.unwrap();
        let mut connect = Connect::default();
        user.introduce(&mut connect, "nonce").unwrap();
        assert_eq!(connect.nkey.as_deref(), Some(KEY));
        assert!(connect.sig.is_some() && connect.user.is_none());
    }
}
