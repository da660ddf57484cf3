use std::convert::Infallible;
use std::io::Read as _;
use std::sync::Mutex;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use thalweg_engine::ErrorKind;
use thalweg_engine::testing::{batch, context, messages, options, refused, sink_conforms};
use tokio::net::TcpListener;

use super::*;
use crate::net::testing::within;
use crate::tls::{TlsServer, test_files};

/// A request as received by the server.
#[derive(Debug, Clone)]
struct Got {
    line: String,
    headers: HeaderMap,
    body: Bytes,
}

/// A server that sends the given answers in turn, and repeats the last one.
struct Server {
    address: String,
    got: Arc<Mutex<Vec<Got>>>,
    most: Arc<Mutex<(usize, usize)>>,
}

impl Server {
    async fn start(answers: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::at(listener, answers, Duration::ZERO, None)
    }

    fn at(listener: TcpListener, answers: &[u16], pause: Duration, tls: Option<TlsServer>) -> Self {
        Self::with(listener, answers, pause, tls, "/elsewhere")
    }

    fn with(
        listener: TcpListener,
        answers: &[u16],
        pause: Duration,
        tls: Option<TlsServer>,
        location: &str,
    ) -> Self {
        let location = location.to_owned();
        let address = listener.local_addr().unwrap().to_string();
        let (got, most) = (Arc::<Mutex<Vec<Got>>>::default(), Arc::<Mutex<(usize, usize)>>::default());
        let (seen, counter, answers) = (got.clone(), most.clone(), answers.to_vec());
        let acceptor = tls.map(|tls| tls.acceptor().unwrap());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, counter, answers, acceptor) =
                    (seen.clone(), counter.clone(), answers.clone(), acceptor.clone());
                let location = location.clone();
                let service = service_fn(move |request: hyper::Request<Incoming>| {
                    let (seen, counter, answers) = (seen.clone(), counter.clone(), answers.clone());
                    let location = location.clone();
                    async move {
                        {
                            let mut counter = counter.lock().unwrap();
                            counter.0 += 1;
                            counter.1 = counter.1.max(counter.0);
                        }
                        tokio::time::sleep(pause).await;
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let line = format!("{} {}", parts.method, parts.uri);
                        // A careless server repeats what it got.
                        let authorization = parts.headers.get("authorization").cloned();
                        let key = parts.headers.get("x-key").cloned();
                        let echo = format!("{line} {authorization:?} {key:?}");
                        let number = {
                            let mut seen = seen.lock().unwrap();
                            seen.push(Got { line, headers: parts.headers, body });
                            seen.len() - 1
                        };
                        counter.lock().unwrap().0 -= 1;
                        let status = answers.get(number).or(answers.last()).copied().unwrap_or(200);
                        let text = match key.is_some() {
                            true => echo,
                            false => format!("answer {number} {}", "long ".repeat(200)),
                        };
                        Ok::<_, Infallible>(
                            hyper::Response::builder()
                                .status(status)
                                .header("location", location)
                                .body(Full::new(Bytes::from(text)))
                                .unwrap(),
                        )
                    }
                });
                tokio::spawn(async move {
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = match acceptor {
                        None => builder.serve_connection(TokioIo::new(stream), service).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => builder.serve_connection(TokioIo::new(stream), service).await,
                            Err(_) => Ok(()),
                        },
                    };
                });
            }
        });
        Self { address, got, most }
    }

    fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    fn bodies(&self) -> Vec<String> {
        self.got().iter().map(|got| String::from_utf8_lossy(&got.body).into_owned()).collect()
    }
}

async fn open(yaml: &str) -> Box<dyn Sink> {
    let config: HttpConfig = options(yaml);
    assert_eq!(config.check(), []);
    let mut sink = config.build(&context()).unwrap();
    sink.open(None).await.unwrap();
    sink
}

