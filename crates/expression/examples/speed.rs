//! Measures the cost of a condition: a payload search beside a plain `memmem` over the same bytes, which is
//! the limit, a comparison of numbers beside a plain loop, and columns of mixed types beside plain ones.
//!
//! ```sh
//! cargo run --release -p thalweg-expression --example speed
//! ```

use std::{error::Error, hint::black_box, sync::Arc, time::Instant};

use arrow_array::{ArrayRef, Float64Array, Int64Array, StringViewArray};
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
    let meta = Arc::new(Meta { source: "speed".into(), path: None, time_us: 0, sequence: None, number: 0 });
    let status: ArrayRef =
        Arc::new(Int64Array::from_iter_values((0..rows).map(|row| if row % 50 == 0 { 500 } else { 200 })));
    let batch = Batch::new(writer.finish(), meta, Ack::noop());
    Ok(batch.set_fields([(Field::new("status", DataType::Int64, true), status)])?)
}

/// Measures expressions over columns whose values have several types, beside columns of one type.
fn own_types() -> Result<(), Box<dyn Error>> {
    let field = |data_type: DataType, extension: Option<&str>| {
        let key = "ARROW:extension:name".to_owned();
        let metadata = extension.map(|extension| (key, extension.to_owned()));
        Field::new("a", data_type, true).with_metadata(metadata.into_iter().collect())
    };
    let json = |of: fn(usize) -> String| -> ArrayRef {
        Arc::new((0..ROWS).map(|row| Some(of(row))).collect::<StringViewArray>())
    };
    let floats =
        |of: fn(usize) -> f64| -> ArrayRef { Arc::new(Float64Array::from_iter_values((0..ROWS).map(of))) };
    let ints: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let mixed = |row: usize| if row.is_multiple_of(2) { format!("{row}") } else { format!("\"{row}\"") };
    let rare = |row: usize| if row.is_multiple_of(100) { format!("\"{row}\"") } else { format!("{row}") };
    let text = DataType::Utf8View;
    let columns = [
        ("integers", field(DataType::Int64, None), ints),
        ("floats", field(DataType::Float64, None), floats(|row| row as f64 + 0.5)),
        ("texts of integers", field(text.clone(), None), json(|row| format!("{row}"))),
        (
            "whole and other numbers",
            field(DataType::Float64, Some("thalweg.number")),
            floats(|row| row as f64 / 2.0),
        ),
        ("JSON: integers", field(text.clone(), Some("arrow.json")), json(|row| format!("{row}"))),
        ("JSON: 1 text in 100 integers", field(text.clone(), Some("arrow.json")), json(rare)),
        ("JSON: integers and texts", field(text, Some("arrow.json")), json(mixed)),
    ];
    println!("\n{:46} {:>10} {:>10}", "", "us/batch", "ns/row");
    for (name, field, column) in columns {
        let batch = batch(ROWS, 10)?.set_fields([(field, column)])?;
        for sql in ["a + 1", "a >= 500"] {
            let mut evaluator = Evaluator::new(Expression::parse(sql)?);
            let seconds = fastest(|| {
                black_box(evaluator.evaluate(&batch));
            });
            let (us, ns) = (seconds * 1e6, seconds * 1e9 / ROWS as f64);
            println!("{:46} {us:10.2} {ns:10.3}", format!("{sql}, {name}"));
        }
    }
    Ok(())
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

    own_types()?;

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
