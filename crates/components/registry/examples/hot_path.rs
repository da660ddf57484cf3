//! Prints the cost of the hot path for each message, beside the limits of the machine. Each figure is the
//! best of several rounds, on one thread.
//!
//! ```text
//! cargo run --release -p thalweg-components --example hot_path
//! ```

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use thalweg_engine::testing::{Arrived, batch, context, options, start};
use thalweg_engine::{Component, Outputs, TransformConfig};
use thalweg_local::sources::generate::GenerateConfig;
use thalweg_record::{Ack, Batch, Outcome};
use thalweg_stream::encode::EncodeConfig;
use thalweg_transforms::copy::Copy;
use thalweg_transforms::drop::Drop;
use thalweg_transforms::parse_json::ParseJsonConfig;
use thalweg_transforms::rename::Rename;
use thalweg_transforms::split_fields::SplitFields;

/// The allocator of the `thalweg` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 100;

/// Returns the time of the best round in nanoseconds.
fn best<T>(mut round: impl FnMut() -> T) -> f64 {
    let time = |_| {
        let began = Instant::now();
        black_box(round());
        began.elapsed().as_nanos() as f64
    };
    (0..ROUNDS).map(time).fold(f64::INFINITY, f64::min)
}

fn report(what: &str, ns: f64, messages: usize, bytes: usize) {
    let ns = ns / messages as f64;
    let bytes = bytes as f64 / messages as f64;
    println!("{what:<40} {ns:8.1} ns a message {:8.2} million/s {:7.2} GB/s", 1e3 / ns, bytes / ns);
}

/// Runs `generate` and discards its messages.
fn generate(batch_bytes: usize, messages: usize) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return };
    let yaml = format!("{{ seed: 1, count: {messages} }}");
    runtime.block_on(async {
        let running = start::<GenerateConfig>(&yaml, batch_bytes, BTreeMap::new());
        while let Some((_, Arrived::Messages(batch))) = running.main.take().await {
            batch.settle(Outcome::Delivered);
        }
    });
}

fn json_lines(count: usize) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(1);
    let levels = ["info", "warning", "error", "debug"];
    let line = |number: usize| {
        format!(
            r#"{{"time":"2026-01-02T03:04:{:02}.678Z","level":"{}","host":"web-{}.example.org","status":{},"duration":{}.{:03},"user_id":{},"message":"request number {number} to /api/v1/items was answered","cached":{}}}"#,
            number / 1000 % 60,
            levels[random.usize(..4)],
            random.u32(..20),
            random.u32(200..504),
            random.u32(..100),
            random.u32(..1000),
            random.u32(..1_000_000),
            random.bool(),
        )
    };
    (0..count).map(line).collect()
}

/// Returns messages like those of gollum's profiles: random characters, plain or in JSON.
fn random_lines(count: usize, is_json: bool) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(1);
    let characters: Vec<char> = "abcdefghijklmnopqrstuvwxyz .,!;:-_".chars().collect();
    let mut text = |length| (0..length).filter_map(|_| random.choice(&characters)).collect::<String>();
    let mut line = |_| match is_json {
        false => text(256),
        true => format!(
            r#"{{"test":"{}","foo":"{}|{}","bar":"{}","thisisquitealongstring":"{}"}}"#,
            text(64),
            text(32),
            text(32),
            text(64),
            text(64)
        ),
    };
    (0..count).map(&mut line).collect()
}

