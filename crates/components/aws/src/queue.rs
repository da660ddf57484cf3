//! A queue of SQS, which users name by its URL or by its name.

use serde::Deserialize;
use serde_json::json;
use thalweg_engine::Error;
use thalweg_net::requests::Request;
use tokio::sync::OnceCell;

use crate::api::{CallError, SQS, ask, read};

/// The most bytes of the URL of a queue. Each request repeats it.
const LONGEST_URL: usize = 2048;

/// A queue.
pub(crate) struct Queue {
    given: String,
    url: OnceCell<String>,
}

#[derive(Deserialize)]
struct Found {
    #[serde(rename = "QueueUrl")]
    url: String,
}

/// True if a queue, by its URL or name, or a topic keeps the order of messages.
pub(crate) fn is_fifo(name: &str) -> bool {
    name.ends_with(".fifo")
}

/// True if the text is a URL of a queue, or may be the name of one.
pub(crate) fn is_queue(text: &str) -> bool {
    let is_name = |name: &str| {
        (1..=80).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    match text.split_once("://") {
        Some(("http" | "https", rest)) => {
            let last = rest.rsplit_once('/');
            last.is_some_and(|(host, name)| !host.is_empty() && !host.contains('@') && is_name(name))
        }
        Some(_) => false,
        None => is_name(text),
    }
}

impl Queue {
    /// Returns the queue with this URL or name.
    pub(crate) fn new(given: &str) -> Self {
        let url = given.contains("://").then(|| given.to_owned());
        Self { given: given.to_owned(), url: OnceCell::new_with(url) }
    }

    /// Returns the URL, if it is known.
    pub(crate) fn known(&self) -> Option<&str> {
        self.url.get().map(String::as_str)
    }

    /// Returns the URL. The service is asked for that of a name.
    ///
    /// # Errors
    /// If there is no such queue, the service does not answer, or the URL is too long.
    pub(crate) async fn url(&self, request: &Request) -> Result<&str, CallError> {
        let url = self.url.get_or_try_init(|| async {
            let body = json!({ "QueueName": self.given }).to_string();
            let answer = ask(request, &SQS, "GetQueueUrl", body.into()).await?;
            let Found { url } = read(request, &answer)?;
            if url.len() > LONGEST_URL {
                let (server, length) = (request.server(), url.len());
                let text =
                    format!("{server} gave the queue a URL of {length} bytes, more than {LONGEST_URL}");
                return Err(CallError::Failed(Error::permanent(text)));
            }
            Ok(url)
        });
        url.await.map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_has_a_name_or_a_url() {
        for (text, expected) in [
            ("orders", true),
            ("orders.fifo", true),
            ("https://sqs.eu-west-1.amazonaws.com/123456789012/orders", true),
            ("http://127.0.0.1:5000/1/orders.fifo", true),
            ("", false),
            ("a b", false),
            ("https://sqs.eu-west-1.amazonaws.com/", false),
            ("https://user:password@host/1/q", false),
            ("sqs://q", false),
            ("arn:aws:sqs:eu-west-1:1:q", false),
        ] {
            assert_eq!(is_queue(text), expected, "{text}");
        }
    }

    #[test]
    fn only_a_name_has_to_be_asked_for() {
        assert_eq!(Queue::new("http://h/1/q").known(), Some("http://h/1/q"));
        assert_eq!(Queue::new("q").known(), None);
    }
}
