//! Renders a template with conditions and loops.
//!
//! For texts with only fields in them, `encode: { format: text }` is many times faster. Here each message is
//! an object that the template queries; only the queried fields are looked up.

mod bounds;
mod filters;
mod golang;
mod program;

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use minijinja::machinery::get_compiled_template;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Enumerator, Object, Value};
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Component, Context, Error, KnownFields, Mistake, Outputs, Transform, TransformConfig};
use thalweg_record::{Batch, Budget, PAYLOAD, PayloadWriter};

use thalweg_codec::columns::FieldType;
use thalweg_codec::names::same;
use thalweg_codec::target::Slot;
use thalweg_codec::template::column;
use thalweg_codec::values::Values;

use program::Program;

/// The name of all fields together. Templates that were translated from gollum use it.
const WHOLE: &str = "whole_message";

/// The metadata that a template may use.
const META: [&str; 4] = ["meta.source", "meta.path", "meta.time", "meta.position"];

/// Renders a template in the notation of Jinja.
///
/// `{{ name }}` is the value of a field, `{{ payload }}` the payload, and `{{ meta.source }}` (also `path`,
/// `time`, `position`) the origin of the message. Dots in the names of fields lead into objects: the fields
/// `a.b` and `a.c` make an object `a` with the members `b` and `c`. A missing field is written as nothing.
/// `{% if %}`, `{% for %}` and filters such as `{{ name|upper }}` are available. The filters are those of
/// Jinja except `center`, `filesizeformat`, `forceescape`, `random`, `striptags`, `truncate`, `urlencode`,
/// `urlize`, `wordcount`, `wordwrap` and `xmlattr`.
///
/// A message for which the template cannot be rendered leaves by the `errors` output. Loops and widths may
/// depend on data, so this includes a message that takes more than five million steps, makes a text of more
/// than an eighth of `memory` (at least 512 KiB and at most 16 MiB, but always the size of the message), or
/// makes values of more than half of `memory` on the way (at least 2 MiB and at most 128 MiB). For texts with
/// only fields in them, `encode` is faster.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// The template, in the notation of Jinja.
    template: String,
    /// The target of the text: a field, or `payload` (the default).
    #[serde(default = "crate::payload")]
    #[schemars(length(min = 1))]
    into: String,
    /// Makes only the fields available whose names begin with this name and a dot, without that prefix. The
    /// default is all fields.
    #[serde(default)]
    #[schemars(length(min = 1))]
    root: Option<String>,
}

impl Template {
    fn environment(&self) -> Result<Environment<'static>, minijinja::Error> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Chainable);
        environment.set_syntax(SyntaxConfig::builder().keep_trailing_newline(true).build()?);
        bounds::set(&mut environment);
        filters::set(&mut environment);
        golang::set(&mut environment);
        environment.add_template_owned("template", self.template.clone())?;
        Ok(environment)
    }
}

impl Component for Template {
    const NAME: &'static str = "template";
    const EXAMPLE: &'static str = r#"
sources:
  service: { generate: { lines: ['{"user": {"name": "ann", "roles": ["a", "b"]}}'] } }
pipelines:
  main:
    from: service
    transforms:
      - parse_json: { flatten: true }
      - template:
          template: '{{ user.name|upper }}:{% for role in user.roles %} {{ role }}{% endfor %}'
    to: screen
sinks:
  screen: { stdout: {} }
"#;

    fn check(&self) -> Vec<Mistake> {
        let Err(error) = self.environment() else { return Vec::new() };
        let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        let line = error.line().map(|line| format!(", in line {line}")).unwrap_or_default();
        let message = format!("The template is wrong: {what}{line}.");
        vec![
            Mistake::new("template", message)
                .help("Values are written `{{ name }}`, and a brace itself `{{ '{' }}`."),
        ]
    }
}

impl TransformConfig for Template {
    fn fields_after(&self, before: KnownFields) -> KnownFields {
        before.with(&self.into, None)
    }

