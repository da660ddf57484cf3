//! No mistake in a document shows a secret of it, also if the document does not parse.

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::{Document, decode};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Server {
    url: String,
    auth: Option<Auth>,
    token: Option<u8>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Auth {
    user: Option<String>,
    password: Option<String>,
    bearer: Option<String>,
}

/// Returns all that is shown of the mistakes of a document.
fn shown(text: &str) -> String {
    let mut diagnostics = match Document::parse("x.yaml", text) {
        Ok(document) => {
            let mut diagnostics = document.diagnostics();
            let _ = decode::<Server>(document.root(), &mut diagnostics);
            diagnostics
        }
        Err(diagnostics) => diagnostics,
    };
    // Each line is shown, with those around it.
    let starts = text.match_indices('\n').map(|(at, _)| at + 1).chain([0]);
    for start in starts.filter(|start| *start < text.len()) {
        diagnostics.error(thalweg_config::Span::new(start, start + 1), "This line is shown.");
    }
    format!("{}{diagnostics}{}", diagnostics.render(false), serde_json::to_string(&diagnostics).unwrap())
}

/// These forms are no YAML. In a document that parses all the same, they are a part of a text.
const OTHER: [&str; 3] = ["password:SECRET", "password = SECRET", "password SECRET"];

/// `SECRET` in these lines is a secret.
const PLACES: [&str; 27] = [
    "password: SECRET",
    "password:SECRET",
    "password = SECRET",
    "password SECRET",
    "api_key: 'SECRET'",
    "api_key: \"SECRET",
    "token: *SECRET",
    "token: !SECRET",
    "token: SECRET: x",
    "token: @SECRET",
    "secret:\n  SECRET",
    "secret:\nSECRET",
    "secret: |\n  SECRET\n SECRET",
    "secret: \"\n  SECRET\n  x\"",
    "tokens: [SECRET, SECRET",
    "tokens:\n- SECRET",
    "auth: SECRET",
    "auth: { user: me, password: SECRET, x: y }",
    "auth: { baerer: SECRET }",
    "auth: { password: SECRET",
    "auth:\n  user: me\n  pasword: SECRET",
    "headers: ['Authorization: Bearer SECRET']",
    "headers: { X-Api-Key: SECRET, authorization: Bearer SECRET }",
    "{ \"password\":\"SECRET\", \"x\" 1 }",
    "at: https://me:SECRET@host/in?token=SECRET",
    "brokers: 'me:SECRET@host:1'",
    "# password: SECRET",
];

/// Each breaks a document, or is wrong in it.
const BROKEN: [&str; 9] =
    ["", "a: b: c", "x: [", "\t- a", "no colon", "unknwn: 1", "k: 'x", "token: 1\ntoken: 2", "b: *none"];

#[test]
fn a_secret_of_a_document_that_does_not_parse_is_masked_and_the_marker_stays() {
    let shown = Document::parse("x.yaml", "password: q9Zé\nx: [\n").unwrap_err().render(false);
    assert!(shown.contains("x.yaml:2:4]") && shown.contains("password: ***·\n"), "{shown}");
    let mut mistakes = thalweg_config::Diagnostics::new("x.yaml", "{ token: 'q9Zé', b }");
    mistakes.error(thalweg_config::Span::new(18, 19), "This is wrong.");
    let shown = mistakes.render(false);
    let marker = format!("{{ token: '***·', b }}\n   · {}─", " ".repeat(17));
    assert!(shown.contains("x.yaml:1:18]") && shown.contains(&marker), "{shown}");
}

#[test]
fn a_value_in_the_place_of_a_secret_is_not_repeated() {
    let document = Document::parse("x.yaml", "url: h\nauth: hunter\ntoken: seven\n").unwrap();
    let mut diagnostics = document.diagnostics();
    assert!(decode::<Server>(document.root(), &mut diagnostics).is_none());
    let shown = format!("{diagnostics}{}", diagnostics.render(false));
    assert!(!shown.contains("hunter") && !shown.contains("seven"), "{shown}");
    assert!(shown.contains("but it is text."), "{shown}");
}

#[test]
fn a_secret_in_a_configuration_of_another_program_is_masked() {
    let text = "[sources.a]\npassword = 'q9Z'\n";
    let mut mistakes = thalweg_config::Diagnostics::new("x.toml", text);
    mistakes.error(thalweg_config::Span::new(0, 11), "This is another program's.");
    assert!(!mistakes.render(false).contains("q9Z"));
}

proptest! {
    #[test]
    fn a_secret_is_never_shown(
        secret in "[A-Z][0-9][A-Z]([A-Z0-9]{0,9}|[!$%+é][A-Z]{1,5})",
        place in prop::sample::select(PLACES.to_vec()),
        before in prop::sample::select(BROKEN.to_vec()),
        after in prop::sample::select(BROKEN.to_vec()),
        indent in 0_usize..3,
    ) {
        let indent = " ".repeat(2 * indent);
        let is_other = OTHER.contains(&place);
        let place = place.replace('\n', &format!("\n{indent}")).replace("SECRET", &secret);
        let text = format!("url: h\n{before}\n{indent}{place}\n{after}\n");
        prop_assume!(!is_other || Document::parse("x", &text).is_err());
        let shown = shown(&text);
        prop_assert!(!shown.contains(&secret), "{text}\n{shown}");
    }
}
