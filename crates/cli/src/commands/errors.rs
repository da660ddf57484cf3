//! `thalweg errors`: what could not be processed, and why.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stdin};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_engine::replay::replay;
use thalweg_engine::{DeadLetter, Keeping, KeptField, LetterId, Store};

use crate::drive::{Manner, drive};
use crate::exit::{Exit, Failure};
use crate::format::{count, counted, excerpt, moment, paragraphs};
use crate::load::{Configuration, state_folder};
use crate::paint::Paint;
use crate::print;

/// Shows what could not be processed and why, and processes it again.
///
/// A message that a component cannot process, and that no pipeline takes with `from: NAME.errors`, is kept as a
/// dead letter: its payload, its fields, where it came from and the reason. Dead letters are in the state folder
/// (`--state`, or `state:` in the configuration), and without one in the folder `.thalweg` beside the configuration.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  thalweg errors list logs.yaml
  thalweg errors show 17 logs.yaml
  thalweg errors replay logs.yaml --component main.parse_json
  thalweg errors clear logs.yaml --yes")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the dead letters, oldest first: number, time, component, place, reason and the payload's beginning.
    List(List),
    /// Shows one dead letter as a whole.
    Show(Show),
    /// Processes dead letters again, in the pipelines that rejected them.
    ///
    /// Put the configuration right before. A letter enters its pipeline where it was rejected: what transforms before
    /// that did is in it already, and only those that are new there are applied. What was delivered is removed from the
    /// dead letters; what is rejected again becomes a new one. Files that sinks wrote are added to, not replaced.
    Replay(Replay),
    /// Removes dead letters.
    Clear(Clear),
}

#[derive(Debug, Args)]
struct Place {
    /// The configuration whose run rejected them. Without it, dead letters are looked for in this folder.
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// The state folder, if the run was given one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Filter {
    /// Only those that this component rejected (`main.parse_json`), or any of this pipeline (`main`).
    #[arg(long, value_name = "NAME")]
    component: Option<String>,
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    filter: Filter,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u64,
    /// Print JSON, a letter a line.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Show {
    /// Its number, as `list` shows it.
    #[arg(value_name = "ID")]
    id: LetterId,
    #[command(flatten)]
    place: Place,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print the payload alone, byte for byte.
    #[arg(long, conflicts_with = "json")]
    payload: bool,
}

