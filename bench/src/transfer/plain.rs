//! Plain copies: from the server, to the server, and from the server to itself through the client.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use thalweg_testbed::Tools;

use super::place::{BUCKET, SOURCE, Testbed, target as target_of};
use super::rows::Rows;
use super::{MEMORY, print, target};
use crate::contest::{Contender, Contest};

/// The least rate of thalweg, as a fraction of the bare client's rate.
const LEAST: f64 = 0.8;

/// The key of the copy on the server.
const COPY: &str = "copy.csv";

/// The bare clients and their numbers of connections.
const BARE: [(&str, usize); 2] = [("bare client, 1 connection", 1), ("bare client, 4", 4)];

/// A copy of one kind.
struct Kind {
    title: &'static str,
    /// The bare client's name for it.
    bare: &'static str,
    /// True if the server has the input, and true if it has the output.
    is_remote: (bool, bool),
}

const KINDS: [Kind; 3] = [
    Kind { title: "An object to a file", bare: "get", is_remote: (true, false) },
    Kind { title: "A file to an object", bare: "put", is_remote: (false, true) },
    Kind { title: "An object to an object of the same server", bare: "copy", is_remote: (true, true) },
];

/// Prints the three tables.
///
/// # Errors
/// Returns an error if a program fails or its output is wrong.
pub fn run(contest: &Contest, rows: &Rows, place: &Testbed) -> Result<(), String> {
    let peers = Peer::find();
    for kind in &KINDS {
        copy(contest, rows, place, kind, &peers)?;
    }
    for name in ["s5cmd", "rclone", "aws", "curl"] {
        if !peers.iter().any(|peer| peer.name == name) {
            println!("  {name} was not measured: it is not installed");
        }
    }
    println!();
    Ok(())
}

fn copy(contest: &Contest, rows: &Rows, place: &Testbed, kind: &Kind, peers: &[Peer]) -> Result<(), String> {
    let folder = contest.path("copies");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let (from_remote, to_remote) = kind.is_remote;
    let output = if to_remote { place.path(COPY) } else { folder.join(SOURCE) };
    let (input_text, output_text) = (rows.path.display().to_string(), output.display().to_string());

    let configuration = contest.path(&format!("{}.yaml", kind.bare));
    let from = if from_remote { place.url(SOURCE, false) } else { input_text.clone() };
    let to = if to_remote { place.url(COPY, false) } else { format!("{}/", folder.display()) };
    fs::write(&configuration, text(&from, &to)).map_err(|error| error.to_string())?;
    let bare_from = if from_remote { target_of(SOURCE) } else { input_text.clone() };
    let bare_to = if to_remote { target_of(COPY) } else { output_text.clone() };
    let mut contenders = vec![Contender::new("thalweg", || {
        let mut command = contest.thalweg_with(&configuration);
        command.arg("--strict").envs(place.server.env());
        command
    })];

    for (name, connections) in BARE {
        let (from, to) = (&bare_from, &bare_to);
        contenders.push(Contender::new(name, move || place.bare(false, kind.bare, from, to, connections)));
    }
    for peer in peers {
        let (from, to) = (from_remote.then_some(SOURCE), to_remote.then_some(COPY));
        let (from, to) = (from.ok_or(input_text.as_str()), to.ok_or(output_text.as_str()));
        if peer.command(place, from, to).is_some() {
            contenders.push(Contender::new(peer.name, move || {
                peer.command(place, from, to).unwrap_or_else(|| Command::new("false"))
            }));
        }
    }
    let contenders: Vec<Contender> = contenders
        .into_iter()
        .map(|contender| contender.writing(&output).checked(|output| rows.input.compare(output)))
        .collect();
    let runs = contest.compare(&contenders)?;
    println!("  {}, as it is", kind.title);
    for (contender, run) in contenders.iter().zip(&runs) {
        print(contender.name, rows.input.bytes, run);
    }
    if let Some(best) = runs.iter().skip(1).take(BARE.len()).map(|run| run.wall).min() {
        let part = best.as_secs_f64() / runs[0].wall.as_secs_f64();
        let text =
            format!("{:.0} % of the rate of the bare client; to reach: {:.0} %", part * 1e2, LEAST * 1e2);
        target(part >= LEAST, text);
    }
    println!();
    fs::remove_file(&output).map_err(|error| error.to_string())
}

fn text(from: &str, to: &str) -> String {
    format!(
        r#"memory: {MEMORY}
sources:
  one: {{ objects: {{ url: "{from}" }} }}
pipelines:
  main: {{ from: one, to: there }}
sinks:
  there: {{ objects: {{ url: "{to}" }} }}
"#
    )
}

/// Another program that copies.
struct Peer {
    name: &'static str,
    program: PathBuf,
}

impl Peer {
    fn find() -> Vec<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = |name: &str| {
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
        };
        let found = [
            ("s5cmd", Tools::find().s5cmd().ok()),
            ("rclone", Tools::find().rclone().ok()),
            ("aws", in_path("aws")),
            ("curl", in_path("curl")),
        ];
        found.into_iter().filter_map(|(name, program)| Some(Self { name, program: program? })).collect()
    }

    /// Returns the command for a copy between objects (`Ok`) and files (`Err`), or `None` if the program does
    /// not move the bytes itself.
    fn command(&self, place: &Testbed, from: Result<&str, &str>, to: Result<&str, &str>) -> Option<Command> {
        // For a copy within one server, these programs let the server do it, which is different work.
        if from.is_ok() && to.is_ok() {
            return None;
        }
        let endpoint = place.server.endpoint();
        let url = |scheme: &str, place: Result<&str, &str>| match place {
            Ok(key) => format!("{scheme}{BUCKET}/{key}"),
            Err(path) => path.to_owned(),
        };
        let mut command = Command::new(&self.program);
        command.envs(place.server.env());
        // Ignores the configuration of this machine.
        let nothing = ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"];
        command.envs(nothing.map(|name| (name, "/dev/null"))).env("AWS_EC2_METADATA_DISABLED", "true");
        match self.name {
            "s5cmd" => {
                command.args(["--endpoint-url", &endpoint, "cp"]);
                command.arg(url("s3://", from)).arg(url("s3://", to));
            }
            "rclone" => {
                let region = place.server.region();
                let settings = [
                    ("TYPE", "s3"),
                    ("PROVIDER", "Other"),
                    ("ENV_AUTH", "true"),
                    ("ENDPOINT", &endpoint),
                    ("REGION", region),
                    // rclone would create the bucket, which exists already.
                    ("NO_CHECK_BUCKET", "true"),
                ];
                command
                    .envs(settings.map(|(name, value)| (format!("RCLONE_CONFIG_BENCH_{name}"), value)))
                    .args(["--config", "/dev/null", "copyto"])
                    .arg(url("bench:", from))
                    .arg(url("bench:", to));
            }
            "aws" => {
                command.args(["--endpoint-url", &endpoint, "s3", "cp", "--only-show-errors"]);
                command.arg(url("s3://", from)).arg(url("s3://", to));
            }
            _ => {
                let (Ok(key), Err(path)) = (from, to) else { return None };
                command.args(["--silent", "--show-error", "--fail", "--output", path]);
                command.arg(place.signed(key).ok()?);
            }
        }
        Some(command)
    }
}
