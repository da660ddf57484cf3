//! Prints what the hot path costs for each message, beside the limits of the machine.
//!
//! ```text
//! cargo run --release -p thalweg-components --example hot_path
//! ```

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use thalweg_components::sources::generate::GenerateConfig;
use thalweg_engine::testing::start;
use thalweg_record::{Outcome, Parcel};

/// The best of several rounds: what it costs when nobody disturbs.
fn best(rounds: usize, mut round: impl FnMut() -> f64) -> f64 {
    (0..rounds).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn report(what: &str, ns: f64, bytes: f64) {
    println!("{what:<44} {ns:8.1} ns {:8.2} million/s {:8.2} GB/s", 1e3 / ns, bytes / ns);
}

/// Runs `generate` into nothing on `threads` threads.
fn generate(threads: usize, batch_bytes: usize, messages: u64) -> f64 {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let Ok(runtime) = builder.build() else { return f64::NAN };
    runtime.block_on(async {
        let began = Instant::now();
        let running = start::<GenerateConfig>(
            &format!("{{ seed: 1, count: {messages} }}"),
            batch_bytes,
            BTreeMap::new(),
        );
        let taken = tokio::spawn(async move {
            let mut rows = 0;
            while let Some((_, Parcel::Messages(batch))) = running.main.take().await {
                rows += batch.rows();
                batch.settle(Outcome::Delivered);
            }
            rows
        });
        black_box(taken.await.unwrap_or_default());
        began.elapsed().as_secs_f64() * 1e9 / messages as f64
    })
}

fn copy(bytes: usize) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let rounds = (1 << 30) / bytes;
    let began = Instant::now();
    for _ in 0..rounds {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    }
    began.elapsed().as_secs_f64() * 1e9 / (rounds * bytes) as f64
}

fn main() {
    report("limit: memory copy of 257 bytes (256 KiB)", best(5, || copy(256 << 10)) * 257.0, 257.0);
    for threads in [1, 2] {
        for batch in [64, 128, 256, 512, 1024] {
            let ns = best(3, || generate(threads, batch << 10, 10_000_000));
            report(&format!("generate, {threads} threads, batches of {batch} KiB"), ns, 257.0);
        }
    }
}
