//! Prints figures.

use std::path::Path;
use std::process::Command;

use crate::measure::Run;

/// Returns the time of `ours` as a multiple of the time of `theirs`.
pub fn ratio(ours: &Run, theirs: &Run) -> f64 {
    ours.wall.as_secs_f64() / theirs.wall.as_secs_f64()
}

/// Returns the messages per second of the whole process.
pub fn per_second(messages: u64, run: &Run) -> f64 {
    messages as f64 / run.wall.as_secs_f64()
}

/// Prints a run as messages per second.
pub fn rate(name: &str, messages: u64, run: &Run) {
    let (wall, cpu) = (run.wall.as_secs_f64(), run.cpu.as_secs_f64());
    println!(
        "  {name:<12}{:>12} messages/s   {wall:.2} s, {cpu:.2} s of CPU, peak {} MiB",
        grouped(per_second(messages, run)),
        run.peak_rss >> 20
    );
}

/// Prints a run as bytes per second.
pub fn throughput(name: &str, bytes: u64, run: &Run) {
    let (wall, cpu) = (run.wall.as_secs_f64(), run.cpu.as_secs_f64());
    let rate = bytes as f64 / wall / 1e9;
    println!(
        "    {name:<10}{rate:>6.2} GB/s   {wall:.3} s, {cpu:.3} s of CPU, peak {} MiB",
        run.peak_rss >> 20
    );
}

/// Prints a conclusion under the figures above it.
pub fn finding(text: String) {
    println!("  {:<30}{text}", "");
}

/// Checks that both programs did the same work: their outputs must be equal.
///
/// # Errors
/// Returns an error if the files differ.
pub fn same(ours: &Path, theirs: &Path) -> Result<(), String> {
    let result = Command::new("cmp").arg(ours).arg(theirs).status().map_err(|error| error.to_string())?;
    if result.success() {
        return Ok(());
    }
    Err(format!("{} and {} differ", ours.display(), theirs.display()))
}

/// Formats a number with commas between its thousands.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = if number < 0.0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