    fn build(&self, context: &Context) -> Result<Box<dyn Transform>, Error> {
        let environment = self.environment().map_err(|error| Error::permanent(error.to_string()))?;
        let template = environment.get_template("template");
        let template = template.map_err(|error| Error::permanent(error.to_string()))?;
        let used = program::names(get_compiled_template(&template));
        Ok(Box::new(Templater {
            environment,
            used,
            root: self.root.clone(),
            slot: Slot::new(&self.into, FieldType::Text),
            known: None,
            waiting: VecDeque::new(),
            piece_bytes: context.batch_bytes,
            budget: context.memory.budget().clone(),
        }))
    }
}

struct Templater {
    environment: Environment<'static>,
    /// The first parts of the names that the template uses.
    used: HashSet<String>,
    root: Option<String>,
    slot: Slot,
    /// The schema of the previous batch, the columns it needs, and the tree of their names.
    known: Option<(SchemaRef, Vec<String>, Arc<Tree>)>,
    /// Messages that are not rendered yet. Texts can be far larger than their messages, so they leave in
    /// pieces.
    waiting: VecDeque<Batch>,
    /// A piece with texts of this size has no further one.
    piece_bytes: usize,
    /// The values that are made of a message count on it.
    budget: Budget,
}

impl Templater {
    fn tree(&mut self, batch: &Batch) -> (Vec<String>, Arc<Tree>) {
        let schema = batch.fields().schema_ref();
        if let Some((known, names, tree)) = &self.known
            && same(known, schema)
        {
            return (names.clone(), tree.clone());
        }
        let fields = schema.fields().iter().map(|field| field.name().clone());
        let root = self.root.as_ref().map(|root| format!("{root}."));
        let below = |name: String| match &root {
            None => Some((name.clone(), name)),
            Some(root) => Some((name.strip_prefix(root.as_str())?.to_owned(), name)),
        };
        // A later name overwrites an earlier one: fields hide the payload, and metadata hides fields.
        let itself = |name: &str| (name.to_owned(), name.to_owned());
        let is_used = |name: &str| self.used.contains(name.split('.').next().unwrap_or(name));
        let is_whole = self.used.contains(WHOLE);
        let payload = Some(PAYLOAD).filter(|name| is_used(name)).map(itself);
        let fields = fields.filter_map(below).filter(|(name, _)| is_whole || is_used(name));
        let metadata = META.into_iter().filter(|name| is_used(name)).map(itself);
        let all = payload.into_iter().chain(fields).chain(metadata);
        let mut tree = Tree::default();
        let mut names = Vec::new();
        for (name, column) in all {
            let mut node = &mut tree;
            for part in name.splitn(64, '.') {
                node = node.member(part);
            }
            node.column = Some(names.len());
            names.push(column);
        }
        let tree = Arc::new(tree);
        self.known = Some((schema.clone(), names.clone(), tree.clone()));
        (names, tree)
    }

    /// Renders the first messages, and keeps the others for later if the texts are long.
    fn render(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        let (names, tree) = self.tree(&batch);
        let columns: Arc<[Values]> = names.iter().map(|name| column(&batch, name)).collect();
        let template = self.environment.get_template("template");
        let template = template.map_err(|error| Error::permanent(error.to_string()))?;
        let program = Program::new(get_compiled_template(&template));
        let mut written = PayloadWriter::with_capacity(batch.rows() * 64, batch.rows());
        let mut failed = Vec::new();
        let mut text = String::new();
        let mut rows = 0;
        while rows < batch.rows() && written.buffer().len() < self.piece_bytes {
            let message = Message { columns: columns.clone(), tree: tree.clone(), row: rows };
            text.clear();
            let _rendering = bounds::begin(&self.budget, batch.payload().value(rows).len());
            let rendered = program.render(&self.environment, Value::from_object(message), &mut text);
            match rendered.map_err(|error| reason(&error)).and_then(|()| bounds::fits(&text)) {
                Ok(()) => written.buffer().extend_from_slice(text.as_bytes()),
                Err(why) => failed.push((rows as u32, format!("the template cannot be rendered: {why}"))),
            }
            written.end();
            text.shrink_to(KEPT);
            rows += 1;
        }
        let batch = self.keep_from(rows, batch);
        Ok(self.slot.put(batch, written.finish(), failed, out)?)
    }

