//! Cuts the whole body of a request or an answer into messages.

use arrow_buffer::Buffer;
use thalweg_codec::charset::Charset;
use thalweg_codec::stream_framing::StreamFraming;
use thalweg_config::ByteSize;

use super::{Cut, Cuts};

/// Cuts a body into messages. Without framing, all of it is one.
pub fn cuts_of(
    body: Buffer,
    framing: Option<&StreamFraming>,
    charset: Charset,
    limit: ByteSize,
) -> Box<dyn Iterator<Item = Cut> + Send> {
    match framing {
        Some(framing) => Box::new(Cuts::new(body, framing.begin(limit, false).reading(charset), limit)),
        None => {
            let (mark, charset) = charset.after_mark(&body, true).unwrap_or((0, charset));
            let messages = std::iter::once(mark..body.len()).collect();
            Box::new(std::iter::once(Cut { messages, charset, ..Cut::of(body) }))
        }
    }
}
