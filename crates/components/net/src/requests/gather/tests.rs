use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use reqwest::Method;
use thalweg_record::Budget;

use super::*;
use crate::requests::testing::{Fake, Got, Play};
use crate::requests::{Compression, Endpoint};
use crate::tls::TlsClient;

/// A system whose answers are `ok`, `bad`, or `later` with a number. The number 1 is never confirmed.
struct Lines;

#[async_trait]
impl Service for Lines {
    fn read(&self, request: &Request, answer: &Answer, _: &Parts) -> Reading {
        match answer.body.as_slice() {
            b"ok" => Reading::Accepted,
            b"bad" => Reading::Refused("bad".to_owned()),
            [b'l', b'a', b't', b'e', b'r', b' ', number] => {
                Reading::Unconfirmed(Receipt { own: answer.own.clone(), number: u64::from(number - b'0') })
            }
            _ => Reading::Again(request.failure(answer)),
        }
    }

    async fn confirm(&self, _: &Request, receipts: &[Receipt]) -> Vec<Option<Failure>> {
        let is_lost = |receipt: &Receipt| receipt.number == 1;
        receipts.iter().map(|receipt| is_lost(receipt).then(|| Failure::temporary("lost"))).collect()
    }
}

fn gather(address: &str, count: usize, delay: Duration, limit: usize) -> Gather {
    let (headers, tls) = (BTreeMap::new(), TlsClient::default());
    let timeout = Duration::from_mins(1);
    let endpoint = Endpoint { url: address, headers: &headers, auth: None, timeout, tls: &tls };
    let request = endpoint
        .request(Method::POST, HeaderMap::new(), Compression::None, 1 << 20, &OnceLock::new())
        .unwrap();
    let limits = Limits { bytes: 1 << 20, count, delay };
    Gather::new(request, Box::new(Lines), limits, ConcurrencyLimit::fixed(limit), true)
}

fn parts(lines: &[&str]) -> Parts {
    let mut parts = Parts::default();
    lines.iter().for_each(|line| parts.push(format!("{line}\n").as_bytes()));
    parts
}

/// Returns the verdicts as text: `+` delivered, `-` rejected, `?` to be sent again.
fn shown(verdicts: &[Verdict]) -> String {
    let sign = |verdict: &Verdict| match verdict {
        Verdict::Delivered => '+',
        Verdict::Rejected(_) => '-',
        Verdict::Again(_) => '?',
    };
    verdicts.iter().map(sign).collect()
}

const LONG: Duration = Duration::from_mins(4);

#[tokio::test]
async fn writers_that_meet_are_sent_together_when_the_group_is_full() {
    let server = Fake::start(|_, _| Play::answer(200, "ok")).await;
    let (gather, budget) = (gather(&server.address, 3, LONG, 1), Budget::new(1 << 20));
    let (one, other) =
        tokio::join!(gather.send(parts(&["a", "b"]), &budget), gather.send(parts(&["c"]), &budget));
    assert_eq!((shown(&one), shown(&other)), ("++".to_owned(), "+".to_owned()));
    assert_eq!(server.got()[0].lines(), ["a", "b", "c"]);
    assert_eq!(server.got().len(), 1);
}

#[tokio::test]
async fn messages_that_do_not_fit_close_the_group_and_begin_another() {
    let server = Fake::start(|_, _| Play::answer(200, "ok")).await;
    let (gather, budget) = (gather(&server.address, 2, LONG, 1), Budget::new(1 << 20));
    tokio::join!(
        gather.send(parts(&["a"]), &budget),
        gather.send(parts(&["b", "c"]), &budget),
        gather.send(parts(&["d", "e", "f"]), &budget),
    );
    let mut bodies: Vec<String> = server.got().into_iter().map(|got| got.body).collect();
    bodies.sort();
    assert_eq!(bodies, ["a\n", "b\nc\n", "d\ne\nf\n"]);
}

/// Without the shortage, the test would take four minutes.
#[tokio::test]
async fn a_group_does_not_wait_while_memory_is_short() {
    let server = Fake::start(|_, _| Play::answer(200, "ok")).await;
    let (gather, budget) = (gather(&server.address, 9, LONG, 1), Budget::new(100));
    let share = budget.share();
    let held = share.reserve(100).await;
    let waits = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        share.reserve(100).await
    };
    let sends = async {
        let verdicts = gather.send(parts(&["a"]), &budget).await;
        drop(held);
        shown(&verdicts)
    };
    assert_eq!(tokio::join!(sends, waits).0, "+");
}

