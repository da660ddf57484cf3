//! The table of paths, and the way from a request to its answer.

use std::sync::Arc;

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use thalweg_net::web::repeated_header;
use thalweg_redact::percent_decoded;
use tokio::sync::Notify;

use super::access::Access;
use super::reply::{self, Body, Refusal};
use super::{Activity, Observed, dashboard, letters, metrics, openapi, reload, requests, runs, state, tap};
use crate::health;

/// The longest body of a request, in bytes.
pub(super) const LONGEST_BODY: usize = 64 << 10;
/// The paths below this one are for those who may use the API.
const API: &str = "/api/";

/// About the parameter that continues a search in the dead letters.
const AFTER: &str = "only those with higher numbers than this one. A request looks at 20000 letters, or at `limit` if that \
                     is more, and at most at 64 MiB of them. `next` in its answer is the `after` that continues";

/// A path and a method, and what they do.
pub(super) struct Route {
    pub(super) method: Verb,
    /// The path. A part in braces stands for any text.
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    /// The parameters of the query.
    pub(super) parameters: &'static [Parameter],
    /// The entries of the body, an object.
    pub(super) entries: &'static [Parameter],
    /// The type of the answer.
    pub(super) gives: &'static str,
    pub(super) operation: Operation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
}

/// A value that a request may have.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Its type in the words of JSON Schema.
    pub(super) form: &'static str,
    pub(super) is_required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Paths,
    Dashboard,
    DashboardFile,
    Metrics,
    Health,
    Ready,
    About,
    Graph,
    Stats,
    Tap,
    Pause,
    Resume,
    Drain,
    Stop,
    Reload,
    Difference,
    DeadLetters,
    DeadLetter,
    DiscardLetters,
    Runs,
    Run,
    LogLevel,
    Description,
}

const fn optional(name: &'static str, form: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, form, is_required: false }
}

const fn required(name: &'static str, form: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, form, is_required: true }
}

/// A path that is read, without parameters, and gives JSON.
const fn read(path: &'static str, operation: Operation, summary: &'static str) -> Route {
    Route { method: Verb::Get, path, summary, parameters: &[], entries: &[], gives: reply::JSON, operation }
}

/// A request that changes something, without parameters.
const fn change(path: &'static str, operation: Operation, summary: &'static str) -> Route {
    Route { method: Verb::Post, ..read(path, operation, summary) }
}

pub(super) static ROUTES: [Route; 23] = [
    Route { gives: reply::TEXT, ..read("/", Operation::Paths, "this list") },
    Route { gives: dashboard::PAGE, ..read("/dashboard", Operation::Dashboard, "this run in a browser") },
    Route {
        gives: "*/*",
        ..read(
            "/dashboard/{file}",
            Operation::DashboardFile,
            "a part of the dashboard: its script, style or icon",
        )
    },
    Route { gives: reply::METRICS, ..read("/metrics", Operation::Metrics, "counters, for Prometheus") },
    read(
        "/health",
        Operation::Health,
        "200 if every component works or the next run is waited for, 503 and why if not",
    ),
    read(
        "/ready",
        Operation::Ready,
        "200 while the run takes input or the next one is waited for, 503 before and after",
    ),
    read("/api/v1", Operation::About, "the version, the process, the configuration"),
    read("/api/v1/graph", Operation::Graph, "the components and how they are connected"),
    read(
        "/api/v1/stats",
        Operation::Stats,
        "counters of components, edges and queues; latencies; the budget and its holders",
    ),
    Route {
        parameters: &[
            required(
                "edge",
                "string",
                "a component whose output is shown, `NAME.errors`, or a sink; `*` is any text; may be repeated",
            ),
            optional("rate", "integer", "at most this many messages a second, up to 1000; 10 by default"),
            optional(
                "max_bytes",
                "integer",
                "texts are cut to this many bytes, up to 32768; 4096 by default",
            ),
            optional("format", "string", "`ndjson`, a line for each message, or `sse`, events for browsers"),
        ],
        gives: reply::JSON_LINES,
        ..read("/api/v1/tap", Operation::Tap, "messages as they pass, a line of JSON each")
    },
    change("/api/v1/sources/{name}/pause", Operation::Pause, "a source reads nothing until it is resumed"),
    change("/api/v1/sources/{name}/resume", Operation::Resume, "a paused source reads on"),
    change("/api/v1/sources/{name}/drain", Operation::Drain, "a source stops for the rest of the run"),
    change("/api/v1/stop", Operation::Stop, "the run delivers what is in flight, and ends"),
    change("/api/v1/reload", Operation::Reload, "the configuration is read again, and followed"),
    read(
        "/api/v1/difference",
        Operation::Difference,
        "the difference between the configuration that runs and its file",
    ),
    Route {
        parameters: &[
            optional("limit", "integer", "at most this many, up to 100; 50 by default"),
            optional("after", "integer", AFTER),
            optional("component", "string", "only those of this component, or of this pipeline"),
        ],
        ..read(
            "/api/v1/dead_letters",
            Operation::DeadLetters,
            "what could not be processed, oldest first, and `next` if there may be more",
        )
    },
    Route {
        entries: &[
            optional("ids", "array", "the numbers of the letters"),
            optional("component", "string", "the oldest ones of this component, or of this pipeline"),
            optional("all", "boolean", "`true`: the oldest ones of all"),
            optional("limit", "integer", "at most this many of the oldest, up to 100000; 10000 by default"),
            optional("after", "integer", AFTER),
        ],
        ..change(
            "/api/v1/dead_letters/discard",
            Operation::DiscardLetters,
            "dead letters are removed for good: give one of `ids`, `component` and `all`",
        )
    },
    // After the path above, which it would match.
    read("/api/v1/dead_letters/{id}", Operation::DeadLetter, "a dead letter with its fields"),
    Route {
        parameters: &[optional("limit", "integer", "at most this many, up to 1000; 50 by default")],
        ..read("/api/v1/runs", Operation::Runs, "the runs of the state directory, the latest first")
    },
    read("/api/v1/runs/{id}", Operation::Run, "a run with the counters of its components"),
    Route {
        entries: &[required(
            "level",
            "string",
            "`error`, `warn`, `info`, `debug`, `trace` or `off`; also by module, as THALWEG_LOG",
        )],
        ..change("/api/v1/log_level", Operation::LogLevel, "what is logged from now on")
    },
    read("/api/v1/openapi.json", Operation::Description, "this API as an OpenAPI document"),
];