#[derive(Debug, Args)]
struct Replay {
    /// The configuration to process them with.
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// The state folder, if the run was given one.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    /// At most so many, the oldest first.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print what became of them as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Clear {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    filter: Filter,
    /// Only the oldest so many.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

pub fn run(arguments: Arguments) -> Result<Exit, Failure> {
    match arguments.command {
        Command::List(arguments) => list(&arguments),
        Command::Show(arguments) => show(&arguments),
        Command::Replay(arguments) => process_again(&arguments),
        Command::Clear(arguments) => clear(&arguments),
    }
}

impl Place {
    fn folder(&self) -> Result<PathBuf, Failure> {
        let Some(path) = &self.config else {
            return Ok(state_folder(Path::new(""), None, self.state.as_deref()).0);
        };
        let configuration = Configuration { path };
        if let Some(state) = &self.state {
            return Ok(state.clone());
        }
        // That the rest of the configuration is right is not needed to look at what it left behind.
        let document = configuration.document()?;
        let state = document.root().get("state").and_then(|state| state.as_str()).map(Path::new);
        Ok(state_folder(&configuration.folder(), state, None).0)
    }
}

impl Filter {
    fn takes(&self, letter: &DeadLetter) -> bool {
        self.component.as_deref().is_none_or(|wanted| {
            let rest = letter.component.strip_prefix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }
}

/// The store, if there is one: looking for dead letters is not to make a folder.
fn open(folder: &Path) -> Result<Option<Store>, Failure> {
    if !folder.exists() {
        return Ok(None);
    }
    Ok(Some(Store::open(folder)?))
}

fn nothing_in(folder: &Path) -> String {
    format!("there are no dead letters in `{}`\n", folder.display())
}

fn list(arguments: &List) -> Result<Exit, Failure> {
    let folder = arguments.place.folder()?;
    let store = open(&folder)?;
    let paint = Paint::stdout();
    let width = print::width().clamp(40, 160);
    let mut by_component: BTreeMap<String, u64> = BTreeMap::new();
    let mut all = 0;
    for found in store.iter().flat_map(Store::letters) {
        let (id, letter) = found?;
        if !arguments.filter.takes(&letter) {
            continue;
        }
        *by_component.entry(letter.component.clone()).or_default() += 1;
        all += 1;
        if all <= arguments.limit {
            print::out(&if arguments.json {
                json_of(id, &letter)?
            } else {
                brief(id, &letter, width, paint)
            })?;
        }
    }
    if arguments.json {
        return Ok(Exit::Done);
    }
    if all == 0 {
        print::out(&nothing_in(&folder))?;
        return Ok(Exit::Done);
    }
    let parts = by_component.iter().map(|(component, number)| format!("{} of `{component}`", count(*number)));
    let parts: Vec<String> = parts.collect();
    let of_what = if parts.len() > 1 { format!(": {}", parts.join(", ")) } else { String::new() };
    print::out(&format!("{}{of_what}\n", counted(all, "dead letter")))?;
    if all > arguments.limit {
        print::out(&format!("the first {} are shown; `--limit` shows more\n", count(arguments.limit)))?;
    }
    Ok(Exit::Done)
}

fn json_of(id: LetterId, letter: &DeadLetter) -> Result<String, Failure> {
    let failed = |error: serde_json::Error| Failure::Failed(error.to_string());
    let mut line = json!({ "id": id });
    let letter = serde_json::to_value(letter).map_err(failed)?;
    if let (Some(line), serde_json::Value::Object(letter)) = (line.as_object_mut(), letter) {
        line.extend(letter);
    }
    Ok(format!("{line}\n"))
}

/// Where it came from: `access.log:1234`.
fn place_of(letter: &DeadLetter) -> String {
    let from = letter.path.as_ref().unwrap_or(&letter.source);
    match letter.position {
        Some(position) => format!("{from}:{position}"),
        None => from.clone(),
    }
}

fn payload_of(letter: &DeadLetter) -> String {
    String::from_utf8_lossy(&letter.payload_bytes()).into_owned()
}

fn brief(id: LetterId, letter: &DeadLetter, width: usize, paint: Paint) -> String {
    const INDENT: usize = 6;
    let reason = paragraphs(&letter.reason, width, INDENT);
    let payload = excerpt(&payload_of(letter), width - INDENT - 1);
    let payload = if payload.is_empty() { "(empty)".to_owned() } else { payload };
    format!(
        "{}  {}  {}  {}\n{reason}{:INDENT$}{}\n",
        paint.bold(&format!("{id:>4}")),
        moment(letter.time_us),
        paint.cyan(&letter.component),
        place_of(letter),
        "",
        paint.dim(&payload),
    )
}

fn show(arguments: &Show) -> Result<Exit, Failure> {
    let folder = arguments.place.folder()?;
    let store = open(&folder)?;
    let letter = match &store {
        Some(store) => store.letter(arguments.id)?,
        None => None,
    };
    let Some(letter) = letter else {
        return Err(Failure::Usage(format!(
            "there is no dead letter {} in `{}`; `thalweg errors list` shows those that there are",
            arguments.id,
            folder.display()
        )));
    };
    if arguments.payload {
        use std::io::Write;
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&letter.payload_bytes())?;
        stdout.flush()?;
        return Ok(Exit::Done);
    }
    if arguments.json {
        print::out(&json_of(arguments.id, &letter)?)?;
        return Ok(Exit::Done);
    }
    let paint = Paint::stdout();
    let payload = letter.payload_bytes();
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let name = if name.is_empty() { String::new() } else { format!("{name}:") };
        text += &format!("{} {value}\n", paint.cyan(&format!("{name:10}")));
    };
    line("id", &arguments.id.to_string());
    line("time", &moment(letter.time_us));
    line("component", &letter.component);
    if !letter.passed.is_empty() {
        line("after", &letter.passed.join(", "));
    }
    line("reason", &letter.reason);
    line("source", &letter.source);
    if let Some(path) = &letter.path {
        line("path", path);
    }
    if let Some(position) = letter.position {
        line("position", &count(position));
    }
    for (at, field) in letter.fields.iter().enumerate() {
        let value = field.value.as_deref().unwrap_or("NULL");
        let shown = format!("{} = {value} {}", field.name, paint.dim(&format!("({})", type_of(field))));
        line(if at == 0 { "fields" } else { "" }, &shown);
    }
    let kind = if letter.payload.is_some() { "" } else { ", not UTF-8" };
    line("payload", &format!("{}{kind}", counted(payload.len() as u64, "byte")));
    let payload = String::from_utf8_lossy(&payload);
    let tame = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { '·' } else { c };
    for payload_line in payload.lines() {
        text += &format!("  {}\n", payload_line.chars().map(tame).collect::<String>());
    }
    print::out(&text)?;
    Ok(Exit::Done)
}

/// A type by the name it has in configurations.
fn type_of(field: &KeptField) -> &str {
    match field.data_type.as_str() {
        _ if field.metadata.values().any(|extension| extension == "arrow.json") => "json",
        "Utf8View" | "Utf8" | "LargeUtf8" => "text",
        "Int64" => "int",
        "Float64" => "float",
        "Boolean" => "bool",
        other if other.starts_with("Timestamp") => "timestamp",
        other => other,
    }
}

fn clear(arguments: &Clear) -> Result<Exit, Failure> {
    let folder = arguments.place.folder()?;
    let Some(store) = open(&folder)? else {
        print::err(&nothing_in(&folder));
        return Ok(Exit::Done);
    };
    let mut ids = Vec::new();
    for found in store.letters() {
        let (id, letter) = found?;
        if arguments.filter.takes(&letter) && arguments.limit.is_none_or(|limit| (ids.len() as u64) < limit) {
            ids.push(id);
        }
    }
    if ids.is_empty() {
        print::err(&nothing_in(&folder));
        return Ok(Exit::Done);
    }
    let letters = counted(ids.len() as u64, "dead letter");
    if !arguments.yes && stdin().is_terminal() {
        print::err(&format!(
            "remove {letters} from `{}`? They cannot be brought back. [y/N] ",
            folder.display()
        ));
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            print::err("nothing was removed\n");
            return Ok(Exit::Done);
        }
    }
    store.remove_letters(&ids)?;
    print::err(&format!("removed {letters}\n"));
    Ok(Exit::Done)
}

