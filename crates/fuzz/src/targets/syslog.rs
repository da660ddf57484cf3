//! Syslog messages of both formats, as fields.

use std::sync::LazyLock;

use arrow_array::Array;
use arrow_buffer::Buffer;
use thalweg_config::testing::options;
use thalweg_net::net::Cut;
use thalweg_net::sources::syslog::SyslogSource;
use thalweg_transforms::parse_syslog::ParseSyslog;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "syslog",
    components: &["parse_syslog", "syslog"],
    longest: 32 << 10,
    words: &[
        "<34>",
        "<165>1 ",
        "Oct 11 22:14:15 ",
        "2003-10-11T22:14:15.003Z ",
        "[a b=\"c\"]",
        "- ",
        "\\\"",
        "\u{feff}",
    ],
    run,
};

static SOURCES: LazyLock<Vec<SyslogSource>> = LazyLock::new(|| {
    let all = [
        "{}",
        "{ format: rfc3164, payload: message }",
        "{ format: rfc5424, codes: true, max_fields: 3, prefix: s. }",
        "{ payload: message, add_fields: false }",
    ];
    all.map(options).into()
});

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    vec![
        transform::<ParseSyslog>("{}"),
        transform::<ParseSyslog>("{ format: rfc5424, codes: true, max_fields: 3, structured_data: key }"),
    ]
});

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    bounded((8 << 20) + 600 * bytes.len(), || check(chain, &input.lines(), Leaves::One));
    let mut input = Input(bytes);
    let source = &SOURCES[input.choice(SOURCES.len())];
    let mut messages = Vec::new();
    let mut start = 0;
    for line in input.lines() {
        messages.push(start..start + line.len());
        start += line.len() + 1;
    }
    let cut = Cut { messages, ..Cut::of(Buffer::from_slice_ref(input.0)) };
    let (received, rejected) = bounded((4 << 20) + 400 * bytes.len(), || source.parse(&cut));
    let rows = received.as_ref().map_or(0, |received| received.reading.payload.len());
    assert_eq!(rows + rejected.len(), cut.messages.len(), "the messages");
    if let Some(fields) = received.and_then(|received| received.fields) {
        assert_eq!(fields.num_rows(), rows, "the rows of the fields");
    }
}
