//! Runs thalweg beside its peers and beside the limit of the machine, on the same input in the same run, and
//! prints the ratios. Absolute figures depend on the machine and the moment. Ratios depend less on them, and
//! medians of alternating runs least.
//!
//! `thalweg-bench [size|speed|gollum|files|memory|evaluations|concurrently|transfer [TABLE...]|sparse
//! [TABLE...]] [--quick] [--mib N] [--rounds N]`; `make bench` builds the programs it needs. `--mib` is the
//! size of an input in MiB, `--rounds` the number of runs per contender.

mod concurrently;
mod contest;
mod evaluations;
mod files;
mod gollum;
mod heap;
mod inputs;
mod limit;
mod measure;
mod memory;
mod report;
mod size;
mod sparse;
mod speed;
mod table;
mod transfer;

use contest::Contest;

/// The most runs per contender that copy a large object: each takes long.
const TRANSFERS: usize = 3;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match print_tables(&arguments) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn print_tables(arguments: &[String]) -> Result<(), String> {
    // These commands run as separate processes, either in turn with other contenders or to be measured from
    // outside.
    match arguments {
        [command, threads, count] if command == limit::COMMAND => {
            limit::run(threads, count.parse().unwrap_or(0));
            return Ok(());
        }
        [command, what] if command == evaluations::HOLD => return evaluations::hold(what),
        [command, rest @ ..] if command == transfer::BARE => return transfer::bare(rest),
        [command, file] if command == transfer::COUNT => return transfer::count(file),
        _ => {}
    }
    let Arguments { quick, mib, rounds, named } = Arguments::parse(arguments)?;
    // `most` limits the rounds unless `--rounds` is given.
    let contest = |most: usize| {
        let mut contest = Contest::new(quick)?;
        contest.rounds = rounds.unwrap_or(contest.rounds.min(most));
        contest.size = mib.map_or(contest.size, |mib| (mib as u64) << 20);
        Ok::<_, String>(contest)
    };
    // These commands accept names of tables.
    match named.as_slice() {
        ["sparse", tables @ ..] if !tables.is_empty() => {
            sparse::run(quick, tables);
            return Ok(());
        }
        ["transfer", tables @ ..] if !tables.is_empty() => {
            let contest = contest(TRANSFERS)?;
            let result = transfer::run(&contest, tables);
            return contest.clean().and(result);
        }
        _ => {}
    }
    let wanted = |name: &str| named.is_empty() || named.contains(&name);
    if ["size", "speed", "gollum", "files", "memory"].into_iter().any(wanted) {
        let contest = contest(usize::MAX)?;
        if wanted("size") {
            size::run(&contest)?;
        }
        if wanted("speed") {
            speed::run(&contest)?;
        }
        if wanted("gollum") {
            gollum::run(&contest)?;
        }
        if wanted("files") {
            files::run(&contest)?;
        }
        if wanted("memory") {
            memory::run(&contest)?;
        }
        contest.clean()?;
    }
    if wanted("transfer") {
        let contest = contest(TRANSFERS)?;
        let result = transfer::run(&contest, &[]);
        contest.clean().and(result)?;
    }
    if wanted("evaluations") {
        evaluations::run(quick)?;
    }
    if wanted("concurrently") {
        concurrently::run(quick)?;
    }
    if wanted("sparse") {
        sparse::run(quick, &[]);
    }
    Ok(())
}

/// The parsed command line.
#[derive(Default)]
struct Arguments<'a> {
    quick: bool,
    mib: Option<usize>,
    rounds: Option<usize>,
    named: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    fn parse(arguments: &'a [String]) -> Result<Self, String> {
        let mut parsed = Self::default();
        let mut arguments = arguments.iter().map(String::as_str);
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let number = arguments.next().and_then(|number| number.parse().ok());
                number
                    .filter(|&number| number > 0)
                    .ok_or_else(|| format!("`{argument}` needs a number above 0"))
            };
            match argument {
                "--quick" => parsed.quick = true,
                "--mib" => parsed.mib = Some(number()?),
                "--rounds" => parsed.rounds = Some(number()?),
                _ if argument.starts_with('-') => return Err(format!("`{argument}` is not an option")),
                _ => parsed.named.push(argument),
            }
        }
        Ok(parsed)
    }
}
