//! The header `Link`, of which the next page is wanted. A target that is found stands in the header, and is
//! found again when the link is written alone.

use thalweg_net::sources::http_client::link::next;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "link_header",
    components: &["http_client"],
    longest: 16 << 10,
    words: &[
        "<https://a/?p=2>",
        "; rel=\"next\"",
        "; rel=next",
        "; rel=prev",
        ", ",
        "; title=\"a, b\"",
        "\\\"",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let header = Input(bytes).text();
    let Some(found) = bounded((64 << 10) + bytes.len(), || next(header)) else { return };
    assert!(header.contains(&format!("<{found}")) || header.contains(found));
    assert_eq!(next(&format!("<{found}>; rel=next")), Some(found));
}
