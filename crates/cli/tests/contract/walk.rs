//! Every registered component has its suite.

use std::collections::BTreeSet;

use thalweg_engine::{Flow, Role};
use thalweg_testkit::cases::{feeds, files, messages, outlets};

/// The components that have no suite, and why.
const EXEMPT: &[(Role, &str, &str)] = &[(
    Role::Source,
    "internal_logs",
    "makes records of its own, which have no number; its unit tests count them",
)];

fn sources() -> BTreeSet<&'static str> {
    feeds::all().iter().chain(&feeds::datagrams()).map(|feed| feed.component).chain(["proxy"]).collect()
}

fn sinks() -> BTreeSet<&'static str> {
    let all = outlets::all().into_iter().chain(outlets::unreadable()).chain(outlets::of_files());
    all.map(|outlet| outlet.component).chain(["proxy"]).collect()
}

fn message_transforms() -> BTreeSet<&'static str> {
    messages::ALL
        .iter()
        .map(|case| case.component)
        .chain(messages::EXEMPT.iter().map(|(name, _)| *name))
        .collect()
}

/// File transforms, and the file readers that the sources of files are tested with.
fn file_transforms() -> BTreeSet<&'static str> {
    let transforms = files::all().into_iter().chain(files::of_pictures()).map(|outlet| outlet.component);
    let readers = feeds::file_readers().into_iter().flat_map(|feed| feed.steps);
    transforms.chain(readers.filter_map(|step| step.split(':').next())).collect()
}

#[test]
fn every_component_has_its_suite() {
    let registry = thalweg_components::registry();
    let without = registry.iter().filter(|known| {
        let cases = match (known.role, known.takes) {
            (Role::Source, _) => sources(),
            (Role::Sink, _) => sinks(),
            (Role::Transform, Some(Flow::Files)) => file_transforms(),
            (Role::Transform, _) => message_transforms(),
        };
        let is_exempt = EXEMPT.iter().any(|(role, name, _)| *role == known.role && *name == known.name);
        !cases.contains(known.name) && !is_exempt
    });
    let without: Vec<String> = without.map(|known| format!("{} {}", known.role.name(), known.name)).collect();
    assert!(
        without.is_empty(),
        "a component without its suite: add a case to `thalweg_testkit::cases` for {without:?}"
    );
}

#[test]
fn every_case_is_of_a_registered_component() {
    let registry = thalweg_components::registry();
    let is_known = |role, name: &&str| registry.get(role, name).is_some();
    assert!(sources().iter().all(|name| is_known(Role::Source, name)), "{:?}", sources());
    assert!(sinks().iter().all(|name| is_known(Role::Sink, name)), "{:?}", sinks());
    let transforms: BTreeSet<&str> = message_transforms().union(&file_transforms()).copied().collect();
    assert!(transforms.iter().all(|name| is_known(Role::Transform, name)), "{transforms:?}");
}