#[tokio::test]
async fn a_bad_message_is_found_and_all_others_are_sent() {
    let bad = |got: &Got| got.lines().iter().any(|line| line.starts_with("bad"));
    let server = Fake::start(move |_, got| {
        Play::answer(if bad(got) { 400 } else { 200 }, if bad(got) { "bad" } else { "ok" })
    })
    .await;
    let (gather, budget) = (gather(&server.address, 100, Duration::ZERO, 1), Budget::new(1 << 20));
    let lines: Vec<String> =
        (0..40).map(|n| if n % 19 == 7 { format!("bad{n}") } else { n.to_string() }).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let verdicts = gather.send(parts(&lines), &budget).await;
    let expected: String = (0..40).map(|n| if n % 19 == 7 { '-' } else { '+' }).collect();
    assert_eq!(shown(&verdicts), expected);
    let accepted: BTreeSet<String> = server
        .got()
        .iter()
        .filter(|got| !bad(got))
        .flat_map(|got| got.lines().into_iter().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(accepted.len(), 38);
}

#[tokio::test]
async fn messages_that_are_all_refused_do_not_take_a_request_each() {
    let server = Fake::start(|_, _| Play::answer(400, "bad")).await;
    let (gather, budget) = (gather(&server.address, 10_000, Duration::ZERO, 1), Budget::new(1 << 20));
    let verdicts = gather.send(parts(&["x"; 4096]), &budget).await;
    assert_eq!(shown(&verdicts), "-".repeat(4096));
    assert!(server.got().len() < 100, "{}", server.got().len());
}

#[tokio::test]
async fn good_messages_behind_many_bad_ones_are_not_refused_with_them() {
    let server = Fake::start(|_, got| match got.body.contains("bad") {
        true => Play::answer(400, "bad"),
        false => Play::answer(200, "ok"),
    })
    .await;
    let (gather, budget) = (gather(&server.address, 100, Duration::ZERO, 1), Budget::new(1 << 20));
    let lines: Vec<&str> = (0..64).map(|number| if number < 20 { "bad" } else { "good" }).collect();
    let verdicts = gather.send(parts(&lines), &budget).await;
    assert_eq!(shown(&verdicts), ["-".repeat(20), "+".repeat(44)].concat());
    assert!(server.got().len() < 128, "{}", server.got().len());
}

/// A request ends in any case: the messages that it takes alone are delivered, and all others leave with its
/// reason.
#[tokio::test]
async fn a_server_that_refuses_in_any_way_gets_fewer_than_two_requests_for_each_message() {
    type Refuses = fn(&[&str]) -> bool;
    let ways: [(Refuses, &str); 6] = [
        (|_| true, "--------"),
        (|lines| lines.len() > 1, "++++++++"),
        (|lines| lines.len() > 2, "++++++++"),
        (|lines| lines.contains(&"7"), "+++++++-"),
        (|lines| lines.contains(&"0") || lines.len() == 4, "-+++++++"),
        (|lines| lines.iter().any(|line| "0246".contains(line)), "-+-+-+-+"),
    ];
    for (refuses, expected) in ways {
        for status in [400, 413, 422] {
            let server = Fake::start(move |_, got| match refuses(&got.lines()) {
                true => Play::answer(status, "bad"),
                false => Play::answer(200, "ok"),
            })
            .await;
            let (gather, budget) = (gather(&server.address, 100, Duration::ZERO, 1), Budget::new(1 << 20));
            let lines = ["0", "1", "2", "3", "4", "5", "6", "7"];
            assert_eq!(shown(&gather.send(parts(&lines), &budget).await), expected, "{status}");
            assert!(server.got().len() < 16, "{}", server.got().len());
        }
    }
}

/// Two messages are confirmed, and the server has lost the third.
#[tokio::test]
async fn what_a_server_does_not_confirm_is_sent_again() {
    let server = Fake::start(|_, got| match got.lines().len() {
        3 => Play::answer(400, "bad"),
        count => Play::answer(200, format!("later {count}")),
    })
    .await;
    let (gather, budget) = (gather(&server.address, 100, Duration::ZERO, 1), Budget::new(1 << 20));
    assert_eq!(shown(&gather.send(parts(&["a", "b", "c"]), &budget).await), "?++");
}

#[tokio::test]
async fn a_failure_within_halves_concerns_only_what_has_no_answer_yet() {
    let server = Fake::start(|number, _| match number {
        0 => Play::answer(400, "bad"),
        1 => Play::answer(200, "ok"),
        _ => Play::answer(503, "").with("retry-after", "0"),
    })
    .await;
    let (gather, budget) = (gather(&server.address, 100, Duration::ZERO, 1), Budget::new(1 << 20));
    assert_eq!(shown(&gather.send(parts(&["a", "b", "c", "d"]), &budget).await), "++??");
}

#[tokio::test]
async fn a_server_gets_no_request_before_the_time_it_asked_for() {
    let server = Fake::start(|number, _| match number {
        0 => Play::answer(429, "").with("retry-after", "1"),
        _ => Play::answer(200, "ok"),
    })
    .await;
    let (gather, budget) = (gather(&server.address, 100, Duration::ZERO, 8), Budget::new(1 << 20));
    assert_eq!(shown(&gather.send(parts(&["a"]), &budget).await), "?");
    assert_eq!(shown(&gather.send(parts(&["b"]), &budget).await), "+");
    let at = gather.not_before.lock().unwrap();
    assert!(at <= Instant::now(), "the second request was sent after that time");
}

#[tokio::test]
async fn a_leader_that_is_dropped_lets_the_others_send_again() {
    let server = Fake::start(|_, _| Play::answer(200, "ok")).await;
    let (gather, budget) = (gather(&server.address, 100, LONG, 1), Budget::new(1 << 20));
    let mut leader = Box::pin(gather.send(parts(&["a"]), &budget));
    assert!(tokio::time::timeout(Duration::from_millis(10), &mut leader).await.is_err());
    let follower = gather.send(parts(&["b"]), &budget);
    let ends = async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(leader);
    };
    let (verdicts, ()) = tokio::join!(follower, ends);
    assert_eq!(shown(&verdicts), "?");
    assert!(gather.open.lock().is_none());
}