/// What became of letters that were processed again.
#[derive(Default)]
struct Fate {
    delivered: u64,
    rejected: u64,
    unsettled: u64,
    left: Vec<(LetterId, String)>,
    failure: Option<String>,
}

fn process_again(arguments: &Replay) -> Result<Exit, Failure> {
    let configuration = Configuration { path: &arguments.config };
    let graph = configuration.graph(&thalweg_components::registry())?;
    let (folder, positions) =
        state_folder(&configuration.folder(), graph.state.as_deref(), arguments.state.as_deref());
    let manner = Manner { cores: super::cores(), json: false, quiet: arguments.json, continues: true };
    let mut fate = Fate::default();
    // Those that are rejected again get higher numbers, and are not for this time.
    let mut after = 0;
    let mut left_over = arguments.limit.unwrap_or(u64::MAX);
    let Some(last) = last_letter(&folder)? else {
        print::err(&nothing_in(&folder));
        return Ok(Exit::Done);
    };
    while fate.failure.is_none() && left_over > 0 {
        // As much at a time as may be in memory twice: here, and in the run.
        let portion =
            portion(&folder, (after, last), &arguments.filter, left_over, graph.memory.bytes() / 4)?;
        let Some((id, _)) = portion.last() else { break };
        after = *id;
        left_over -= portion.len() as u64;
        let plan = replay(&graph, portion);
        fate.left.extend(plan.left);
        for run in plan.runs {
            if fate.failure.is_some() {
                fate.unsettled += run.len() as u64;
                continue;
            }
            if let Some(store) = open(&folder)? {
                run.forget(&store)?;
            }
            let keeping = Keeping { folder: folder.clone(), positions };
            let outcome = drive(&run.graph, keeping, manner)?;
            let safe = run.safe(&outcome.summary);
            if let Some(store) = open(&folder)? {
                store.remove_letters(&safe)?;
                run.forget(&store)?;
            }
            let rejected = outcome.summary.dead_letters.min(safe.len() as u64);
            fate.rejected += rejected;
            fate.delivered += safe.len() as u64 - rejected;
            fate.unsettled += (run.len() - safe.len()) as u64;
            let stopped = outcome.summary.stopped.then(|| "it was told to stop".to_owned());
            fate.failure = outcome.summary.failure.or(stopped);
        }
    }
    tell(&fate, arguments);
    match fate.failure {
        Some(failure) => Err(Failure::Failed(failure)),
        None => Ok(Exit::Done),
    }
}

