//! Measures the cost of a condition: a payload search beside a plain `memmem` over the same bytes, which is
//! the limit, and a comparison of numbers beside a plain loop.
//!
//! ```sh
//! cargo run --release -p thalweg-expression --example speed
//! ```

use std::{error::Error, hint::black_box, sync::Arc, time::Instant};

use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType, Field};
use memchr::memmem;
use thalweg_expression::{Evaluator, Expression};
use thalweg_record::{Ack, Batch, Meta, PayloadWriter};

/// The rows of a batch, and the bytes of a line.
const ROWS: usize = 8192;
const LINE: usize = 100;

/// Returns the seconds of the fastest of many runs.
fn fastest(mut run: impl FnMut()) -> f64 {
    let measure = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    (0..2000).map(measure).fold(f64::INFINITY, f64::min)
}

/// Returns a batch of lines; every `hits`-th line contains the search term.
fn batch(rows: usize, hits: usize) -> Result<Batch, Box<dyn Error>> {
    let mut writer = PayloadWriter::with_capacity(rows * LINE, rows);
    for row in 0..rows {
        let word = if row % hits == hits - 1 { "timeout" } else { "request" };
        let mut line =
            format!("10.0.{}.{} - - [01/May/2024] \"GET /{word}/{row} HTTP/1.1\" ", row % 256, row % 97);
        while line.len() < LINE - 1 {
            line.push(char::from(b'a' + (line.len() * 7 % 26) as u8));
        }
        writer.push(line.as_bytes());
    }
    let meta = Arc::new(Meta { source: "speed".into(), path: None, time_us: 0 });
    let status: ArrayRef =
        Arc::new(Int64Array::from_iter_values((0..rows).map(|row| if row % 50 == 0 { 500 } else { 200 })));
    let batch = Batch::new(writer.finish(), meta, Ack::noop());
    Ok(batch.set_fields([(Field::new("status", DataType::Int64, true), status)])?)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{ROWS} lines of {LINE} bytes a batch; the fastest of 2000 batches");
    println!("{:46} {:>10} {:>10} {:>12}", "", "GB/s", "ns/row", "of memmem");
    for hits in [1000, 10, 1] {
        let batch = batch(ROWS, hits)?;
        let bytes = (ROWS * LINE) as f64;
        let block = batch.payload().data_buffers()[0].clone();
        let finder = memmem::Finder::new("timeout");
        let limit = fastest(|| {
            black_box(finder.find_iter(&block).count());
        });
        let show = |name: String, seconds: f64| {
            println!(
                "{name:46} {:10.2} {:10.2} {:11.0}%",
                bytes / seconds / 1e9,
                seconds * 1e9 / ROWS as f64,
                limit / seconds * 100.0
            );
        };
        show(format!("memmem over the block, 1 hit in {hits}"), limit);
        let rows = fastest(|| {
            black_box(batch.payload().iter().flatten().filter(|line| finder.find(line).is_some()).count());
        });
        show("memmem in each row".to_owned(), rows);
        for sql in ["payload LIKE '%timeout%'", "upper(payload) LIKE '%TIMEOUT%'", "payload ~ 'timeout'"] {
            let mut evaluator = Evaluator::new(Expression::parse(sql)?);
            show(
                sql.to_owned(),
                fastest(|| {
                    black_box(evaluator.condition(&batch));
                }),
            );
        }
    }

    println!("\n{:46} {:>10} {:>10}", "", "us/batch", "ns/row");
    for rows in [1, ROWS] {
        let batch = batch(rows, 10)?;
        let show = |name: String, seconds: f64| {
            println!("{name:46} {:10.2} {:10.3}", seconds * 1e6, seconds * 1e9 / rows as f64);
        };
        let column = batch.column("status").ok_or("no `status`")?;
        let column = column.as_any().downcast_ref::<Int64Array>().ok_or("`status` is not of integers")?;
        let limit = fastest(|| {
            black_box(column.values().iter().filter(|status| **status >= 500).count());
        });
        show(format!("a loop over {rows} rows"), limit);
        for sql in ["status >= 500", "status >= 500 AND status < 600", "payload LIKE '%timeout%'"] {
            let mut evaluator = Evaluator::new(Expression::parse(sql)?);
            show(
                sql.to_owned(),
                fastest(|| {
                    black_box(evaluator.condition(&batch));
                }),
            );
        }
    }

    // The worst case of the search for failing messages: all of them fail.
    let batch = batch(ROWS, 10)?;
    let mut evaluator = Evaluator::new(Expression::parse("1 / (status - status)")?);
    let start = Instant::now();
    let failed = evaluator.evaluate(&batch).failed.len();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{:46} {:10.2} {:10.3}",
        format!("a division by zero in {failed} rows"),
        seconds * 1e6,
        seconds * 1e9 / ROWS as f64
    );
    Ok(())
}
