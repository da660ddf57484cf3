use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use thalweg_engine::testing::{Arrived, context, messages, options};
use thalweg_record::{Content, File, Outcome, Problem};
use tokio::io::AsyncWriteExt;

use super::*;
use crate::net::testing::{Server as Running, rest, within};

async fn start(yaml: &str) -> Running {
    let config: HttpUpload = options(yaml);
    assert_eq!(config.check(), []);
    let announce = Announce::new("test");
    let context = context();
    let room = Room { share: context.memory.clone(), temporary: context.temporary.clone(), in_memory: true };
    Running::start(Uploading { config, announce: announce.clone(), room }, announce).await
}

fn client() -> Client {
    let tls: crate::tls::TlsClient = options("{}");
    Client::builder().tls_backend_preconfigured(tls.config().unwrap()).no_proxy().build().unwrap()
}

fn post(server: &Running, body: impl Into<reqwest::Body>) -> RequestBuilder {
    client().post(format!("http://{}/", server.address)).body(body)
}

fn form(server: &Running, files: &[(&str, &str)]) -> RequestBuilder {
    post(server, text_of(files)).header("content-type", "multipart/form-data; boundary=b")
}

fn text_of(files: &[(&str, &str)]) -> String {
    let head = "--b\r\nContent-Disposition: form-data; name=f; filename=";
    let parts = files.iter().map(|(name, text)| format!("{head}\"{name}\"\r\n\r\n{text}\r\n"));
    parts.collect::<String>() + "--b--\r\n"
}

async fn take(server: &Running) -> Vec<File> {
    match within(server.source.main.take()).await {
        Some((_, Arrived::Files(files))) => files,
        other => panic!("{other:?} came"),
    }
}

fn text(file: &File) -> String {
    let Content::Memory(buffer) = file.content() else { panic!("it is not small") };
    String::from_utf8(buffer.to_vec()).unwrap()
}

async fn answer(answer: tokio::task::JoinHandle<reqwest::Result<reqwest::Response>>) -> (u16, Value) {
    let answer = within(answer).await.unwrap().unwrap();
    let status = answer.status().as_u16();
    assert_eq!(answer.headers()["content-type"], "application/json");
    (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

#[tokio::test]
async fn a_request_is_answered_with_what_became_of_each_file() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    let asked = tokio::spawn(form(&server, &[("a.txt", "one"), ("../b.txt", "three")]).send());
    let files = take(&server).await;
    let names: Vec<_> = files.iter().map(|file| (file.name().to_str().unwrap(), text(file))).collect();
    assert_eq!(names, [("a.txt", "one".to_owned()), ("b.txt", "three".to_owned())]);
    for (number, mut file) in files.into_iter().enumerate().rev() {
        if number == 0 {
            file.set_mime("text/plain; charset=utf-8");
            file.settle(Outcome::Delivered);
        } else {
            file.set_problem(Problem::new("it is not liked"));
            // The rejected file is delivered to an error sink.
            file.settle(Outcome::Delivered);
        }
    }
    let (status, response) = answer(asked).await;
    let files = json!([
        { "name": "a.txt", "size": 3, "type": "text/plain; charset=utf-8", "status": "delivered", "reason": null },
        { "name": "b.txt", "size": 5, "type": null, "status": "rejected", "reason": "it is not liked" },
    ]);
    assert_eq!((status, response), (207, json!({ "status": "partial", "files": files })));
    assert!(server.stop().await.result.is_none());
}

#[tokio::test]
async fn the_status_tells_how_it_went() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    for (outcome, expected) in [
        (Outcome::Delivered, (200, "delivered")),
        (Outcome::Filtered, (200, "delivered")),
        (Outcome::Rejected, (422, "rejected")),
        (Outcome::Failed, (503, "failed")),
    ] {
        let asked = tokio::spawn(post(&server, "x").send());
        take(&server).await.into_iter().for_each(|file| file.settle(outcome));
        let (status, response) = answer(asked).await;
        assert_eq!((status, response["status"].as_str().unwrap()), expected);
    }
    let (status, response) = answer(tokio::spawn(post(&server, "").send())).await;
    assert_eq!((status, response), (200, json!({ "status": "delivered", "files": [] })));
    let server = start("{ address: 127.0.0.1:0, respond: received }").await;
    let (status, response) = answer(tokio::spawn(post(&server, "x").send())).await;
    assert_eq!((status, &response["status"]), (202, &json!("accepted")));
    take(&server).await;
}

