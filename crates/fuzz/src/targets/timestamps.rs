//! Texts as times, in the usual formats and in those of `strftime`.

use std::sync::LazyLock;

use thalweg_codec::timestamps::{TimeFormat, TimeParser, parse_zone};
use thalweg_transforms::parse_timestamp::ParseTimestamp;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "timestamps",
    components: &["parse_timestamp"],
    longest: 1 << 10,
    words: &["2024-02-30T24:00:60Z", "+99:99", "%s", "%+", "%Y", "%3f", "-0000", "10/Oct/", "9999999999"],
    run,
};

const FORMATS: [&str; 8] = ["auto", "rfc3339", "rfc2822", "clf", "unix", "unix_ms", "unix_us", "unix_ns"];

static CHAIN: LazyLock<Chain> =
    LazyLock::new(|| transform::<ParseTimestamp>("{ field: payload, into: time }"));

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    bounded(4 << 20, || check(&CHAIN, &input.lines(), Leaves::OneAlone));
    let choice = input.choice(FORMATS.len() + 1);
    let format = FORMATS.get(choice).map_or_else(|| input.text_line(), |format| (*format).to_owned());
    let zone = parse_zone(&input.text_line()).unwrap_or(0);
    let Ok(format) = TimeFormat::parse(&format) else { return };
    let mut parser = TimeParser::new(format, zone);
    for line in input.text().lines() {
        let time = bounded(1 << 20, || parser.parse(line));
        assert_eq!(parser.parse(line), time, "the same text again");
        if let Some(time) = time.filter(|_| choice == 1) {
            reads_back(time, line);
        }
    }
}

/// A time in RFC 3339 is written and read back as itself.
fn reads_back(time: i64, line: &str) {
    let Some(written) = chrono::DateTime::from_timestamp_micros(time) else { return };
    let mut parser = TimeParser::new(TimeFormat::Rfc3339, 0);
    let text = written.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    if text.len() == "2024-01-02T03:04:05.678901Z".len() {
        assert_eq!(parser.parse(&text), Some(time), "{line:?} is {text}");
    }
}
