//! A feed into an outlet, interrupted and restarted until it is done, and then compared with what was
//! promised.

use std::io;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use thalweg_config::ByteSize;
use thalweg_engine::Flow;
use thalweg_runtime::Failpoint;

use crate::disk::SmallDisk;
use crate::feed::{Ends, Feed, Nature, Sender};
use crate::oracle::{Oracle, Promise, Replica, Tally};
use crate::outlet::{Delivery, Outlet, Output};
use crate::program::{Ended, Launch, Letter, MAYBE_TORN, Program, Running, STATE, tail};
use crate::read;
use crate::records::{Form, Records};
use crate::servers::Server;

/// How often a run is started again, after all interruptions, before the test fails.
const RESTARTS: usize = 6;
/// The memory that a process may have beside its budget: the program itself, stacks, and what the allocator
/// keeps.
const BESIDE_BUDGET: u64 = 48 << 20;
/// How long all records may take to arrive before a source that does not end is stopped. The next run reads
/// the rest.
const ARRIVAL: Duration = Duration::from_secs(4);
/// How much longer each restart runs before a source that does not end is stopped. The unfinished output of
/// an earlier run may have all records before the source has looked: then it is asked to stop with input
/// left, and the output stays unfinished.
const LONGER: Duration = Duration::from_millis(250);
/// A run whose disk may be full is killed after this time, and waits no longer for room once it is stopped.
const FULL: Duration = Duration::from_secs(5);
/// The interruption of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// SIGKILL.
    Kill,
    /// SIGTERM: it drains.
    Term,
    /// The step fails.
    Error,
    /// The step fails as on a full disk.
    Full,
}

impl Action {
    /// All actions.
    pub const ALL: &[Self] = &[Action::Kill, Action::Term, Action::Error, Action::Full];

    /// The name in `THALWEG_FAILPOINTS`.
    pub fn name(self) -> &'static str {
        match self {
            Action::Kill => "kill",
            Action::Term => "term",
            Action::Error => "error",
            Action::Full => "full",
        }
    }
}

/// When it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The n-th time that a point is passed.
    At(Failpoint, u64),
    /// After a time. Only for [`Action::Kill`] and [`Action::Term`].
    After(Duration),
}

/// One interruption of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruption {
    /// The kind of the interruption.
    pub action: Action,
    /// When it happens.
    pub when: When,
}

impl Interruption {
    /// Returns it as a person writes it.
    pub fn describe(self) -> String {
        let action = self.action.name();
        match self.when {
            When::At(point, time) => format!("{}={action}@{time}", point.name()),
            When::After(time) => format!("{action} after {} ms", time.as_millis()),
        }
    }

    fn failpoints(self) -> String {
        match self.when {
            When::At(..) => self.describe(),
            When::After(_) => String::new(),
        }
    }
}

/// A feed into an outlet.
pub struct Scenario<'a> {
    /// The program.
    pub binary: &'a Path,
    /// The beginning.
    pub feed: &'a Feed,
    /// The end.
    pub outlet: &'a Outlet,
    /// The records that pass through.
    pub records: Records,
    /// The budget, as in a configuration.
    pub memory: &'a str,
    /// Messages a second, so that a run takes long enough to be interrupted in its middle.
    pub rate: Option<u64>,
    /// The largest file in one of the runs, in bytes: see [`Launch::max_file`]. It has no room for more.
    pub max_file: Option<u64>,
    /// The size of the file system on which the output is in the first runs, in bytes: see [`SmallDisk`].
    /// Later there is room.
    pub disk: Option<u64>,
    /// False if the runs keep no state.
    pub has_state: bool,
    /// True if a last run follows the one that completed: it must add nothing.
    pub runs_again: bool,
    /// Further environment variables of each run, in turn.
    pub variables: Vec<Vec<(String, String)>>,
}

