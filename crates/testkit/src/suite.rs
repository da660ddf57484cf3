//! The suites: one for each role.
//!
//! A suite interrupts a case at every failpoint and in every way, restarts it until it is done, and reports
//! each result. Known failures are in one list, which the caller gives: [`Hole`].

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use thalweg_engine::Flow;
use thalweg_runtime::Failpoint;

use crate::brokers::{amazon, amqp, broker, mqtt, nats, postgres, redis};
use crate::cases::{feeds, files, outlets};
use crate::feed::{Feed, Nature};
use crate::matrix;
use crate::outlet::{Delivery, Outlet};
use crate::records::Records;
use crate::scenario::{Action, Interruption, Scenario, Verdict, When};
use crate::table::Table;

/// Something that is known not to hold yet.
#[derive(Debug, Clone, Copy)]
pub struct Hole {
    /// The suite.
    pub suite: &'static str,
    /// The name of the case: `FEED -> OUTLET`. `*` stands for any text.
    pub case: &'static str,
    /// The name of the failpoint, or another clause. `*` stands for any text.
    pub point: &'static str,
    /// The text of the failure. Another failure of the case is not known. `*` stands for any text.
    pub says: &'static str,
    /// The failure and its reason.
    pub reason: &'static str,
    /// The item of the issue or review.
    pub item: &'static str,
    /// True if it happens only sometimes: it is no mistake then if it did not.
    pub is_rare: bool,
}

impl Hole {
    fn is_of(&self, suite: &str, case: &str, point: &str, failure: &str) -> bool {
        self.suite == suite
            && matches(self.case, case)
            && matches(self.point, point)
            && matches(self.says, failure)
    }
}

/// True if a pattern, in which `*` stands for any text, matches a whole name.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(rest, &name[at..]))
        }),
    }
}

/// The results of a suite.
pub struct Report<'a> {
    suite: &'static str,
    holes: &'a [Hole],
    hit: BTreeSet<usize>,
    /// The table of the results.
    pub table: Table,
    /// The failures that are not known.
    pub broken: Vec<String>,
    /// The failures that are known.
    pub known: Vec<String>,
}

impl<'a> Report<'a> {
    /// Returns an empty report.
    pub fn new(suite: &'static str, holes: &'a [Hole]) -> Self {
        Self {
            suite,
            holes,
            hit: BTreeSet::new(),
            table: Table::default(),
            broken: Vec::new(),
            known: Vec::new(),
        }
    }

    /// Notes a result.
    pub fn note(&mut self, case: &str, clause: &str, broken: Option<String>) {
        let Some(broken) = broken else {
            self.table.cell(case, clause).held += 1;
            return;
        };
        let found = self.holes.iter().position(|hole| hole.is_of(self.suite, case, clause, &broken));
        match found.and_then(|found| Some((found, self.holes.get(found)?))) {
            Some((found, hole)) => {
                self.hit.insert(found);
                self.table.cell(case, clause).known += 1;
                self.known.push(format!("{case} at {clause} ({}, {}): {broken}", hole.item, hole.reason));
            }
            None => {
                self.table.cell(case, clause).broken += 1;
                self.broken.push(format!("{case} at {clause}: {broken}"));
            }
        }
    }

    /// Notes that a point is never passed.
    pub fn unreached(&mut self, case: &str, clause: &str) {
        self.table.cell(case, clause).unreached += 1;
    }

    /// The known holes of this suite that did not show.
    fn closed(&self) -> Vec<String> {
        let closed =
            self.holes.iter().enumerate().filter(|(number, hole)| {
                hole.suite == self.suite && !hole.is_rare && !self.hit.contains(number)
            });
        closed
            .map(|(_, hole)| format!("{} at {} holds now: remove it from the list", hole.case, hole.point))
            .collect()
    }

    /// Writes the table, prints it, and fails if something is broken that is not known, or if a known hole is
    /// closed.
    ///
    /// # Panics
    /// If the contract does not hold.
    pub fn finish(self, folder: &Path) {
        let path = folder.join(format!("{}.md", self.suite));
        let written = self.table.write(&path);
        println!("the table of the suite `{}` is in {}", self.suite, path.display());
        self.known.iter().for_each(|known| println!("known: {known}"));
        let closed = self.closed();
        let all: Vec<String> = self.broken.into_iter().chain(closed).collect();
        assert!(all.is_empty(), "{} of the suite `{}`:\n{}", all.len(), self.suite, all.join("\n"));
        assert!(written.is_ok(), "{} cannot be written: {written:?}", path.display());
    }
}

