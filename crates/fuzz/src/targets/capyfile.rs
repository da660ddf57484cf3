//! Service definitions of capyfile, with a request that has parameters.

use std::path::Path;

use thalweg_config::Document;
use thalweg_dialects::Environment;
use thalweg_dialects::capyfile::{Request, check, is_capyfile, needs_request, operations, read, service};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "capyfile",
    components: &[],
    longest: 8 << 10,
    words: &[
        "processors:",
        "- name: a",
        "operations:",
        "sourceType: http_get",
        "sourceType: value",
        "source: a",
        "params:",
        "targetFiles:",
        "file_type_validate",
        "command_exec",
        "{{.AbsolutePath}}",
        "cleanupPolicy: keep_files",
    ],
    run,
};

fn run(bytes: &[u8]) {
    let text = Input(bytes).text();
    let Ok(document) = Document::parse("service.yml", text) else { return };
    if !is_capyfile(&document) {
        return;
    }
    let value = text.lines().last().unwrap_or_default().to_owned();
    let pairs = vec![("a".to_owned(), value.clone()), ("b".to_owned(), "1".to_owned())];
    let request = Request { query: pairs.clone(), form: pairs.clone(), headers: pairs };
    let environment = Environment {
        variable: &|_| Some(value.clone()),
        file: &|_| Ok(value.clone()),
        secrets: Path::new("/nowhere"),
        request: Some(&request),
        etcd: Some(&|_| Ok(Some(value.clone()))),
    };
    bounded((32 << 20) + 500 * bytes.len(), || {
        let _ = check(&document, environment);
        if let Ok(phases) = read(&document, None, environment) {
            assert!(!phases.is_empty());
        }
        for processor in service(&document).map(|service| service.processors).unwrap_or_default() {
            needs_request(&document, &processor);
            operations(&document, &processor);
        }
    });
}