/// Measures formatting steps, each alone and all together.
fn formatting() {
    let steps = |lines: Vec<String>, steps: &mut [(&str, Box<dyn thalweg_engine::Transform>)]| {
        let (rows, bytes) = (lines.len(), lines.iter().map(String::len).sum::<usize>());
        println!("{rows} messages of {} bytes", bytes / rows);
        let mut given = batch(&lines);
        let first = given.share();
        for (what, transform) in steps.iter_mut() {
            let ns = best(|| apply(transform.as_mut(), given.share()));
            report(what, ns, rows, bytes);
            given = apply(transform.as_mut(), given);
        }
        let all = || steps.iter_mut().fold(first.share(), |batch, (_, step)| apply(step.as_mut(), batch));
        report("all of it", best(all), rows, bytes);
    };
    let envelope = r#"{ format: text, template: "{meta.time:%Y-%m-%d %H:%M:%S %Z} | {payload}\n" }"#;
    steps(
        random_lines(4096, false),
        &mut [("encode text: time, payload, line end", built::<EncodeConfig>(envelope))],
    );
    steps(
        random_lines(3300, true),
        &mut [
            ("parse_json, 4 fields", built::<ParseJsonConfig>("{ flatten: true }")),
            ("rename", built::<Rename>("{ test: foobar }")),
            ("drop", built::<Drop>("[bar]")),
            ("split_fields", built::<SplitFields>("{ field: foo, delimiter: '|', fields: [foo1, foo2] }")),
            ("copy to the payload", built::<Copy>("{ from: thisisquitealongstring }")),
        ],
    );
}

fn built<C: Component + TransformConfig>(yaml: &str) -> Box<dyn thalweg_engine::Transform> {
    options::<C>(yaml).build(&context()).expect("it can be built")
}

fn apply(transform: &mut dyn thalweg_engine::Transform, batch: Batch) -> Batch {
    let mut out = Outputs::new("hot_path".into());
    let Ok(()) = transform.apply(batch, &mut out) else { panic!("the transform failed") };
    let Some((_, batch)) = out.take().pop() else { panic!("the transform gave nothing") };
    batch
}

fn main() {
    let (from, mut to) = (vec![1u8; 1 << 20], vec![0u8; 1 << 20]);
    let messages = (1 << 20) / 257;
    let ns = best(|| {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    });
    report("limit: copying 1 MiB, as 257 bytes each", ns, messages, 1 << 20);
    for kib in [32, 64, 128, 256, 512, 1024] {
        let messages = 300_000;
        let ns = best(|| generate(kib << 10, messages));
        report(&format!("generate, batches of {kib} KiB"), ns, messages, messages * 257);
    }

    let lines = json_lines(4096);
    let (rows, bytes) = (lines.len(), lines.iter().map(String::len).sum::<usize>());
    println!("{rows} JSON lines of {} bytes", bytes / rows);
    let lines = batch(&lines);
    let payload = lines.payload().clone();
    let fresh = || Batch::new(payload.clone(), lines.meta().clone(), Ack::noop());
    let ns = best(|| payload.iter().flatten().map(|line| black_box(line.to_vec()).len()).sum::<usize>());
    report("limit: copying each line", ns, rows, bytes);
    let ns = best(|| {
        let parsed = payload.iter().flatten().map(sonic_rs::from_slice::<sonic_rs::Value>);
        parsed.filter(Result::is_ok).count()
    });
    report("peer: sonic_rs, a tree of each line", ns, rows, bytes);
    let mut parse_all = options::<ParseJsonConfig>("{}").build(&context()).expect("it can be built");
    let ns = best(|| apply(parse_all.as_mut(), fresh()));
    report("parse_json, all 8 fields", ns, rows, bytes);
    let mut parse_two =
        options::<ParseJsonConfig>("{ fields: [level, status] }").build(&context()).expect("it can be built");
    let ns = best(|| apply(parse_two.as_mut(), fresh()));
    report("parse_json, 2 fields of 8", ns, rows, bytes);

    let parsed = apply(parse_all.as_mut(), fresh());
    let written = ["json", "csv", "logfmt", "{ format: text, template: '{time} {level} {message}' }"];
    for yaml in written {
        let mut encode = options::<EncodeConfig>(yaml).build(&context()).expect("it can be built");
        let given = apply(encode.as_mut(), parsed.share()).payload_bytes();
        let ns = best(|| apply(encode.as_mut(), parsed.share()));
        report(&format!("encode {yaml:.20}"), ns, rows, given);
    }
    let values: Vec<sonic_rs::Value> =
        payload.iter().flatten().filter_map(|line| sonic_rs::from_slice(line).ok()).collect();
    let ns = best(|| {
        values.iter().filter_map(|value| sonic_rs::to_vec(value).ok()).map(|v| v.len()).sum::<usize>()
    });
    report("peer: sonic_rs, writing the trees", ns, rows, bytes);
    formatting();
}
