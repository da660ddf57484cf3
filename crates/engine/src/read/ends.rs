//! Checks of graphs with transforms that wait for the end of their input.

use thalweg_config::Node;

use super::Reader;
use super::sections::Sections;
use crate::component::Endless;
use crate::index::Index;
use crate::pairs::Reached;

impl Reader<'_> {
    /// Checks that no source that never ends leads to such a transform, which would never send a message.
    pub(super) fn ends(&mut self, root: &Node, sections: &Sections<'_>, index: &Index<'_>) {
        let pipelines = &index.graph.pipelines;
        let needs_end =
            |at: &usize| pipelines[*at].transforms.iter().any(|transform| transform.config.needs_end());
        if !(0..pipelines.len()).any(|at| needs_end(&at)) {
            return;
        }
        for source in index.graph.sources.iter().filter(|source| !source.config.is_auxiliary()) {
            let Some(endless) = source.config.endless() else { continue };
            let end = match endless {
                Endless::By(option) => format!("Change `{option}` of `{}` so that it ends", source.name),
                Endless::Without(option) => format!("Give `{}` the option `{option}`", source.name),
            };
            for at in Reached::from(index, &source.name).pipelines.iter().filter(|at| needs_end(at)) {
                let pipeline = &pipelines[*at];
                let steps = sections.pipelines.steps(&pipeline.name);
                for (number, transform) in pipeline.transforms.iter().enumerate() {
                    if !transform.config.needs_end() {
                        continue;
                    }
                    let span = steps.get(number).map(|node| node.span);
                    let span = span.or_else(|| sections.pipelines.span(&pipeline.name)).unwrap_or(root.span);
                    let message = format!(
                        "`{}` sends nothing before the end of its input, but `{}` never ends.",
                        transform.name, source.name
                    );
                    let help = format!(
                        "{end}; or write the messages to files, and let another configuration read them."
                    );
                    self.diagnostics.error(span, message).help(help);
                }
            }
        }
    }
}