    /// Keeps the messages from this row on for later. Returns those before it.
    fn keep_from(&mut self, row: usize, batch: Batch) -> Batch {
        if row == batch.rows() {
            return batch;
        }
        self.waiting.push_front(batch.share().slice(row, batch.rows() - row));
        batch.slice(0, row)
    }
}

impl Transform for Templater {
    fn apply(&mut self, batch: Batch, out: &mut Outputs) -> Result<(), Error> {
        self.waiting.push_back(batch);
        self.resume(out)
    }

    fn resume(&mut self, out: &mut Outputs) -> Result<(), Error> {
        if let Some(batch) = self.waiting.pop_front() {
            self.render(batch, out)?;
        }
        if !self.waiting.is_empty() {
            out.hold(Duration::ZERO);
        }
        Ok(())
    }
}

/// The memory for texts that is kept from one message to the next, in bytes.
const KEPT: usize = 64 << 10;

/// Returns why a template failed, with the bound if it was one.
fn reason(error: &minijinja::Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => "it takes more than 5 million steps".to_owned(),
        _ => error.to_string(),
    }
}

/// A tree of names.
#[derive(Default)]
struct Tree {
    column: Option<usize>,
    members: Vec<(Box<str>, Arc<Tree>)>,
}

impl Tree {
    fn member(&mut self, name: &str) -> &mut Tree {
        let at = self.members.iter().position(|(known, _)| **known == *name).unwrap_or_else(|| {
            self.members.push((name.into(), Arc::default()));
            self.members.len() - 1
        });
        // The tree is not shared while it is built, so this does not copy.
        Arc::make_mut(&mut self.members[at].1)
    }
}

impl Clone for Tree {
    fn clone(&self) -> Self {
        Self { column: self.column, members: self.members.clone() }
    }
}

/// A message, or an object in it, as the template sees it.
struct Message {
    columns: Arc<[Values]>,
    tree: Arc<Tree>,
    row: usize,
}

impl Message {
    fn value(&self, tree: &Arc<Tree>) -> Option<Value> {
        let column = tree.column.and_then(|column| self.columns.get(column));
        if let Some(column) = column.filter(|column| !column.is_null(self.row)) {
            // A value is copied each time that the template names it.
            return Some(match bounds::count(column.template_size(self.row)) {
                Ok(()) => column.template_value(self.row),
                Err(error) => Value::from(error),
            });
        }
        let inner = Message { columns: self.columns.clone(), tree: tree.clone(), row: self.row };
        inner.has_members().then(|| Value::from_object(inner))
    }

    /// True if any member has a value.
    fn has_members(&self) -> bool {
        self.tree.members.iter().any(|(_, member)| self.is_there(member))
    }

    fn is_there(&self, tree: &Tree) -> bool {
        let column = tree.column.and_then(|column| self.columns.get(column));
        column.is_some_and(|column| !column.is_null(self.row))
            || tree.members.iter().any(|(_, member)| self.is_there(member))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("message")
    }
}

