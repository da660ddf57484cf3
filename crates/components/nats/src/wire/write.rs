//! The lines that a client sends.

use serde::Serialize;
use thalweg_engine::Error;

use super::headers::VERSION;

/// The question whether the server is there.
pub(crate) const PING: &[u8] = b"PING\r\n";
/// The answer to the same question of the server.
pub(crate) const PONG: &[u8] = b"PONG\r\n";

/// The longest line of a message that servers take by default, in bytes, without its first word. They close
/// the connection after a longer one, and would do so again each time that the message is sent.
const LINE: usize = 4096;
/// The most bytes of the sizes in such a line, with the spaces before them.
const SIZES: usize = 2 * " 2147483647".len();

/// The description of a client.
#[derive(Default, Serialize)]
pub(crate) struct Connect<'a> {
    pub(crate) verbose: bool,
    pub(crate) pedantic: bool,
    pub(crate) tls_required: bool,
    pub(crate) name: &'a str,
    pub(crate) lang: &'static str,
    pub(crate) version: &'static str,
    /// 1: the server may say later what has changed about it.
    pub(crate) protocol: u8,
    /// True if the client receives also what it has sent itself.
    pub(crate) echo: bool,
    pub(crate) headers: bool,
    /// True if the server answers in place of subscribers if there is none.
    pub(crate) no_responders: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jwt: Option<&'a str>,
    /// The public key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nkey: Option<String>,
    /// The signature of the nonce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sig: Option<String>,
}

/// A message to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publication<'a> {
    pub(crate) subject: &'a str,
    /// The subject for the answer.
    pub(crate) reply: Option<&'a str>,
    /// Names and values, which have no line breaks.
    pub(crate) headers: &'a [(String, String)],
    pub(crate) payload: &'a [u8],
}

impl Publication<'_> {
    /// Returns its size as the server counts it.
    pub(crate) fn size(&self) -> usize {
        self.headers_size() + self.payload.len()
    }

    fn headers_size(&self) -> usize {
        if self.headers.is_empty() {
            return 0;
        }
        let sizes = self.headers.iter().map(|(name, value)| name.len() + value.len() + ": \r\n".len());
        VERSION.len() + "\r\n\r\n".len() + sizes.sum::<usize>()
    }

    /// Returns why it cannot be sent: a server would read something else, or end the connection.
    pub(crate) fn mistake(&self) -> Option<String> {
        let is_word = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte > b' ' && byte != 0x7f);
        if !is_word(self.subject) || !self.reply.is_none_or(is_word) {
            return Some("a subject has spaces".to_owned());
        }
        let most = (LINE - SIZES).saturating_sub(self.reply.map_or(0, |reply| reply.len() + 1));
        let size = self.subject.len();
        (size > most).then(|| format!("the subject has {size} bytes, more than a server takes ({most})"))
    }
}

/// Writes what a client says about itself.
///
/// # Errors
/// If it cannot be written as JSON.
pub(crate) fn connect(out: &mut Vec<u8>, connect: &Connect<'_>) -> Result<(), Error> {
    out.extend_from_slice(b"CONNECT ");
    serde_json::to_writer(&mut *out, connect)
        .map_err(|error| Error::permanent("the client cannot introduce itself").caused_by(error))?;
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Writes a message.
pub(crate) fn publish(out: &mut Vec<u8>, message: &Publication<'_>) {
    let headers = message.headers_size();
    let word = if headers == 0 { "PUB" } else { "HPUB" };
    line(out, [Some(word), Some(message.subject), message.reply]);
    if headers > 0 {
        out.extend_from_slice(format!(" {headers}").as_bytes());
    }
    out.extend_from_slice(format!(" {}\r\n", message.size()).as_bytes());
    if headers > 0 {
        out.extend_from_slice(VERSION.as_bytes());
        out.extend_from_slice(b"\r\n");
        for (name, value) in message.headers {
            for part in [name.as_str(), ": ", value.as_str(), "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(message.payload);
    out.extend_from_slice(b"\r\n");
}

/// Writes a subscription with a number, as a member of a queue group if there is one.
pub(crate) fn subscribe(out: &mut Vec<u8>, subscription: u64, subject: &str, group: Option<&str>) {
    line(out, [Some("SUB"), Some(subject), group]);
    out.extend_from_slice(format!(" {subscription}\r\n").as_bytes());
}

/// Writes the end of a subscription.
pub(crate) fn unsubscribe(out: &mut Vec<u8>, subscription: u64) {
    out.extend_from_slice(format!("UNSUB {subscription}\r\n").as_bytes());
}

/// Writes words with spaces between them.
fn line(out: &mut Vec<u8>, words: [Option<&str>; 3]) {
    for (number, word) in words.into_iter().flatten().enumerate() {
        if number > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word.as_bytes());
    }
}
