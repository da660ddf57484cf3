//! The components that configurations may name.
//!
//! See docs/decisions/016-a-component-may-be-a-value.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde_json::Value;
use thalweg_config::{Diagnostics, Mistake, Node, Span, decode};

use crate::beside;
use crate::component::{
    Component, FileReaderConfig, FileSink, FileTransformConfig, Flow, SinkConfig, SourceConfig, Step,
    TransformConfig,
};

/// The role of a component in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads.
    Source,
    /// Changes.
    Transform,
    /// Writes.
    Sink,
}

impl Role {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Role::Source => "source",
            Role::Transform => "transform",
            Role::Sink => "sink",
        }
    }
}

/// A configured component.
pub enum Built {
    /// A source.
    Source(Arc<dyn SourceConfig>),
    /// A transform.
    Transform(Step),
    /// A sink.
    Sink(Arc<dyn SinkConfig>),
}

/// A kind of component: its schema, and how its options are decoded.
pub struct Definition {
    /// The role.
    pub role: Role,
    /// The key in configurations.
    pub name: &'static str,
    /// The flow that it takes. None for a source.
    pub takes: Option<Flow>,
    /// A whole configuration that shows it.
    pub example: &'static str,
    /// The JSON schema of its options, subschemas inlined.
    pub schema: fn() -> Schema,
    decode: Decode,
}

/// Creates a component from its options in a document. The span is that of its key.
type Decode = Box<dyn Fn(&Node, Span, &mut Diagnostics) -> Option<Built> + Send + Sync>;

impl Definition {
    /// Decodes and checks the options. Mistakes go to `diagnostics`; a mistake in the component as a whole is
    /// placed at `span`.
    pub fn decode(&self, options: &Node, span: Span, diagnostics: &mut Diagnostics) -> Option<Built> {
        (self.decode)(options, span, diagnostics)
    }

    /// Returns the description: the doc comment of the configuration struct.
    pub fn description(&self) -> String {
        let schema = (self.schema)();
        let text = schema.get("description").and_then(|text| text.as_str()).unwrap_or_default();
        text.to_owned()
    }

    /// Returns the first sentence of [`description`](Self::description).
    pub fn summary(&self) -> String {
        let description = self.description();
        let first = description.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        match first.find(". ") {
            Some(end) => first[..=end].to_owned(),
            None => first,
        }
    }
}

