//! Protocol Buffers: messages, and descriptor sets.

use std::fs;
use std::sync::LazyLock;

use tempfile::TempDir;
use thalweg_engine::TransformConfig;
use thalweg_engine::testing::{context, options};
use thalweg_transforms::parse_protobuf::ParseProtobuf;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform};

pub(super) const TARGET: Target = Target {
    name: "protobuf",
    components: &["parse_protobuf"],
    longest: 16 << 10,
    words: &[
        "\u{8}\u{7}",
        "\u{12}\u{3}Ada",
        "j\u{3}\n\u{1}a",
        "k\n\u{1}al",
        "Z\u{5}\n\u{1}a\u{10}\u{1}",
        "J\u{2}\u{1}\u{2}",
    ],
    run,
};

/// The descriptor set of the transform's own tests.
const SAMPLES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../components/transforms/src/parse_protobuf/samples/samples.desc");

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    let chain = |message: &str, rest: &str| transform::<ParseProtobuf>(&yaml(SAMPLES, message, rest));
    vec![
        chain("acme.shop.Order", "defaults: true"),
        chain("acme.shop.Order", "flatten: true, wire_format: confluent"),
        chain("acme.legacy.Record", "flatten: true, defaults: false"),
        chain("acme.edition.Reading", "flatten: false"),
    ]
});

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

fn yaml(descriptors: &str, message: &str, rest: &str) -> String {
    format!("{{ descriptor_file: '{descriptors}', message: '{message}', {rest} }}")
}

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let choice = input.choice(CHAINS.len() + 1);
    let most = (8 << 20) + 600 * bytes.len();
    match CHAINS.get(choice) {
        Some(chain) => {
            let (one, other) = input.0.split_at(input.0.len() / 2);
            bounded(most, || check(chain, &[input.0, one, other], Leaves::OneAlone));
        }
        None => bounded(most, || descriptors(input.0)),
    }
}

/// Reads a descriptor set, and messages by it if it can be used.
fn descriptors(bytes: &[u8]) {
    FOLDER.with(|folder| {
        let path = folder.path().join("types.desc");
        fs::write(&path, bytes).expect("it is written");
        let yaml = yaml(&path.display().to_string(), "acme.shop.Order", "flatten: false");
        if options::<ParseProtobuf>(&yaml).build(&context()).is_ok() {
            let messages: [&[u8]; 2] = [b"\x08\x07\x12\x03Ada", b"\x6a\x03\x0a\x01a\x48\x01"];
            check(&transform::<ParseProtobuf>(&yaml), &messages, Leaves::OneAlone);
        }
    });
}
