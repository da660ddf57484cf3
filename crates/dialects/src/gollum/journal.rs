//! Turns the consumer of systemd's journal into a source.
//!
//! gollum's message is the text of an entry. The source gives whole entries, so transforms take it out.

use super::consumers::{Source, beside_offset_file};
use super::draft::{Step, Transform};
use super::made::{self, Made};
use super::report::Report;
use super::settings::Settings;

/// Returns the source of `native.SystemdConsumer`.
pub(super) fn source(settings: &Settings, report: &mut Report) -> Source {
    let mut options = Made::new(settings.span);
    if let Some(unit) = settings.text("SystemdUnit").filter(|unit| !unit.is_empty()) {
        let mut matches = Made::new(settings.at("SystemdUnit"));
        matches.text("_SYSTEMD_UNIT", unit, settings.at("SystemdUnit"));
        options.put("matches", matches.done());
    }
    options.flag("current_boot_only", false, settings.span);
    if let Some(since) = since(settings, report) {
        options.text("since", since, settings.at("DefaultOffset"));
    }
    Source {
        node: made::component("journald", settings.span, options.done()),
        steps: message(settings),
        notes: Vec::new(),
        state: beside_offset_file(settings, report),
    }
}

/// Returns the time of the first entry, or `None` for the oldest one.
fn since(settings: &Settings, report: &mut Report) -> Option<String> {
    let at = settings.at("DefaultOffset");
    match settings.text_or("DefaultOffset", "newest").to_ascii_lowercase().as_str() {
        "newest" => Some("now".to_owned()),
        "oldest" => None,
        other => match other.parse::<u64>() {
            // gollum begins behind that time.
            Ok(offset) => {
                let microseconds = offset.saturating_add(1);
                Some(format!("@{}.{:06}", microseconds / 1_000_000, microseconds % 1_000_000))
            }
            Err(_) => {
                report
                    .mistake(at, format!("`{other}` is not a start position."))
                    .help("There are `newest`, `oldest`, and microseconds since 1970.");
                None
            }
        },
    }
}

/// Returns the transforms that leave the message of an entry. An entry without one is left out.
fn message(settings: &Settings) -> Vec<Step> {
    let span = settings.span;
    let (mut types, mut parse, mut payload) = (Made::new(span), Made::new(span), Made::new(span));
    types.text("MESSAGE", "text", span);
    parse.put("types", types.done());
    payload.text("payload", "\"MESSAGE\"", span);
    [
        ("parse_journal", parse.done()),
        ("filter", made::text("\"MESSAGE\" IS NOT NULL", span)),
        ("set", payload.done()),
        ("drop", made::list(vec![made::text("*", span)], span)),
    ]
    .map(|(kind, options)| Step::Transform(Transform::new(kind, options, span)))
    .into()
}