/// Declares the modules of a family of components, and a function `register` that adds them to a
/// [`Registry`].
///
/// A component is one file and one line here: its roles (the names of the registry's methods), its module and
/// the type of its configuration.
///
/// ```text
/// thalweg_engine::components! {
///     transform upper::Upper;
///     file_transform, file_sink remove::Remove;
/// }
/// ```
#[macro_export]
macro_rules! components {
    ($($(#[$meta:meta])* $($role:ident),+ $module:ident::$config:ident;)*) => {
        $($(#[$meta])* pub mod $module;)*

        /// Adds the components of this family to a registry.
        pub fn register(registry: $crate::Registry) -> $crate::Registry {
            $($(#[$meta])* let registry = registry$(.$role::<$module::$config>())+;)*
            registry
        }
    };
}

/// The components that configurations may name. A name is unique within its role.
#[derive(Default)]
pub struct Registry {
    definitions: BTreeMap<(Role, &'static str), Definition>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source.
    pub fn source<C: Component + SourceConfig>(self) -> Self {
        self.add::<C>(Role::Source, None, |config| Built::Source(config))
    }

    /// Adds a transform of messages.
    pub fn transform<C: Component + TransformConfig>(self) -> Self {
        self.add::<C>(Role::Transform, Some(Flow::Messages), |config| {
            Built::Transform(Step::Messages(config))
        })
    }

    /// Adds a sink.
    pub fn sink<C: Component + SinkConfig>(self) -> Self {
        self.add::<C>(Role::Sink, Some(Flow::Messages), |config| Built::Sink(config))
    }

    /// Adds a file transform.
    pub fn file_transform<C: Component + FileTransformConfig>(self) -> Self {
        self.add::<C>(Role::Transform, Some(Flow::Files), |config| Built::Transform(Step::Files(config)))
    }

    /// Adds a file sink.
    pub fn file_sink<C: Component + FileTransformConfig>(self) -> Self {
        self.add::<C>(Role::Sink, Some(Flow::Files), |config| Built::Sink(Arc::new(FileSink(config))))
    }

    /// Adds a file reader.
    pub fn file_reader<C: Component + FileReaderConfig>(self) -> Self {
        self.add::<C>(Role::Transform, Some(Flow::Files), |config| Built::Transform(Step::FileReader(config)))
    }

    /// Adds a component that is a value rather than a type: one that is created at run time, such as a Python
    /// function. `takes` is `None` for a source. `make` creates it from its options, which have no schema, or
    /// returns a sentence that says what is wrong with them.
    pub fn with(
        self,
        role: Role,
        takes: Option<Flow>,
        name: &'static str,
        make: impl Fn(Value) -> Result<Built, String> + Send + Sync + 'static,
    ) -> Self {
        let decode = move |options: &Node, _: Span, diagnostics: &mut Diagnostics| match make(
            decode::<Value>(options, diagnostics)?,
        ) {
            Ok(built) => Some(built),
            Err(wrong) => {
                diagnostics.error(options.span, wrong);
                None
            }
        };
        let (schema, decode) = (inlined_schema::<Value> as fn() -> Schema, Box::new(decode));
        self.define(Definition { role, name, takes, example: "", schema, decode })
    }

    fn add<C: Component>(self, role: Role, takes: Option<Flow>, built: fn(Arc<C>) -> Built) -> Self {
        let decode = move |options: &Node, span: Span, diagnostics: &mut Diagnostics| {
            let mut wrong = diagnostics.another();
            let Some(config) = decode::<C>(options, &mut wrong) else {
                let others = beside::mistakes(options, &wrong, C::check);
                diagnostics.extend(wrong);
                report(others, options, span, diagnostics);
                return None;
            };
            report(config.check(), options, span, diagnostics);
            Some(built(Arc::new(config)))
        };
        let (schema, decode) = (inlined_schema::<C> as fn() -> Schema, Box::new(decode));
        self.define(Definition { role, name: C::NAME, takes, example: C::EXAMPLE, schema, decode })
    }

    fn define(mut self, definition: Definition) -> Self {
        self.definitions.insert((definition.role, definition.name), definition);
        self
    }

    /// Returns the component of a role and a name.
    pub fn get(&self, role: Role, name: &str) -> Option<&Definition> {
        self.definitions.iter().find(|((r, n), _)| *r == role && *n == name).map(|(_, found)| found)
    }

    /// Returns all components, by role and name.
    pub fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.definitions.values()
    }
}

/// Reports each mistake where its option is, or at `span` if the option is not in the document.
pub(crate) fn report(
    mistakes: impl IntoIterator<Item = Mistake>,
    options: &Node,
    span: Span,
    diagnostics: &mut Diagnostics,
) {
    for Mistake { option, message, help } in mistakes {
        let at = options.get(option).map_or(span, |node| node.span);
        let mistake = diagnostics.error(at, message);
        if let Some(help) = help {
            mistake.help(help);
        }
    }
}

/// Returns the JSON schema of a type, subschemas inlined.
pub(crate) fn inlined_schema<C: JsonSchema>() -> Schema {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.into_generator().into_root_schema_for::<C>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::{Context, Source};
    use thalweg_config::Document;

    struct Made;

    impl SourceConfig for Made {
        fn build(&self, _: &Context) -> Result<Box<dyn Source>, crate::Error> {
            Err(crate::Error::permanent("it is only to be read"))
        }
    }

    #[test]
    fn a_component_that_is_a_value_is_made_of_its_options_and_says_what_is_wrong_with_them() {
        let known = 7;
        let registry =
            Registry::new().with(Role::Source, None, "made", move |options| {
                match options["number"].as_i64() == Some(known) {
                    true => Ok(Built::Source(Arc::new(Made))),
                    false => Err("The number is another one.".to_owned()),
                }
            });
        let read = |text: &str| {
            let document = Document::parse("x", text).unwrap();
            let mut diagnostics = document.diagnostics();
            let (root, made) = (document.root(), registry.get(Role::Source, "made").unwrap());
            let made = made.decode(root, root.span, &mut diagnostics);
            (matches!(made, Some(Built::Source(_))), diagnostics.to_string())
        };
        assert_eq!(read("number: 7"), (true, String::new()));
        assert_eq!(read("number: 8"), (false, "x:1:1: The number is another one.".to_owned()));
        assert!(registry.get(Role::Sink, "made").is_none());
    }
}