/// The steps of cases that run at the same time. They mostly wait.
const PARALLEL: usize = 4;

/// A pair that is tested in several steps.
struct Case {
    feed: Feed,
    outlet: Outlet,
    /// True if it works undisturbed. The first step that asks finds out.
    works: OnceLock<bool>,
    /// The steps that are not done, and the time that the others took.
    left: Mutex<(usize, Duration)>,
}

impl Case {
    fn name(&self) -> String {
        case_name(&self.feed, &self.outlet)
    }

    /// Notes that a step is done, and prints the time of all steps after the last one.
    fn took(&self, time: Duration) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        *left = (left.0 - 1, left.1 + time);
        if left.0 == 0 {
            println!("{}: {:.1} s", self.name(), left.1.as_secs_f64());
        }
    }
}

/// Receives the results of a case.
struct Notes<'r, 'a> {
    case: String,
    report: &'r Mutex<&'r mut Report<'a>>,
}

impl Notes<'_, '_> {
    fn note(&self, clause: &str, broken: Option<String>) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).note(&self.case, clause, broken);
    }

    fn unreached(&self, clause: &str) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).unreached(&self.case, clause);
    }
}

/// Tests pairs in steps, several at the same time: all, or those whose names contain the value of `CASE`, to
/// repeat a failure. A case that waits much is divided between all threads, so that none waits for it at the
/// end.
fn each<S: Sync>(
    mut pairs: Pairs,
    steps: &[S],
    report: &mut Report<'_>,
    test: impl Fn(&Case, &S, &Notes<'_, '_>) + Sync,
) {
    let wanted = std::env::var("CASE").unwrap_or_default();
    pairs.retain(|(feed, outlet)| case_name(feed, outlet).contains(&wanted));
    // Otherwise each scenario would start it.
    let needs = |name: &str| {
        pairs
            .iter()
            .any(|(feed, outlet)| [feed.component, outlet.component].iter().any(|of| of.starts_with(name)))
    };
    let _brokers = (
        needs("aws_").then(amazon),
        needs("amqp").then(amqp),
        needs("kafka").then(broker),
        needs("mqtt").then(mqtt),
        needs("nats").then(nats),
        needs("redis").then(redis),
        needs("postgres").then(postgres),
    );
    let left = || Mutex::new((steps.len(), Duration::ZERO));
    let cases =
        pairs.into_iter().map(|(feed, outlet)| Case { feed, outlet, works: OnceLock::new(), left: left() });
    let cases: Vec<Case> = cases.collect();
    let all: Vec<(&Case, &S)> =
        cases.iter().flat_map(|case| steps.iter().map(move |step| (case, step))).collect();
    let (next, report) = (AtomicUsize::new(0), Mutex::new(report));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some((case, step)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    test(case, step, &Notes { case: case.name(), report: &report });
                    case.took(begun.elapsed());
                }
            });
        }
    });
}

/// Interrupts each pair at every failpoint, and once not at all.
fn at_every_failpoint(binary: &Path, pairs: Pairs, report: &mut Report<'_>) {
    each(pairs, Failpoint::ALL, report, |case, point, notes| pair_at(binary, case, *point, notes));
}

fn pair_at(binary: &Path, case: &Case, point: Failpoint, notes: &Notes<'_, '_>) {
    let (feed, outlet) = (&case.feed, &case.outlet);
    let scenario = Scenario::new(binary, feed, outlet);
    let works = case.works.get_or_init(|| {
        let twice = Scenario {
            runs_again: feed.remembers && feed.client.is_none(),
            ..Scenario::new(binary, feed, outlet)
        };
        let undisturbed = twice.run(&[]);
        let works = undisturbed.broken.is_none();
        notes.note("undisturbed", undisturbed.broken);
        works
    });
    if !works {
        return;
    }
    let killed = interrupted(&scenario, point, Action::Kill);
    // A run that hangs was not interrupted either.
    if killed.interrupted <= before(point).len() as u64 && killed.broken.is_none() {
        notes.unreached(point.name());
        return;
    }
    notes.note(point.name(), killed.broken);
    notes.note(point.name(), interrupted(&scenario, point, Action::Term).broken);
    let failed = interrupted(&scenario, point, Action::Error);
    let can_fail = failed.interrupted + failed.letters > 0;
    notes.note(point.name(), failed.broken);
    if can_fail {
        notes.note(point.name(), interrupted(&scenario, point, Action::Full).broken);
    }
}