/// Writes a batch until the write succeeds. Returns the rejected messages and the kinds of errors that
/// occurred.
async fn write(sink: &mut Box<dyn Sink>, messages: &[&str]) -> (Vec<(u32, String)>, Vec<ErrorKind>) {
    let (batch, mut errors) = (batch(messages), Vec::new());
    loop {
        let mut rejects = Rejects::default();
        match within(sink.write(&batch, &mut rejects)).await {
            Ok(_) => return (rejects.take(), errors),
            Err(error) if error.kind() == ErrorKind::Permanent => panic!("{}", error.full()),
            Err(error) => errors.push(error.kind()),
        }
    }
}

#[tokio::test]
async fn it_conforms() {
    for options in ["", ", batch: lines", ", batch: array, encode: json", ", compression: gzip"] {
        let server = Server::start(&[204]).await;
        sink_conforms::<HttpConfig>(&format!("{{ url: {}{options} }}", server.address)).await;
        assert!(server.got().len() >= 2);
    }
}

#[tokio::test]
async fn each_message_is_a_request() {
    let server = Server::start(&[]).await;
    let yaml = format!(
        "{{ url: '{}/in?x=1', method: PUT, concurrency: 1, content_type: text/csv, headers: {{ X-A: b }}, \
         auth: {{ user: me, password: pw }} }}",
        server.address
    );
    let mut sink = open(&yaml).await;
    assert_eq!(write(&mut sink, &["one", "", "two\nlines"]).await.0, []);
    assert_eq!(server.bodies(), ["one", "", "two\nlines"]);
    for got in server.got() {
        assert_eq!(got.line, "PUT /in?x=1");
        assert_eq!(
            (&got.headers["x-a"], &got.headers["content-type"]),
            (&"b".parse().unwrap(), &"text/csv".parse().unwrap())
        );
        assert_eq!(got.headers["authorization"], "Basic bWU6cHc=");
    }
}

#[tokio::test]
async fn a_batch_is_a_request() {
    let server = Server::start(&[]).await;
    for (options, body, content_type) in [
        ("batch: lines, auth: { bearer: token }", "1\n{\"a\":2}\n", "application/x-ndjson"),
        ("batch: array", "[1,{\"a\":2}]", "application/json"),
    ] {
        let mut sink = open(&format!("{{ url: {}, {options} }}", server.address)).await;
        write(&mut sink, &["1", "{\"a\":2}"]).await;
        let got = server.got().pop().unwrap();
        assert_eq!(
            (got.body, &got.headers["content-type"]),
            (Bytes::from(body), &content_type.parse().unwrap())
        );
    }
    assert_eq!(server.got()[0].headers["authorization"], "Bearer token");
    let mut sink = open(&format!("{{ url: {}, batch: lines, compression: gzip }}", server.address)).await;
    write(&mut sink, &["one", "two"]).await;
    let got = server.got().pop().unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&got.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), &got.headers["content-encoding"]), ("one\ntwo\n", &"gzip".parse().unwrap()));
}

#[tokio::test]
async fn what_is_refused_for_now_is_sent_again_and_nothing_else_is() {
    let server = Server::start(&[200, 429, 503, 500, 200]).await;
    let mut sink = open(&format!("{{ url: {}, concurrency: 1 }}", server.address)).await;
    let (rejected, errors) = write(&mut sink, &["one", "two", "three"]).await;
    assert_eq!(rejected, []);
    // After the first 429 the sink repeats the request itself: the first message was progress.
    assert_eq!(errors, [ErrorKind::Overloaded, ErrorKind::Temporary]);
    assert_eq!(server.bodies(), ["one", "two", "two", "two", "two", "three"]);
    let server = Server::start(&[429, 200]).await;
    let mut sink = open(&format!("{{ url: {}, batch: lines }}", server.address)).await;
    let (_, errors) = write(&mut sink, &["one", "two"]).await;
    assert_eq!((errors, server.bodies()), (vec![ErrorKind::Overloaded], vec!["one\ntwo\n".to_owned(); 2]));
}

