//! Parameters from etcd, over its gateway for HTTP and JSON.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use thalweg_engine::Error;
use thalweg_net::fetch::{Fetch, Redirects};
use thalweg_redact::{foreign, keep_address, keep_credential, without_secrets};

use super::wait;
use crate::error::LoadError;

/// How long etcd may take to answer, as in capyfile.
const LONGEST: Duration = Duration::from_secs(5);
/// The largest answer, in bytes. etcd limits a request to 1.5 MiB.
const LARGEST: usize = 4 << 20;

/// The addresses of etcd, and the user.
pub(super) struct Etcd {
    /// The first address that answers is used.
    endpoints: Vec<String>,
    user: Option<(String, String)>,
}

impl Etcd {
    /// Reads `ETCD_ENDPOINTS` (a list in JSON), `ETCD_USERNAME` and `ETCD_PASSWORD`; `None` without
    /// endpoints.
    pub(super) fn of_the_environment(
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, LoadError> {
        let set = |name| variable(name).filter(|value| !value.is_empty());
        let Some(list) = set("ETCD_ENDPOINTS") else { return Ok(None) };
        let endpoints: Vec<String> = serde_json::from_str(&list).unwrap_or_default();
        if endpoints.is_empty() {
            return Err(LoadError::Variable(
                "`ETCD_ENDPOINTS` is not a list in JSON; write for example `[\"localhost:2379\"]`".to_owned(),
            ));
        }
        let endpoints = endpoints.into_iter().map(|endpoint| {
            let endpoint = endpoint.trim_end_matches('/');
            if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") }
        });
        let user = set("ETCD_USERNAME").map(|name| (name, set("ETCD_PASSWORD").unwrap_or_default()));
        let etcd = Self { endpoints: endpoints.collect(), user };
        etcd.endpoints.iter().for_each(|endpoint| keep_address(endpoint));
        etcd.user.iter().for_each(|(_, password)| keep_credential(password));
        Ok(Some(etcd))
    }

    /// The value of a key, if there is one.
    pub(super) fn get(&self, key: &str) -> Result<Option<String>, String> {
        let asked = wait(async {
            match tokio::time::timeout(LONGEST, self.ask(key)).await {
                Ok(answer) => answer,
                Err(_) => Err(Error::temporary("etcd did not answer within 5 s")),
            }
        });
        asked.map_err(|error| format!("{}.", error.full()))
    }

    async fn ask(&self, key: &str) -> Result<Option<String>, Error> {
        let client = Fetch::new(LONGEST, LARGEST, Redirects::Refused)?;
        let mut last = Error::permanent("there is no etcd to ask");
        for endpoint in &self.endpoints {
            match self.ask_one(&client, endpoint, key).await {
                Ok(value) => return Ok(value),
                Err(error) => {
                    last =
                        Error::temporary(format!("etcd at {}", without_secrets(endpoint))).caused_by(error);
                }
            }
        }
        Err(last)
    }

    async fn ask_one(&self, client: &Fetch, endpoint: &str, key: &str) -> Result<Option<String>, Error> {
        let token = match &self.user {
            None => None,
            Some((name, password)) => {
                let who = json!({ "name": name, "password": password });
                let answer = post(client, &format!("{endpoint}/v3/auth/authenticate"), &who, None).await?;
                let token = answer.get("token").and_then(Value::as_str);
                Some(token.ok_or_else(|| Error::permanent("it returned no token"))?.to_owned())
            }
        };
        let question = json!({ "key": STANDARD.encode(key) });
        let url = format!("{endpoint}/v3/kv/range");
        value(&post(client, &url, &question, token.as_deref()).await?)
    }
}

async fn post(client: &Fetch, url: &str, question: &Value, token: Option<&str>) -> Result<Value, Error> {
    let (status, answer) = client.post(url, question.to_string(), token).await?;
    parsed(status, &answer, token)
}

/// The answer with this status to a request with this token, if it is no error.
fn parsed(status: u16, answer: &[u8], token: Option<&str>) -> Result<Value, Error> {
    let answer = serde_json::from_slice(answer).unwrap_or(Value::Null);
    match (status, answer) {
        (200, answer @ Value::Object(_)) => Ok(answer),
        (_, answer) => {
            let said = answer.get("message").and_then(Value::as_str).unwrap_or("nothing readable");
            // There is a new token for each parameter, so the registry of secrets would grow without end.
            let said =
                token.filter(|token| !token.is_empty()).map_or(said.into(), |token| said.replace(token, "…"));
            let said = foreign(&said);
            Err(Error::permanent(format!("it answered with the status {status} and said {said}")))
        }
    }
}

/// Reads the answer to a question for a key. Public for its fuzz target.
#[doc(hidden)]
pub fn etcd_value(status: u16, answer: &[u8]) -> Result<Option<String>, Error> {
    value(&parsed(status, answer, None)?)
}

/// The value in an answer. etcd omits empty values, and an empty list of values.
fn value(answer: &Value) -> Result<Option<String>, Error> {
    let Some(found) = answer.get("kvs").and_then(|found| found.get(0)) else { return Ok(None) };
    let encoded = found.get("value").and_then(Value::as_str).unwrap_or_default();
    let text = STANDARD.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(Some).ok_or_else(|| Error::permanent("the value is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Etcd>, LoadError> {
        Etcd::of_the_environment(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn it_is_where_the_environment_says() {
        assert!(of(&[]).unwrap().is_none() && of(&[("ETCD_ENDPOINTS", "")]).unwrap().is_none());
        let etcd = of(&[
            ("ETCD_ENDPOINTS", "[\"a:2379\", \"https://b:2379/\"]"),
            ("ETCD_USERNAME", "me"),
            ("ETCD_PASSWORD", "secret"),
        ]);
        let etcd = etcd.unwrap().unwrap();
        assert_eq!(etcd.endpoints, ["http://a:2379", "https://b:2379"]);
        assert_eq!(etcd.user, Some(("me".to_owned(), "secret".to_owned())));
        for wrong in ["a:2379", "[]", "[1]"] {
            assert!(matches!(of(&[("ETCD_ENDPOINTS", wrong)]), Err(LoadError::Variable(_))), "{wrong}");
        }
    }

    #[test]
    fn a_failure_names_etcd_without_its_password() {
        // Nothing listens at port 1.
        let etcd = of(&[("ETCD_ENDPOINTS", "[\"http://me:secret@127.0.0.1:1\"]")]).unwrap().unwrap();
        let error = etcd.get("a").unwrap_err();
        assert!(error.contains("etcd at http://127.0.0.1:1") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn the_value_is_what_was_put() {
        let answer =
            json!({ "kvs": [{ "key": "L2E=", "value": "dXMtZWFzdC0x", "version": "3" }], "count": "1" });
        assert_eq!(value(&answer).unwrap().as_deref(), Some("us-east-1"));
        assert_eq!(value(&json!({ "header": {} })).unwrap(), None);
        assert_eq!(value(&json!({ "kvs": [{ "key": "L2E=" }] })).unwrap().as_deref(), Some(""));
        assert!(value(&json!({ "kvs": [{ "value": "/w==" }] })).is_err());
    }
}