/// Interrupts a run at the first, the next at the second and the third at the fourth pass of a point.
fn interrupted(scenario: &Scenario<'_>, point: Failpoint, action: Action) -> Verdict {
    let times = match action {
        Action::Kill => &[1, 2, 4][..],
        Action::Term => &[2],
        Action::Error | Action::Full => &[1],
    };
    let at = |time: &u64| Interruption { action, when: When::At(point, *time) };
    let all = before(point).iter().copied().chain(times.iter().map(at));
    scenario.run(&all.collect::<Vec<_>>())
}

/// The interruption without which a point is not passed: output is cut that no checkpoint covers.
fn before(point: Failpoint) -> &'static [Interruption] {
    const WRITTEN: &[Interruption] =
        &[Interruption { action: Action::Kill, when: When::At(Failpoint::SinkFinishAfter, 1) }];
    match point {
        Failpoint::TruncateBefore | Failpoint::TruncateAfter => WRITTEN,
        _ => &[],
    }
}

/// The number of large records: five files of more than a megabyte.
const LARGE: u64 = 30;

/// Runs a pair with large records, with a state or without one, undisturbed and killed.
fn with_large_records(binary: &Path, case: &Case, has_state: bool, notes: &Notes<'_, '_>) {
    let kill = |point, time| Interruption { action: Action::Kill, when: When::At(point, time) };
    let killed = [kill(Failpoint::Acknowledged, 3), kill(Failpoint::RenameBefore, 1)];
    let scenario = Scenario {
        records: Records::large(LARGE),
        memory: "4MiB",
        has_state,
        ..Scenario::new(binary, &case.feed, &case.outlet)
    };
    let clause = if has_state { "with a state" } else { "without a state" };
    notes.note(clause, scenario.run(&[]).broken);
    let clause = format!("{clause}, killed");
    killed.iter().for_each(|one| notes.note(&clause, scenario.run(&[*one]).broken));
}

/// The pairs of a suite.
type Pairs = Vec<(Feed, Outlet)>;

/// Returns the names of the cases of a suite of pairs, or of the matrix. None if there is no such suite.
pub fn cases(suite: &str) -> Option<Vec<String>> {
    let pairs: Pairs = match suite {
        "source" => sources(),
        "message_sink" => message_sinks(),
        "file_sink" => file_sinks(),
        "file_transform" => file_transforms(),
        "file_reader" => file_readers(),
        "buffer" => buffers(),
        "large" => large(),
        "matrix" => return Some(matrix::pairs().iter().map(matrix::Pair::name).collect()),
        _ => return None,
    };
    Some(pairs.iter().map(|(feed, outlet)| case_name(feed, outlet)).collect())
}

fn case_name(feed: &Feed, outlet: &Outlet) -> String {
    format!("{} -> {}", feed.name, outlet.name)
}

fn sources() -> Pairs {
    let all = [feeds::all(), feeds::stored(), feeds::of_web(), feeds::of_brokers(), feeds::datagrams()];
    let feeds = all.into_iter().flatten();
    let pairs = feeds.map(|feed| (feed, outlets::file()));
    // The offsets are committed in the transactions.
    let copies = feeds::of_brokers().into_iter().filter(|feed| feed.component == "kafka");
    let copies =
        copies.map(|feed| (feed, Outlet { delivery: Delivery::ExactlyOnce, ..outlets::in_transactions() }));
    pairs.chain([(feeds::proxy(), outlets::proxy())]).chain(copies).collect()
}