/// Each failed request ended the whole attempt, after which the engine waits longer each time.
#[tokio::test]
async fn a_few_failures_do_not_stop_the_other_messages_of_a_batch() {
    let answers: Vec<u16> = (0..1100).map(|number| if number % 20 == 7 { 500 } else { 200 }).collect();
    let server = Server::start(&answers).await;
    for options in ["", ", concurrency: 1"] {
        let mut sink = open(&format!("{{ url: {}{options} }}", server.address)).await;
        let before = server.got().len();
        let messages: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
        let texts: Vec<&str> = messages.iter().map(String::as_str).collect();
        assert_eq!(write(&mut sink, &texts).await, (Vec::new(), Vec::new()));
        let got = server.bodies().split_off(before);
        let delivered: Vec<String> =
            (before..).zip(got).filter(|(n, _)| n % 20 != 7).map(|(_, body)| body).collect();
        let mut sorted = delivered.clone();
        sorted.sort();
        assert_eq!(sorted, messages);
        if !options.is_empty() {
            assert_eq!(delivered, messages, "one after the other, messages keep their order");
        }
    }
}

#[tokio::test]
async fn a_redirection_from_https_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = test_files(folder.path());
    let tls: TlsServer = options(&format!("{{ certificate: {certificate}, key: {key} }}"));
    let other = Server::start(&[]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("http://{}/in", other.address);
    let server = Server::with(listener, &[302], Duration::ZERO, Some(tls), &to);
    let yaml = format!("{{ url: 'https://{}', tls: {{ ca: {certificate} }} }}", server.address);
    let (rejected, errors) = write(&mut open(&yaml).await, &["secret"]).await;
    assert_eq!((rejected.len(), errors, server.got().len()), (1, Vec::new(), 1));
    assert!(other.got().is_empty());
}

#[tokio::test]
async fn credentials_of_the_configuration_replace_those_of_a_message() {
    let server = Server::start(&[]).await;
    let message =
        "GET /admin HTTP/1.1\r\nAuthorization: Basic RVZJTA==\r\nProxy-Authorization: Basic RVZJTA==\r\n\r\n";
    for (address, options, expected) in [
        ("", ", auth: { bearer: OURS }", "Bearer OURS"),
        ("", ", headers: { Authorization: ours }", "ours"),
        ("me:a%20b@", "", "Basic bWU6YSBi"),
        ("", "", "Basic RVZJTA=="),
    ] {
        let yaml = format!("{{ url: 'http://{address}{}', raw_request: true{options} }}", server.address);
        write(&mut open(&yaml).await, &[message]).await;
        let got = server.got().pop().unwrap();
        let sent: Vec<_> = got.headers.get_all("authorization").iter().collect();
        assert_eq!(sent, [expected]);
        assert_eq!(got.headers.contains_key("proxy-authorization"), expected == "Basic RVZJTA==");
    }
}

