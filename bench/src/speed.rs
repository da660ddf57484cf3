//! Measures the throughput of messages.

use std::path::Path;
use std::process::Command;

use crate::contest::{Contender, Contest};
use crate::report::{finding, grouped, per_second, rate, ratio, same, throughput};
use crate::{inputs, limit};

/// Benthos gets this many times fewer messages than thalweg, so that both take about as long.
const FEWER_TO_GENERATE: u64 = 40;
const FEWER_OF_JSON: u64 = 16;

/// Prints all rows.
///
/// # Errors
/// Returns an error if a program fails, or if two programs produce different outputs.
pub fn run(contest: &Contest) -> Result<(), String> {
    println!(
        "Speed: medians of {} runs in turn. Rates are of the whole process, start and stop included.\n",
        contest.rounds
    );
    generate(contest)?;
    lines(contest)?;
    json(contest)
}

fn generate(contest: &Contest) -> Result<(), String> {
    let count = contest.size / 8;
    let peer_count = count / FEWER_TO_GENERATE;
    println!("generate 256-byte messages to discard");
    let case = |count: u64| vec![("COUNT", count.to_string())];
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let limit = |threads: &'static str| {
        let program = &program;
        move || {
            let mut command = Command::new(program);
            command.arg(limit::COMMAND).arg(threads).arg(count.to_string());
            command
        }
    };
    let mut contenders = vec![
        Contender::new("thalweg", || contest.thalweg("generate.yaml", &case(count))),
        Contender::new("one thread", limit("one")),
        Contender::new("two threads", limit("two")),
    ];
    contenders.extend(contest.benthos("generate.yaml", case(peer_count)));
    let runs = contest.compare(&contenders)?;
    rate("thalweg", count, &runs[0]);
    match runs.get(3) {
        Some(peer) => {
            rate("benthos", peer_count, peer);
            let times = per_second(count, &runs[0]) / per_second(peer_count, peer);
            finding(format!("{times:.1} times benthos"));
        }
        None => println!("  benthos was not measured: `make bench` builds it where there is Go"),
    }
    for (contender, run) in contenders.iter().zip(&runs).skip(1).take(2) {
        rate(contender.name, count, run);
        let what = match contender.name {
            "one thread" => "that copies into a recycled arena, and does nothing else",
            _ => "that pass recycled arenas of copies",
        };
        finding(format!("{:.0} % of {} {what}", 100.0 / ratio(&runs[0], run), contender.name));
    }
    println!();
    Ok(())
}

fn lines(contest: &Contest) -> Result<(), String> {
    let (input, output, peer_output) =
        (contest.path("lines.log"), contest.path("out.log"), contest.path("peer.log"));
    let lines = inputs::lines(&input, contest.size).map_err(|error| error.to_string())?;
    let variables = [("INPUT", text(&input)), ("OUTPUT", text(&output))];
    println!("{} lines, {} MiB, file to file", grouped(lines as f64), contest.size >> 20);
    let pairs = [
        ("unchanged", "copy.yaml", "cat", "cat"),
        ("payload LIKE '%error%'", "search.yaml", "grep -F", "grep -F error"),
    ];
    for (title, case, peer, script) in pairs {
        let contenders = [
            Contender::new("thalweg", || contest.thalweg(case, &variables)).writing(&output),
            Contender::shell(peer, format!("{script} '{}' > '{}'", input.display(), peer_output.display()))
                .writing(&peer_output),
        ];
        let runs = contest.compare(&contenders)?;
        println!("  {title}");
        for (contender, run) in contenders.iter().zip(&runs) {
            throughput(contender.name, contest.size, run);
        }
        finding(format!("{:.2} times the time of {peer}", ratio(&runs[0], &runs[1])));
        same(&output, &peer_output)?;
    }
    println!();
    Ok(())
}

fn json(contest: &Contest) -> Result<(), String> {
    let (input, part) = (contest.path("lines.json"), contest.path("part.json"));
    let (output, peer_output) = (contest.path("out.json"), contest.path("peer.json"));
    let make = |path: &Path, size| inputs::json(path, size).map_err(|error| error.to_string());
    let lines = make(&input, contest.size)?;
    let part_lines = make(&part, contest.size / FEWER_OF_JSON)?;
    let variables = [("INPUT", text(&input)), ("OUTPUT", text(&output))];
    println!(
        "{} JSON lines, {} MiB: parse, filter, set, write JSON",
        grouped(lines as f64),
        contest.size >> 20
    );
    let copied = contest.path("peer.log");
    let copy = format!("cat '{}' > '{}'", input.display(), copied.display());
    let mut contenders = vec![
        Contender::new("thalweg", || contest.thalweg("json.yaml", &variables)).writing(&output),
        Contender::shell("cat", copy).writing(&copied),
    ];
    let peer_variables = vec![("INPUT", text(&part)), ("OUTPUT", text(&peer_output))];
    let peer = contest.benthos("json.yaml", peer_variables);
    contenders.extend(peer.map(|peer| peer.writing(&peer_output)));
    let runs = contest.compare(&contenders)?;
    rate("thalweg", lines, &runs[0]);
    if let Some(peer) = runs.get(2) {
        rate("benthos", part_lines, peer);
        let times = per_second(lines, &runs[0]) / per_second(part_lines, peer);
        finding(format!("{times:.1} times benthos"));
    }
    rate("cat", lines, &runs[1]);
    finding(format!(
        "{:.2} times the time of cat, the limit for reading and writing\n",
        ratio(&runs[0], &runs[1])
    ));
    Ok(())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
