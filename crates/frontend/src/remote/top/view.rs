//! The lines of `top`, for a terminal of any size.

use std::time::Duration;

use serde_json::Value;
use thalweg_redact::foreign;

use crate::format::{bytes, bytes_of, clock, count, counted, duration, per_second};
use crate::paint::Paint;
use crate::remote::ps::state;

/// The text in place of a value that is not known.
const UNKNOWN: &str = "–";
/// The first column is not narrower than this.
const LEAST: usize = 8;

/// The counters of a run at two moments.
pub(super) struct Look {
    about: Value,
    stats: Value,
    /// The counters before these.
    before: Option<Value>,
}

impl Look {
    pub(super) fn new(about: Value, stats: Value, before: Option<&Look>) -> Self {
        Self { about, stats, before: before.map(|look| look.stats.clone()) }
    }

    /// How much a counter of a component grew in a second.
    fn rate(&self, component: &Value, counter: &str) -> Option<f64> {
        let before = self.before.as_ref()?;
        let time = seconds(&self.stats) - seconds(before);
        let former = rows(before, "components").iter().find(|former| former["name"] == component["name"])?;
        let grown = number(&component[counter]).saturating_sub(number(&former[counter]));
        (time > 0.0).then_some(grown as f64 / time)
    }

    fn messages(&self, component: &Value, counter: &str) -> String {
        self.rate(component, counter).map_or(UNKNOWN.to_owned(), per_second)
    }
}

/// The holders of the memory.
impl Look {
    /// The part of the budget that a component holds.
    fn held(&self, name: &Value) -> String {
        let held = named(&self.stats["budget"], "holders", "name", name);
        held.map_or(UNKNOWN.to_owned(), |held| bytes(number(&held["bytes"])))
    }

    /// The holders that are no components, and hold something.
    fn other_holders(&self) -> impl Iterator<Item = String> {
        let holders = rows(&self.stats["budget"], "holders").iter();
        let others = holders.filter(move |held| {
            number(&held["bytes"]) > 0 && named(&self.stats, "components", "name", &held["name"]).is_none()
        });
        others.map(|held| {
            format!("{} of the memory held by {}", bytes(number(&held["bytes"])), text(&held["name"]))
        })
    }
}

fn seconds(stats: &Value) -> f64 {
    stats["uptime_s"].as_f64().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn text(value: &Value) -> String {
    foreign(value.as_str().unwrap_or(UNKNOWN)).into_owned()
}

fn rows<'v>(stats: &'v Value, name: &str) -> &'v [Value] {
    stats[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The row of a list that has this name.
fn named<'v>(stats: &'v Value, list: &str, key: &str, name: &Value) -> Option<&'v Value> {
    rows(stats, list).iter().find(|row| row[key] == *name)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Head,
    Warning,
}

/// Returns at most `height` lines of at most `width` characters.
pub(super) fn lines(look: &Look, width: usize, height: usize, paint: Paint) -> Vec<String> {
    let mut all = summary(look);
    for table in [sources(look), components(look)] {
        all.push((Style::Plain, String::new()));
        let shown = aligned(&table.cells, width).into_iter().zip(table.styles);
        all.extend(shown.map(|(line, style)| (style, line)));
    }
    all.extend(look.other_holders().map(|line| (Style::Plain, line)));
    let retrying =
        rows(&look.stats, "components").iter().filter(|component| component["retrying"].is_string());
    all.extend(retrying.map(|component| {
        (Style::Warning, format!("{} retries: {}", text(&component["name"]), text(&component["retrying"])))
    }));
    if all.len() > height {
        let hidden = all.len() - height + 1;
        all.truncate(height.saturating_sub(1));
        all.push((Style::Plain, format!("… {hidden} more lines")));
    }
    let painted = |(style, line): (Style, String)| {
        let line = cut(&line, width);
        match style {
            Style::Plain => line,
            Style::Head => paint.bold(&line),
            Style::Warning => paint.yellow(&line),
        }
    };
    all.into_iter().map(painted).collect()
}