/// The results of a scenario.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// The number of runs.
    pub runs: u64,
    /// The number of runs that were interrupted.
    pub interrupted: u64,
    /// The most memory that was resident, in KiB.
    pub peak_kib: u64,
    /// The records that arrived, over all copies of the output.
    pub tally: Tally,
    /// The files that were left behind unfinished.
    pub leftovers: u64,
    /// The number of dead letters. Those of failed steps are replayed.
    pub letters: u64,
    /// The promises that were not kept. None if all were.
    pub broken: Option<String>,
}

impl<'a> Scenario<'a> {
    /// Returns a scenario with 2,000 records and little memory.
    pub fn new(binary: &'a Path, feed: &'a Feed, outlet: &'a Outlet) -> Self {
        let records = Records::new(feed.most.min(2000));
        Self {
            binary,
            feed,
            outlet,
            records,
            memory: feed.memory,
            rate: None,
            max_file: None,
            disk: None,
            has_state: true,
            runs_again: false,
            variables: Vec::new(),
        }
    }

    /// Runs it through the interruptions.
    pub fn run(&self, interruptions: &[Interruption]) -> Verdict {
        let mut verdict = Verdict::default();
        let result = self.try_run(interruptions, &mut verdict).and_then(|()| self.check_memory(&verdict));
        if let Err(broken) = result {
            let all: Vec<String> = interruptions.iter().map(|one| one.describe()).collect();
            let pair = format!("{} -> {}", self.feed.name, self.outlet.name);
            verdict.broken = Some(format!("{pair}, [{}]: {broken}", all.join(", ")));
        }
        verdict
    }

    fn check_memory(&self, verdict: &Verdict) -> Result<(), String> {
        let budget: ByteSize = self.budget().parse().map_err(|error| format!("the budget: {error}"))?;
        let most_kib = (budget.bytes() + BESIDE_BUDGET) >> 10;
        if verdict.peak_kib > most_kib {
            return Err(format!("{} KiB were resident; the bound is {most_kib} KiB", verdict.peak_kib));
        }
        Ok(())
    }

    fn budget(&self) -> &'a str {
        self.outlet.memory.unwrap_or(self.memory)
    }

    fn try_run(&self, interruptions: &[Interruption], verdict: &mut Verdict) -> Result<(), String> {
        let mut stage = Stage::new(self).map_err(|error| format!("it could not be set up: {error}"))?;
        for interruption in interruptions {
            let launch = self.launch().with_failpoints(interruption.failpoints());
            let ended = stage.run(launch, Some(*interruption), verdict)?;
            let is_full = matches!(interruption.action, Action::Error | Action::Full) || self.disk.is_some();
            if !ended.is_done() {
                verdict.interrupted += 1;
                stage.keep()?;
                let refused = ended.code == Some(2) || ended.code.is_some_and(|code| code > 100);
                if refused || (ended.code.is_some() && !is_full && interruption.action != Action::Term) {
                    return Err(format!("it ended with {}:\n{}", ended.how(), tail(&ended.log)));
                }
            } else if interruption.action != Action::Term && stage.sender.is_done() {
                break;
            }
        }
        if self.max_file.is_some() {
            stage.fill(Launch { max_file: self.max_file, ..self.launch() }, verdict)?;
        }
        if let Some(disk) = &stage.disk {
            disk.grow().map_err(|error| format!("the file system cannot grow: {error}"))?;
        }
        self.complete(&mut stage, interruptions, verdict)
    }

    /// Starts the program until all is sent and has arrived, and judges the output.
    fn complete(
        &self,
        stage: &mut Stage<'_>,
        interruptions: &[Interruption],
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        for restart in 1..=RESTARTS {
            stage.sender.run_began_at = stage.sender.next;
            stage.runs_at_least = LONGER * (restart as u32 - 1);
            let ended = stage.run(self.launch(), None, verdict)?;
            if !ended.is_done() {
                return Err(format!(
                    "without an interruption it ended with {}:\n{}",
                    ended.how(),
                    tail(&ended.log)
                ));
            }
            if stage.sender.is_done() && (restart == RESTARTS || stage.has_all()?) {
                if self.runs_again {
                    stage.run(self.launch(), None, verdict)?;
                }
                return stage.judge(interruptions, verdict);
            }
        }
        Err(format!("{} of {} records were sent", stage.sender.next, self.records.count))
    }

    fn launch(&self) -> Launch {
        let drain_timeout = || vec!["--drain-timeout".to_owned(), format!("{}s", FULL.as_secs())];
        Launch {
            arguments: self.disk.map(|_| drain_timeout()).unwrap_or_default(),
            has_stdin: self.feed.component == "stdin",
            has_stdout: self.outlet.component == "stdout",
            state: self.has_state.then(|| STATE.to_owned()),
            ..Launch::of("pipeline.yaml")
        }
    }

    fn config(&self, source: &str, server: Option<&Server>) -> String {
        let limit = self.rate.map(|rate| format!("limit: {{ rate: {rate}, burst: {} }}", (rate / 20).max(1)));
        let reader = if self.outlet.takes == Flow::Messages { self.feed.steps } else { &[] };
        let limit = limit.filter(|_| self.outlet.takes == Flow::Messages);
        let steps = reader.iter().map(ToString::to_string);
        let steps = steps.chain(limit).chain(self.outlet.steps.iter().map(ToString::to_string));
        let steps: Vec<String> = steps.map(|step| format!("      - {step}\n")).collect();
        let steps =
            if steps.is_empty() { String::new() } else { format!("    transforms:\n{}", steps.concat()) };
        format!(
            "memory: {}\nsources:\n  in: {{ {source} }}\npipelines:\n  main:\n    from: in\n{steps}    to: {}\n\
             sinks:\n  {}\n",
            self.budget(),
            self.outlet.to,
            self.outlet.config(server)
        )
    }
}

