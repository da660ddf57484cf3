//! `thalweg gollum`: gollum's command line.
//!
//! The command line is translated into one of thalweg's, which then takes the place of this process. So a
//! service manager that started gollum only needs another name of the program, and the file with the process
//! id that gollum wrote (`-p`) stays right.
//!
//! gollum's options have one or two letters after one dash (`-tc`), which clap cannot express; they are read
//! here.

use std::ffi::OsString;
use std::process::Command;

use clap::Args;
use thalweg_frontend::{CommandError, Exit, print};

const HELP: &str = "\
gollum's command line, for configurations of gollum. Example:
  thalweg gollum -c gollum.conf -ll 3

Options:
  -c, -config FILE          Run this configuration.
  -tc, -testconfig FILE     Check this configuration.
  -ll, -loglevel 0..3       The level of the log: error, warn, info (the default), debug.
  -lc, -log-colors WHEN     `never` switches colours off.
  -n, -numcpu N             The number of cores; 0 is all.
  -m, -metrics ADDRESS      Serve `/metrics` and `/health` at this address.
  -hc, -healthcheck ADDRESS   The same.
  -mt, -metricstype TYPE    `prometheus`, which is the only one.
  -p, -pidfile FILE         Write the process id to this file.
  -l, -list                 List the components.
  -v, -version              Print the version.
  -r, -runtime              The same.
  -h, -help                 Print this.
  --gollum VERSION          The version that the configuration was written for: 0.4, 0.5 or 0.6.
  -ps, -pc FILE, -pm FILE, -pt FILE, -t
                            Accepted without effect: use `perf`, the sink `measure`, and `thalweg errors`.
";

/// Accepts gollum's command line, so that a service of gollum needs one changed word.
///
/// `thalweg gollum -c gollum.conf` is `thalweg run gollum.conf`. See `thalweg gollum --help`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// gollum's options.
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// The meaning of a command line of gollum.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    arguments: Vec<String>,
    level: Option<&'static str>,
    is_without_colors: bool,
    pid_file: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<Exit, CommandError> {
    let Some(wanted) = translate(&arguments.options).map_err(CommandError::Usage)? else {
        print::out(HELP)?;
        return Ok(Exit::Done);
    };
    if let Some(file) = &wanted.pid_file {
        std::fs::write(file, std::process::id().to_string())
            .map_err(|error| CommandError::Usage(format!("`{file}` cannot be written: {error}")))?;
    }
    let program = std::env::current_exe().unwrap_or_else(|_| "thalweg".into());
    let mut command = Command::new(program);
    command.args(&wanted.arguments);
    if let Some(level) = wanted.level.filter(|_| std::env::var_os("THALWEG_LOG").is_none()) {
        command.env("THALWEG_LOG", level);
    }
    if wanted.is_without_colors {
        command.env("NO_COLOR", OsString::from("1"));
    }
    replace(command)
}

/// Lets a command take the place of this process.
#[cfg(unix)]
pub(super) fn replace(mut command: Command) -> Result<Exit, CommandError> {
    let error = std::os::unix::process::CommandExt::exec(&mut command);
    Err(CommandError::Usage(format!("thalweg cannot be started again: {error}")))
}

/// Runs a command to its end.
#[cfg(not(unix))]
pub(super) fn replace(mut command: Command) -> Result<Exit, CommandError> {
    let status = command.status();
    let status =
        status.map_err(|error| CommandError::Usage(format!("thalweg cannot be started again: {error}")))?;
    std::process::exit(status.code().unwrap_or(3));
}