fn message_sinks() -> Pairs {
    let stored = outlets::stored().into_iter().filter(|outlet| outlet.takes == Flow::Messages);
    let outlets = outlets::all().into_iter().chain(outlets::unreadable()).chain(stored);
    let outlets = outlets.chain(outlets::of_brokers()).chain(outlets::of_systems());
    outlets.map(|outlet| (feeds::file(), outlet)).collect()
}

fn file_sinks() -> Pairs {
    let stored = outlets::stored().into_iter().filter(|outlet| outlet.takes == Flow::Files);
    let outlets = outlets::of_files().into_iter().chain(stored);
    outlets.map(|outlet| (feeds::files(), outlet)).collect()
}

fn file_transforms() -> Pairs {
    let of_any = files::all().into_iter().map(|outlet| (feeds::files(), outlet));
    let of_pictures = files::of_pictures().into_iter().map(|outlet| (files::picture_feed(), outlet));
    of_any.chain(of_pictures).collect()
}

fn file_readers() -> Pairs {
    feeds::file_readers().into_iter().map(|feed| (feed, outlets::file())).collect()
}

fn buffers() -> Pairs {
    vec![(feeds::file(), outlets::spool()), (feeds::buffer(), outlets::file())]
}

/// All pairs that can pass on large records.
fn large() -> Pairs {
    let all = [sources(), message_sinks(), file_sinks(), file_transforms(), file_readers(), buffers()];
    // Records of their own size; a configuration that contains the records; single answers.
    let is_small = |feed: &Feed| feed.most < LARGE || ["generate", "proxy"].contains(&feed.name);
    let pairs = all.into_iter().flatten();
    let pairs = pairs.filter(|(feed, _)| feed.nature != Nature::Datagrams && !is_small(feed));
    // These cases also run without a state.
    pairs.filter(|(_, outlet)| outlet.name != outlets::EXACTLY_ONCE).collect()
}

/// The suite of large records: everything that can pass them on, with a state and without one.
pub fn large_records(binary: &Path, report: &mut Report<'_>) {
    each(large(), &[true, false], report, |case, has_state, notes| {
        with_large_records(binary, case, *has_state, notes);
    });
}

/// The suite of sources: each into a file.
pub fn source(binary: &Path, report: &mut Report<'_>) {
    at_every_failpoint(binary, sources(), report);
}

/// The suite of message sinks: a file into each.
pub fn message_sink(binary: &Path, report: &mut Report<'_>) {
    at_every_failpoint(binary, message_sinks(), report);
}

/// The suite of file sinks: several files into each.
pub fn file_sink(binary: &Path, report: &mut Report<'_>) {
    at_every_failpoint(binary, file_sinks(), report);
}

/// The suite of file transforms: several files through each into a folder.
pub fn file_transform(binary: &Path, report: &mut Report<'_>) {
    at_every_failpoint(binary, file_transforms(), report);
}

/// The suite of file readers: several files through each into a file.
pub fn file_reader(binary: &Path, report: &mut Report<'_>) {
    at_every_failpoint(binary, file_readers(), report);
}

/// The suite of buffers: a file into the buffer, and the buffer into a file.
pub fn buffer(binary: &Path, report: &mut Report<'_>) {
    at_every_failpoint(binary, buffers(), report);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, is_match) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "ab", true),
            ("*-> b*", "a -> b, c", true),
            ("*-> b", "a -> b, c", false),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} and {name}");
        }
    }

    #[test]
    fn a_known_hole_is_no_failure_and_a_closed_one_is() {
        let hole = |case, is_rare| Hole {
            suite: "s",
            case,
            point: "*",
            says: "it broke*",
            reason: "why",
            item: "A1",
            is_rare,
        };
        let holes = [hole("a", false), hole("b", false), hole("c", true)];
        let mut report = Report::new("s", &holes);
        report.note("a", "p", Some("it broke".to_owned()));
        report.note("a", "p", Some("records are missing".to_owned()));
        report.note("b", "p", None);
        report.note("d", "p", Some("it broke too".to_owned()));
        assert_eq!(report.known, ["a at p (A1, why): it broke"]);
        assert_eq!(report.broken, ["a at p: records are missing", "d at p: it broke too"]);
        assert_eq!(report.closed(), ["b at * holds now: remove it from the list"]);
    }
}