fn last_letter(folder: &Path) -> Result<Option<LetterId>, Failure> {
    Ok(match open(folder)? {
        Some(store) => store.last_letter()?,
        None => None,
    })
}

type Letters = Vec<(LetterId, DeadLetter)>;

/// The next letters, as many as `most` and as large as `bytes` allow.
fn portion(
    folder: &Path,
    (after, last): (LetterId, LetterId),
    filter: &Filter,
    most: u64,
    bytes: u64,
) -> Result<Letters, Failure> {
    let mut letters = Vec::new();
    let mut size = 0;
    let store = open(folder)?;
    for found in store.iter().flat_map(|store| store.letters_after(after)) {
        let (id, letter) = found?;
        if id > last || size > bytes || letters.len() as u64 >= most {
            break;
        }
        if filter.takes(&letter) {
            size += letter.size() as u64;
            letters.push((id, letter));
        }
    }
    Ok(letters)
}

fn tell(fate: &Fate, arguments: &Replay) {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, reason) in &fate.left {
        *reasons.entry(reason).or_default() += 1;
    }
    if arguments.json {
        let left: Vec<_> =
            fate.left.iter().map(|(id, reason)| json!({ "id": id, "reason": reason })).collect();
        let line = json!({
            "event": "replayed",
            "processed": fate.delivered,
            "rejected_again": fate.rejected,
            "unsettled": fate.unsettled,
            "left": left,
        });
        print::err(&format!("{line}\n"));
        return;
    }
    let paint = Paint::stderr();
    let all = fate.delivered + fate.rejected + fate.unsettled + fate.left.len() as u64;
    if all == 0 {
        print::err("no dead letter is of that component\n");
        return;
    }
    print::err(&format!("{}: {} processed\n", counted(all, "dead letter"), count(fate.delivered)));
    if fate.rejected > 0 {
        let again = paint.yellow(&format!("{} rejected again", count(fate.rejected)));
        print::err(&format!("  {again}, and kept as new dead letters\n"));
    }
    if fate.unsettled > 0 {
        print::err(&format!("  {} not processed, and kept\n", paint.yellow(&count(fate.unsettled))));
    }
    for (reason, number) in reasons {
        print::err(&format!("  {} cannot be processed again: {reason}\n", paint.yellow(&count(number))));
    }
}