/// The data that the runs of a scenario share.
struct Stage<'a> {
    scenario: &'a Scenario<'a>,
    // Before the program, whose folder it is in.
    disk: Option<SmallDisk>,
    program: Program,
    server: Option<Server>,
    sender: Sender,
    /// The records that were in the output when a run was interrupted.
    kept: Vec<bool>,
    /// How long a run lasts before it is stopped, also if all has arrived.
    runs_at_least: Duration,
    _held: Option<Box<dyn std::any::Any>>,
}

impl<'a> Stage<'a> {
    fn new(scenario: &'a Scenario<'a>) -> io::Result<Self> {
        let program = Program::new(scenario.binary)?;
        let server = scenario.outlet.server.map(|start| start()).transpose()?;
        program.set(server.as_ref().map(Server::variables).unwrap_or_default());
        let prepared = (scenario.feed.prepare)(&program, scenario.records)?;
        program.write("pipeline.yaml", scenario.config(&prepared.source, server.as_ref()))?;
        let mut sender = Sender::new(scenario.records, program.folder());
        if scenario.feed.client.is_none() {
            sender.next = scenario.records.count;
        }
        let kept = vec![false; scenario.records.count as usize];
        let disk = scenario.disk.map(|bytes| SmallDisk::mount(&program.path("out"), bytes)).transpose()?;
        Ok(Self {
            scenario,
            program,
            server,
            sender,
            kept,
            runs_at_least: Duration::ZERO,
            disk,
            _held: prepared.held,
        })
    }

    /// Runs the program once.
    fn run(
        &mut self,
        launch: Launch,
        interruption: Option<Interruption>,
        verdict: &mut Verdict,
    ) -> Result<Ended, String> {
        let started = |error: io::Error| format!("it could not be started: {error}");
        let all = &self.scenario.variables;
        let variables = all.get(verdict.runs as usize % all.len().max(1)).cloned().unwrap_or_default();
        let mut running = self.program.start(&Launch { variables, ..launch }).map_err(started)?;
        verdict.runs += 1;
        let timer = match interruption {
            Some(Interruption { action, when: When::After(time) }) => Some((action, time)),
            // Sinks wait until there is room.
            Some(_) if self.disk.is_some() => Some((Action::Kill, FULL)),
            _ => None,
        };
        if let Some((action, time)) = timer {
            self.send_until(&mut running, action, time)?;
        } else {
            self.send(&mut running)?;
            self.tell(&mut running)?;
        }
        let ended = running.wait()?;
        verdict.peak_kib = verdict.peak_kib.max(ended.peak_kib);
        Ok(ended)
    }

