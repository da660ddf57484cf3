//! What components there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde_json::Value;
use thalweg_config::{Diagnostics, Node, decode};

use crate::component::{
    BuildSink, BuildSource, FileReaderConfig, FileSink, FileTransformConfig, Flow, SinkConfig, SourceConfig,
    Step, TransformConfig,
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
    /// Its name for people.
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
    Source(Arc<dyn BuildSource>),
    /// A transform.
    Transform(Step),
    /// A sink.
    Sink(Arc<dyn BuildSink>),
}

/// One kind of component: what its configuration looks like and how it is read.
pub struct Definition {
    /// Its role.
    pub role: Role,
    /// Its key in configurations.
    pub name: &'static str,
    /// What it takes; of a source, what it gives.
    pub flow: Flow,
    /// A whole configuration that shows it.
    pub example: &'static str,
    /// The JSON schema of its options, subschemas inlined.
    pub schema: fn() -> Schema,
    decode: Decode,
}

/// Makes a component of its options, as they were written.
type Decode = Box<dyn Fn(&Node, &mut Diagnostics) -> Option<Built> + Send + Sync>;

impl Definition {
    /// Reads its options; mistakes go to `diagnostics`.
    pub fn decode(&self, options: &Node, diagnostics: &mut Diagnostics) -> Option<Built> {
        (self.decode)(options, diagnostics)
    }

    /// What it does: the doc comment of its configuration struct.
    pub fn description(&self) -> String {
        let schema = (self.schema)();
        let text = schema.get("description").and_then(|text| text.as_str()).unwrap_or_default();
        text.to_owned()
    }

    /// The first sentence of [`description`](Self::description).
    pub fn summary(&self) -> String {
        let description = self.description();
        let first = description.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        match first.find(". ") {
            Some(end) => first[..=end].to_owned(),
            None => first,
        }
    }
}

/// Declares the modules of a family of components, and a function `register` that adds them to a [`Registry`].
///
/// A component is one file and one line here: its roles (the names of the registry's methods), its module and the type of
/// its configuration.
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
    /// Without any components.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source.
    pub fn source<C: SourceConfig>(self) -> Self {
        self.add(Role::Source, C::GIVES, C::NAME, C::EXAMPLE, inlined_schema::<C>, |node, diagnostics| {
            let config = thalweg_config::decode::<C>(node, diagnostics)?;
            Some(Built::Source(Arc::new(config)))
        })
    }

    /// Adds a transform.
    pub fn transform<C: TransformConfig>(self) -> Self {
        self.add(
            Role::Transform,
            Flow::Messages,
            C::NAME,
            C::EXAMPLE,
            inlined_schema::<C>,
            |node, diagnostics| {
                let config = thalweg_config::decode::<C>(node, diagnostics)?;
                Some(Built::Transform(Step::Messages(Arc::new(config))))
            },
        )
    }

    /// Adds a sink.
    pub fn sink<C: SinkConfig>(self) -> Self {
        self.add(Role::Sink, Flow::Messages, C::NAME, C::EXAMPLE, inlined_schema::<C>, |node, diagnostics| {
            let config = thalweg_config::decode::<C>(node, diagnostics)?;
            Some(Built::Sink(Arc::new(config)))
        })
    }

    /// Adds a transform of files.
    pub fn file_transform<C: FileTransformConfig>(self) -> Self {
        self.add(
            Role::Transform,
            Flow::Files,
            C::NAME,
            C::EXAMPLE,
            inlined_schema::<C>,
            |node, diagnostics| {
                let config = thalweg_config::decode::<C>(node, diagnostics)?;
                Some(Built::Transform(Step::Files(Arc::new(config))))
            },
        )
    }

    /// Adds a sink of files.
    pub fn file_sink<C: FileTransformConfig>(self) -> Self {
        self.add(Role::Sink, Flow::Files, C::NAME, C::EXAMPLE, inlined_schema::<C>, |node, diagnostics| {
            let config = thalweg_config::decode::<C>(node, diagnostics)?;
            Some(Built::Sink(Arc::new(FileSink(Arc::new(config)))))
        })
    }

    /// Adds a transform of files to messages.
    pub fn file_reader<C: FileReaderConfig>(self) -> Self {
        self.add(
            Role::Transform,
            Flow::Files,
            C::NAME,
            C::EXAMPLE,
            inlined_schema::<C>,
            |node, diagnostics| {
                let config = thalweg_config::decode::<C>(node, diagnostics)?;
                Some(Built::Transform(Step::FileReader(Arc::new(config))))
            },
        )
    }

    /// Adds a component that is a value rather than a type: one that was made while the program runs, such as a function of
    /// another language. `make` makes it of its options, of which there is no schema; what is wrong with them it says in a
    /// sentence.
    pub fn with(
        self,
        role: Role,
        flow: Flow,
        name: &'static str,
        make: impl Fn(Value) -> Result<Built, String> + Send + Sync + 'static,
    ) -> Self {
        self.add(role, flow, name, "", inlined_schema::<Value>, move |node, diagnostics| {
            match make(decode::<Value>(node, diagnostics)?) {
                Ok(built) => Some(built),
                Err(wrong) => {
                    diagnostics.error(node.span, wrong);
                    None
                }
            }
        })
    }

    fn add(
        mut self,
        role: Role,
        flow: Flow,
        name: &'static str,
        example: &'static str,
        schema: fn() -> Schema,
        decode: impl Fn(&Node, &mut Diagnostics) -> Option<Built> + Send + Sync + 'static,
    ) -> Self {
        let decode = Box::new(decode);
        let definition = Definition { role, name, flow, example, schema, decode };
        self.definitions.insert((role, name), definition);
        self
    }

    /// The component of this role and name.
    pub fn get(&self, role: Role, name: &str) -> Option<&Definition> {
        self.definitions.iter().find(|((r, n), _)| *r == role && *n == name).map(|(_, found)| found)
    }

    /// All of them, by role and name.
    pub fn iter(&self) -> impl Iterator<Item = &Definition> {
        self.definitions.values()
    }
}

pub(crate) fn inlined_schema<C: JsonSchema>() -> Schema {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.into_generator().into_root_schema_for::<C>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::{BuildSource, Context, Mistake, Source};
    use thalweg_config::Document;

    struct Made;

    impl BuildSource for Made {
        fn check(&self) -> Vec<Mistake> {
            Vec::new()
        }

        fn blocks(&self) -> bool {
            false
        }

        fn build(&self, _: &Context) -> Result<Box<dyn Source>, crate::Error> {
            Err(crate::Error::permanent("it is only to be read"))
        }
    }

    #[test]
    fn a_component_that_is_a_value_is_made_of_its_options_and_says_what_is_wrong_with_them() {
        let known = 7;
        let registry = Registry::new().with(
            Role::Source,
            Flow::Messages,
            "made",
            move |options| match options["number"].as_i64() == Some(known) {
                true => Ok(Built::Source(Arc::new(Made))),
                false => Err("The number is another one.".to_owned()),
            },
        );
        let read = |text: &str| {
            let document = Document::parse("x", text).unwrap();
            let mut diagnostics = document.diagnostics();
            let made = registry.get(Role::Source, "made").unwrap().decode(document.root(), &mut diagnostics);
            (matches!(made, Some(Built::Source(_))), diagnostics.to_string())
        };
        assert_eq!(read("number: 7"), (true, String::new()));
        assert_eq!(read("number: 8"), (false, "x:1:1: The number is another one.".to_owned()));
        assert!(registry.get(Role::Sink, "made").is_none());
    }
}
