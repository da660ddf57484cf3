use proptest::prelude::*;
use serde_json::{Map, Value, json};
use thalweg_engine::testing;

use super::ParseXml;
use crate::testing::{no_line_is_lost, written};

fn parsed(yaml: &str, documents: &[&str]) -> testing::Given {
    testing::apply::<ParseXml>(yaml, [testing::batch(documents)])
}

fn one(yaml: &str, document: &str) -> Value {
    let given = parsed(yaml, &[document]);
    assert_eq!(given.reasons(), [""; 0]);
    written(given).swap_remove(0)
}

#[test]
fn it_conforms() {
    testing::transform_conforms::<ParseXml>(
        "{}",
        &["<a b='1'><c>x</c></a>", "", "<a>", "x", "<a/>", "<a>x</a>"],
    );
}

/// The example of a book store that w3schools and the documentation of Vector's `parse_xml` use.
const BOOK: &str = r#"<?xml version="1.0" encoding="ISO-8859-1" ?>
<book category="CHILDREN">
    <title lang="en">Harry Potter</title>
    <author>J K. Rowling</author>
    <year>2005</year>
</book>"#;

#[test]
fn children_and_attributes_of_the_root_are_fields() {
    assert_eq!(
        one("types: { year: int }", BOOK),
        json!({"@category": "CHILDREN", "title": {"@lang": "en", "text": "Harry Potter"},
            "author": "J K. Rowling", "year": 2005})
    );
    assert_eq!(
        one("{ keep_root: true, flatten: true, infer_types: true }", BOOK),
        json!({"book.@category": "CHILDREN", "book.title.@lang": "en", "book.title.text": "Harry Potter",
            "book.author": "J K. Rowling", "book.year": 2005})
    );
    assert_eq!(
        one("{ attributes: false, text_key: content }", BOOK),
        json!({"title": "Harry Potter", "author": "J K. Rowling", "year": "2005"})
    );
    assert_eq!(one("attribute_prefix: ''", "<a b='1'><b>2</b></a>"), json!({"b": ["1", "2"]}));
}

#[test]
fn repeated_elements_are_lists_wherever_they_are() {
    let document = "<a><b>1</b><c/><b x='y'>2</b><d><b>3</b></d><b/></a>";
    assert_eq!(one("{}", document), json!({"b": ["1", {"@x": "y", "text": "2"}, null], "d": {"b": "3"}}));
    assert_eq!(one("lists: [c, d]", document)["d"], json!([{"b": "3"}]));
    assert_eq!(one("lists: '*'", document)["d"], json!([{"b": ["3"]}]));
    assert_eq!(one("lists: '*'", document)["c"], json!([null]));
    assert_eq!(one("{ lists: '*', keep_root: true }", "<a><b>1</b></a>"), json!({"a": {"b": ["1"]}}));
}

#[test]
fn text_is_joined_between_elements_and_trimmed() {
    let document =
        "<a> one &lt;<![CDATA[<b> & ]]>&#x26;<!-- no --><?no no?> two\r\n<b> <![CDATA[ ]]> </b>three</a>";
    assert_eq!(one("{}", document), json!({"text": ["one <<b> & & two", "three"]}));
    assert_eq!(one("{}", "<a>&#80;x<b/></a>"), json!({"text": "Px"}));
    assert_eq!(one("{}", "<a b='&quot;\n&#10;&apos;'/>"), json!({"@b": "\" \n'"}));
    assert_eq!(one("{}", "\u{feff}<a>x</a>\n"), json!({"text": "x"}));
}

#[test]
fn types_are_inferred_of_what_is_json() {
    assert_eq!(
        one(
            "infer_types: true",
            "<a><b>1</b><b>-2.5</b><b>007</b><b>+1</b><b>true</b><b>True</b><b>NaN</b><b>1 2</b></a>"
        ),
        json!({"b": [1, -2.5, "007", "+1", true, "True", "NaN", "1 2"]})
    );
    // More digits than any number type has.
    assert_eq!(
        parsed("infer_types: true", &["<a n='123456789012345678901'/>"]).main(),
        [json!({"@n": "123456789012345678901"})]
    );
}

/// A message of SOAP 1.2, from section 1.4 of its first part.
#[test]
fn namespaces_are_prefixes_unless_they_are_removed() {
    let document = r#"<env:Envelope xmlns:env="http://www.w3.org/2003/05/soap-envelope">
 <env:Header>
  <n:alertcontrol xmlns:n="http://example.org/alertcontrol">
   <n:priority>1</n:priority>
   <n:expires>2001-06-22T14:00:00-05:00</n:expires>
  </n:alertcontrol>
 </env:Header>
 <env:Body>
  <m:alert xmlns:m="http://example.org/alert">
   <m:msg>Pick up Mary at school at 2pm</m:msg>
  </m:alert>
 </env:Body>
</env:Envelope>"#;
    assert_eq!(
        one("{ remove_namespaces: true, flatten: true }", document),
        json!({"Header.alertcontrol.priority": "1", "Header.alertcontrol.expires": "2001-06-22T14:00:00-05:00",
            "Body.alert.msg": "Pick up Mary at school at 2pm"})
    );
    let kept = one("{}", document);
    assert_eq!(kept["@xmlns:env"], json!("http://www.w3.org/2003/05/soap-envelope"));
    assert_eq!(kept["env:Body"]["m:alert"]["m:msg"], json!("Pick up Mary at school at 2pm"));
    // Different names that become one.
    assert_eq!(one("remove_namespaces: true", "<a x:b='1' y:b='2'/>"), json!({"@b": ["1", "2"]}));
}