    /// Runs the program where there is not enough room. It ends with an error, or all fits.
    fn fill(&mut self, launch: Launch, verdict: &mut Verdict) -> Result<(), String> {
        if !self.run(launch, None, verdict)?.is_done() {
            verdict.interrupted += 1;
            self.keep()?;
        }
        Ok(())
    }

    fn send(&mut self, running: &mut Running) -> Result<(), String> {
        match self.scenario.feed.client {
            Some(client) => {
                client(&mut self.sender, running).map_err(|error| format!("the client failed: {error}"))
            }
            None => Ok(()),
        }
    }

    /// Sends while another thread waits for the moment of the signal: a client may block.
    fn send_until(&mut self, running: &mut Running, action: Action, time: Duration) -> Result<(), String> {
        let signal = if action == Action::Kill { Signal::KILL } else { Signal::TERM };
        let interrupter = running.interrupter().map_err(|error| error.to_string())?;
        let (done, is_done) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if is_done.recv_timeout(time).is_err_and(|error| error == RecvTimeoutError::Timeout) {
                    interrupter.send(signal);
                }
            });
            let sent = self.send(running);
            let told = self.tell(running);
            running.runs_for(Duration::MAX);
            drop(done);
            sent.and(told)
        })
    }

    /// Ends a source that does not end by itself, once all has arrived.
    fn tell(&mut self, running: &mut Running) -> Result<(), String> {
        if self.scenario.feed.ends == Ends::Alone {
            return Ok(());
        }
        let begun = Instant::now();
        let oracle = self.oracle();
        while begun.elapsed() < ARRIVAL && running.runs_for(Duration::from_millis(20)) {
            let arrived = self.read(true)?;
            let is_all = arrived.iter().all(|replica| oracle.tally(replica).missing_count == 0);
            if is_all && !arrived.is_empty() && begun.elapsed() >= self.runs_at_least {
                break;
            }
        }
        running.signal(Signal::TERM);
        Ok(())
    }

    /// False if a run was stopped before it had read all, as on a busy machine: the next run reads the rest.
    /// Dead letters are judged.
    fn has_all(&self) -> Result<bool, String> {
        if self.scenario.feed.ends == Ends::Alone {
            return Ok(true);
        }
        let oracle = self.oracle();
        let is_all = self.read(false)?.iter().all(|replica| oracle.tally(replica).missing_count == 0);
        Ok(is_all || !self.letters()?.is_empty())
    }

    fn oracle(&self) -> Oracle {
        Oracle::new(self.scenario.records, Form::Json, self.scenario.feed.partitions)
    }

    fn read(&self, also_unfinished: bool) -> Result<Vec<Replica>, String> {
        let output = Output {
            program: &self.program,
            server: self.server.as_ref(),
            records: self.scenario.records,
            also_unfinished,
        };
        let Some(read) = self.scenario.outlet.read else { return Ok(Vec::new()) };
        read(&output).map_err(|error| format!("the output cannot be read: {error}"))
    }

    /// Notes what is in the output, of messages that come only once.
    fn keep(&mut self) -> Result<(), String> {
        if !matches!(self.scenario.feed.nature, Nature::Once | Nature::Datagrams) {
            return Ok(());
        }
        let oracle = self.oracle();
        let replicas: Vec<Vec<u64>> =
            self.read(true)?.iter().map(|replica| oracle.numbers(replica)).collect();
        let Some((first, others)) = replicas.split_first() else { return Ok(()) };
        for number in first.iter().filter(|number| others.iter().all(|other| other.contains(number))) {
            self.kept[*number as usize] = true;
        }
        Ok(())
    }

    /// The records that must arrive.
    fn required(&self, verdict: &Verdict, letters: &[Letter]) -> Vec<bool> {
        let count = self.scenario.records.count;
        match self.scenario.feed.nature {
            Nature::Replayable | Nature::Acknowledged => vec![true; count as usize],
            Nature::Datagrams => self.kept.clone(),
            Nature::Once if verdict.runs == 1 => vec![true; count as usize],
            Nature::Once => {
                // The first message after a kill is rejected, since it may be torn, also if it is whole.
                let is_first_rejected = letters.iter().any(|letter| letter.reason.contains(MAYBE_TORN));
                let last = self.sender.run_began_at + u64::from(is_first_rejected)..count;
                // A job replaces its output.
                let is_kept = self.scenario.has_state || self.scenario.feed.component != "stdin";
                let is_required = |number| is_kept && self.kept[number as usize] || last.contains(&number);
                (0..count).map(is_required).collect()
            }
        }
    }

    fn promise(&self, verdict: &Verdict) -> Promise {
        let (feed, outlet) = (self.scenario.feed, self.scenario.outlet);
        let again = match outlet.delivery {
            Delivery::ExactlyOnce if feed.remembers && self.scenario.has_state => 0,
            // Each run that completes reads all again.
            Delivery::ExactlyOnce => (verdict.runs - 1) * self.scenario.records.count,
            // All messages of the runs that were interrupted, in the worst case.
            Delivery::AtLeastOnce => verdict.runs * self.scenario.records.count,
        };
        let promise = match again + self.sender.resent {
            0 => Promise::EXACTLY_ONCE,
            repeats => Promise::at_least_once(repeats),
        };
        if feed.keeps_order && outlet.keeps_order && verdict.letters == 0 {
            promise
        } else {
            promise.in_any_order()
        }
    }

    /// Replays the dead letters of steps that were made to fail: they are kept, not lost.
    fn replay(&mut self, interruptions: &[Interruption], verdict: &mut Verdict) -> Result<(), String> {
        let letters = self.letters()?;
        if self.scenario.outlet.rejects {
            return Ok(());
        }
        verdict.letters = letters.len() as u64;
        let is_failed = |one: &Interruption| matches!(one.action, Action::Error | Action::Full);
        let was_failed =
            interruptions.iter().any(is_failed) || self.scenario.max_file.is_some() || self.disk.is_some();
        if was_failed && !letters.is_empty() {
            let replayed = self.program.output(&["errors", "replay", "pipeline.yaml", "--state", STATE]);
            let replayed = replayed.map_err(|error| error.to_string())?;
            if !replayed.status.success() {
                return Err(format!(
                    "the dead letters cannot be replayed: {}",
                    String::from_utf8_lossy(&replayed.stderr)
                ));
            }
        }
        Ok(())
    }

    fn letters(&self) -> Result<Vec<Letter>, String> {
        self.program.dead_letters().map_err(|error| format!("the dead letters cannot be listed: {error}"))
    }

    fn judge(&mut self, interruptions: &[Interruption], verdict: &mut Verdict) -> Result<(), String> {
        self.replay(interruptions, verdict)?;
        if self.scenario.outlet.read.is_none() {
            return Ok(());
        }
        let mut letters = self.letters()?;
        let oracle = self.oracle().requiring(self.required(verdict, &letters));
        let promise = self.promise(verdict);
        if matches!(self.scenario.feed.nature, Nature::Once | Nature::Datagrams) {
            letters.retain(|letter| !letter.may_be_torn());
        }
        let mut broken = Vec::new();
        let unfinished = read::files(&self.program.path("out")).unwrap_or_default();
        verdict.leftovers = unfinished.iter().filter(|path| read::is_unfinished(path)).count() as u64;
        for replica in self.read(false)? {
            let tally = oracle.tally(&replica);
            broken.extend(tally.check(promise).err());
            verdict.tally.add(&tally);
        }
        if !letters.is_empty() && !self.scenario.outlet.rejects {
            broken.push(format!("{} dead letters, the first is {:?}", letters.len(), letters.first()));
        }
        if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
    }
}
