//! The dead letters of the run that answers: listed, shown and discarded.
//!
//! The database has one user, the store of the run, which serves its letters on a local socket. They are
//! asked for there, as `thalweg errors` does: the store of a run opens when it has something to keep, and
//! only the engine knows it. Payloads are cut. One answer is made at a time, because a page of letters has
//! one message as a whole. A request looks at a bounded number of letters: see [`super::letter_search`].

#[cfg(not(target_os = "linux"))]
pub(super) use elsewhere::{discard, letters, one};
#[cfg(target_os = "linux")]
pub(super) use linux::{discard, letters, one};

/// Dead letters are served on a socket with an abstract name, which only Linux has.
#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::sync::Arc;

    use hyper::StatusCode;
    use serde_json::Value;

    use super::super::Observed;
    use super::super::reply::Refusal;
    use super::super::routes::Given;

    pub(in super::super) async fn letters(_: &Arc<Observed>, _: &Given) -> Result<Value, Refusal> {
        Err(refused())
    }

    pub(in super::super) async fn one(_: &Arc<Observed>, _: &str) -> Result<Value, Refusal> {
        Err(refused())
    }

    pub(in super::super) async fn discard(_: &Arc<Observed>, _: &[u8]) -> Result<Value, Refusal> {
        Err(refused())
    }

    fn refused() -> Refusal {
        let reason = "dead letters can be read and discarded during a run on Linux alone";
        Refusal::new(StatusCode::NOT_IMPLEMENTED, reason)
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::Arc;

    use chrono::{DateTime, SecondsFormat};
    use hyper::StatusCode;
    use serde_json::{Value, json};
    use thalweg_engine::{DeadLetter, DeadLetterId, Error, RunningLetters};
    use thalweg_redact::{longest_secret, redacted_start};

    use super::super::Observed;
    use super::super::entries::entries;
    use super::super::letter_search::{Bounds, search};
    use super::super::reply::Refusal;
    use super::super::routes::Given;
    use crate::errors::Filter;

    /// The payloads of a list are cut to this many bytes.
    const EXCERPT: usize = 4096;
    /// The payload of a letter, and all of its fields, are cut to this many bytes. `thalweg errors show` has
    /// them whole.
    const LONGEST: usize = 256 << 10;
    /// The most letters that are discarded by one request, and the usual number.
    const MOST_DISCARDED: usize = 100_000;
    const USUALLY_DISCARDED: usize = 10_000;

    /// The oldest letters, as the parameters say.
    pub(in super::super) async fn letters(run: &Arc<Observed>, given: &Given) -> Result<Value, Refusal> {
        let limit = given.number("limit", 50, 1..=100)?;
        let after = match given.first("after") {
            None => 0,
            Some(text) => text.parse::<DeadLetterId>().map_err(|_| no_number())?,
        };
        let filter = Filter { component: given.first("component").map(str::to_owned) };
        let listed = asked(run, move |running| {
            let bounds = Bounds::of(limit as usize);
            let shown = |id, letter: &DeadLetter| brief(id, letter, EXCERPT);
            let found = search(running.letters_after(after), &filter, &bounds, shown)?;
            let answer = json!({ "dead_letters": found.letters, "dropped": running.dropped()? });
            Ok(with_next(answer, found.next))
        });
        Ok(listed.await?.unwrap_or_else(|| json!({ "dead_letters": [], "dropped": 0 })))
    }

    fn no_number() -> Refusal {
        Refusal::bad("`after` must be the number of a dead letter")
    }

    /// Adds where the next request continues, if there may be more letters.
    fn with_next(mut answer: Value, next: Option<DeadLetterId>) -> Value {
        if let Some(next) = next {
            answer["next"] = next.into();
        }
        answer
    }

    /// A letter with its fields.
    pub(in super::super) async fn one(run: &Arc<Observed>, id: &str) -> Result<Value, Refusal> {
        let unknown = || {
            let reason = "there is no dead letter of this number; `/api/v1/dead_letters` lists them";
            Refusal::new(StatusCode::NOT_FOUND, reason)
        };
        let id: DeadLetterId = id.parse().map_err(|_| unknown())?;
        let letter = asked(run, move |running| {
            Ok(running.letter(id)?.map(|letter| {
                let mut shown = brief(id, &letter, LONGEST);
                shown["passed"] = json!(letter.passed);
                let (fields, are_cut) = fields(&letter);
                shown["fields"] = fields;
                shown["fields_are_cut"] = are_cut.into();
                shown
            }))
        });
        letter.await?.flatten().ok_or_else(unknown)
    }

    /// The letters to discard.
    #[derive(Debug, PartialEq)]
    enum Wanted {
        These(Vec<DeadLetterId>),
        /// The oldest ones of a component, or of all, with higher numbers than `after`.
        Oldest {
            component: Option<String>,
            after: DeadLetterId,
            /// At most this many.
            limit: usize,
        },
    }

    /// Discards letters. They are gone for good when this answers.
    pub(in super::super) async fn discard(run: &Arc<Observed>, body: &[u8]) -> Result<Value, Refusal> {
        let wanted = wanted(body)?;
        let discarded = asked(run, move |running| match wanted {
            Wanted::These(ids) => Ok((running.remove(&ids)?, None)),
            Wanted::Oldest { component, after, limit } => {
                let (filter, bounds) = (Filter { component }, Bounds::of(limit));
                let found = search(running.letters_after(after), &filter, &bounds, |id, _| id)?;
                Ok((running.remove(&found.letters)?, found.next))
            }
        });
        let (discarded, next) = discarded.await?.unwrap_or_default();
        Ok(with_next(json!({ "discarded": discarded }), next))
    }

    fn wanted(body: &[u8]) -> Result<Wanted, Refusal> {
        let wrong = || {
            Refusal::bad(
                "send an object with one of `ids`, `component` and `all`, such as `{\"ids\":[1,2]}`, \
                 `{\"component\":\"main\"}` or `{\"all\":true}`",
            )
        };
        let mut body = entries(body)?.ok_or_else(wrong)?;
        let limit = match body.remove("limit") {
            None => USUALLY_DISCARDED,
            Some(limit) => {
                let limit = limit.as_u64().and_then(|limit| usize::try_from(limit).ok());
                limit.filter(|limit| (1..=MOST_DISCARDED).contains(limit)).ok_or_else(|| {
                    Refusal::bad(format!("`limit` must be a number from 1 to {MOST_DISCARDED}"))
                })?
            }
        };
        let after = match body.remove("after") {
            None => 0,
            Some(after) => after.as_u64().ok_or_else(no_number)?,
        };
        let mut entries = body.into_iter();
        let (Some((name, value)), None) = (entries.next(), entries.next()) else { return Err(wrong()) };
        match (name.as_str(), value) {
            ("ids", Value::Array(ids)) => {
                let ids = ids.iter().map(Value::as_u64).collect::<Option<_>>();
                ids.map(Wanted::These).ok_or_else(wrong)
            }
            ("component", Value::String(component)) => {
                Ok(Wanted::Oldest { component: Some(component), after, limit })
            }
            ("all", Value::Bool(true)) => Ok(Wanted::Oldest { component: None, after, limit }),
            _ => Err(wrong()),
        }
    }

    /// Asks the store on a thread that may wait, for one client at a time. `None` if the run has not opened
    /// its store: nothing was rejected.
    async fn asked<T: Send + 'static>(
        run: &Arc<Observed>,
        of: impl FnOnce(&RunningLetters) -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Refusal> {
        run.handle()?;
        let failed = |reason: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, reason);
        let one = run.letters.clone().lock_owned().await;
        let folder = run.state.clone();
        let answered = tokio::task::spawn_blocking(move || {
            let found =
                RunningLetters::find(&folder, None).and_then(|found| found.as_ref().map(of).transpose());
            drop(one);
            found
        });
        match answered.await {
            Ok(found) => found.map_err(|error| failed(error.full())),
            Err(error) => Err(failed(format!("the dead letters cannot be reached: {error}"))),
        }
    }

    fn brief(id: DeadLetterId, letter: &DeadLetter, longest: usize) -> Value {
        let payload = letter.payload_bytes();
        let (payload, is_cut) = start(&String::from_utf8_lossy(&payload), longest);
        let time = DateTime::from_timestamp_micros(letter.time_us)
            .map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, true));
        json!({
            "id": id,
            "time": time,
            "component": letter.component,
            "source": letter.source,
            "path": letter.path,
            "position": letter.position,
            "reason": letter.reason,
            "file": letter.file.as_ref().map(|file| json!({ "name": file.name, "size": file.size })),
            "payload": payload,
            "payload_is_cut": is_cut,
        })
    }

    /// The fields of a letter, and whether some are left out or cut.
    fn fields(letter: &DeadLetter) -> (Value, bool) {
        let (mut fields, mut left, mut are_cut) = (Vec::new(), LONGEST, false);
        for field in &letter.fields {
            let size = field.name.len() + field.data_type.len();
            if size >= left {
                are_cut = true;
                break;
            }
            left -= size;
            let value = field.value.as_ref().map(|value| start(value, left));
            are_cut |= value.as_ref().is_some_and(|(_, is_cut)| *is_cut);
            let value = value.map(|(value, _)| value);
            left = left.saturating_sub(value.as_ref().map_or(0, String::len));
            fields.push(json!({ "name": field.name, "type": field.data_type, "value": value }));
        }
        (fields.into(), are_cut)
    }

    /// The start of a text without secrets, and whether the text is longer.
    fn start(text: &str, longest: usize) -> (String, bool) {
        let start = text.get(..text.floor_char_boundary(longest + longest_secret())).unwrap_or_default();
        (redacted_start(start, longest).into_owned(), text.len() > longest)
    }

    #[cfg(test)]
    mod tests {
        use thalweg_engine::KeptField;

        use super::*;

        fn letter(fields: Vec<KeptField>) -> DeadLetter {
            DeadLetter {
                time_us: 1,
                component: "main.parse_json".into(),
                passed: Vec::new(),
                reason: "is not JSON".into(),
                source: "in".into(),
                path: None,
                position: None,
                file: None,
                payload: Some("ä".repeat(LONGEST)),
                payload_hex: None,
                fields,
            }
        }

        fn field(name: &str, value: Option<String>) -> KeptField {
            KeptField {
                name: name.into(),
                data_type: "Utf8".into(),
                value,
                metadata: std::collections::BTreeMap::new(),
            }
        }

        #[test]
        fn a_request_to_discard_says_which_letters() {
            let wanted = |body: &str| wanted(body.as_bytes()).ok();
            assert_eq!(wanted(r#"{"ids":[1,20]}"#), Some(Wanted::These(vec![1, 20])));
            let oldest = |component: Option<&str>, after, limit| {
                Some(Wanted::Oldest { component: component.map(str::to_owned), after, limit })
            };
            assert_eq!(wanted(r#"{"component":"main","limit":7}"#), oldest(Some("main"), 0, 7));
            let usual = oldest(Some("main"), 20, USUALLY_DISCARDED);
            assert_eq!(wanted(r#"{"component":"main","after":20}"#), usual);
            assert_eq!(wanted(r#"{"all":true}"#), oldest(None, 0, USUALLY_DISCARDED));
            for body in [
                "",
                "[]",
                "{}",
                r#"{"all":false}"#,
                r#"{"limit":7}"#,
                r#"{"ids":[-1]}"#,
                r#"{"ids":1}"#,
                r#"{"ids":[1],"all":true}"#,
                r#"{"component":null}"#,
                r#"{"all":true,"limit":0}"#,
                r#"{"all":true,"limit":100001}"#,
                r#"{"all":true,"after":-1}"#,
                r#"{"after":7}"#,
                r#"{"every":true}"#,
                r#"{"all":false,"all":true}"#,
                r#"{"ids":[1],"limit":1,"limit":2}"#,
            ] {
                assert_eq!(wanted(body), None, "{body}");
            }
        }

        #[test]
        fn a_large_letter_is_cut_and_says_so() {
            let all =
                vec![field("a", None), field("b", Some("x".repeat(LONGEST))), field("c", Some("1".into()))];
            let letter = letter(all);
            let shown = brief(3, &letter, LONGEST);
            assert_eq!(
                (shown["payload"].as_str().unwrap().len(), &shown["payload_is_cut"]),
                (LONGEST, &true.into())
            );
            let (shown, are_cut) = fields(&letter);
            assert!(are_cut);
            assert_eq!((shown.as_array().unwrap().len(), &shown[0]["value"]), (2, &Value::Null));
            let (shown, are_cut) =
                fields(&DeadLetter { fields: vec![field("c", Some("1".into()))], ..letter });
            assert_eq!((shown, are_cut), (json!([{ "name": "c", "type": "Utf8", "value": "1" }]), false));
        }
    }
}