/// Answers a request. `streams` is notified if the answer has no end.
pub(super) async fn answer(
    request: Request<Incoming>,
    access: Access,
    run: &Arc<Observed>,
    streams: &Notify,
) -> Response<Body> {
    let answered = answered(request, access, run, streams).await;
    answered.unwrap_or_else(Refusal::answer)
}

async fn answered(
    request: Request<Incoming>,
    access: Access,
    run: &Arc<Observed>,
    streams: &Notify,
) -> Result<Response<Body>, Refusal> {
    let (head, body) = request.into_parts();
    if let Some(reason) = repeated_header(&head.headers) {
        return Err(Refusal::bad(reason));
    }
    let path = head.uri.path();
    let is_of_api = path.starts_with(API);
    if is_of_api {
        access.check(run.token.as_ref(), &head.uri, &head.headers)?;
    }
    let route = match found(&head.method, path) {
        Found::Route(route) => route,
        Found::OtherMethod(Verb::Get) => return Err(Refusal::method("GET")),
        Found::OtherMethod(Verb::Post) => return Err(Refusal::method("POST")),
        Found::Nothing if is_of_api => {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such path; `/` lists them"));
        }
        Found::Nothing if path == dashboard::WITH_SLASH => return Ok(dashboard::without_slash()),
        Found::Nothing => return Ok(reply::text(StatusCode::NOT_FOUND, format!("there is:\n{}", paths()))),
    };
    let given =
        Given { query: query(head.uri.query(), route)?, body: read_body(&head.headers, body, route).await? };
    // The part of a path that has a name, counted from its end.
    let part = |from_end| percent_decoded(path.rsplit('/').nth(from_end).unwrap_or_default());
    let source = || part(1);
    let ok = |value| Ok(reply::json(StatusCode::OK, value));
    match route.operation {
        Operation::Paths => Ok(reply::text(StatusCode::OK, paths())),
        Operation::Dashboard => dashboard::page(&head.headers),
        Operation::DashboardFile => dashboard::file(&part(0), &head.headers),
        Operation::Metrics => Ok(reply::whole(StatusCode::OK, reply::METRICS, metrics::metrics(run))),
        Operation::Health => Ok(judged(match &run.activity {
            Activity::Running(handle) => health::health(handle, run.pulse.still_for()),
            Activity::Waiting(awaited) => health::waiting(&awaited.next()),
        })),
        Operation::Ready => Ok(judged(match &run.activity {
            Activity::Running(handle) => health::ready(handle),
            Activity::Waiting(awaited) => health::waiting(&awaited.next()),
        })),
        Operation::About => ok(state::about(run)),
        Operation::Graph => ok((*run.handle()?.graph()).clone()),
        Operation::Stats => ok(state::stats(run)?),
        Operation::Tap => tap::tap(run, &given, streams),
        Operation::Pause => ok(requests::pause(run, &source())?),
        Operation::Resume => ok(requests::resume(run, &source())?),
        Operation::Drain => ok(requests::drain(run, &source())?),
        Operation::Stop => ok(requests::stop(run)),
        Operation::Reload => ok(reload::reload(run).await?),
        Operation::Difference => ok(reload::difference(run).await?),
        Operation::DeadLetters => ok(letters::letters(run, &given).await?),
        Operation::DeadLetter => ok(letters::one(run, &part(0)).await?),
        Operation::DiscardLetters => ok(letters::discard(run, &given.body).await?),
        Operation::Runs => ok(runs::runs(run, given.number("limit", 50, 1..=1000)?).await?),
        Operation::Run => ok(runs::one(run, &part(0)).await?),
        Operation::LogLevel => ok(requests::log_level(&given.body)?),
        Operation::Description => ok(openapi::document()),
    }
}