/// Translates gollum's options; `None` if they ask for help.
fn translate(options: &[String]) -> Result<Option<Wanted>, String> {
    let mut wanted = Wanted { level: Some("info"), ..Wanted::default() };
    let (mut command, mut rest) = (None, Vec::new());
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let (name, given) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (option.as_str(), None),
        };
        // Like Go's own flags, those of gollum have one dash or two.
        let dashed = name.strip_prefix('-').filter(|rest| rest.starts_with('-'));
        let name = dashed.unwrap_or(name);
        let mut value = || {
            let value = given.clone().or_else(|| options.next().cloned());
            value.ok_or_else(|| format!("`{name}` needs a value; see `thalweg gollum --help`"))
        };
        match name {
            "-c" | "-config" => command = Some(("run", value()?)),
            "-tc" | "-testconfig" => command = Some(("check", value()?)),
            "-v" | "-version" | "-r" | "-runtime" | "-report" => return other("--version"),
            "-l" | "-list" => return other("components"),
            "-h" | "-help" => return Ok(None),
            "-ll" | "-loglevel" => wanted.level = Some(level(&value()?)?),
            "-lc" | "-log-colors" => wanted.is_without_colors = value()? == "never",
            "-n" | "-numcpu" => {
                let number = value()?;
                if number != "0" {
                    rest.extend(["--threads".to_owned(), number]);
                }
            }
            "-m" | "-metrics" | "-hc" | "-healthcheck" => {
                let address = listening(&value()?);
                if rest.contains(&address) {
                    continue;
                }
                rest.extend(["--listen".to_owned(), address]);
            }
            "-mt" | "-metricstype" if !["", "prometheus"].contains(&value()?.as_str()) => {
                return Err("metrics are served for `prometheus`".to_owned());
            }
            "-mt" | "-metricstype" => {}
            "-p" | "-pidfile" => wanted.pid_file = Some(value()?),
            "-gollum" => rest.extend(["--gollum".to_owned(), value()?]),
            "-pc" | "-profilecpu" | "-pm" | "-profilemem" | "-pt" | "-profiletrace" | "-tr" => {
                value()?;
            }
            "-ps" | "-profilespeed" | "-t" | "-trace" => {}
            _ => return Err(format!("gollum has no option `{name}`; see `thalweg gollum --help`")),
        }
    }
    let Some((command, file)) = command else { return Ok(None) };
    // Only `--gollum` is an option of `check` as well.
    let is_of_check = |at: usize| {
        rest.get(at).is_some_and(|name| name == "--gollum") || at > 0 && rest[at - 1] == "--gollum"
    };
    let kept: Vec<String> = match command {
        "check" => (0..rest.len()).filter(|at| is_of_check(*at)).map(|at| rest[at].clone()).collect(),
        _ => rest,
    };
    wanted.arguments = [command.to_owned(), file].into_iter().chain(kept).collect();
    Ok(Some(wanted))
}

fn other(argument: &str) -> Result<Option<Wanted>, String> {
    Ok(Some(Wanted { arguments: vec![argument.to_owned()], ..Wanted::default() }))
}

fn level(number: &str) -> Result<&'static str, String> {
    match number {
        "0" => Ok("error"),
        "1" => Ok("warn"),
        "2" => Ok("info"),
        "3" => Ok("debug"),
        other => Err(format!("`{other}` is not a level of the log: there are 0, 1, 2 and 3")),
    }
}

/// gollum 0.4 takes a port alone, and later versions an address without a host for all interfaces.
fn listening(address: &str) -> String {
    match address.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None if address.parse::<u16>().is_ok() => format!("127.0.0.1:{address}"),
        None => address.replace("localhost:", "127.0.0.1:"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(options: &[&str]) -> Result<Option<Wanted>, String> {
        translate(&options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
    }

    fn arguments(options: &[&str]) -> String {
        translated(options).unwrap().unwrap().arguments.join(" ")
    }

    #[test]
    fn each_option_has_its_place() {
        assert_eq!(arguments(&["-c", "a.conf"]), "run a.conf");
        assert_eq!(arguments(&["--config=a.conf", "-n", "2"]), "run a.conf --threads 2");
        assert_eq!(arguments(&["-config", "a.conf", "-numcpu=2", "-tr", "x"]), "run a.conf --threads 2");
        assert_eq!(arguments(&["-n", "0", "-c", "a", "-m", ":80"]), "run a --listen 0.0.0.0:80");
        assert_eq!(arguments(&["-c", "a", "-m", "8080", "-ps", "-pc", "x"]), "run a --listen 127.0.0.1:8080");
        assert_eq!(arguments(&["-tc", "a", "-n", "2", "--gollum", "0.5"]), "check a --gollum 0.5");
        assert_eq!(
            arguments(&["-c", "a", "-m", ":1", "-hc", ":2", "-m=:1"]),
            "run a --listen 0.0.0.0:1 --listen 0.0.0.0:2"
        );
        assert_eq!(arguments(&["-v"]), "--version");
        assert_eq!(arguments(&["-l"]), "components");
        let wanted = translated(&["-c", "a", "-ll", "3", "-lc", "never", "-p", "f"]).unwrap().unwrap();
        assert_eq!(
            (wanted.level, wanted.is_without_colors, wanted.pid_file),
            (Some("debug"), true, Some("f".into()))
        );
        assert_eq!(translated(&["-c", "a"]).unwrap().unwrap().level, Some("info"));
        assert_eq!((translated(&[]), translated(&["-h", "x"])), (Ok(None), Ok(None)));
    }

    #[test]
    fn wrong_options_are_explained() {
        for (options, reason) in [
            (&["-c"][..], "`-c` needs a value"),
            (&["-x"], "gollum has no option `-x`"),
            (&["-ll", "4"], "not a level"),
            (&["-mt", "graphite"], "prometheus"),
        ] {
            let wrong = translated(options).unwrap_err();
            assert!(wrong.contains(reason), "{wrong}");
        }
    }
}