#[tokio::test]
async fn what_may_not_come_is_refused_and_nothing_of_it_goes_on() {
    let limits = "max_file_bytes: 10B, max_request_bytes: 400B, max_files: 2";
    let server = start(&format!("{{ address: 127.0.0.1:0, path: /up, accept: multipart, {limits} }}")).await;
    let url = format!("http://{}/up", server.address);
    let status = async |request: RequestBuilder| {
        let answer = within(request.send()).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let form = |files: &[(&str, &str)]| {
        client().post(&url).body(text_of(files)).header("content-type", "multipart/form-data; boundary=b")
    };
    assert_eq!(status(client().get(&url)).await.0, 405);
    assert_eq!(status(post(&server, "x")).await.0, 404);
    assert_eq!(status(client().post(&url).body("x")).await.0, 400);
    for (files, limit) in [
        (vec![("a", "x"), ("b", "01234567890")], "max_file_bytes"),
        (vec![("a", ""), ("b", ""), ("c", "")], "max_files"),
        (vec![("a", &*"x".repeat(400))], "max_request_bytes"),
    ] {
        let (status, response) = status(form(&files)).await;
        assert!(status == 413 && response.contains(&format!("`{limit}`")), "{status} {response}");
    }
    assert!(server.stop().await.main.is_empty());
}

#[tokio::test]
async fn a_request_that_is_cut_off_or_stalls_brings_nothing() {
    let server = start("{ address: 127.0.0.1:0, read_timeout: 50ms }").await;
    let body = text_of(&[("a", "x"), ("b", "y")]);
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=b\r\n";
    let half = format!("{head}Content-Length: {}\r\n\r\n{}", body.len(), &body[..body.len() - 20]);
    let mut stalled = server.connect().await;
    stalled.write_all(half.as_bytes()).await.unwrap();
    assert!(rest(&mut stalled).await.starts_with("HTTP/1.1 408 "));
    let mut gone = server.connect().await;
    gone.write_all(half.as_bytes()).await.unwrap();
    drop(gone);
    // A form without its end, in a complete request.
    let mut short = server.connect().await;
    let length = body.len() - 20;
    let request = format!("{head}Connection: close\r\nContent-Length: {length}\r\n\r\n{}", &body[..length]);
    short.write_all(request.as_bytes()).await.unwrap();
    assert!(rest(&mut short).await.starts_with("HTTP/1.1 400 "));
    assert!(server.stop().await.main.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_each_get_their_own_answer() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    let url = format!("http://{}/", server.address);
    let clients: Vec<_> = (0..200)
        .map(|number: usize| {
            let url = url.clone();
            tokio::spawn(async move {
                let names = [format!("{number}.txt"), format!("{number}-2.txt")];
                let text = "x".repeat(number);
                let body = text_of(&[(&names[0], &text), (&names[1], "")]);
                let request = client().post(&url).header("content-type", "multipart/form-data; boundary=b");
                let answer = request.body(body).send().await.unwrap();
                let status = answer.status().as_u16();
                let response: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
                assert_eq!(response["files"][0]["name"], *names[0]);
                assert_eq!(response["files"][0]["size"], number);
                assert_eq!(response["files"][1]["name"], *names[1]);
                assert_eq!(response["files"].as_array().unwrap().len(), 2);
                (number, status)
            })
        })
        .collect();
    let main = server.source.main;
    let deliver = tokio::spawn(async move {
        while let Some((_, Arrived::Files(files))) = main.take().await {
            for file in files {
                let is_odd = file.origin().size % 2 == 1;
                file.settle(if is_odd { Outcome::Rejected } else { Outcome::Delivered });
            }
        }
    });
    for client in clients {
        let (number, status) = within(client).await.unwrap();
        assert_eq!(status, if number % 2 == 1 { 207 } else { 200 }, "{number}");
    }
    server.source.stop.request();
    within(server.source.task).await.unwrap().unwrap();
    within(deliver).await.unwrap();
}

#[tokio::test]
async fn a_stop_answers_what_is_under_way() {
    let server = start("{ address: 127.0.0.1:0 }").await;
    let asked = tokio::spawn(post(&server, "last").send());
    let files = take(&server).await;
    server.source.stop.request();
    tokio::task::yield_now().await;
    files.into_iter().for_each(|file| file.settle(Outcome::Delivered));
    assert_eq!(answer(asked).await.0, 200);
    assert!(server.stop().await.result.is_none());
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mistakes = |yaml: &str| messages(options::<HttpUpload>(yaml).check());
    assert_eq!(mistakes("{ address: nowhere }"), ["`nowhere` names no port."]);
    assert_eq!(
        mistakes("{ address: ':80', path: logs, methods: ['a b'] }"),
        ["`a b` is not a method.", "A path begins with `/`."]
    );
    assert_eq!(
        mistakes("{ address: ':80', max_request_bytes: 1MiB }"),
        ["A file of 1GiB does not fit into a request of 1MiB."]
    );
}
