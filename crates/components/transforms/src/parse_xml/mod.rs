//! Parses XML documents: [`document`] finds the elements, and writes them as a JSON object.
//!
//! XML has no lists and no types, so each mapping to fields decides what is a list and what is a number. This
//! one follows what users of other systems know: attributes with a prefix, text beside them under a key of
//! its own, and repeated elements as a list.

mod document;
mod rules;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_codec::json_columns::Wanted;
use thalweg_config::List;
use thalweg_engine::Component;

use crate::objects::{ObjectOptions, object_transform};
use document::Document;

/// Parses XML: one document in each message.
///
/// Each child of the root element becomes a field, and so does each attribute of the root, as `@name`. An
/// element with text alone is that text, without the blanks around it, and an empty element is NULL. An
/// element with attributes or elements in it is a JSON object: `<a b="1">x<c>y</c></a>` is `{"@b": "1", "c":
/// "y", "text": "x"}`. An element that occurs several times is a JSON list of its values. `flatten: true`
/// makes fields of the members of objects. A root element with text alone has the field `text`.
///
/// Values are text, unless `infer_types` or `types` gives another type. CDATA sections are text. Comments and
/// processing instructions are skipped. The entities that XML predefines and references of characters are
/// replaced. A document type is skipped: entities that it declares are unknown, and nothing is ever loaded. A
/// message leaves by the `errors` output if it is not well-formed, has an unknown entity, or nests elements
/// deeper than 60 levels. The format is described at <https://www.w3.org/TR/xml/> and
/// <https://www.w3.org/TR/xml-names/>.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ParseXml {
    /// The text before the name of an attribute. The default is `@`.
    attribute_prefix: String,
    /// False to leave out all attributes. The default is `true`.
    attributes: bool,
    /// The name of the text of an element that has attributes or elements as well. The default is `text`.
    /// Text in several pieces, with elements between them, is a list.
    #[schemars(length(min = 1))]
    text_key: String,
    /// The names of elements that are lists even if they occur once, or `"*"` for all elements but the root.
    lists: List<String>,
    /// True to make numbers of texts that are numbers as JSON writes them, and booleans of `true` and
    /// `false`. A number with a zero in front, such as `007`, stays text. The default is `false`.
    infer_types: bool,
    /// True to remove the prefixes of namespaces: `<soap:Body>` is `Body`. Declarations of namespaces
    /// (`xmlns`) are then left out. The default is `false`.
    remove_namespaces: bool,
    /// True to keep the root element, as the only field. The default is `false`.
    keep_root: bool,
    /// True to make fields of the members of nested objects, called `outer.inner`. Lists stay JSON. The
    /// default is `false`.
    flatten: bool,
    #[serde(flatten)]
    options: ObjectOptions,
}

impl Default for ParseXml {
    fn default() -> Self {
        Self {
            attribute_prefix: "@".to_owned(),
            attributes: true,
            text_key: "text".to_owned(),
            lists: List::default(),
            infer_types: false,
            remove_namespaces: false,
            keep_root: false,
            flatten: false,
            options: ObjectOptions::default(),
        }
    }
}

impl Component for ParseXml {
    const NAME: &'static str = "parse_xml";
    const EXAMPLE: &'static str = r#"
sources:
  orders:
    generate:
      message: '<order id="%4d"><item sku="b7">Nails</item><item sku="c2">Glue</item><paid>true</paid></order>'
      count: 3
pipelines:
  main:
    from: orders
    transforms:
      - parse_xml: { attribute_prefix: "", types: { id: int, paid: bool } }
    to: screen
sinks:
  screen: { stdout: { encode: json } }
"#;
}

impl ParseXml {
    fn syntax(&self) -> (Document, Wanted) {
        (Document::new(self), Wanted { flatten: self.flatten, ..self.options.wanted([]) })
    }
}

object_transform!(ParseXml);