/// The lines about the run as a whole.
fn summary(look: &Look) -> Vec<(Style, String)> {
    let Look { about, stats, .. } = look;
    let up = Duration::try_from_secs_f64(seconds(stats)).unwrap_or_default();
    let budget = &stats["budget"];
    let letters = &stats["dead_letters"];
    let mut lines = vec![
        (
            Style::Head,
            format!(
                "{}  {}, pid {}, up {}",
                text(&about["configurations"][0]),
                state(stats),
                number(&about["pid"]),
                clock(up)
            ),
        ),
        (
            Style::Plain,
            format!(
                "memory {} in flight, at most {}; {}",
                bytes_of(number(&budget["used"]), number(&budget["limit"])),
                bytes(number(&budget["peak"])),
                counted(number(&letters["kept"]), "dead letter")
            ),
        ),
    ];
    if letters["full"].is_string() {
        lines.push((Style::Warning, text(&letters["full"])));
    }
    lines
}

/// A table, and the style of each line.
struct Table {
    cells: Vec<Vec<String>>,
    styles: Vec<Style>,
}

impl Table {
    fn new(head: &[&str]) -> Self {
        Self { cells: vec![head.iter().map(|name| (*name).to_owned()).collect()], styles: vec![Style::Head] }
    }

    fn push(&mut self, style: Style, cells: Vec<String>) {
        self.cells.push(cells);
        self.styles.push(style);
    }
}

fn sources(look: &Look) -> Table {
    let mut table = Table::new(&["SOURCE", "STATE", "READ", "BYTES", "P50", "P99", "OLDEST", "HELD"]);
    for source in rows(&look.stats, "sources") {
        let name = &source["name"];
        let component = named(&look.stats, "components", "name", name).unwrap_or(&Value::Null);
        let latency = named(&look.stats, "latencies", "source", name).unwrap_or(&Value::Null);
        let quantile = |key: &str| match number(&latency["count"]) {
            0 => UNKNOWN.to_owned(),
            _ => duration(Duration::from_micros(number(&latency[key]))),
        };
        let oldest = latency["oldest_unsettled_ms"].as_u64();
        let read = look.rate(component, "bytes_in");
        let style = if source["state"] == "paused" { Style::Warning } else { Style::Plain };
        table.push(
            style,
            vec![
                text(name),
                text(&source["state"]),
                look.messages(component, "rows_in"),
                read.map_or(UNKNOWN.to_owned(), |read| format!("{}/s", bytes(read as u64))),
                quantile("p50_us"),
                quantile("p99_us"),
                oldest.map_or(UNKNOWN.to_owned(), |age| duration(Duration::from_millis(age))),
                look.held(name),
            ],
        );
    }
    table
}

fn components(look: &Look) -> Table {
    let mut table = Table::new(&["COMPONENT", "KIND", "IN", "OUT", "ERRORS", "BUSY", "QUEUE", "HELD"]);
    let components = rows(&look.stats, "components").iter();
    for component in components.filter(|component| component["role"] != "source") {
        let queue = named(&look.stats, "queues", "to", &component["name"]);
        let busy = look.rate(component, "busy_ns");
        let style = if component["retrying"].is_string() { Style::Warning } else { Style::Plain };
        table.push(
            style,
            vec![
                text(&component["name"]),
                text(&component["kind"]),
                look.messages(component, "rows_in"),
                look.messages(component, "rows_out"),
                count(number(&component["errors"])),
                busy.map_or(UNKNOWN.to_owned(), |busy| format!("{:.2}", busy / 1e9)),
                queue.map_or(UNKNOWN.to_owned(), |queue| bytes(number(&queue["bytes"]))),
                look.held(&component["name"]),
            ],
        );
    }
    table
}

