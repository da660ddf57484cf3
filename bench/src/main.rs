//! Runs thalweg beside its peers and beside the limit of the machine, on the same input in the same run, and
//! prints the ratios. Figures of one machine at one time say little; ratios say more, and medians of runs in turn
//! say most.
//!
//! `thalweg-bench [speed|memory|sparse] [--quick]`; `make bench` builds what it needs.

mod heap;
mod inputs;
mod limit;
mod measure;
mod sparse;

use std::path::{Path, PathBuf};
use std::process::Command;

use measure::{Run, median, run};

const GIB: u64 = 1 << 30;

struct Bench {
    thalweg: PathBuf,
    benthos: Option<PathBuf>,
    cases: PathBuf,
    scratch: PathBuf,
    rounds: usize,
    size: u64,
}

/// Something to measure: how it is started.
struct Contender<'a> {
    name: &'a str,
    command: Box<dyn Fn() -> Command + 'a>,
}

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    if let Some((first, named)) = arguments.split_first()
        && first == "sparse"
    {
        let named: Vec<String> =
            named.iter().filter(|argument| !argument.starts_with('-')).cloned().collect();
        return sparse::main(quick, &named);
    }
    let wanted = |name: &str| {
        let named: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
        named.is_empty() || named.iter().any(|argument| *argument == name)
    };
    let result = Bench::new(quick).and_then(|bench| {
        if wanted("speed") {
            bench.speed()?;
        }
        if wanted("memory") {
            bench.memory()?;
        }
        std::fs::remove_dir_all(&bench.scratch).map_err(|error| error.to_string())
    });
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

