//! Shows the progress of a run.
//!
//! A terminal gets two lines that change, other outputs a line every ten seconds. A separate thread reads the
//! run's counters, so that lines are up to date however busy the cores are.

use std::collections::VecDeque;
use std::io::{IsTerminal, stderr, stdout};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use thalweg_engine::{ComponentCounts, Graph, Handle};

use crate::format::{bytes, bytes_of, clock, counted, per_second};
use crate::print;
use crate::screen::Show;

/// How often the lines on a terminal change.
const TICK: Duration = Duration::from_millis(200);
/// How often other outputs get a line.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The window of rates, in ticks.
const WINDOW: usize = 15;

/// The columns beside the bar. Most lines need fewer, so the bar keeps its length.
const FACTS_WIDTH: usize = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Nothing,
    Terminal,
    Lines,
    Json,
}

/// Shows a run.
pub struct Progress {
    form: Form,
    bars: MultiProgress,
}

impl Progress {
    /// Prepares for a run of this graph.
    #[must_use]
    pub fn new(graph: &Graph, show: &Show) -> Self {
        // Progress would garble messages on the same terminal.
        let is_busy = stdout().is_terminal() && graph.sinks.iter().any(|sink| sink.config.writes_stdout());
        let form = match (show.json, show.quiet) {
            (_, true) => Form::Nothing,
            (true, _) => Form::Json,
            _ if !stderr().is_terminal() => Form::Lines,
            _ if is_busy => Form::Nothing,
            _ => Form::Terminal,
        };
        let target = match form {
            Form::Terminal => ProgressDrawTarget::stderr_with_hz(10),
            _ => ProgressDrawTarget::hidden(),
        };
        Self { form, bars: MultiProgress::with_draw_target(target) }
    }

    /// The lines on the terminal, to be suspended during other writes.
    pub fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Shows a run on a thread.
    pub fn watch(self, handle: Handle) -> Watching {
        let (end, ended) = channel::<()>();
        let bars = self.bars.clone();
        let thread = std::thread::spawn(move || {
            let mut view = View::new(&handle);
            let mut lines: Option<[ProgressBar; 2]> = None;
            let mut printed = Instant::now();
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(TICK) {
                view.look(&handle);
                match self.form {
                    Form::Terminal => {
                        let lines = lines.get_or_insert_with(|| [(); 2].map(|()| self.line()));
                        let width = print::width();
                        lines[0].set_message(view.first_line());
                        lines[1].set_message(view.second_line(width));
                    }
                    Form::Lines | Form::Json if printed.elapsed() >= LINE_EVERY => {
                        printed = Instant::now();
                        match self.form {
                            Form::Json => print::err_json(&view.json()),
                            _ => print::err(&view.plain()),
                        }
                    }
                    _ => {}
                }
            }
            lines.iter().flatten().for_each(ProgressBar::finish_and_clear);
        });
        Watching { bars, end, thread }
    }

    fn line(&self) -> ProgressBar {
        let bar = self.bars.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        bar
    }
}

