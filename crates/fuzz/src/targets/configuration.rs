//! Whole configurations in thalweg's form: the document, the graph, and the options of all components.

use std::sync::LazyLock;

use thalweg_config::Document;
use thalweg_engine::Registry;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "configuration",
    components: &[],
    longest: 4 << 10,
    words: &[
        "sources: ",
        "pipelines: ",
        "sinks: ",
        "from: ",
        "transforms: ",
        "to: ",
        "memory: 1MiB",
        "route: ",
        "file: { path: a }",
        "main.errors",
    ],
    run,
};

static REGISTRY: LazyLock<Registry> = LazyLock::new(thalweg_components::registry);

fn run(bytes: &[u8]) {
    let Ok(document) = Document::parse("fuzz.yaml", Input(bytes).text()) else { return };
    // Schemas of components are built at the first mistake in their options.
    if let Err(mistakes) = bounded(128 << 20, || thalweg_engine::read(&document, &REGISTRY)) {
        assert!(!mistakes.is_empty());
        mistakes.render(false);
    }
}