impl Bench {
    fn new(quick: bool) -> Result<Self, String> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let thalweg = program.with_file_name("thalweg");
        if !thalweg.exists() {
            return Err(format!("{} is not there: `make bench` builds it", thalweg.display()));
        }
        let benthos = std::env::var_os("BENTHOS").map(PathBuf::from).filter(|path| path.exists());
        let scratch = std::env::temp_dir().join(format!("thalweg-bench-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).map_err(|error| error.to_string())?;
        let (rounds, size) = if quick { (1, GIB / 16) } else { (5, GIB) };
        Ok(Self { thalweg, benthos, cases: here.to_owned(), scratch, rounds, size })
    }

    fn thalweg(&self, case: &str, variables: &[(&str, String)]) -> Command {
        let mut command = Command::new(&self.thalweg);
        command.arg("run").arg(self.cases.join("cases").join(case)).arg("--quiet");
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        command
    }

    fn benthos(&self, case: &str, variables: &[(&str, String)]) -> Option<Command> {
        let mut command = Command::new(self.benthos.as_ref()?);
        command.arg("run").arg(self.cases.join("benthos").join(case));
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        Some(command)
    }

    /// Runs the contenders in turn, so that all see the machine in the same moods, after a round to warm up.
    fn compare(&self, contenders: &[Contender]) -> Result<Vec<Run>, String> {
        let mut runs: Vec<Vec<Run>> = contenders.iter().map(|_| Vec::new()).collect();
        for round in 0..=self.rounds {
            for (contender, runs) in contenders.iter().zip(&mut runs) {
                let measured = run(&mut (contender.command)())?;
                if round > 0 {
                    runs.push(measured);
                }
            }
        }
        runs.into_iter().map(|runs| median(runs).ok_or_else(|| "no runs".to_owned())).collect()
    }

    fn speed(&self) -> Result<(), String> {
        let path = |name: &str| self.scratch.join(name);
        let text = |path: &Path| path.display().to_string();
        let describe = |error: std::io::Error| error.to_string();
        println!(
            "Speed: medians of {} runs in turn. Rates are of the whole process, start and stop included.\n",
            self.rounds
        );

        let count = (self.size / 8) as usize;
        let peer_count = count / 40;
        println!("generate 256-byte messages to discard");
        let case = |count: usize| vec![("COUNT", count.to_string())];
        let mut contenders = vec![Contender {
            name: "thalweg",
            command: Box::new(move || self.thalweg("generate.yaml", &case(count))),
        }];
        if self.benthos.is_some() {
            contenders.push(Contender {
                name: "benthos",
                command: Box::new(move || {
                    let command = self.benthos("generate.yaml", &case(peer_count));
                    command.unwrap_or_else(|| Command::new("false"))
                }),
            });
        }
        let runs = self.compare(&contenders)?;
        let mut limits: Vec<f64> = (0..self.rounds.max(3))
            .map(|_| count as f64 / limit::two_threads(count, 256 << 10).as_secs_f64())
            .collect();
        limits.sort_by(f64::total_cmp);
        let limit = limits[limits.len() / 2];
        let ours = count as f64 / runs[0].wall.as_secs_f64();
        rate("thalweg", ours, &runs[0]);
        match runs.get(1) {
            Some(peer) => {
                let theirs = peer_count as f64 / peer.wall.as_secs_f64();
                rate("benthos", theirs, peer);
                println!("  {:<34}{:>10.1} times benthos", "", ours / theirs);
            }
            None => println!("  benthos was not measured: `make bench` builds it where there is Go"),
        }
        println!(
            "  {:<10}{:>14} messages/s   two threads passing recycled arenas of copies",
            "limit",
            grouped(limit)
        );
        println!("  {:<34}{:>10.0} % of the limit\n", "", 100.0 * ours / limit);

        let input = path("lines.log");
        let lines = inputs::lines(&input, self.size).map_err(describe)?;
        let output = path("out.log");
        let variables = vec![("INPUT", text(&input)), ("OUTPUT", text(&output))];
        println!("{} lines, {} MiB, file to file", grouped(lines as f64), self.size >> 20);
        let shell = |script: String| {
            move || {
                let mut command = Command::new("sh");
                command.arg("-c").arg(&script);
                command
            }
        };
        let plain = |what: &str| format!("{what} '{}' > '{}'", input.display(), path("peer.log").display());
        let pairs = [
            ("unchanged", "copy.yaml", "cat", plain("cat")),
            ("payload LIKE '%error%'", "search.yaml", "grep -F", plain("grep -F error")),
        ];
        for (title, case, peer, script) in pairs {
            let ours = || self.thalweg(case, &variables);
            let contenders = [
                Contender { name: "thalweg", command: Box::new(ours) },
                Contender { name: peer, command: Box::new(shell(script)) },
            ];
            let runs = self.compare(&contenders)?;
            println!("  {title}");
            for (contender, run) in contenders.iter().zip(&runs) {
                throughput(contender.name, self.size, run);
            }
            println!("  {:<34}{:>10.2} times the time of {peer}", "", ratio(&runs[0], &runs[1]));
            same(&output, &path("peer.log"))?;
        }
        println!();

        let input = path("lines.json");
        let lines = inputs::json(&input, self.size).map_err(describe)?;
        let part = path("part.json");
        let part_lines = inputs::json(&part, self.size / 16).map_err(describe)?;
        let variables = vec![("INPUT", text(&input)), ("OUTPUT", text(&output))];
        let peer_variables = vec![("INPUT", text(&part)), ("OUTPUT", text(&path("peer.json")))];
        println!(
            "{} JSON lines, {} MiB: parse, filter, set, write JSON",
            grouped(lines as f64),
            self.size >> 20
        );
        let mut contenders =
            vec![Contender { name: "thalweg", command: Box::new(|| self.thalweg("json.yaml", &variables)) }];
        let cat = format!("cat '{}' > '{}'", input.display(), path("peer.log").display());
        contenders.push(Contender { name: "cat", command: Box::new(shell(cat)) });
        if self.benthos.is_some() {
            let command = || {
                let _ = std::fs::remove_file(path("peer.json"));
                self.benthos("json.yaml", &peer_variables).unwrap_or_else(|| Command::new("false"))
            };
            contenders.push(Contender { name: "benthos", command: Box::new(command) });
        }
        let runs = self.compare(&contenders)?;
        let ours = lines as f64 / runs[0].wall.as_secs_f64();
        rate("thalweg", ours, &runs[0]);
        if let Some(peer) = runs.get(2) {
            let theirs = part_lines as f64 / peer.wall.as_secs_f64();
            rate("benthos", theirs, peer);
            println!("  {:<34}{:>10.1} times benthos", "", ours / theirs);
        }
        rate("cat", lines as f64 / runs[1].wall.as_secs_f64(), &runs[1]);
        println!(
            "  {:<34}{:>10.2} times the time of cat, the limit for reading and writing\n",
            "",
            ratio(&runs[0], &runs[1])
        );
        Ok(())
    }

    fn memory(&self) -> Result<(), String> {
        let size = self.size * 4;
        let text = |path: &Path| path.display().to_string();
        println!("Memory: peak resident size while {} MiB pass through\n", size >> 20);
        println!("  {:<12}{:>10}{:>16}", "", "budget", "peak RSS");
        let output = self.scratch.join("memory.out");
        let cases =
            [("copy.yaml", "lines"), ("search.yaml", "lines"), ("json.yaml", "json"), ("generate.yaml", "")];
        let mut made = "";
        let input = self.scratch.join("memory.in");
        for (case, kind) in cases {
            if made != kind && !kind.is_empty() {
                let written = match kind {
                    "json" => inputs::json(&input, size),
                    _ => inputs::lines(&input, size),
                };
                written.map_err(|error| error.to_string())?;
                made = kind;
            }
            for memory in ["32MiB", "256MiB"] {
                let variables = [
                    ("INPUT", text(&input)),
                    ("OUTPUT", text(&output)),
                    ("COUNT", (size / 256).to_string()),
                    ("MEMORY", memory.to_owned()),
                ];
                let measured = run(&mut self.thalweg(case, &variables))?;
                println!(
                    "  {:<12}{:>10}{:>12} MiB",
                    case.trim_end_matches(".yaml"),
                    memory,
                    measured.peak_rss >> 20
                );
            }
        }
        println!();
        Ok(())
    }
}

fn ratio(ours: &Run, theirs: &Run) -> f64 {
    ours.wall.as_secs_f64() / theirs.wall.as_secs_f64()
}

fn rate(name: &str, per_second: f64, run: &Run) {
    let (wall, cpu) = (run.wall.as_secs_f64(), run.cpu.as_secs_f64());
    println!(
        "  {name:<10}{:>14} messages/s   {wall:.2} s, {cpu:.2} s of CPU, peak {} MiB",
        grouped(per_second),
        run.peak_rss >> 20
    );
}

fn throughput(name: &str, bytes: u64, run: &Run) {
    let (wall, cpu) = (run.wall.as_secs_f64(), run.cpu.as_secs_f64());
    let rate = bytes as f64 / wall / 1e9;
    println!(
        "    {name:<10}{rate:>6.2} GB/s   {wall:.3} s, {cpu:.3} s of CPU, peak {} MiB",
        run.peak_rss >> 20
    );
}

/// What was compared must have done the same work.
fn same(ours: &Path, theirs: &Path) -> Result<(), String> {
    let result = Command::new("cmp").arg(ours).arg(theirs).status().map_err(|error| error.to_string())?;
    if result.success() {
        return Ok(());
    }
    Err(format!("{} and {} differ", ours.display(), theirs.display()))
}

fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
