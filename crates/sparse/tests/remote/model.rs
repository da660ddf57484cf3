//! Reads in any order, with faults in between, compared with the bytes themselves.

use crate::server::{Fault, Server};
use crate::{content, open, quick};
use proptest::prelude::*;
use std::time::Duration;
use thalweg_sparse::{Pool, RemoteOptions, Retries, Span};

const LENGTH: u64 = 700_000;

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        4 => Just(Fault::None),
        1 => Just(Fault::Status(503, "Retry-After: 0\r\n")),
        1 => Just(Fault::Hang),
        2 => (0usize..100_000).prop_map(Fault::Cut),
        2 => (1usize..100_000).prop_map(Fault::Short),
        1 => (1u64..100).prop_map(Fault::Shifted),
        1 => Just(Fault::Slow(Duration::from_millis(1))),
    ]
}

fn span() -> impl Strategy<Value = Span> {
    let length = prop_oneof![0u64..10, 0u64..2000, 0u64..200_000];
    (0..LENGTH, length).prop_map(|(position, length)| Span::new(position, length.min(LENGTH - position)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn every_read_gives_the_bytes_of_the_file(
        faults in prop::collection::vec(fault(), 0..40),
        reads in prop::collection::vec(prop::collection::vec(span(), 1..6), 1..30),
        pool in prop_oneof![Just(None), (200usize << 10..1 << 20).prop_map(Some)],
        sizes in (1u64..40_000, 1000u64..400_000, 0u64..100_000, prop_oneof![Just(0u64), Just(300_000)]),
        cached in any::<bool>(),
    ) {
        let bytes = content(LENGTH as usize);
        let server = Server::start(bytes.clone());
        server.fault(faults);
        let folder = tempfile::tempdir().unwrap();
        let (shortest, longest, widest_gap, read_ahead) = sizes;
        let options = RemoteOptions {
            pool: pool.map(Pool::new),
            cache: cached.then(|| thalweg_sparse::Cache::new(folder.path(), Some(300_000)).unwrap()),
            shortest,
            longest,
            widest_gap,
            read_ahead,
            // More attempts than faults: all faults may hit one range.
            retries: Retries { attempts: 50, ..quick().retries },
            ..quick()
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let file = open(&server, options).await;
            for spans in reads {
                let mut together = tokio::task::JoinSet::new();
                for span in &spans {
                    let (file, span) = (file.clone(), *span);
                    together.spawn(async move { (span, file.read(span.position, span.length as usize).await.unwrap()) });
                }
                while let Some(read) = together.join_next().await {
                    let (span, read) = read.unwrap();
                    assert!(read == bytes[span.position as usize..span.end() as usize], "{span}");
                }
                for (span, read) in spans.iter().zip(file.read_many(&spans).await.unwrap()) {
                    assert!(read == bytes[span.position as usize..span.end() as usize], "{span}");
                }
            }
            assert_eq!(file.cache_error(), None);
        });
    }
}