impl Object for Message {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let key = key.as_str()?;
        if key == WHOLE {
            let Self { columns, tree, row } = &**self;
            return Some(Value::from_object(Self {
                columns: columns.clone(),
                tree: tree.clone(),
                row: *row,
            }));
        }
        let (_, member) = self.tree.members.iter().find(|(name, _)| **name == *key)?;
        self.value(member)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let members = self.tree.members.iter().filter(|(_, member)| self.is_there(member));
        Enumerator::Values(members.map(|(name, _)| Value::from(&**name)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use thalweg_engine::{Output, testing};
    use thalweg_record::Outcome;

    use crate::parse_json::ParseJsonConfig;

    #[test]
    fn it_conforms() {
        for yaml in ["template: '{{ payload }}!'", "{template: 'x', into: a}", "template: '{{ 1 / 0 }}'"] {
            testing::transform_conforms::<Template>(yaml, &["a", "", "b"]);
        }
    }

    fn rendered(options: &str, lines: &[&str]) -> Vec<String> {
        let parsed = testing::apply::<ParseJsonConfig>("flatten: true", [testing::batch(lines)]);
        let given = testing::apply::<Template>(options, parsed.outputs.into_values().flatten());
        assert_eq!(given.errors(), []);
        given.payloads(Output::Main)
    }

    #[test]
    fn fields_are_seen_as_objects() {
        let lines = [
            r#"{"a":{"b":1,"c":{"d":"<&>"}},"e":[1,{"f":2.5}],"t":true,"n":null}"#,
            r#"{"a":"text","t":false}"#,
        ];
        let one = |template: &str| rendered(&format!("template: \"{template}\""), &lines);
        assert_eq!(one("{{ a.b }} {{ a.c.d }}|{{ n }}{{ none.of.this }}"), ["1 <&>|", " |"]);
        assert_eq!(one("{% for x in e %}[{{ x }}]{% endfor %}{{ e[1].f }}")[0], "[1][{'f': 2.5}]2.5");
        assert_eq!(one("{% if t %}yes{% else %}no: {{ a|upper }}{% endif %}\\n"), ["yes\n", "no: TEXT\n"]);
        assert_eq!(
            one("{{ a }}{% for key in a.c %} {{ key }}{% endfor %}"),
            ["{'b': 1, 'c': {'d': '<&>'}} d", "text"]
        );
        assert_eq!(one("{{ meta.source }} {{ meta.time }}")[1], "test 2023-11-14T22:13:20Z");
        let forged = [r#"{"meta":{"source":"forged","x":1}}"#, r#"{"root":{"meta":{"source":"forged"}}}"#];
        assert_eq!(rendered("template: '{{ meta.source }} {{ meta.x }}'", &forged), ["test 1", "test "]);
        assert_eq!(rendered("{ template: '{{ meta.source }}', root: root }", &forged), ["test", "test"]);
        assert_eq!(one("{{ payload }}")[1], lines[1]);
        assert_eq!(rendered("{template: '{{ b }}{{ c.d }}', root: a}", &lines), ["1<&>", ""]);
    }

    #[test]
    fn the_text_goes_into_a_field_and_failures_to_errors() {
        let batch = || testing::batch(["1", "x"]);
        let given = testing::apply::<Template>("{template: '<{{ payload }}>', into: a}", [batch()]);
        assert_eq!(given.main(), [json!({"a": "<1>"}), json!({"a": "<x>"})]);
        let given = testing::apply::<Template>("template: '{{ 1 // (payload|int) }}'", [batch()]);
        assert_eq!(given.payloads(Output::Main), ["1"]);
        assert!(given.errors()[0].1.starts_with("the template cannot be rendered: "), "{:?}", given.errors());
    }

    #[test]
    fn long_texts_leave_in_pieces() {
        let context = testing::context();
        let options = testing::options::<Template>("template: \"{{ payload ~ 'x' * 1000000 }}\"");
        let mut template = options.build(&context).unwrap();
        let mut out = Outputs::new("test".into());
        template.apply(testing::batch(["a", "b", "c", "d", "e"]), &mut out).unwrap();
        let (mut rows, mut first) = (Vec::new(), String::new());
        loop {
            for (_, batch) in out.take() {
                rows.push(batch.rows());
                first.extend(testing::payloads(&batch).iter().map(|text| &text[..1]));
                batch.settle(Outcome::Delivered);
            }
            if out.take_held().is_none() {
                break;
            }
            template.resume(&mut out).unwrap();
        }
        assert_eq!((rows, first.as_str()), (vec![2, 2, 1], "abcde"));
    }

    #[test]
    fn what_takes_too_long_or_is_too_large_is_an_error_of_its_message() {
        let lines = [r#"{"n": 2000000000, "l": [1,2,3]}"#, r#"{"n": 3, "l": [1,2,3]}"#];
        let given = |template: &str| {
            let parsed = testing::apply::<ParseJsonConfig>("{}", [testing::batch(lines)]);
            let options = serde_json::to_string(&json!({ "template": template })).unwrap();
            testing::apply::<Template>(&options, parsed.outputs.into_values().flatten())
        };
        for (template, expected) in [
            ("{{ 'a\nb'|indent(n) }}", "a\n   b"),
            ("{{ 'a\nb'|indent(width=n, first=true) }}", "   a\n   b"),
            ("{{ ('%' ~ n ~ 'd')|format(7) }}", "  7"),
            ("{{ l|slice(n)|length }}", "3"),
            ("{{ l|batch(n, 0)|length }}", "1"),
            ("{{ 'x' * n }}", "xxx"),
            ("{% for i in range(n) %}{{ i }}{% endfor %}", "012"),
            ("{% for i in [0] * n %}.{% endfor %}", "..."),
        ] {
            let given = given(template);
            assert_eq!(given.payloads(Output::Errors), [lines[0]], "{template}: {:?}", given.errors());
            assert_eq!(given.payloads(Output::Main), [expected], "{template}");
        }
        let slow = given("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
        assert_eq!(slow.errors()[1].1, "the template cannot be rendered: it takes more than 5 million steps");
        let long = given("{% for i in range(20) %}{{ 'x' * 1000000 }}{% endfor %}");
        assert_eq!(long.errors()[1].1, "the template cannot be rendered: the text has more than 16 MiB");
        assert_eq!(long.errors().len(), 2);
        let replaced = given("{{ ('x' * 100000)|replace('x', 'y' * 1000) }}");
        assert_eq!(replaced.errors().len(), 2);
    }

    #[test]
    fn values_on_the_way_are_bounded_too() {
        let text = "a text has more than 16 MiB";
        let all = "its values take more than 128 MiB";
        let list = "a list has more than a million items";
        let grown = |value: &str, step: &str| {
            format!(
                "{{% set s = namespace(x={value}) %}}{{% for i in range(n) %}}{{% set s.x = {step} %}}{{% endfor %}}"
            )
        };
        for (template, why) in [
            (grown("'x'", "s.x ~ s.x"), text),
            (grown("'x'", "s.x + s.x"), text),
            (grown("'x'", "s.x * 2"), text),
            (grown("'x'", "s.x|tojson|tojson"), text),
            (grown("[1]", "s.x + s.x"), list),
            (grown("[1]", "s.x * 2"), list),
            (grown("[]", "s.x + [i|string ~ 'x' * n * n * n]"), all),
            (grown("[]", "s.x + [('x' * n * n * n)[1:]]"), all),
            ("{{ ([0] * n * n * 20)|slice(n * n * 20)|length }}".to_owned(), all),
            ("{{ ([0] * n * n * 20)|batch(1)|length }}".to_owned(), all),
            ("{{ ([0] * n * n * 20)|zip([0])|length }}".to_owned(), all),
            ("{{ ([0] * n * n * 20)|groupby('x')|length }}".to_owned(), all),
            (grown("[]", "[s.x]"), "lists are nested more than 64 deep"),
            ("{% for c in ['x'] recursive %}{{ loop([c ~ c]) }}{% endfor %}".to_owned(), text),
            ("{{ ('x' * n * n * n * n)|length }}".to_owned(), text),
            ("{{ ([payload] * n * n)|join(payload * n * n)|length }}".to_owned(), text),
            ("{{ ([0] * n * n * n * n)|list|length }}".to_owned(), list),
            ("{{ ((0,) * (n * n * n * n))|length }}".to_owned(), list),
            ("{{ ('x' * n * n * n)|list|length }}".to_owned(), list),
            (
                "{% set x = 'x' * n * n %}{% for i in range(n) %}{% set y %}{% for j in range(n) %}\
                 {{ x }}{{ x }}{{ x }}{% endfor %}{% endset %}{% endfor %}"
                    .to_owned(),
                all,
            ),
        ] {
            let lines = [r#"{"n": 200}"#, r#"{"n": 1}"#];
            let parsed = testing::apply::<ParseJsonConfig>("{}", [testing::batch(lines)]);
            let options = serde_json::to_string(&json!({ "template": template })).unwrap();
            let given = testing::apply::<Template>(&options, parsed.outputs.into_values().flatten());
            let errors = given.errors();
            let first = errors.first().unwrap_or_else(|| panic!("{template} passes"));
            assert!(first.0 == lines[0] && first.1.contains(why), "{template}: {errors:?}");
        }
    }

    #[test]
    fn bounded_templates_are_rendered_as_the_library_renders_them() {
        let line = r#"{"a":"x","l":[3,1,2],"n":2,"o":{"k":[1,{"m":"v"}]}}"#;
        for (template, expected) in [
            (
                "{{ a ~ n ~ l }}|{{ n * 3 }}|{{ n * 1.5 }}|{{ a * 3 }}|{{ [a] * 2 }}|{{ 2 * a }}",
                "x2[3, 1, 2]|6|3.0|xxx|['x', 'x']|xx",
            ),
            (
                "{{ n + 1 }} {{ a + a }} {{ l + [4] }} {{ (1,) + (2,) }} {{ (1, 2) * 2 }}",
                "3 xx [3, 1, 2, 4] (1, 2) (1, 2, 1, 2)",
            ),
            (
                "{{ l[1:] }}{{ a[:1] }}{{ l|sort|join('-') }}{{ l|sum }}{{ l|reverse }}",
                "[1, 2]x1-2-36[2, 1, 3]",
            ),
            (
                "{% for x in l %}{% if not loop.first %}, {% endif %}{{ loop.index }}={{ x }}{% else %}none{% endfor %}",
                "1=3, 2=1, 3=2",
            ),
            ("{% for x in [] %}{{ x }}{% else %}none{% endfor %}", "none"),
            (
                "{% for x in l if x > 1 %}{{ x }}{% if x == 3 %}!{% elif x == 2 %}?{% endif %}{% endfor %}",
                "3!2?",
            ),
            (
                "{{ 1 < n < 3 }} {{ 1 < n < 2 }} {{ 'k' in o }} {{ 9 not in l }} {{ a in 'xyz' }} {{ a is in(['x']) }}",
                "True False True True True True",
            ),
            ("{{ n == 2 and a or 'no' }}{{ none_there or 'else' }}{{ 'y' if n > 5 else 'z' }}", "xelsez"),
            (
                "{% set ns = namespace(t=0) %}{% for x in l %}{% set ns.t = ns.t + x %}{% endfor %}{{ ns.t }}",
                "6",
            ),
            (
                "{% for i in o.k recursive %}{{ i.m }}{% if i is sequence %}{{ loop(i) }}{% endif %}{% endfor %}",
                "v",
            ),
            ("{% set x %}a{{ a }}{% endset %}{{ x|upper }}{% filter upper %}q{{ a }}{% endfilter %}", "AXQX"),
            (
                "{{ {'a': l, 'b': [1, [2]]}|tojson }}{{ o|items|length }}{{ '%s-%03d'|format(a, n) }}",
                r#"{"a": [3, 1, 2], "b": [1, [2]]}1x-002"#,
            ),
            (
                "{{ l|map('string')|join }} {{ l|select('odd')|join }} {{ 'a,b'|split(',')|join('-') }} {{ l|batch(2)|length }}",
                "312 31 a-b 2",
            ),
            (
                "{% with q = a ~ 1 %}{{ q }}{% endwith %}{% autoescape true %}{{ '<' ~ a }}{% endautoescape %}",
                "x1&lt;x",
            ),
        ] {
            let options = serde_json::to_string(&json!({ "template": template })).unwrap();
            assert_eq!(rendered(&options, &[line]), [expected], "{template}");
        }
    }

    #[test]
    fn a_wrong_template_is_a_mistake() {
        let mistakes = |yaml: &str| testing::options::<Template>(yaml).check();
        let mistake = &mistakes("template: '{{ a'")[0].message;
        assert!(
            mistake.starts_with("The template is wrong: ") && mistake.ends_with("in line 1."),
            "{mistake}"
        );
        assert!(mistakes("template: '{{ a }}'").is_empty());
    }
}
