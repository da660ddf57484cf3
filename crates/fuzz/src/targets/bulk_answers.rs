//! Answers of the stores that are written to by HTTP, such as `elasticsearch` and `splunk_hec`. An input is a
//! status, the headers up to an empty line, and a body.

use thalweg_net::fuzzing::store_answer;

use super::store_answers::parts;
use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "bulk_answers",
    components: &[
        "elasticsearch",
        "clickhouse",
        "loki",
        "influxdb",
        "splunk_hec",
        "datadog_logs",
        "prometheus_remote_write",
        "otlp",
    ],
    longest: 16 << 10,
    words: &[
        "200\n\n",
        "400\n\n",
        "Retry-After: 5\n",
        "X-ClickHouse-Exception-Code: 27\n",
        "{\"items\":[{\"index\":{\"status\":201}}]}",
        "{\"create\":{\"status\":429,\"error\":{\"type\":\"a\",\"reason\":\"b\"}}}",
        "Code: 252. DB::Exception: a",
        "\u{a}\u{5}\u{8}\u{3}\u{12}\u{1}a",
        "{\"text\":\"a\",\"code\":7,\"invalid-event-number\":1}",
        "{\"error\":\"partial write\",\"data\":[{\"line_number\":1,\"error_message\":\"a\"}]}",
    ],
    run,
};

/// The number of messages of the request.
const MESSAGES: usize = 3;

fn run(bytes: &[u8]) {
    // The client of the first call is not counted.
    store_answer(200, &http::HeaderMap::new(), b"", 0);
    let (status, headers, body) = parts(Input(bytes).0);
    let counts = bounded((4 << 20) + 200 * bytes.len(), || store_answer(status, &headers, &body, MESSAGES));
    for [delivered, refused, again] in counts.iter().skip(1) {
        // Elasticsearch, the first, may answer for another number. The sink then sends all again.
        assert_eq!(delivered + refused + again, MESSAGES);
    }
    if (200..300).contains(&status) && counts.len() == 8 {
        assert_eq!(counts[2], [MESSAGES, 0, 0], "Loki took all");
    }
}