/// The thread that shows a run.
pub struct Watching {
    bars: MultiProgress,
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watching {
    /// Prints a text between the lines.
    pub fn say(&self, text: &str) {
        self.bars.suspend(|| print::err(text));
    }

    /// Ends the thread, and clears its lines.
    pub fn end(self) {
        drop(self.end);
        // A panic of the thread is ignored: it only leaves lines uncleared.
        let _ = self.thread.join();
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sight {
    after: Duration,
    messages: u64,
    bytes: u64,
    progress: u64,
}

/// The counters of a run now and over the last seconds.
struct View {
    start: Instant,
    former: VecDeque<Sight>,
    now: Sight,
    errors: u64,
    /// All bytes to read, if all sources know.
    expected: Option<u64>,
    used: u64,
    limit: u64,
    is_stopping: bool,
    /// The name of one item: `message` or `file`.
    item: &'static str,
}

impl View {
    fn new(handle: &Handle) -> Self {
        Self {
            start: Instant::now(),
            former: VecDeque::from([Sight::default()]),
            now: Sight::default(),
            errors: 0,
            expected: None,
            used: 0,
            limit: handle.budget().limit() as u64,
            is_stopping: false,
            item: handle.item(),
        }
    }

    fn look(&mut self, handle: &Handle) {
        self.note(self.start.elapsed(), &handle.counts());
        self.used = handle.budget().used() as u64;
        self.is_stopping = handle.is_stopping();
    }

    fn note(&mut self, after: Duration, counts: &[ComponentCounts]) {
        let sources = || counts.iter().filter(|counts| counts.role == "source");
        self.now = Sight {
            after,
            messages: sources().map(|counts| counts.rows_in).sum(),
            bytes: sources().map(|counts| counts.bytes_in).sum(),
            progress: sources().map(|counts| counts.progress_bytes).sum(),
        };
        self.errors = counts.iter().map(|counts| counts.errors).sum();
        let known = sources().all(|counts| counts.expected_bytes > 0);
        self.expected =
            known.then(|| sources().map(|counts| counts.expected_bytes).sum()).filter(|sum| *sum > 0);
        self.former.push_back(self.now);
        if self.former.len() > WINDOW {
            self.former.pop_front();
        }
    }

    /// The growth per second over the window.
    fn rate(&self, of: impl Fn(&Sight) -> u64) -> f64 {
        let Some(former) = self.former.front() else { return 0.0 };
        let time = self.now.after.saturating_sub(former.after).as_secs_f64();
        if time > 0.0 { of(&self.now).saturating_sub(of(former)) as f64 / time } else { 0.0 }
    }

    fn messages_a_second(&self) -> f64 {
        self.rate(|sight| sight.messages)
    }

    fn bytes_a_second(&self) -> u64 {
        self.rate(|sight| sight.bytes) as u64
    }

    fn share(&self) -> Option<f64> {
        self.expected.map(|expected| (self.now.progress as f64 / expected as f64).min(1.0))
    }

    fn left(&self) -> Option<Duration> {
        let share = self.share().filter(|share| *share > 0.0)?;
        // The average of the whole run is steadier than that of the last seconds.
        let left = self.now.after.as_secs_f64() * (1.0 - share) / share;
        Duration::try_from_secs_f64(left).ok().filter(|_| self.now.after >= Duration::from_secs(1))
    }

    fn counts(&self) -> Vec<String> {
        let mut parts = vec![
            counted(self.now.messages, self.item),
            per_second(self.messages_a_second()),
            format!("{}/s", bytes(self.bytes_a_second())),
        ];
        if self.errors > 0 {
            parts.push(counted(self.errors, "error"));
        }
        parts
    }

    fn first_line(&self) -> String {
        format!("  {}", self.counts().join(" · "))
    }

    fn second_line(&self, width: usize) -> String {
        let mut parts = vec![clock(self.now.after)];
        if self.is_stopping {
            parts.push("stopping".to_owned());
        } else if let Some(left) = self.left() {
            parts.push(format!("{} left", clock(left)));
        }
        parts.push(format!("{} in flight", bytes_of(self.used, self.limit)));
        let facts = parts.join(" · ");
        let Some(share) = self.share() else { return format!("  {facts}") };
        let facts = format!("{:3.0} %  {facts}", share * 100.0);
        let columns = width.saturating_sub(FACTS_WIDTH).min(40);
        format!("  {}  {facts}", bar(share, columns))
    }

    /// A line of text for outputs other than a terminal.
    fn plain(&self) -> String {
        let mut parts = self.counts();
        if let Some(share) = self.share() {
            parts.push(format!("{:.0} %", share * 100.0));
        }
        parts.push(format!("{} in flight", bytes_of(self.used, self.limit)));
        if let Some(left) = self.left().filter(|_| !self.is_stopping) {
            parts.push(format!("{} left", clock(left)));
        }
        format!("{}: {}\n", clock(self.now.after), parts.join(", "))
    }

    fn json(&self) -> String {
        let line = json!({
            "event": "progress",
            "elapsed_seconds": self.now.after.as_secs_f64(),
            format!("{}s", self.item): self.now.messages,
            "bytes": self.now.bytes,
            format!("{}s_per_second", self.item): self.messages_a_second(),
            "bytes_per_second": self.bytes_a_second(),
            "errors": self.errors,
            "budget_used_bytes": self.used,
            "budget_limit_bytes": self.limit,
            "expected_bytes": self.expected,
            "progress_bytes": self.now.progress,
            "seconds_left": self.left().map(|left| left.as_secs_f64()),
        });
        format!("{line}\n")
    }
}

/// A bar of this width in characters, drawn in halves.
fn bar(share: f64, width: usize) -> String {
    let halves = (share * width as f64 * 2.0) as usize;
    let (full, half) = (halves / 2, halves % 2);
    let mut bar = "━".repeat(full.min(width));
    if full < width {
        bar.push(if half == 1 { '╸' } else { '─' });
        bar.push_str(&"─".repeat(width - full - 1));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let source = |expected_bytes, progress_bytes, rows_in| ComponentCounts {
            name: "in".to_owned(),
            role: "source",
            kind: "file",
            rows_in,
            bytes_in: rows_in * 100,
            rows_out: rows_in,
            bytes_out: rows_in * 100,
            errors: 0,
            busy_ns: 0,
            expected_bytes,
            progress_bytes,
            taken_at_once: 0,
            queued: 0,
            details: Default::default(),
            gauges: Vec::new(),
            missing_fields: Vec::new(),
            retrying: None,
        };
        let mut view = View {
            start: Instant::now(),
            former: VecDeque::from([Sight::default()]),
            now: Sight::default(),
            errors: 0,
            expected: None,
            used: 12_900_000,
            limit: 256 << 20,
            is_stopping: false,
            item: "message",
        };
        view.note(Duration::from_secs(12), &[source(1000, 400, 12_345_678)]);
        view
    }

    #[test]
    fn the_lines_fit_a_terminal_of_eighty_columns() {
        let view = view();
        assert_eq!(view.first_line(), "  12,345,678 messages · 1.03 M/s · 98.1 MiB/s");
        assert_eq!(
            view.second_line(80),
            "  ━━━━━━━━────────────   40 %  0:12 · 0:18 left · 12.3 of 256 MiB in flight"
        );
        assert!(view.second_line(80).chars().count() < 80);
        assert!(view.second_line(20).chars().count() < 80);
    }

    #[test]
    fn unknown_values_are_omitted() {
        let mut view = view();
        view.expected = None;
        assert_eq!(view.second_line(80), "  0:12 · 12.3 of 256 MiB in flight");
        assert_eq!(
            view.plain(),
            "0:12: 12,345,678 messages, 1.03 M/s, 98.1 MiB/s, 12.3 of 256 MiB in flight\n"
        );
    }

    #[test]
    fn a_bar_is_as_long_as_it_should_be() {
        for width in 0..12 {
            for share in [0.0, 0.1, 0.5, 0.99, 1.0] {
                assert_eq!(bar(share, width).chars().count(), width);
            }
        }
        assert_eq!(bar(0.5, 5), "━━╸──");
    }
}
