//! Checks that no two components have what only one can have, such as an address to listen on.

use std::collections::BTreeMap;
use std::sync::Arc;

use thalweg_config::{Diagnostic, Node, Span};

use super::Reader;
use super::sections::Sections;
use crate::component::Claim;
use crate::index::Index;

/// At most this many claims of one port or name are compared with each further one.
const MOST_COMPARED: usize = 1000;

/// A claim, and the component that has it.
struct Claimed<'g> {
    claim: Claim,
    name: &'g Arc<str>,
    span: Span,
}

impl Reader<'_> {
    /// Checks each pair of components for a claim that both have. Each component is reported once.
    pub(super) fn claims(&mut self, root: &Node, sections: &Sections<'_>, index: &Index<'_>) {
        let mut known: BTreeMap<(&'static str, String), Vec<Claimed<'_>>> = BTreeMap::new();
        let sources = index.graph.sources.iter().flat_map(|source| {
            let claims = source.config.claims().into_iter();
            claims.map(move |claim| (&sections.sources, &source.name, source.kind, claim))
        });
        let sinks = index.graph.sinks.iter().flat_map(|sink| {
            let claims = sink.config.claims().into_iter();
            claims.map(move |claim| (&sections.sinks, &sink.name, sink.kind, claim))
        });
        for (section, name, kind, claim) in sources.chain(sinks) {
            let span = section.option_span(name, kind, claim.option).unwrap_or(root.span);
            let others = known.entry(claim.key()).or_default();
            let mut compared = others.iter().take(MOST_COMPARED);
            let first = compared.find(|other| other.name != name && other.claim.meets(&claim));
            if let Some(first) = first {
                let (message, help) = claim.clash(name, first.name);
                let mut mistake = Diagnostic::new(span, message);
                mistake.help(help);
                self.diagnostics.push_with(mistake, [(first.span, "the other one".to_owned())]);
            }
            others.push(Claimed { claim, name, span });
        }
    }
}

#[cfg(test)]
mod tests {
    use thalweg_config::Document;

    use crate::component::{Context, Source, SourceConfig};
    use crate::{Built, Claim, Error, Registry, Role};

    struct Listens(Vec<Claim>);

    impl SourceConfig for Listens {
        fn claims(&self) -> Vec<Claim> {
            self.0.clone()
        }

        fn build(&self, _: &Context) -> Result<Box<dyn Source>, Error> {
            Err(Error::permanent("it is only to be read"))
        }
    }

    struct Nowhere;

    impl crate::SinkConfig for Nowhere {
        fn build(&self, _: &Context) -> Result<Box<dyn crate::Sink>, Error> {
            Err(Error::permanent("it is only to be read"))
        }
    }

    fn mistakes(sources: &str) -> Vec<String> {
        let registry = Registry::new()
            .with(Role::Source, None, "listen", |options| {
                let at = options["at"].as_str().unwrap_or_default();
                let ports = at.split(' ').filter_map(|at| Claim::port("at", "tcp", at));
                Ok(Built::Source(std::sync::Arc::new(Listens(ports.collect()))))
            })
            .with(Role::Sink, Some(crate::Flow::Messages), "nowhere", |_| {
                Ok(Built::Sink(std::sync::Arc::new(Nowhere)))
            });
        let text = format!(
            "sources: {{ {sources} }}\npipelines: {{ main: {{ from: [a, b], to: out }} }}\n\
             sinks: {{ out: {{ nowhere: {{}} }} }}\n"
        );
        let document = Document::parse("x.yaml", &text).unwrap();
        match crate::read(&document, &registry) {
            Ok(_) => Vec::new(),
            Err(found) => found.iter().map(|found| found.message.clone()).collect(),
        }
    }

    #[test]
    fn two_components_that_listen_on_one_address_are_found() {
        let same = "a: { listen: { at: '127.0.0.1:80' } }, b: { listen: { at: '0.0.0.0:81 0.0.0.0:80' } }";
        assert_eq!(mistakes(same), ["`b` listens on `tcp://0.0.0.0:80`, as `a` does: only one of them can."]);
        assert_eq!(mistakes("a: { listen: { at: ':80' } }, b: { listen: { at: ':81' } }"), [""; 0]);
        assert_eq!(mistakes("a: { listen: { at: ':0' } }, b: { listen: { at: ':0' } }"), [""; 0]);
    }
}
