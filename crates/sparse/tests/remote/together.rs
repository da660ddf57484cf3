use crate::server::{Fault, Server};
use crate::{content, open, quick};
use std::sync::atomic::Ordering;
use std::time::Duration;
use thalweg_record::Budget;
use thalweg_sparse::{BudgetAccount, Pool, RemoteError, RemoteOptions, Span};

/// Asserts that no byte was requested twice.
fn nothing_twice(server: &Server) {
    let ranges = server.ranges();
    assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_that_wait_together_fetch_nothing_twice() {
    let bytes = content(5_000_000);
    let server = Server::start(bytes.clone());
    *server.state.delay.lock().unwrap() = Duration::from_millis(20);
    let file = open(&server, RemoteOptions { longest: 300_000, ..quick() }).await;
    let mut readers = tokio::task::JoinSet::new();
    for at in 0..200u64 {
        let (file, bytes) = (file.clone(), bytes.clone());
        readers.spawn(async move {
            let position = at * 7919 * 13 % 4_000_000;
            let length = 1 + at * 104_729 % 900_000;
            let read = file.read(position, length as usize).await.unwrap();
            assert!(read == bytes[position as usize..][..length as usize]);
        });
    }
    while let Some(read) = readers.join_next().await {
        read.unwrap();
    }
    nothing_twice(&server);
    assert!(server.state.most.load(Ordering::SeqCst) > 1, "requests are made in parallel");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_takes_nothing_from_the_others() {
    let bytes = content(1_000_000);
    let server = Server::start(bytes.clone());
    let file = open(&server, quick()).await;
    server.state.hold.store(true, Ordering::SeqCst);
    let first = tokio::spawn({
        let file = file.clone();
        async move { file.read(1000, 100_000).await }
    });
    while server.ranges().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = tokio::spawn({
        let file = file.clone();
        async move { file.read(50_000, 1000).await }
    });
    tokio::time::sleep(Duration::from_millis(5)).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    server.state.hold.store(false, Ordering::SeqCst);
    assert_eq!(second.await.unwrap().unwrap(), bytes[50_000..51_000]);
    assert_eq!(file.read(1000, 100_000).await.unwrap(), bytes[1000..101_000]);
    assert_eq!(server.ranges().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_wait_for_what_fails_are_told_why() {
    let server = Server::start(content(1_000_000));
    let file = open(&server, quick()).await;
    server.state.hold.store(true, Ordering::SeqCst);
    server.always(Fault::Status(404, ""));
    let readers: Vec<_> = (0..5u64)
        .map(|at| {
            let file = file.clone();
            tokio::spawn(async move { file.read(at * 10, 100).await })
        })
        .collect();
    while server.ranges().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.state.hold.store(false, Ordering::SeqCst);
    for reader in readers {
        let error = reader.await.unwrap().unwrap_err();
        assert!(matches!(error, RemoteError::Absent { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_file_is_dropped_nothing_is_fetched_for_it_any_more() {
    let server = Server::start(content(1_000_000));
    server.always(Fault::Status(503, ""));
    let file = open(&server, quick()).await;
    let reading = tokio::time::timeout(Duration::from_millis(20), file.read(0, 10)).await;
    drop((file, reading));
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.forget();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(server.ranges(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn near_ranges_are_one_request_and_far_ones_are_not() {
    let bytes = content(10_000_000);
    let server = Server::start(bytes.clone());
    let file = open(&server, RemoteOptions { shortest: 1, widest_gap: 10_000, ..quick() }).await;
    let spans =
        [Span::new(100, 100), Span::new(5000, 100), Span::new(5_000_000, 50), Span::new(9_000_000, 50)];
    let read = file.read_many(&spans).await.unwrap();
    assert!(
        read.iter()
            .zip(spans)
            .all(|(read, span)| read[..] == bytes[span.position as usize..][..span.length as usize])
    );
    assert_eq!(server.ranges(), [(100, 5099), (5_000_000, 5_000_049), (9_000_000, 9_000_049)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_read_in_order_are_read_ahead_for_and_those_who_jump_are_not() {
    let bytes = content(4_000_000);
    let server = Server::start(bytes.clone());
    let file = open(&server, RemoteOptions { read_ahead: 1 << 20, ..quick() }).await;
    for at in 0..400usize {
        assert_eq!(file.read(at as u64 * 10_000, 10_000).await.unwrap(), bytes[at * 10_000..][..10_000]);
    }
    nothing_twice(&server);
    let statistics = file.statistics();
    assert_eq!(statistics.fetched, 4_000_000);
    assert!(statistics.requests < 60 && statistics.fetched_ahead > 3_000_000, "{statistics:?}");

    let file = open(&server, RemoteOptions { read_ahead: 1 << 20, ..quick() }).await;
    for at in 0..100u64 {
        file.read(at * 7919 * 131 % 3_900_000, 100).await.unwrap();
    }
    assert_eq!(file.statistics().fetched_ahead, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_received_and_what_is_held_stays_within_the_budget() {
    let bytes = content(20_000_000);
    let server = Server::start(bytes.clone());
    let budget = Budget::new(4 << 20);
    let pool = Pool::with_account(1 << 20, BudgetAccount::new(&budget));
    let options = RemoteOptions {
        pool: Some(pool.clone()),
        budget: Some(budget.clone()),
        longest: 256 << 10,
        read_ahead: 1 << 20,
        ..quick()
    };
    let file = open(&server, options).await;
    for at in 0..200usize {
        assert_eq!(file.read(at as u64 * 100_000, 100_000).await.unwrap(), bytes[at * 100_000..][..100_000]);
    }
    assert!(budget.peak() <= 4 << 20, "{budget:?}, peak {}", budget.peak());
    assert!(pool.statistics().peak <= 2 << 20, "{pool:?}");
    drop(file);
    while budget.used() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_is_read_without_waiting_and_who_reads_so_is_read_ahead_for() {
    let bytes = content(1_000_000);
    let server = Server::start(bytes.clone());
    let file = open(&server, RemoteOptions { read_ahead: 1 << 20, ..quick() }).await;
    let (mut into, mut held) = ([0; 100], 0);
    assert!(file.read_held(0, &mut into).is_none());
    for position in (0..300_000).step_by(100) {
        match file.read_held(position, &mut into) {
            Some(ahead) => {
                held += 1;
                ahead.into_iter().for_each(|ahead| file.advance(ahead));
            }
            None => file.read_into(position, &mut into).await.unwrap(),
        }
        assert_eq!(into[..], bytes[position as usize..][..100]);
    }
    assert!(held > 1000 && file.statistics().fetched_ahead > 100_000, "{held}");
    nothing_twice(&server);
}