/// Aligns the columns of a table: the first two to the left, numbers to the right. The first one is cut where
/// the width is too small.
fn aligned(cells: &[Vec<String>], width: usize) -> Vec<String> {
    let columns = cells.first().map_or(0, Vec::len);
    let widest = |column: usize| {
        cells
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let mut widths: Vec<usize> = (0..columns).map(widest).collect();
    let all: usize = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
    if let Some(first) = widths.first_mut() {
        *first = first.saturating_sub(all.saturating_sub(width)).max(LEAST.min(*first));
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{:width$}", cut(cell, width)),
            1 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}

/// The start of a text, of at most `width` characters.
fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_owned(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stats(uptime: f64, read: u64, components: usize) -> Value {
        let transform = |at: usize| {
            json!({
                "name": format!("main.transform_with_a_long_name_{at}"), "role": "transform", "kind": "filter",
                "rows_in": read, "rows_out": read / 2, "bytes_in": 0, "errors": 7, "busy_ns": read * 1_000_000,
            })
        };
        let source = json!({ "name": "in", "role": "source", "kind": "file", "rows_in": read, "bytes_in": read * 100 });
        let components: Vec<Value> = [source].into_iter().chain((0..components).map(transform)).collect();
        json!({
            "uptime_s": uptime, "started": true, "stopping": false,
            "budget": {
                "limit": 256 << 20, "used": 12 << 20, "peak": 20 << 20,
                "holders": [
                    { "name": "in", "bytes": 8 << 20 },
                    { "name": "main.transform_with_a_long_name_0", "bytes": 3 << 20 },
                    { "name": "open taps", "bytes": 1 << 20 },
                    { "name": "dead letters", "bytes": 0 },
                ],
            },
            "components": components,
            "queues": [{ "to": "main.transform_with_a_long_name_0", "bytes": 4096, "limit_bytes": 65536 }],
            "latencies": [{
                "source": "in", "count": 5, "p50_us": 1500, "p99_us": 12_345, "oldest_unsettled_ms": 2_500,
            }],
            "sources": [{ "name": "in", "kind": "file", "state": "running" }],
            "dead_letters": { "kept": 3, "dropped": 0, "full": null },
        })
    }

    fn look(components: usize) -> Look {
        let about = json!({ "pid": 12, "configurations": ["c.yaml"] });
        let before = Look::new(about.clone(), stats(10.0, 100, components), None);
        Look::new(about, stats(12.0, 300, components), Some(&before))
    }

    #[test]
    fn rates_are_those_between_two_looks() {
        let shown = lines(&look(1), 100, 24, Paint::off());
        let expected = "\
c.yaml  running, pid 12, up 0:12
memory 12.0 of 256 MiB in flight, at most 20.0 MiB; 3 dead letters

SOURCE  STATE     READ       BYTES      P50      P99  OLDEST      HELD
in      running  100/s  9.77 KiB/s  1.50 ms  12.3 ms  2.50 s  8.00 MiB

COMPONENT                          KIND       IN   OUT  ERRORS  BUSY     QUEUE      HELD
main.transform_with_a_long_name_0  filter  100/s  50/s       7  0.10  4.00 KiB  3.00 MiB
1.00 MiB of the memory held by open taps";
        assert_eq!(shown.join("\n"), expected);
    }

    #[test]
    fn lines_fit_any_terminal() {
        for (width, height) in [(80, 24), (40, 10), (1, 1), (300, 100)] {
            let shown = lines(&look(50), width, height, Paint::off());
            assert!(shown.len() <= height, "{width}x{height}: {} lines", shown.len());
            assert!(shown.iter().all(|line| line.chars().count() <= width), "{width}x{height}: {shown:?}");
        }
        assert!(lines(&look(50), 80, 24, Paint::off()).last().unwrap().starts_with("… "));
    }

    #[test]
    fn a_text_from_outside_is_one_line() {
        let mut look = look(1);
        look.stats["components"][1]["retrying"] = "no\n\u{1b}[2J".into();
        let shown = lines(&look, 80, 24, Paint::off());
        assert_eq!(shown.last().unwrap(), "main.transform_with_a_long_name_0 retries: no\\n\\u{1b}[2J");
    }
}
