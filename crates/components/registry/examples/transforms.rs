//! Prints the cost of a message in parsers and encoders, on one thread: the best of 200 rounds of one batch.
//!
//! ```text
//! cargo run --release -p thalweg-components --example transforms
//! ```

use std::time::Instant;

use thalweg_engine::testing::{batch, context, options};
use thalweg_engine::{Component, Error, Output, Outputs, TransformConfig};
use thalweg_stream::encode::EncodeConfig;
use thalweg_transforms::parse_csv::ParseCsv;
use thalweg_transforms::parse_logfmt::ParseLogfmt;
use thalweg_transforms::parse_nginx::ParseNginx;
use thalweg_transforms::parse_regex::ParseRegex;
use thalweg_transforms::split_fields::SplitFields;

/// As in the `thalweg` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 200;
const ROWS: usize = 8192;

fn measure<C: Component + TransformConfig>(yaml: &str, lines: &[String]) -> Result<(), Error> {
    let mut transform = options::<C>(yaml).build(&context())?;
    let batch = batch(lines);
    let mut out = Outputs::new("test".into());
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let batch = batch.share();
        let start = Instant::now();
        transform.apply(batch, &mut out)?;
        let sent = out.take();
        best = best.min(start.elapsed().as_secs_f64());
        assert!(sent.iter().all(|(output, _)| *output == Output::Main), "no message is rejected");
    }
    let per_row = best / lines.len() as f64 * 1e9;
    let rate = batch.payload_bytes() as f64 / best / 1e9;
    println!("{:<14} {per_row:8.0} ns/row {rate:7.2} GB/s   {yaml}", C::NAME);
    Ok(())
}

fn csv_line(n: usize, quote: &str) -> String {
    let (street, amount, kind) = (n % 99, n * 3, n % 7);
    format!(
        "{n},{quote}customer {n}{quote},{quote}some street name {street}{quote},{amount},2024-01-02,{quote}abc{quote},\
         {kind},x{n},{quote}last but one{quote},end"
    )
}

fn csv() -> Result<(), Error> {
    let columns = "columns: [a, b, c, d, e, f, g, h, i, j]";
    for quote in ["", "\""] {
        let lines: Vec<String> = (0..ROWS).map(|n| csv_line(n, quote)).collect();
        measure::<ParseCsv>(columns, &lines)?;
        measure::<ParseCsv>(&format!("{{{columns}, types: {{a: int, d: int, g: int}}}}"), &lines)?;
    }
    Ok(())
}

fn logfmt() -> Result<(), Error> {
    let line = |n: usize| {
        let number = n % 999;
        format!(
            "ts=2024-01-02T03:04:05Z level=info caller=main.go:{number} msg=\"it went well\" status=200 took={n}ms"
        )
    };
    measure::<ParseLogfmt>("{}", &(0..ROWS).map(line).collect::<Vec<_>>())
}

fn access_log() -> Result<(), Error> {
    let pattern = r#"pattern: '^(?<host>\S+) \S+ (?<user>\S+) \[(?<time>[^\]]+)\] "(?<method>\S+) (?<path>\S+) (?<protocol>[^"]*)" (?<status>\d+) (?<size>\d+) "(?<referer>[^"]*)" "(?<agent>[^"]*)"'
types: { time: timestamp, status: int, size: int }"#;
    let line = |n: usize| {
        format!(
            r#"10.0.{}.{} - - [10/Oct/2000:13:55:{:02} -0700] "GET /articles/{n}/index.html?page={n} HTTP/1.1" 200 {} "-" "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0""#,
            n % 7,
            n % 255,
            n / 200 % 60,
            n * 17
        )
    };
    let lines: Vec<String> = (0..ROWS).map(line).collect();
    measure::<ParseRegex>(pattern, &lines)?;
    measure::<ParseNginx>("{}", &lines)
}

fn split() -> Result<(), Error> {
    let lines: Vec<String> = (0..ROWS).map(|n| format!("foo number {n}|the other half of it {n}")).collect();
    measure::<SplitFields>("{delimiter: '|', fields: [foo1, foo2]}", &lines)
}

fn templates() -> Result<(), Error> {
    let lines: Vec<String> = (0..ROWS / 2).map(|n| format!("{n:0>256}")).collect();
    for template in
        ["{payload}\\n", "{meta.time:%Y-%m-%d %H:%M:%S %Z} | {payload}\\n", "{meta.position}{payload}\\n"]
    {
        measure::<EncodeConfig>(&format!("{{ format: text, template: \"{template}\" }}"), &lines)?;
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    csv()?;
    logfmt()?;
    access_log()?;
    split()?;
    templates()
}