/// Answers 200 if all is well, and 503 if not, with an object.
fn judged((is_well, object): (bool, serde_json::Value)) -> Response<Body> {
    reply::json(if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, object)
}

enum Found {
    Route(&'static Route),
    /// The path has only this method.
    OtherMethod(Verb),
    Nothing,
}

fn found(method: &Method, path: &str) -> Found {
    let Some(route) = ROUTES.iter().find(|route| is_path(route.path, path)) else { return Found::Nothing };
    let fits = match route.method {
        Verb::Post => method == Method::POST,
        // The answer to HEAD has no body, and a tap without it would never end.
        Verb::Get => method == Method::GET || (method == Method::HEAD && route.operation != Operation::Tap),
    };
    if fits { Found::Route(route) } else { Found::OtherMethod(route.method) }
}

fn is_path(pattern: &str, path: &str) -> bool {
    let fits =
        |(pattern, part): (&str, &str)| pattern == part || (pattern.starts_with('{') && !part.is_empty());
    pattern.split('/').count() == path.split('/').count() && pattern.split('/').zip(path.split('/')).all(fits)
}

/// The list of paths, for people.
fn paths() -> String {
    let name = |route: &Route| match route.method {
        Verb::Get => route.path.to_owned(),
        Verb::Post => format!("POST {}", route.path),
    };
    let width = ROUTES.iter().map(|route| name(route).len()).max().unwrap_or_default();
    ROUTES.iter().map(|route| format!("{:width$}  {}\n", name(route), route.summary)).collect()
}

/// The parameters and the body of a request.
pub(super) struct Given {
    query: Vec<(String, String)>,
    body: Bytes,
}

impl Given {
    /// The values of a parameter.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let values = self.query.iter().filter(|(known, _)| known == name);
        values.map(|(_, value)| value.clone()).collect()
    }

    /// The first value of a parameter.
    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A number, or the usual one.
    pub(super) fn number(
        &self,
        name: &str,
        usual: u32,
        limits: std::ops::RangeInclusive<u32>,
    ) -> Result<u32, Refusal> {
        let Some(text) = self.first(name) else { return Ok(usual) };
        let number = text.parse::<u32>().ok().filter(|number| limits.contains(number));
        let (least, most) = (limits.start(), limits.end());
        number.ok_or_else(|| Refusal::bad(format!("`{name}` must be a number from {least} to {most}")))
    }
}

/// Reads a query. A parameter that the path does not have is a mistake, not silence.
fn query(text: Option<&str>, route: &Route) -> Result<Vec<(String, String)>, Refusal> {
    let parts = text.unwrap_or_default().split('&').filter(|part| !part.is_empty());
    let decoded = |text: &str| percent_decoded(&text.replace('+', " "));
    let pairs = parts.map(|part| part.split_once('=').unwrap_or((part, "")));
    let given: Vec<_> = pairs.map(|(name, value)| (decoded(name), decoded(value))).collect();
    // Monitoring may add parameters of its own.
    if !route.path.starts_with(API) {
        return Ok(given);
    }
    let known = |name: &str| route.parameters.iter().any(|parameter| parameter.name == name);
    // An unknown name is not repeated: the answer would tell whether a guess is a secret.
    if given.iter().any(|(name, _)| !known(name)) {
        let names: Vec<_> =
            route.parameters.iter().map(|parameter| format!("`{}`", parameter.name)).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(Refusal::bad(format!("a parameter is unknown; this path has {known}")));
    }
    let missing = |parameter: &&Parameter| {
        parameter.is_required && !given.iter().any(|(name, _)| name == parameter.name)
    };
    match route.parameters.iter().find(missing) {
        Some(Parameter { name, about, .. }) => Err(Refusal::bad(format!("`{name}` is missing: {about}"))),
        None => Ok(given),
    }
}

