//! Templates in the notation of Jinja: any template, and any message in a fixed one.

use std::sync::LazyLock;

use thalweg_transforms::parse_json::ParseJsonConfig;
use thalweg_transforms::template::Template;

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;
use crate::messages::{Chain, Leaves, check, transform, try_transform};

pub(super) const TARGET: Target = Target {
    name: "template",
    components: &["template"],
    longest: 2 << 10,
    words: &[
        "{{ a }}",
        "{% for x in b %}",
        "{% endfor %}",
        "{% if a %}",
        "{% endif %}",
        "|upper",
        "|indent(",
        "|join(",
        "|replace('a','b')",
        "|tojson",
        "[0]",
        " ~ ",
        "range(",
        "{% set x = ",
        "{% macro m() %}",
        "9999999999",
        "|list",
        "|batch(",
    ],
    run,
};

/// Templates whose lengths come from the message.
static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    let templates = [
        "{{ s|indent(n) }}",
        "{{ s|center(n) }}{{ '%*d'|format(n, 1) }}",
        "{% for x in range(n) %}{{ s }}{% endfor %}",
        "{{ s|replace('a', s) }}{{ s|list|batch(n)|list }}",
        "{{ b|tojson(indent=n) }}{{ b|sort|join(s) }}{{ b|slice(n)|list }}",
        "{% for x in b %}{{ loop.index }} {{ x|upper|trim }}{% endfor %}{{ s[n:] }}",
        "{{ s|truncate(n) }}{{ s|wordwrap(n) }}{{ s * n }}",
    ];
    let chain = |template: &str| {
        let options = format!("{{ template: {} }}", serde_json::Value::from(template));
        // Filters that are not built in make no template.
        let known = try_transform::<Template>(&options).is_some();
        known.then(|| transform::<ParseJsonConfig>("{}").then::<Template>(&options))
    };
    templates.into_iter().filter_map(chain).collect()
});

/// A text has at most 16 MiB, and is held again while it grows and where filters use it.
const MOST: usize = 160 << 20;

fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    match CHAINS.get(input.choice(CHAINS.len() + 1)) {
        Some(chain) => {
            bounded(MOST, || check(chain, &input.lines(), Leaves::One));
        }
        None => {
            let template = input.text_line().replace('\r', "\n");
            let options = format!("{{ template: {} }}", serde_json::Value::from(template));
            if let Some(chain) = try_transform::<Template>(&options) {
                bounded(MOST, || check(&chain, &input.lines(), Leaves::One));
            }
        }
    }
}
