use crate::server::{Fault, Server};
use crate::{content, open, quick};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use thalweg_sparse::{Ending, OnChange, Origin, RemoteError, RemoteFile, RemoteOptions, Request, Retries};

type RequestLog = Arc<Mutex<Vec<Request>>>;

fn observed(options: RemoteOptions) -> (RemoteOptions, RequestLog) {
    let requests = RequestLog::default();
    let observer = requests.clone();
    let options = RemoteOptions {
        observer: Some(Arc::new(move |request| observer.lock().unwrap().push(request.clone()))),
        ..options
    };
    (options, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_is_read_is_fetched_and_only_once() {
    let bytes = content(1_000_000);
    let server = Server::start(bytes.clone());
    let file = open(&server, quick()).await;
    assert_eq!(file.length(), 1_000_000);
    for _ in 0..3 {
        assert_eq!(file.read(10_000, 100).await.unwrap(), bytes[10_000..10_100]);
        assert_eq!(file.read(999_900, 100).await.unwrap(), bytes[999_900..]);
    }
    // No request is shorter than 16 KiB except at the end, because the following bytes are often read next.
    assert_eq!(server.ranges(), [(10_000, 26_383), (999_900, 999_999)]);
    assert_eq!(file.read(26_000, 1000).await.unwrap(), bytes[26_000..27_000]);
    assert_eq!(server.ranges()[1], (26_384, 42_767));
    let past = file.read(999_999, 2).await.unwrap_err();
    assert!(matches!(past, RemoteError::PastEnd { length: 1_000_000, .. }), "{past}");
    let past = file.read(u64::MAX, 2).await.unwrap_err();
    assert!(matches!(past, RemoteError::PastEnd { length: 1_000_000, .. }), "{past}");
    assert_eq!(file.read(1_000_000, 0).await.unwrap().len(), 0);
    let statistics = file.statistics();
    assert_eq!((statistics.requests, statistics.retries, statistics.fetched), (4, 0, 16_384 * 2 + 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_temporary_is_tried_again_and_what_came_is_kept() {
    let bytes = content(3_000_000);
    let faults = [
        Fault::Status(503, ""),
        Fault::Status(429, "Retry-After: 0\r\n"),
        Fault::Hang,
        Fault::Cut(300_000),
        Fault::Short(400_000),
        Fault::Long(10),
        Fault::Stall(1000),
        Fault::Status(500, ""),
        Fault::Shifted(7),
        Fault::Slow(Duration::from_millis(50)),
    ];
    for fault in &faults {
        let server = Server::start(bytes.clone());
        server.fault([fault.clone()]);
        let mut options = quick();
        if matches!(fault, Fault::Stall(_)) {
            options.retries.silence = Duration::from_millis(300);
        }
        let (options, requests) = observed(options);
        let file = open(&server, options).await;
        assert_eq!(file.read(500, 1_000_000).await.unwrap(), bytes[500..1_000_500], "{fault:?}");
        let requests = requests.lock().unwrap();
        assert!(matches!(requests.last().unwrap().ending, Ending::Done), "{requests:?}");
        if !matches!(fault, Fault::Slow(_) | Fault::Long(_)) {
            assert!(matches!(requests[1].ending, Ending::Retried { .. }), "{fault:?}: {requests:?}");
            assert_eq!(requests.len(), 3, "{fault:?}: {requests:?}");
        }
        let again = requests.last().unwrap().span;
        match fault {
            Fault::Short(_) => assert_eq!(again.position, 600_500),
            // It is not known how many of the sent bytes arrive before the connection is reset.
            Fault::Cut(_) => assert!(again.position <= 300_500),
            _ => {}
        }
        assert_eq!(file.held().bytes(), 1_000_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_faults_in_a_row_do_no_harm_as_long_as_something_comes() {
    let bytes = content(2_000_000);
    let server = Server::start(bytes.clone());
    server.fault((0..30).map(|at| Fault::Short(if at % 2 == 0 { 900_000 } else { 20_000 })));
    let file = open(&server, quick()).await;
    assert_eq!(file.read(0, 2_000_000).await.unwrap(), bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_get_better_is_given_up_with_the_reason() {
    let server = Server::start(content(100_000));
    let file = open(&server, quick()).await;
    server.always(Fault::Status(503, ""));
    let error = file.read(0, 10).await.unwrap_err();
    let RemoteError::Failed { attempts: 6, why, .. } = &error else { panic!("{error}") };
    assert_eq!(why, "the origin replied 503 Service Unavailable");
    assert!(
        error
            .to_string()
            .ends_with("reading 0:16384 failed 6 times: the origin replied 503 Service Unavailable")
    );
    // Later readers do not find the failed fetch.
    server.always(Fault::None);
    assert_eq!(file.read(0, 10).await.unwrap(), content(100_000)[..10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_trying_again_does_not_help_is_not_tried_again() {
    let server = Server::start(content(100_000));
    let file = open(&server, quick()).await;
    for (status, wanted) in
        [(404, "there is no"), (403, "may not be read"), (401, "may not be read"), (418, "failed")]
    {
        server.fault([Fault::Status(status, "")]);
        let error = file.read(0, 10).await.unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    assert_eq!(server.ranges().len(), 4);
    *server.state.head.lock().unwrap() = Fault::Status(404, "");
    let absent = RemoteFile::open(Origin::from_url(&server.url()).unwrap(), quick()).await;
    assert!(matches!(absent, Err(RemoteError::Absent { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_asks_to_wait_longer_than_we_would_is_given_up_at_once() {
    let server = Server::start(content(100_000));
    let file = open(&server, quick()).await;
    server.fault([Fault::Status(503, "Retry-After: 3600\r\n")]);
    assert!(matches!(file.read(0, 10).await, Err(RemoteError::Failed { attempts: 1, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pause_that_the_origin_asks_for_is_kept() {
    let server = Server::start(content(100_000));
    let (options, requests) = observed(quick());
    let file = open(&server, options).await;
    server.fault([Fault::Status(503, "Retry-After: 1\r\n")]);
    file.read(0, 10).await.unwrap();
    let requests = requests.lock().unwrap();
    assert!(
        matches!(requests[1].ending, Ending::Retried { pause, .. } if pause == Duration::from_secs(1)),
        "{requests:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_without_ranges_is_read_as_a_whole_if_it_is_small() {
    let bytes = content(500_000);
    let server = Server::start(bytes.clone());
    server.always(Fault::IgnoreRange);
    let file = open(&server, quick()).await;
    let spans: Vec<_> = (0..10).map(|at| thalweg_sparse::Span::new(at * 50_000, 10)).collect();
    let read = file.read_many(&spans).await.unwrap();
    assert!(read.iter().zip(&spans).all(|(read, span)| read[..] == bytes[span.position as usize..][..10]));
    server.forget();
    assert_eq!(file.read(499_990, 10).await.unwrap(), bytes[499_990..]);
    assert_eq!(server.ranges(), []);

    let limited = RemoteOptions { whole: 499_999, ..quick() };
    let error = open(&server, limited).await.read(0, 10).await.unwrap_err();
    assert!(matches!(error, RemoteError::NoRanges { length: 500_000, limit: 499_999, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_sends_all_of_a_file_without_its_length_is_read_as_a_whole() {
    let bytes = content(100_000);
    let server = Server::start(bytes.clone());
    server.always(Fault::NoLength);
    let file = open(&server, quick()).await;
    assert_eq!(file.read(50_000, 10).await.unwrap(), bytes[50_000..50_010]);
    server.forget();
    assert_eq!(file.read(0, 100_000).await.unwrap(), bytes);
    assert_eq!(server.ranges(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_tells_that_the_server_compresses() {
    let server = Server::start(content(100_000));
    for (in_ranges, has_length) in [(true, true), (false, true), (false, false)] {
        server.always(Fault::Packed { in_ranges, has_length });
        for position in [0, 20_000] {
            let error = open(&server, quick()).await.read(position, 10).await.unwrap_err();
            let tag = if in_ranges { ", tag \"one\"" } else { "" };
            let is = if has_length { format!("50000 bytes{tag}") } else { "of unknown length".to_owned() };
            let expected = format!(
                "has changed while it was read: it was 100000 bytes, tag \"one\", and is {is}, compressed by the server \
                 (`Content-Encoding: gzip`); open it again"
            );
            assert!(error.to_string().ends_with(&expected), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_tells_nothing_by_head_is_asked_for_the_first_byte() {
    let bytes = content(100_000);
    let server = Server::start(bytes.clone());
    for status in [403, 405, 501] {
        *server.state.head.lock().unwrap() = Fault::Status(status, "");
        let file = open(&server, quick()).await;
        assert_eq!((file.length(), file.fingerprint().etag.as_deref()), (100_000, Some("\"one\"")));
        assert_eq!(file.read(5, 5).await.unwrap(), bytes[5..10]);
    }
    server.always(Fault::IgnoreRange);
    assert_eq!(open(&server, quick()).await.read(5, 5).await.unwrap(), bytes[5..10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_without_ranges_and_length_is_refused_after_two_requests() {
    let server = Server::start(content(100_000));
    *server.state.head.lock().unwrap() = Fault::NoLength;
    server.always(Fault::NoLength);
    let error = RemoteFile::open(Origin::from_url(&server.url()).unwrap(), quick()).await.unwrap_err();
    let expected = "asking for its length failed: the server neither supports ranges nor says how long the file is; \
                    download the file first";
    assert!(error.to_string().ends_with(expected), "{error}");
    let methods: Vec<_> = server.state.hits.lock().unwrap().iter().map(|hit| hit.method.clone()).collect();
    assert_eq!(methods, ["HEAD", "GET"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_origin_is_an_error_and_what_is_held_stays() {
    for (etag, modified) in [(true, true), (true, false), (false, true), (false, false)] {
        let bytes = content(200_000);
        let server = Server::start(bytes.clone());
        if !etag {
            *server.state.etag.lock().unwrap() = None;
        }
        if !modified {
            *server.state.modified.lock().unwrap() = None;
        }
        let file = open(&server, quick()).await;
        assert_eq!(file.read(0, 10).await.unwrap(), bytes[..10]);
        // Without tag and time, only the length shows the change.
        let longer = if etag || modified { 200_000 } else { 200_001 };
        server.change(vec![7; longer], etag.then_some("\"two\""));
        if modified {
            *server.state.modified.lock().unwrap() = Some("Wed, 21 Oct 2015 07:28:01 GMT".to_owned());
        }
        let error = file.read(100_000, 10).await.unwrap_err();
        assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
        assert_eq!(file.read(0, 10).await.unwrap(), bytes[..10]);
        assert_eq!(file.read(100_000, 10).await.unwrap_err(), error);
        assert_eq!(file.held().bytes(), 16_384, "nothing of the new state is held");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_became_shorter_has_changed() {
    let server = Server::start(content(200_000));
    let file = open(&server, quick()).await;
    server.change(content(1000), None);
    let error = file.read(150_000, 10).await.unwrap_err();
    assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn told_to_restart_a_read_is_of_one_state_only() {
    let (old, new) = (content(400_000), vec![9; 300_000]);
    let server = Server::start(old.clone());
    let file =
        open(&server, RemoteOptions { on_change: OnChange::Restart, longest: 50_000, ..quick() }).await;
    assert_eq!(file.read(0, 100_000).await.unwrap(), old[..100_000]);
    server.change(new.clone(), Some("\"two\""));
    assert_eq!(file.read(50_000, 200_000).await.unwrap(), new[50_000..250_000]);
    assert_eq!((file.generation(), file.length()), (1, 300_000));
    assert_eq!(file.read(0, 100).await.unwrap(), new[..100]);
    assert!(matches!(file.read(299_999, 2).await, Err(RemoteError::PastEnd { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_all_the_time_is_given_up() {
    let server = Server::start(content(4_000_000));
    let file = open(&server, RemoteOptions { on_change: OnChange::Restart, ..quick() }).await;
    let state = server.state.clone();
    let changing = tokio::spawn(async move {
        for number in 0.. {
            *state.etag.lock().unwrap() = Some(format!("\"{number}\""));
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    });
    *server.state.delay.lock().unwrap() = Duration::from_millis(5);
    let error = file.read(0, 4_000_000).await.unwrap_err();
    changing.abort();
    assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_differ_from_those_held_are_a_change_that_nothing_else_tells() {
    let server = Server::start(content(200_000));
    let file = open(&server, RemoteOptions { shortest: 1, ..quick() }).await;
    file.read(1000, 10).await.unwrap();
    server.change(vec![1; 200_000], Some("\"one\""));
    // The gap is fetched again together with the bytes on both sides.
    let error = file.read(900, 300).await.unwrap_err();
    assert!(matches!(error, RemoteError::Changed { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_url_is_asked_for_as_it_was_given() {
    let server = Server::start(content(1000));
    let url = format!("http://me:p%40ss@{}/a%2Fb/%7Ec d+e?sig=a%2Bb&x=y", server.address());
    let file = RemoteFile::open(Origin::from_url(&url).unwrap(), quick()).await.unwrap();
    file.read(0, 10).await.unwrap();
    let hits = server.state.hits.lock().unwrap().clone();
    assert!(hits.iter().all(|hit| hit.target == "/a%2Fb/%7Ec%20d+e?sig=a%2Bb&x=y"), "{hits:?}");
    assert!(hits.iter().all(|hit| hit.authorization.as_deref() == Some("Basic bWU6cEBzcw==")), "{hits:?}");
    assert!(!file.name().contains("sig=") && !file.name().contains("p%40ss"));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_listens_is_an_error_after_some_attempts() {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let origin = Origin::from_url(&format!("http://{address}/x")).unwrap();
    let retries = Retries { attempts: 3, first: Duration::from_millis(1), ..Retries::default() };
    let error =
        RemoteFile::open(origin, RemoteOptions { retries, ..RemoteOptions::default() }).await.unwrap_err();
    let RemoteError::Failed { attempts: 3, why, .. } = &error else { panic!("{error}") };
    assert!(why.ends_with("Connection refused (os error 111)"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_is_a_file() {
    let server = Server::start(Vec::new());
    let file = open(&server, quick()).await;
    assert_eq!((file.length(), file.read(0, 0).await.unwrap().len()), (0, 0));
    let past = file.read(0, 1).await.unwrap_err();
    assert!(matches!(past, RemoteError::PastEnd { length: 0, .. }), "{past}");
}
