//! XML documents, as fields.

use std::sync::LazyLock;

use thalweg_transforms::parse_xml::ParseXml;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "xml",
    components: &["parse_xml"],
    longest: 16 << 10,
    words: &[
        "<a>",
        "</a>",
        "<b/>",
        "<a b=\"c\">",
        " x:y='1'",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "&lt;",
        "&#x41;",
        "&e;",
        "<!DOCTYPE a [<!ENTITY e \"x\">]>",
        "<?xml version=\"1.0\"?>",
        "1.5",
        "true",
    ],
    run,
};

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    vec![
        transform::<ParseXml>("{}"),
        transform::<ParseXml>(
            "{ flatten: true, infer_types: true, remove_namespaces: true, attribute_prefix: '' }",
        ),
        transform::<ParseXml>("{ lists: '*', keep_root: true, max_fields: 5, types: { a: json } }"),
    ]
});

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let chain = &CHAINS[input.choice(CHAINS.len())];
    // A part of a document may have any bytes, line feeds too.
    let documents: Vec<&[u8]> = input.0.split(|byte| *byte == 0).collect();
    bounded((8 << 20) + 600 * bytes.len(), || check(chain, &documents, Leaves::One));
}
