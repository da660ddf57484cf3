//! Lines of the logs of servers and devices, whose formats other programs define.

use std::sync::LazyLock;

use thalweg_transforms::parse_apache::ParseApache;
use thalweg_transforms::parse_cef::ParseCef;
use thalweg_transforms::parse_cri::ParseCri;
use thalweg_transforms::parse_elb::ParseElb;
use thalweg_transforms::parse_key_value::ParseKeyValue;
use thalweg_transforms::parse_leef::ParseLeef;
use thalweg_transforms::parse_nginx::ParseNginx;
use thalweg_transforms::parse_w3c::ParseW3c;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "log_lines",
    components: &[
        "parse_apache",
        "parse_cef",
        "parse_cri",
        "parse_elb",
        "parse_key_value",
        "parse_leef",
        "parse_nginx",
        "parse_w3c",
    ],
    longest: 16 << 10,
    words: &[
        "[10/Oct/2000:13:55:36 -0700]",
        "2024-01-02T03:04:05Z ",
        "2024/01/02 03:04:05 [error] 1#1: ",
        ", client: ",
        "\"GET / HTTP/1.0\"",
        "\\x22",
        "CEF:0|a|b|c|d|e|f|",
        "cs1Label=",
        "LEEF:2.0|a|b|c|d|^|",
        " stdout P ",
        "tls 2.0 ",
        " - - ",
        "#Fields: date time",
    ],
    run,
};

static CHAINS: LazyLock<Vec<(Chain, Leaves)>> = LazyLock::new(|| {
    vec![
        (transform::<ParseNginx>("{}"), Leaves::OneAlone),
        (transform::<ParseNginx>("{ format: ingress }"), Leaves::OneAlone),
        (transform::<ParseNginx>("{ format: error }"), Leaves::OneAlone),
        (transform::<ParseApache>("{ format: vhost_combined }"), Leaves::OneAlone),
        (transform::<ParseApache>("{ format: error }"), Leaves::OneAlone),
        (transform::<ParseCri>("{}"), Leaves::OneAlone),
        // Columns are added as messages come.
        (transform::<ParseElb>("{}"), Leaves::One),
        (transform::<ParseKeyValue>("{}"), Leaves::One),
        (
            transform::<ParseKeyValue>("{ key_value_delimiter: ': ', field_delimiter: ',', max_fields: 20 }"),
            Leaves::One,
        ),
        (transform::<ParseCef>("{ translate_custom_fields: true }"), Leaves::One),
        (transform::<ParseLeef>("{}"), Leaves::One),
        // Directives do not leave.
        (transform::<ParseW3c>("{}"), Leaves::Any),
        (transform::<ParseW3c>("{ format: cloudfront }"), Leaves::Any),
    ]
});

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (chain, leaves) = &CHAINS[input.choice(CHAINS.len())];
    bounded((8 << 20) + 600 * bytes.len(), || check(chain, &input.lines(), *leaves));
}
