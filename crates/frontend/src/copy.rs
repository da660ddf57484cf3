//! Copies objects and shows it.

use serde_json::json;
use thalweg_config::Comments;
use thalweg_engine::{Plan, Summary};
use thalweg_job::copy::{CopyJob, CopyOptions, Figures, Kept, StreamCopy, StreamError};
use thalweg_job::{Outcome, RunOptions, Signals};
use thalweg_redact::foreign;

use crate::exit::{CommandError, Exit};
use crate::format::{bytes, bytes_of, count, counted, duration, excerpt, headline, rate};
use crate::paint::Paint;
use crate::print;
use crate::screen::{Screen, Show};
use crate::summary::missing_fields;

/// Prints the configuration that does the same as a copy, with variables in place of secrets.
///
/// # Errors
/// If the options are wrong, or the output cannot be written.
pub fn print_config(options: &CopyOptions) -> Result<Exit, CommandError> {
    if options.from == "-" || options.to == "-" {
        let text =
            "`--print-config` has no configuration for `-`; `thalweg pipe --print-config` has one for rows";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let job = CopyJob::new(options)?;
    print::out(&thalweg_config::write(&job.printable(), &Comments::default()))?;
    Ok(Exit::Done)
}

/// Copies objects, or lists what would be copied.
///
/// # Errors
/// Why it could not run, or why the run failed.
pub fn copy(options: &CopyOptions, show: &Show) -> Result<Exit, CommandError> {
    if let Some(stream) = StreamCopy::of(options)? {
        return copy_stream(&stream, show);
    }
    let job = CopyJob::new(options)?;
    if let Some(warning) = job.probe(&mut || true)? {
        print::err(&print::event(show.json, show.quiet, "warning", &warning));
    }
    if options.dry_run {
        list(&job, show.json)?;
        return Ok(Exit::Done);
    }
    let kept = job.keep()?;
    if kept.resumes {
        let text = "resuming an interrupted copy; `--restart` starts from the beginning";
        print::err(&print::event(show.json, show.quiet, "resuming", text));
    }
    let signals = Some(Signals::new()?);
    let run_options = RunOptions { cores: job.cores, signals, ..RunOptions::default() };
    let outcome = job.run(&kept, run_options, &mut Screen::new(show.clone()))?;
    if outcome.reader_is_gone() {
        return Err(CommandError::ReaderGone);
    }
    end(&job, &outcome, &kept, show)
}

/// Copies bytes from or to a standard stream.
fn copy_stream(stream: &StreamCopy<'_>, show: &Show) -> Result<Exit, CommandError> {
    let copied = stream.run(Signals::new()?).map_err(|error| match error {
        StreamError::Failed(error) => error.into(),
        StreamError::Stream(error) => error.into(),
        StreamError::Stopped => CommandError::Failed("stopped before everything was copied".to_owned()),
    })?;
    if show.json {
        print::err_json(&format!("{}\n", copied.json()));
    } else if !show.quiet {
        let time = duration(copied.elapsed);
        let each_second = bytes(rate(copied.bytes, copied.elapsed) as u64);
        let done = Paint::stderr().bold(&format!("done in {time}"));
        print::err(&format!("  {done} · {} copied · {each_second}/s\n", bytes(copied.bytes)));
    }
    Ok(Exit::Done)
}

/// Lists each object with its size and target, and the total.
fn list(job: &CopyJob<'_>, json: bool) -> Result<(), CommandError> {
    let shown = |name: &str| excerpt(name, usize::MAX);
    let (mut objects, mut total) = (0_u64, 0_u64);
    let mut written = Ok(());
    let mut each = |name: &str, to: String, size: u64| {
        objects += 1;
        total = total.saturating_add(size);
        let line = match json {
            true => json!({ "event": "object", "from": name, "to": to, "bytes": size }).to_string(),
            false => format!("{:>10}  {} → {}", bytes(size), shown(name), shown(&to)),
        };
        written = print::out(&format!("{line}\n"));
        written.is_ok()
    };
    job.list(&mut each, &mut || true)?;
    written?;
    if json {
        print::out(&format!("{}\n", json!({ "event": "total", "objects": objects, "bytes": total })))?;
        return Ok(());
    }
    print::out(&format!("{:>10}  {}, and nothing is written\n", bytes(total), counted(objects, "object")))?;
    if job.options.rows.parse.is_some() {
        let heading = Paint::stdout().bold("How it would run");
        print::show(&format!("\n{heading}\n{}", Plan::new(&job.graph, job.cores)))?;
    }
    Ok(())
}

fn end(job: &CopyJob<'_>, outcome: &Outcome, kept: &Kept, show: &Show) -> Result<Exit, CommandError> {
    let summary = &outcome.summary;
    let figures = job.figures(outcome);
    if show.json {
        print::err_json(&format!("{}\n", figures.json(outcome)));
    } else if !show.quiet {
        let failures = if figures.failed > 0 { kept.failures() } else { String::new() };
        print::err(&text(&figures, outcome, &failures, Paint::stderr()));
    }
    job.finish(outcome, &figures, kept)?;
    match &summary.failure {
        Some(_) if show.json => Err(CommandError::AlreadyReported),
        Some(failure) => Err(CommandError::Failed(failure.to_string())),
        None if summary.stopped => Err(CommandError::Failed(match kept.state_dir.positions {
            true => "stopped, so some objects may be missing; the same command resumes the copy".to_owned(),
            false => "stopped, so some objects may be missing".to_owned(),
        })),
        None if !job.is_done(&figures) => Ok(Exit::Errors),
        None => Ok(Exit::Done),
    }
}

/// The summary of a copy as text. `failures` says how to list what could not be copied.
fn text(figures: &Figures, outcome: &Outcome, failures: &str, paint: Paint) -> String {
    let summary = &outcome.summary;
    let each_second = |number| format!("{}/s", bytes(rate(number, summary.elapsed) as u64));
    let mut text = String::new();
    let mut line = |parts: &[String]| text.push_str(&format!("  {}\n", parts.join(" · ")));
    let copied = format!("{} copied", counted(figures.copied, figures.item()));
    let largest = figures.read_bytes.max(figures.written_bytes);
    line(&[headline(summary, paint), copied, each_second(largest)]);
    line(&read_line(figures));
    line(&request_line(figures, summary, paint));
    let mut there = Vec::new();
    if figures.kept_bytes > 0 {
        there.push(format!("{} kept from a former copy", bytes(figures.kept_bytes)));
    }
    if figures.skipped > 0 {
        there.push(format!("{} skipped, since the target exists", counted(figures.skipped, "file")));
    }
    if !there.is_empty() {
        line(&there);
    }
    if outcome.retries.count > 0 {
        let times = counted(outcome.retries.count, "time");
        line(&[format!(
            "retried {times}, the last: {}",
            foreign(outcome.retries.last.as_deref().unwrap_or_default())
        )]);
    }
    for missing in missing_fields(&summary.components, paint) {
        line(&[missing]);
    }
    if figures.failed > 0 {
        line(&[format!("{}: {failures}", paint.yellow(&figures.not_copied()))]);
    }
    text
}

/// The bytes that were read and written.
fn read_line(figures: &Figures) -> Vec<String> {
    let mut parts = Vec::new();
    // The size of the standard input is not known.
    if figures.read_bytes > 0 || !figures.is_rows {
        parts.push(format!("{} read", bytes(figures.read_bytes)));
    }
    if figures.is_rows && figures.read_bytes > 0 {
        parts.push(format!("of {}", counted(figures.read_objects, "object")));
    }
    parts.push(format!("{} written", bytes(figures.written_bytes)));
    if figures.verified_bytes > 0 {
        parts.push(format!("{} verified by the store", bytes(figures.verified_bytes)));
    }
    parts.extend(figures.crc32c.map(|crc32c| format!("crc32c {crc32c:08x}")));
    parts
}

/// The requests and the memory.
fn request_line(figures: &Figures, summary: &Summary, paint: Paint) -> Vec<String> {
    let mut parts = vec![counted(figures.requests, "request")];
    if figures.retries > 0 {
        parts.push(paint.yellow(&format!("{} retried", count(figures.retries))));
    }
    let budget = bytes_of(summary.budget_peak as u64, summary.budget_limit as u64);
    parts.push(format!("at most {budget} in flight"));
    parts
}