#[test]
fn no_entity_is_expanded_and_nothing_is_loaded() {
    let bomb = r#"<!DOCTYPE a [<!ENTITY b "xxxxxxxx"><!ENTITY c "&b;&b;&b;">]><a>&c;</a>"#;
    let file = r#"<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>"#;
    let given = parsed("{}", &[bomb, file, "<a b='&c;'/>", "<!DOCTYPE a SYSTEM 'http://x/a.dtd'><a>1</a>"]);
    assert_eq!(given.main(), [json!({"text": "1"})]);
    assert_eq!(
        given.reasons(),
        [
            "is not XML, at byte 63: the entity `&c;` is unknown",
            "is not XML, at byte 57: the entity `&b;` is unknown",
            "is not XML, at byte 0: at 1..2: unrecognized entity `c`",
        ]
    );
}

#[test]
fn what_is_not_well_formed_says_where() {
    let deep = format!("{}{}", "<a>".repeat(61), "</a>".repeat(61));
    let given = parsed(
        "{}",
        &[
            "",
            "x",
            "<a>",
            "<a></b>",
            "<a/><b/>",
            "<a b='1' b='2'/>",
            "<a b/>",
            "<a>&</a>",
            "<a>x</a>y",
            "</a>",
            &deep,
        ],
    );
    assert_eq!(
        given.reasons(),
        [
            "is not XML: there is no element",
            "is not XML, at byte 0: there is text outside of the root element",
            "is not XML: the element `a` is not closed",
            "is not XML, at byte 3: ill-formed document: expected `</a>`, but `</b>` was found",
            "is not XML, at byte 4: there is a second root element",
            "is not XML, at byte 0: the attribute `b` occurs twice",
            "is not XML, at byte 0: position 3: attribute key must be directly followed by `=` or space",
            "is not XML, at byte 3: ill-formed document: entity or character reference not closed: `;` not found \
             before end of input",
            "is not XML, at byte 8: there is text outside of the root element",
            "is not XML, at byte 0: ill-formed document: close tag `</a>` does not match any open tag",
            "is not XML, at byte 180: elements are nested deeper than 60 levels",
        ]
    );
}

/// The library accepts these documents.
#[test]
fn what_only_looks_like_xml_leaves_by_errors() {
    let reference = "the character U+0001 may not occur, also as a reference";
    let doctype = "a document type is written `<!DOCTYPE`, once, before the root element";
    let outside = "there is text outside of the root element";
    for (document, at, reason) in [
        ("<a<b/>", 0, "`a<b` is not a name"),
        ("<r><1a/></r>", 3, "`1a` is not a name"),
        ("<>", 0, "`` is not a name"),
        ("<a @x='1'/>", 0, "`@x` is not a name"),
        ("<r><item sku='1'qty='2'/></r>", 3, "no blank follows the attribute `sku`"),
        ("<r><p x='1></p><q y='2/></r>", 3, "the value of the attribute `x` contains `<`"),
        ("<a>]]></a>", 3, "there is `]]>` in a text"),
        ("<a>\u{1}</a>", 3, "the character U+0001 may not occur"),
        ("<a>\u{ffff}</a>", 3, "the character U+FFFF may not occur"),
        ("<a>&#1;</a>", 3, reference),
        ("<a b='&#x1;'/>", 0, reference),
        ("<a/><!DOCTYPE a>", 4, doctype),
        ("<!DOCTYPE a><!DOCTYPE a><a/>", 12, doctype),
        ("<!doctype a><a/>", 0, doctype),
        ("<a><?xml version='1.0'?></a>", 3, "the declaration is not at the beginning"),
        ("<a><?XML x?></a>", 3, "`XML` is not the name of an instruction"),
        ("<a><?1 x?></a>", 3, "`1` is not a name"),
        ("<a/>&#32;", 4, outside),
        ("<a/><![CDATA[]]>", 4, outside),
        ("<a><!-- -- --></a>", 3, "there is `--` in a comment"),
        ("<a><!-- a---></a>", 3, "there is `--` in a comment"),
    ] {
        let expected = format!("is not XML, at byte {at}: {reason}");
        for options in ["{}", "attributes: false", "remove_namespaces: true"] {
            assert_eq!(parsed(options, &[document]).reasons(), [expected.as_str()], "{document}");
        }
    }
    for options in ["attributes: false", "remove_namespaces: true"] {
        let given = parsed(options, &["<a b='1' c='2' b='1'/>"]);
        assert_eq!(given.reasons(), ["is not XML, at byte 0: the attribute `b` occurs twice"]);
    }
}