/// Every way to fail, with a secret in every option that can hold one.
#[tokio::test]
async fn no_message_contains_a_secret() {
    let secrets = ["SEKRET", "U0VLUkVU"];
    let place = |at: &str| format!("url: 'http://u:SEKRET1@{at}/in?token=SEKRET2'");
    let headers = "headers: { X-Key: SEKRET3, X-Other: SEKRET4 }";
    let mut texts = Vec::new();
    // Mistakes.
    for yaml in [
        "{ url: 'http://u:SEKRET@host:port/?a=SEKRET' }",
        "{ url: 'http://u:SEK/SEKRET@host:port' }",
        "{ url: 'u:SEKRET@ho st' }",
        "{ url: 'ftp://u:SEKRET@host' }",
        "{ url: a, headers: { X-Key: \"SEKRET\\n\" } }",
        "{ url: a, auth: { bearer: \"SEKRET\\n\" } }",
        "{ url: a, auth: { bearer: SEKRET, user: SEKRET, password: SEKRET } }",
        "{ url: a, auth: { password: SEKRET } }",
        "{ url: a, content_type: \"SEKRET\\n\" }",
    ] {
        let found: Vec<String> =
            options::<HttpConfig>(yaml).check().iter().map(|mistake| format!("{mistake:?}")).collect();
        assert_eq!(found.len(), 1, "{yaml}");
        texts.extend(found);
    }
    let fails = async |yaml: String, message: &str| {
        let mut rejects = Rejects::default();
        let mut sink = open(&yaml).await;
        match within(sink.write(&batch([message]), &mut rejects)).await {
            Ok(_) => rejects.take().remove(0).1,
            Err(error) => format!("{} {error:?}", error.full()),
        }
    };
    // No server, no TLS, no answer.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap().to_string();
    let yaml = format!("{{ {}, {headers}, timeout: 100ms }}", place(&address));
    texts.push(fails(yaml.clone(), "x").await);
    texts.push(fails(yaml.replace("http:", "https:"), "x").await);
    drop(free);
    texts.push(fails(yaml.replace("http:", "https:"), "x").await);
    texts.push(fails(yaml, "x").await);
    texts.push(fails(format!("{{ {}, {headers} }}", place("nowhere.invalid:1")), "x").await);
    // Every kind of answer, by a server that repeats what it got.
    for status in [302, 400, 401, 404, 408, 429, 500, 503, 504] {
        let server = Server::start(&[status]).await;
        for options in [", auth: { bearer: SEKRET5 }", ", auth: { user: u, password: SEKRET6 }", ""] {
            let mut yaml = format!("{{ {}{options}, {headers} }}", place(&server.address));
            if !options.is_empty() {
                // One of both has the credentials.
                yaml = yaml.replace("u:SEKRET1@", "");
            }
            let text = fails(yaml.clone(), "x").await;
            assert!(text.contains(&format!("answered {status}")) && text.contains('…'), "{text}");
            texts.push(text);
            texts.push(fails(yaml.replacen("{ ", "{ raw_request: true, ", 1), "GET / HTTP/1.1\n\n").await);
        }
    }
    // A secret that is also a part of other words.
    let server = Server::start(&[404]).await;
    let yaml = format!("{{ url: 'http://{}/', auth: {{ bearer: ot }}, {headers} }}", server.address);
    let text = fails(yaml, "x").await;
    assert!(text.contains("answered 404 Not Found: POST / Some(\"Bearer …\")"), "{text}");
    for text in texts {
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    }
}

#[tokio::test]
async fn what_is_refused_for_good_is_rejected_with_the_answer() {
    let server = Server::start(&[404, 200, 302]).await;
    let mut sink = open(&format!("{{ url: {}, concurrency: 1 }}", server.address)).await;
    let (rejected, errors) = write(&mut sink, &["one", "two", "three"]).await;
    assert!(errors.is_empty());
    let rows: Vec<u32> = rejected.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, [0, 2]);
    let reason = &rejected[0].1;
    assert!(reason.contains("answered 404 Not Found: answer 0 long") && reason.len() < 400, "{reason}");
    assert_eq!(server.got().len(), 3);
    let server = Server::start(&[413]).await;
    let mut sink = open(&format!("{{ url: {}, batch: array }}", server.address)).await;
    assert_eq!(write(&mut sink, &["1", "2"]).await.0.len(), 2);
}