/// Reads the body of a request that changes something. Browsers send this type to another site only with its
/// consent.
async fn read_body(headers: &HeaderMap, body: Incoming, route: &Route) -> Result<Bytes, Refusal> {
    if route.method == Verb::Get {
        return Ok(Bytes::new());
    }
    let of_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let of_type = of_type.split(';').next().unwrap_or_default().trim();
    if !of_type.eq_ignore_ascii_case(reply::JSON) {
        let reason = "send `Content-Type: application/json`, also without a body";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    match Limited::new(body, LONGEST_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a request may have {LONGEST_BODY} bytes"),
        )),
        Err(error) => Err(Refusal::bad(format!("the request cannot be read: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &Method, path: &str) -> Option<Operation> {
        match found(method, path) {
            Found::Route(route) => Some(route.operation),
            Found::OtherMethod(_) | Found::Nothing => None,
        }
    }

    #[test]
    fn a_path_has_one_operation_for_its_method_alone() {
        assert_eq!(route(&Method::GET, "/api/v1/stats"), Some(Operation::Stats));
        assert_eq!(route(&Method::HEAD, "/metrics"), Some(Operation::Metrics));
        assert_eq!(route(&Method::GET, "/dashboard"), Some(Operation::Dashboard));
        assert_eq!(route(&Method::GET, "/dashboard/app.js"), Some(Operation::DashboardFile));
        assert_eq!(route(&Method::GET, dashboard::WITH_SLASH), None);
        assert_eq!(route(&Method::POST, "/api/v1/sources/in%2Fx/pause"), Some(Operation::Pause));
        assert_eq!(route(&Method::GET, "/api/v1/sources/in/pause"), None);
        assert_eq!(route(&Method::GET, "/api/v1/runs"), Some(Operation::Runs));
        assert_eq!(route(&Method::GET, "/api/v1/runs/17"), Some(Operation::Run));
        assert_eq!(route(&Method::GET, "/api/v1/runs/"), None);
        assert_eq!(route(&Method::GET, "/api/v1/dead_letters/17"), Some(Operation::DeadLetter));
        assert_eq!(route(&Method::POST, "/api/v1/dead_letters/discard"), Some(Operation::DiscardLetters));
        assert_eq!(route(&Method::POST, "/api/v1/dead_letters/17"), None);
        assert_eq!(route(&Method::POST, "/api/v1/sources//pause"), None);
        assert_eq!(route(&Method::POST, "/api/v1/sources/a/b/pause"), None);
        assert_eq!(route(&Method::HEAD, "/api/v1/tap"), None);
        assert_eq!(route(&Method::DELETE, "/"), None);
        for (at, one) in ROUTES.iter().enumerate() {
            assert!(
                ROUTES.iter().skip(at + 1).all(|other| other.path != one.path),
                "{} is there twice",
                one.path
            );
        }
    }

    #[test]
    fn a_wrong_parameter_is_named_and_monitoring_may_add_its_own() {
        let of = |path: &str| ROUTES.iter().find(|route| route.path == path).unwrap();
        let given = query(Some("edge=a%20b+c&edge=*&rate=5"), of("/api/v1/tap")).unwrap();
        let given = Given { query: given, body: Bytes::new() };
        assert_eq!(given.all("edge"), ["a b c", "*"]);
        assert_eq!(given.number("rate", 10, 1..=1000).unwrap(), 5);
        assert_eq!(given.number("max_bytes", 4096, 0..=65_536).unwrap(), 4096);
        assert!(given.number("rate", 10, 6..=9).is_err());
        let wrong = query(Some("edg=a"), of("/api/v1/tap")).unwrap_err();
        let names = "`edge`, `rate`, `max_bytes`, `format`";
        assert_eq!(wrong.reason, format!("a parameter is unknown; this path has {names}"));
        assert!(query(None, of("/api/v1/tap")).is_err());
        assert!(query(Some("x=1"), of("/api/v1/stats")).is_err());
        assert!(query(Some("x=1"), of("/metrics")).is_ok());
    }

    #[test]
    fn the_list_of_paths_has_each() {
        let list = paths();
        assert!(ROUTES.iter().all(|route| list.contains(route.path)), "{list}");
        assert!(list.starts_with("/  ") && list.contains("\n/health  "), "{list}");
    }
}