#[test]
fn what_is_rare_in_xml_is_read() {
    let document = "\u{feff}<?xml version='1.0'?>\n<!DOCTYPE é:a><é:a x = '1'\n y='>' >]]&gt; ]] ></é:a\n><!-- a-b --><?p?> ";
    assert_eq!(one("{}", document), json!({"@x": "1", "@y": ">", "text": "]]> ]] >"}));
}

#[test]
fn elements_may_be_as_deep_as_json_is_read() {
    let deep = format!("{}x{}", "<a>".repeat(60), "</a>".repeat(60));
    let mut value = &one("lists: '*'", &deep)["a"];
    let mut depth = 1;
    while let Some(inner) = value[0].get("a") {
        (value, depth) = (inner, depth + 1);
    }
    assert_eq!((depth, value), (59, &json!(["x"])));
}

#[test]
fn fields_that_are_too_many_leave_by_errors() {
    let given =
        parsed("max_fields: 2", &["<a><b>1</b><c>2</c></a>", "<a><d>3</d></a>", "<a>", "<a><c>4</c></a>"]);
    assert_eq!(given.main(), [json!({"b": "1", "c": "2"}), json!({"c": "4"})]);
    assert_eq!(given.reasons().len(), 2);
}

/// A document as a model: elements with a name, attributes and parts, which are texts or elements.
#[derive(Debug, Clone)]
enum Part {
    Text(String),
    Element(&'static str, Vec<(&'static str, String)>, Vec<Part>),
}

fn part() -> impl Strategy<Value = Part> {
    let name = || prop::sample::select(vec!["a", "b", "n:c"]);
    let text = "[a-z<>&\"' é\n]{0,6}";
    let attributes = prop::collection::btree_map(prop::sample::select(vec!["x", "y"]), text, 0..3);
    text.prop_map(Part::Text).prop_recursive(5, 40, 5, move |inner| {
        let parts = prop::collection::vec(inner, 0..5);
        (name(), attributes.clone(), parts).prop_map(|(name, attributes, parts)| {
            Part::Element(name, attributes.into_iter().collect(), parts)
        })
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&#34;").replace('\n', "&#xA;")
}

impl Part {
    fn written(&self) -> String {
        let Part::Element(name, attributes, parts) = self else {
            let Part::Text(text) = self else { return String::new() };
            return escaped(text);
        };
        let attributes: String =
            attributes.iter().map(|(name, value)| format!(" {name}=\"{}\"", escaped(value))).collect();
        let parts: String = parts.iter().map(Part::written).collect();
        format!("<{name}{attributes}>{parts}</{name}>")
    }

    /// Returns the value of an element.
    fn value(&self) -> Value {
        let Part::Element(_, attributes, parts) = self else { return Value::Null };
        let mut members: Vec<(String, Value)> =
            attributes.iter().map(|(name, value)| (format!("@{name}"), json!(value))).collect();
        let mut text = String::new();
        for part in parts.iter().map(Some).chain([None]) {
            match part {
                Some(Part::Text(piece)) => text.push_str(piece),
                other => {
                    let piece = std::mem::take(&mut text);
                    if !piece.trim_ascii().is_empty() {
                        members.push(("text".to_owned(), json!(piece.trim_ascii())));
                    }
                    if let Some(element @ Part::Element(name, ..)) = other {
                        members.push(((*name).to_owned(), element.value()));
                    }
                }
            }
        }
        match members.as_slice() {
            [] => Value::Null,
            [(name, text)] if name == "text" => text.clone(),
            _ => grouped(members),
        }
    }
}

fn grouped(members: Vec<(String, Value)>) -> Value {
    let mut lists: Map<String, Value> = Map::new();
    for (name, value) in members {
        match lists.entry(name).or_insert_with(|| json!([])) {
            Value::Array(list) => list.push(value),
            _ => unreachable!("only lists are inserted"),
        }
    }
    let single = |(name, list): (String, Value)| match list.as_array().map(Vec::as_slice) {
        Some([value]) => (name, value.clone()),
        _ => (name, list),
    };
    lists.into_iter().map(single).collect::<Map<_, _>>().into()
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(parts in prop::collection::vec(part(), 0..4)) {
        let inner = Part::Element("b", Vec::new(), parts);
        let document = format!("<r>{}</r>", inner.written());
        let mut expected = json!({"b": inner.value()});
        if expected["b"] == Value::Null {
            expected = json!({});
        }
        prop_assert_eq!(one("{}", &document), expected);
    }

    #[test]
    fn every_document_leaves(
        documents in prop::collection::vec("(<a>|</a>|<b x='1'>|<b/>|&lt;|<!--|-->|<!\\[CDATA\\[|\\]\\]>|x|<|>|&|=| ){0,12}", 1..20),
    ) {
        no_line_is_lost::<ParseXml>("{}", &documents)?;
    }
}