#[tokio::test]
async fn a_server_that_is_down_at_first_gets_it_later_and_one_that_is_silent_is_overloaded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut sink = open(&format!("{{ url: {address} }}")).await;
    let messages = batch(["one"]);
    let error = within(sink.write(&messages, &mut Rejects::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Temporary);
    assert!(error.full().contains("cannot send to"), "{}", error.full());
    let server = Server::at(TcpListener::bind(&address).await.unwrap(), &[], Duration::ZERO, None);
    write(&mut sink, &["one"]).await;
    assert_eq!(server.bodies(), ["one"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::at(listener, &[], Duration::from_secs(60), None);
    let mut sink = open(&format!("{{ url: {}, timeout: 50ms }}", server.address)).await;
    let error = within(sink.write(&messages, &mut Rejects::default())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
}

#[tokio::test]
async fn requests_are_under_way_at_once_up_to_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::at(listener, &[], Duration::from_millis(20), None);
    let mut sink = open(&format!("{{ url: {}, concurrency: 8 }}", server.address)).await;
    let messages: Vec<String> = (0..64).map(|number| format!("message {number}")).collect();
    let texts: Vec<&str> = messages.iter().map(String::as_str).collect();
    write(&mut sink, &texts).await;
    let mut bodies = server.bodies();
    bodies.sort_by_key(|body| body[8..].parse::<u32>().unwrap());
    assert_eq!(bodies, messages);
    assert_eq!(server.most.lock().unwrap().1, 8);
    let in_flight = |yaml: &str| options::<HttpConfig>(yaml).in_flight();
    assert_eq!(in_flight("{ url: a }"), InFlight::One);
    assert_eq!(in_flight("{ url: a, batch: lines }"), InFlight::Adaptive(MOST));
    assert_eq!(in_flight("{ url: a, batch: lines, concurrency: 3 }"), InFlight::Fixed(3));
}

#[tokio::test]
async fn whole_requests_are_sent_to_another_host() {
    let server = Server::start(&[]).await;
    let mut sink =
        open(&format!("{{ url: 'http://{}/ignored', raw_request: true, concurrency: 1 }}", server.address))
            .await;
    let (rejected, _) = write(
        &mut sink,
        &["PUT /a?b=c HTTP/1.1\r\nHost: other\r\nX-A: 1\r\n\r\nbody", "rubbish", "GET / HTTP/1.0\n\n"],
    )
    .await;
    assert_eq!(
        rejected,
        [(1, "is not a request of HTTP: its first line is not `METHOD PATH VERSION`".to_owned())]
    );
    let got = server.got();
    assert_eq!((got[0].line.as_str(), got[0].body.as_ref()), ("PUT /a?b=c", &b"body"[..]));
    assert_eq!(
        (&got[0].headers["host"], &got[0].headers["x-a"]),
        (&server.address.parse().unwrap(), &"1".parse().unwrap())
    );
    assert!(!got[0].headers.contains_key("content-type"));
    assert_eq!(got[1].line, "GET /");
}

#[tokio::test]
async fn tls_is_spoken() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = test_files(folder.path());
    let tls: TlsServer = options(&format!("{{ certificate: {certificate}, key: {key} }}"));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::at(listener, &[], Duration::ZERO, Some(tls));
    let of = |tls: &str| format!("{{ url: 'https://{}', tls: {{ {tls} }} }}", server.address);
    let named = |name: &str| format!("ca: {certificate}, server_name: {name}");
    for tls in [format!("ca: {certificate}"), "insecure: true".to_owned(), named("localhost")] {
        write(&mut open(&of(&tls)).await, &["secret"]).await;
    }
    assert_eq!(server.bodies(), ["secret"; 3]);
    for (tls, reason) in [(String::new(), "UnknownIssuer"), (named("other.example.com"), "")] {
        let mut sink = open(&of(&tls)).await;
        let error = within(sink.write(&batch(["secret"]), &mut Rejects::default())).await.unwrap_err();
        assert!(error.full().contains(&format!("invalid peer certificate: {reason}")), "{}", error.full());
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<HttpConfig>(yaml).check());
    assert_eq!(mistakes("{ url: 'ftp://a' }"), ["`ftp` is not a scheme of HTTP."]);
    assert_eq!(mistakes("{ url: 'http://' }"), ["It is not a URL: empty host."]);
    assert_eq!(mistakes("{ url: a, headers: { 'a b': c } }"), ["`a b` cannot be a header."]);
    assert_eq!(mistakes("{ url: a, method: 'a b' }"), ["`a b` is not a method."]);
    assert_eq!(mistakes("{ url: a, auth: {} }"), ["`auth` is a user with a password, or a token."]);
    assert_eq!(
        mistakes("{ url: a, auth: { user: a, bearer: b } }"),
        ["`auth` is a user with a password, or a token."]
    );
    assert_eq!(
        mistakes("{ url: a, auth: { bearer: a, password: b } }"),
        ["`auth` is a user with a password, or a token."]
    );
    assert_eq!(
        mistakes("{ url: a, auth: { bearer: \"a\\nb\" } }"),
        ["`auth` has a character that a header cannot have, such as a line feed."]
    );
    assert_eq!(
        mistakes("{ url: a, raw_request: true, batch: lines }"),
        ["A message that is a whole request is sent as it is."]
    );
    assert_eq!(mistakes("{ url: a, tls: { key: b } }"), ["`certificate` and `key` belong together."]);
    assert_eq!(
        refused::<HttpConfig>("{ url: a, concurrency: 0 }"),
        "`concurrency` must be at least 1, but it is `0`."
    );
}
