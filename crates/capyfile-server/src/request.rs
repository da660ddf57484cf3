//! Answers a request: finds its processor, reads its files, and runs the processor.

use std::sync::Arc;
use std::time::Instant;

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};
use thalweg_dialects::capyfile;
use thalweg_dialects::capyfile::Operation;
use thalweg_dialects::capyfile::response::{self, Answer};
use thalweg_net::upload::{self, Accept, Refusal, Room, Uploads, pairs};
use thalweg_net::web::{self, ArrivingBody};

use crate::address::Address;
use crate::health;
use crate::server::Server;
use crate::settings::Mistakes;

impl Server {
    /// Answers a request, and logs the answer.
    pub(super) async fn answer(self: Arc<Self>, request: web::Request, peer: Arc<str>) -> web::Answer {
        let begun = Instant::now();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = self.as_settled(self.clone().of_request(request).await);
        let milliseconds = begun.elapsed().as_millis();
        tracing::info!(client = %peer, %method, %path, status = answer.http_status, milliseconds, "answered");
        let status = StatusCode::from_u16(answer.http_status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut given = web::text(status, "");
        *given.body_mut() = answer.body.into();
        given.headers_mut().remove(CONTENT_TYPE);
        if !answer.content_type.is_empty() {
            given.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.content_type));
        }
        if let Some(location) = answer.location.and_then(|location| HeaderValue::from_str(&location).ok()) {
            given.headers_mut().insert(LOCATION, location);
        }
        given
    }

    /// The answer to a client's mistake, as it is to be.
    fn as_settled(&self, answer: Answer) -> Answer {
        let is_mistake = answer.is_invalid_request() && self.settings.mistakes == Mistakes::Internal;
        if is_mistake { response::internal() } else { answer }
    }

    async fn of_request(self: Arc<Self>, request: web::Request) -> Answer {
        if let Some(check) = self.settings.check.as_ref().filter(|check| check.is_at(request.uri().path())) {
            return health::answer(check, &self);
        }
        let under_way = self.begin();
        let (mut head, body) = request.into_parts();
        let (processor, operations) = match self.processor(&head.method, &head.uri) {
            Ok(found) => found,
            Err(answer) => {
                upload::drain(body, self.limits).await;
                return answer;
            }
        };
        let headers = headers(&head);
        // A compressed body is a compressed file, which stays as it is.
        head.headers.remove(CONTENT_ENCODING);
        let Uploads { files, fields } = match self.read(&head, body, operations).await {
            Ok(uploads) => uploads,
            Err(refusal) => return refused(&refusal),
        };
        let query = pairs(head.uri.query().unwrap_or_default().as_bytes());
        let request = capyfile::Request { query, form: fields, headers };
        let processor = processor.to_owned();
        // Files that have arrived are processed, even if the client is gone.
        let server = self.clone();
        let processing = tokio::spawn(async move {
            let answer = server.process(processor, request, files).await;
            drop(under_way);
            answer
        });
        processing.await.unwrap_or_else(|error| {
            tracing::error!("a request could not be processed: {error}");
            response::internal()
        })
    }

    /// The processor of an address, with its operations.
    fn processor(&self, method: &Method, uri: &Uri) -> Result<(&str, &[Operation]), Answer> {
        let (service, processor) = match Address::of(uri.path()) {
            Address::Processor { service, processor } => (service, processor),
            Address::Nothing => return Err(response::not_found()),
            Address::Malformed => return Err(response::bad_address()),
            Address::Moved { path } => {
                let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
                return Err(response::moved(path + &query, method == Method::GET));
            }
        };
        if service != self.service {
            return Err(response::service_not_found());
        }
        match self.processors.get_key_value(&processor) {
            Some((name, operations)) => Ok((name, operations)),
            None => Err(response::processor_not_found()),
        }
    }

    /// Reads the files and fields of a request in the form that the processor expects.
    async fn read(
        &self,
        head: &Parts,
        body: ArrivingBody,
        operations: &[Operation],
    ) -> Result<Uploads, Refusal> {
        let has = |operation| operations.contains(&operation);
        // Commands read their files by path.
        let room = Room { in_memory: !has(Operation::CommandExec), ..self.room.clone() };
        let accept = if has(Operation::HttpMultipartFormInputRead) {
            Accept::Multipart
        } else if has(Operation::HttpOctetStreamInputRead) {
            Accept::Body
        } else if upload::is_form(head) {
            // The fields may be parameters. The files are ignored.
            let uploads = upload::read(head, body, Accept::Multipart, self.limits, &room).await?;
            return Ok(Uploads { files: Vec::new(), fields: uploads.fields });
        } else {
            return Ok(upload::read_fields(head, body, self.limits).await?.unwrap_or_default());
        };
        upload::read(head, body, accept, self.limits, &room).await
    }
}

fn headers(head: &Parts) -> Vec<(String, String)> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter();
    headers.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// The answer to a rejected request.
fn refused(refusal: &Refusal) -> Answer {
    match refusal {
        Refusal::TooLarge(reason) => response::too_large(reason),
        Refusal::Failed(error) => {
            tracing::error!("an upload cannot be stored: {}", error.full());
            response::internal()
        }
        Refusal::Busy(reason) => {
            tracing::error!("an upload cannot be stored: {reason}");
            response::internal()
        }
        Refusal::Malformed(_) | Refusal::Unsupported(_) | Refusal::Late => {
            Answer { http_status: refusal.status().as_u16(), ..response::invalid_request(refusal.reason()) }
        }
    }
}
