mod changes;

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use thalweg_codec::compress::Compression;
use thalweg_engine::{Output, testing};
use thalweg_record::Batch;

use super::*;
use crate::parse_json::ParseJsonConfig;
use crate::testing::{with_text, written};

/// A folder with a table.
struct House {
    folder: TempDir,
    name: &'static str,
}

impl House {
    fn with(name: &'static str, text: &str) -> Self {
        let house = Self { folder: tempfile::tempdir().unwrap(), name };
        house.write(text);
        house
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).unwrap();
    }

    /// Changes when the table was modified, in hours from now.
    fn modified(&self, hours: i32) {
        let hour = Duration::from_secs(60 * 60);
        let now = SystemTime::now();
        let time =
            if hours < 0 { now - hour * hours.unsigned_abs() } else { now + hour * hours.unsigned_abs() };
        File::options().write(true).open(self.path()).unwrap().set_modified(time).unwrap();
    }

    /// The options, with the path of the table.
    fn yaml(&self, options: &str) -> String {
        format!("{{ table: '{}', {options} }}", self.path().display())
    }

    fn apply(&self, options: &str, batches: impl IntoIterator<Item = Batch>) -> testing::Given {
        testing::apply::<Join>(&self.yaml(options), batches)
    }

    /// The messages of the main output, as a sink writes them.
    fn joined(&self, options: &str, messages: &[Value]) -> Vec<Value> {
        written(self.apply(options, parsed(messages)))
    }

    /// Why a run does not start.
    fn refused(&self, options: &str) -> String {
        let join = testing::options::<Join>(&self.yaml(options));
        let refused = join.build(&testing::context()).err().expect("it is refused").to_string();
        refused.replace(&*self.path().to_string_lossy(), self.name)
    }

    /// The mistakes that a check finds.
    fn mistakes(&self, options: &str) -> Vec<String> {
        let mistakes = testing::options::<Join>(&self.yaml(options)).check();
        let text = |mistake: &Mistake| mistake.message.replace(&*self.path().to_string_lossy(), self.name);
        mistakes.iter().map(text).collect()
    }
}

/// Messages as `parse_json` gives them.
fn parsed(messages: &[Value]) -> Vec<Batch> {
    let lines: Vec<String> = messages.iter().map(Value::to_string).collect();
    let given = testing::apply::<ParseJsonConfig>("{}", [testing::batch(&lines)]);
    given.outputs.into_values().flatten().collect()
}

const CUSTOMERS: &str = "customer,name,country\nc7,\"Miller, Ann\",NO\nc8,Bob,DE\n7,Seven,\n";

fn customers() -> House {
    House::with("customers.csv", CUSTOMERS)
}

#[test]
fn it_conforms() {
    let house = customers();
    let lines = ["c7", "", "c9", "c7", "7"];
    for options in [
        "on: { payload: customer }",
        "on: { payload: customer }, on_missing: drop",
        "on: { payload: customer }, on_missing: error",
        "on: { payload: customer }, on_missing: route",
        "on: { payload: customer }, on_found: drop",
        "on: { payload: customer }, on_found: drop, on_missing: route",
        "on: { nothing: customer }, refresh_interval: 0s",
    ] {
        testing::transform_conforms::<Join>(&house.yaml(options), &lines);
    }
    let house = House::with("networks.csv", "network,zone\n10.0.0.0/8,inside\n");
    testing::transform_conforms::<Join>(
        &house.yaml("on: { payload: { in: network } }"),
        &["10.1.1.1", "a", "", "1.1.1.1"],
    );
}

#[test]
fn a_message_gets_the_columns_of_its_row() {
    let orders = [json!({"id": 1, "customer": "c7"}), json!({"id": 2, "customer": "c9"}), json!({"id": 3})];
    assert_eq!(
        customers().joined("on: customer", &orders),
        [
            json!({"id": 1, "customer": "c7", "name": "Miller, Ann", "country": "NO"}),
            json!({"id": 2, "customer": "c9"}),
            json!({"id": 3}),
        ]
    );
    assert_eq!(
        customers().joined("on: { customer: customer }, columns: [country], prefix: c_", &orders[..1]),
        [json!({"id": 1, "customer": "c7", "c_country": "NO"})]
    );
    assert_eq!(
        customers().joined("on: customer, columns: { name: who, customer: key }", &orders[..1]),
        [json!({"id": 1, "customer": "c7", "who": "Miller, Ann", "key": "c7"})]
    );
}

#[test]
fn numbers_are_equal_to_how_they_are_written() {
    let house = customers();
    let names = |messages: &[Value]| -> Vec<Value> {
        let joined = house.joined("on: customer, columns: name", messages);
        joined.into_iter().map(|message| message["name"].clone()).collect()
    };
    assert_eq!(names(&[json!({"customer": 7}), json!({"customer": 8})]), [json!("Seven"), Value::Null]);
    assert_eq!(names(&[json!({"customer": 7.0})]), [json!("Seven")]);
    // Beside a text, a column has JSON.
    assert_eq!(
        names(&[json!({"customer": "c8"}), json!({"customer": 7}), json!({"customer": 7.0})]),
        [json!("Bob"), json!("Seven"), json!("Seven")]
    );
    assert_eq!(names(&[json!({"customer": "07"}), json!({"customer": "7 "})]), [Value::Null, Value::Null]);
    let typed = House::with("t.csv", "id,name\n07,a\n8.0,b\n");
    let joined = typed.joined("on: id, types: { id: float }", &[json!({"id": 7}), json!({"id": "8"})]);
    assert_eq!(joined, [json!({"id": 7, "name": "a"}), json!({"id": "8", "name": "b"})]);
}

#[test]
fn null_is_equal_to_nothing() {
    let house = House::with(
        "t.jsonl",
        "{\"a\":null,\"b\":1,\"n\":1}\n\n{\"a\":\"x\",\"b\":2,\"n\":2}\n{\"b\":3,\"n\":3}\n",
    );
    let messages =
        [json!({"a": "x", "b": 2}), json!({"b": 1}), json!({"a": "x"}), json!({"a": null, "b": 3})];
    let joined = house.joined("on: [a, b]", &messages);
    let found: Vec<_> = joined.iter().map(|message| message.get("n").cloned()).collect();
    assert_eq!(found, [Some(json!(2)), None, None, None]);
}

#[test]
fn messages_leave_as_the_options_say() {
    let house = customers();
    let batch = || [with_text(&["1", "2", "3"], &[("customer", &[Some("c7"), Some("c9"), None])])];
    let leave = |options: &str| {
        let given = house.apply(&format!("on: customer, {options}"), batch());
        let [main, missing] = [Output::Main, Output::Named(0)].map(|output| given.payloads(output).concat());
        (main, missing, given.reasons())
    };
    let none = Vec::<String>::new;
    assert_eq!(leave("on_missing: keep"), ("123".into(), String::new(), none()));
    assert_eq!(leave("on_missing: drop"), ("1".into(), String::new(), none()));
    assert_eq!(leave("on_missing: route"), ("1".into(), "23".into(), none()));
    assert_eq!(leave("on_found: drop"), ("23".into(), String::new(), none()));
    assert_eq!(leave("on_found: drop, on_missing: route"), (String::new(), "23".into(), none()));
    let (main, _, reasons) = leave("on_missing: error");
    let path = house.path().display().to_string();
    assert_eq!(main, "1");
    assert_eq!(
        reasons,
        [
            format!("the table `{path}` has no row for `customer` = `c9`"),
            format!("there is no `customer` to look up in `{path}`"),
        ]
    );
    let given = house.apply("on: customer, on_found: drop", batch());
    assert!(given.main().iter().all(|fields| fields.get("name").is_none()));
    assert_eq!(testing::options::<Join>(&house.yaml("on: a, on_missing: route")).outputs(), ["missing"]);
}

#[test]
fn a_field_is_not_replaced() {
    let fields: [(&str, &[Option<&str>]); 2] =
        [("customer", &[Some("c7"), Some("c8"), Some("c9")]), ("name", &[Some("x"), None, Some("y")])];
    let given = customers().apply("on: customer", [with_text(&["1", "2", "3"], &fields)]);
    assert_eq!(given.main(), [json!({"customer": "c8", "name": "Bob", "country": "DE"})]);
    let reason = "the field `name` exists already".to_owned();
    assert_eq!(given.errors(), [("1".to_owned(), reason.clone()), ("3".to_owned(), reason)]);
    // Messages that get no columns keep theirs.
    let given = customers().apply("on: customer, on_missing: route", [with_text(&["1", "2", "3"], &fields)]);
    assert_eq!(given.rows(Output::Named(0)), [json!({"customer": "c9", "name": "y"})]);
}

#[test]
fn columns_have_types() {
    let house = House::with("t.csv", "id,n,since,note\na,5,2024-01-01T00:00:00Z,\nb,,-,x\n");
    let given = house.apply(
        "on: id, types: { n: int, since: timestamp }, null_values: ['', '-']",
        [with_text(&["1", "2"], &[("id", &[Some("a"), Some("b")])])],
    );
    assert_eq!(
        given.main(),
        [json!({"id": "a", "n": 5, "since": 1_704_067_200_000_000_i64}), json!({"id": "b", "note": "x"}),]
    );
    let house = House::with("t.tsv", "id\tn\na\t\"x,\ty\"\n");
    assert_eq!(house.joined("on: id", &[json!({"id": "a"})]), [json!({"id": "a", "n": "x,\ty"})]);
    let house =
        House::with("t.json", "{\"id\":\"a\",\"n\":1}\n{\"id\":\"b\",\"n\":1.5}\n{\"id\":\"c\",\"n\":[1]}");
    assert_eq!(
        house.joined("on: id", &[json!({"id": "a"}), json!({"id": "b"}), json!({"id": "c"})]),
        [json!({"id": "a", "n": 1}), json!({"id": "b", "n": 1.5}), json!({"id": "c", "n": [1]})]
    );
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_table_has_its_own_types() {
    use ::parquet::arrow::ArrowWriter;
    use arrow_array::builder::{ListBuilder, StringBuilder};
    use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt64Array};

    let mut tags = ListBuilder::new(StringBuilder::new());
    tags.append_value([Some("a"), Some("b")]);
    tags.append_null();
    let columns: [(&str, ArrayRef); 4] = [
        // A column of integers and NULL, as other programs write it.
        ("id", Arc::new(Float64Array::from(vec![Some(7.0), None]))),
        ("name", Arc::new(StringArray::from(vec!["seven", "none"]))),
        ("large", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
        ("tags", Arc::new(tags.finish())),
    ];
    let rows = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, column)| (name, column, true)),
    );
    let rows = rows.unwrap();
    let house = House::with("t.parquet", "");
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    std::fs::write(house.path(), writer.into_inner().unwrap()).unwrap();
    assert_eq!(
        house.joined("on: id", &[json!({"id": 7}), json!({"id": 8})]),
        [json!({"id": 7, "name": "seven", "large": u64::MAX, "tags": ["a", "b"]}), json!({"id": 8})]
    );
    assert_eq!(
        house.joined("on: id, columns: name", &[json!({"id": "7"})]),
        [json!({"id": "7", "name": "seven"})]
    );
    assert_eq!(house.mistakes("on: idd"), ["The table `t.parquet` has no column `idd`."]);
}

#[test]
fn an_address_finds_the_smallest_network() {
    let house = House::with(
        "networks.csv",
        "network,zone\n10.0.0.0/8,inside\n10.1.0.0/16,lab\n2001:db8::/32,six\n192.0.2.1,host\n",
    );
    let zone =
        |ip: &str| house.joined("on: { ip: { in: network } }", &[json!({"ip": ip})])[0]["zone"].clone();
    for (ip, expected) in [
        ("10.1.2.3", json!("lab")),
        ("10.2.2.3", json!("inside")),
        ("::ffff:10.1.2.3", json!("lab")),
        ("2001:db8::1", json!("six")),
        ("192.0.2.1", json!("host")),
        ("192.0.2.2", Value::Null),
    ] {
        assert_eq!(zone(ip), expected, "{ip}");
    }
    let given = house.apply("on: { payload: { in: network } }", [testing::batch(["10.1.2", "10.1.2.3"])]);
    assert_eq!(given.reasons(), ["`10.1.2` in `payload` is not an IP address"]);
    assert_eq!(given.main(), [json!({"zone": "lab"})]);
}

#[test]
fn a_number_or_time_finds_its_range_among_those_of_its_key() {
    let house = House::with("prices.csv", "sku,since,until,price\na,0,10,1\na,10,,2\nb,5,7,3\n");
    let yaml =
        "on: { item: sku, n: { from: since, to: until } }, types: { since: int, until: int, price: int }";
    let price =
        |item: &str, n: Value| house.joined(yaml, &[json!({"item": item, "n": n})])[0]["price"].clone();
    assert_eq!(price("a", json!(0)), json!(1));
    assert_eq!(price("a", json!(9.9)), json!(1));
    assert_eq!(price("a", json!(10)), json!(2));
    assert_eq!(price("a", json!(1e30)), json!(2));
    assert_eq!(price("a", json!("3")), json!(1));
    assert_eq!(price("a", json!(-1)), Value::Null);
    assert_eq!(price("b", json!(7)), Value::Null);
    assert_eq!(price("c", json!(5)), Value::Null);
    assert_eq!(price("a", Value::Null), Value::Null);
    let house = House::with("shifts.csv", "start,end,who\n2024-01-01T00:00:00Z,2024-01-01T08:00:00Z,Ann\n");
    let yaml = "on: { at: { from: start, to: end } }, types: { start: timestamp, end: timestamp }";
    let joined =
        house.joined(yaml, &[json!({"at": "2024-01-01T07:59:59Z"}), json!({"at": "2024-01-01T08:00:00Z"})]);
    assert_eq!((joined[0]["who"].clone(), joined[1].get("who")), (json!("Ann"), None));
}

#[test]
fn a_table_that_cannot_be_used_says_where_and_why() {
    let csv = |text: &str, options: &str| House::with("t.csv", text).refused(options);
    for (text, options, expected) in [
        (
            "",
            "on: id",
            "the table `t.csv` cannot be used: line 1: there is no header, which names the columns.",
        ),
        ("id,n\na\n", "on: id", "the table `t.csv` cannot be used: line 2: has 1 value for 2 columns."),
        (
            "id,n\na,\"x\ny\"\nb,\"\n",
            "on: id",
            "the table `t.csv` cannot be used: line 4: a quote is not closed.",
        ),
        (
            "id,n\na,x\n",
            "on: id, types: { n: int }",
            "the table `t.csv` cannot be used: line 2: the field `n` is not a whole number of 64 bits: `x`.",
        ),
        (
            "customer,n\n",
            "on: custmer",
            "the table `t.csv` has no column `custmer`. Did you mean `customer`?",
        ),
        (
            "id,n\n",
            "on: id, columns: [zzzzzz]",
            "the table `t.csv` has no column `zzzzzz`. It has `id`, `n`.",
        ),
        (
            "id,n\na,1\nb,2\na,3\n",
            "on: id",
            "the rows 1 and 3 of `t.csv` are equal in `id`. Remove one of them (`a`), or say `duplicates: first` or \
             `duplicates: last`.",
        ),
        (
            "id,meta.path\n",
            "on: id",
            "the column `meta.path` of `t.csv` cannot be a field called `meta.path`, which means something else. Give \
             a `prefix`, or another name: `columns: { meta.path: another_name }`.",
        ),
        (
            "id,customer\n",
            "on: { customer: id }",
            "the column `customer` of `t.csv` would replace the field `customer` of messages. Give a `prefix`, or \
             another name: `columns: { customer: another_name }`.",
        ),
        (
            "a,b\n1,2\n",
            "on: { n: { from: a, to: b } }",
            "the columns `a` and `b` of `t.csv` are not numbers or times. Give their types: `types: { a: int, b: int }`, \
             `float` or `timestamp`.",
        ),
        (
            "a,b\n1,2\n2,2\n",
            "on: { n: { from: a, to: b } }, types: { a: int, b: int }",
            "the table `t.csv` cannot be used: row 2: `a` is not less than `b`.",
        ),
        (
            "a,b\n1,NaN\n",
            "on: { n: { from: a, to: b } }, types: { a: float, b: float }",
            "the table `t.csv` cannot be used: row 1: `a` or `b` is not a number.",
        ),
        (
            "a,b\n1,5\n3,4\n",
            "on: { n: { from: a, to: b } }, types: { a: int, b: int }",
            "the rows 1 and 2 of `t.csv` match the same values of `a` and `b`. Remove one of them, or say `duplicates: \
             first` or `duplicates: last`.",
        ),
        (
            "n\n10.0.0.0/40\n",
            "on: { ip: { in: n } }",
            "the table `t.csv` cannot be used: row 1: `10.0.0.0/40` in `n` is not a network, such as `10.0.0.0/8`.",
        ),
    ] {
        assert_eq!(csv(text, options), expected);
    }
    let refused = House::with("t.jsonl", "{\"id\":1}\n[1]\n").refused("on: id");
    assert!(refused.starts_with("the table `t.jsonl` cannot be used: line 2: "), "{refused}");
    let refused = House::with("t.json", "\n [\n{\"id\":1}]\n").refused("on: id");
    assert_eq!(
        refused,
        "the table `t.json` cannot be used: line 1: it begins a JSON array. Write one object in each line."
    );
    for (text, written) in [("id;n\na;1\n", ";"), ("id\tn\na\t1\n", "\\t")] {
        let expected =
            format!("If the columns are divided by `{written}`, write `delimiter: \"{written}\"`.");
        let refused = csv(text, "on: id");
        assert!(refused.ends_with(&expected), "{refused}");
    }
    for table in ["s3://bucket/t.csv", "/no folder/*.csv"] {
        let join = testing::options::<Join>(&format!("{{ table: '{table}', on: id }}"));
        let refused = join.build(&testing::context()).err().unwrap().to_string();
        assert!(
            refused.ends_with("A table is one file of this machine: it has no URL, and no `*`."),
            "{refused}"
        );
    }
    let house = customers();
    std::fs::remove_file(house.path()).unwrap();
    assert_eq!(
        house.refused("on: customer"),
        "cannot read `customers.csv`: it does not exist. Look for a typing error, or create it."
    );
    // A check does not know whether it will be there.
    assert_eq!(house.mistakes("on: customer"), Vec::<String>::new());
}

#[test]
fn rows_with_the_same_key_are_chosen_by_an_option() {
    let house = House::with("t.csv", "id,n\na,1\na,2\n");
    for (duplicates, expected) in [("first", "1"), ("last", "2")] {
        let joined = house.joined(&format!("on: id, duplicates: {duplicates}"), &[json!({"id": "a"})]);
        assert_eq!(joined[0]["n"], expected);
    }
}

#[test]
fn a_check_finds_mistakes_in_options_and_in_the_table() {
    let house = customers();
    for (options, expected) in [
        ("on: {}", "`on` names no field."),
        ("on: { a: { in: x }, b: { in: y } }", "Only one field can be compared with networks or ranges."),
        ("on: custmer", "The table `customers.csv` has no column `custmer`."),
        ("on: customer, columns: { name: a, country: a }", "Two columns cannot both become the field `a`."),
        ("on: customer, delimiter: ab", "The delimiter must be one ASCII character."),
        ("on: customer, format: jsonl, delimiter: ';'", "`delimiter` is for CSV."),
        (
            "on: customer, types: { nothing: int }",
            "`nothing` is given a type, but there is no field of that name.",
        ),
        (
            "on: customer, on_found: drop, on_missing: drop",
            "Nothing would ever pass: messages are dropped that are in the table, and those that are not.",
        ),
        (
            "on: customer, on_found: drop, prefix: a",
            "`prefix` has no effect with `on_found: drop`: no message gets columns.",
        ),
    ] {
        assert_eq!(house.mistakes(options), [expected], "{options}");
    }
    assert_eq!(
        House::with("customers.txt", CUSTOMERS).mistakes("on: customer"),
        ["The name of `customers.txt` does not tell its format."]
    );
    assert_eq!(
        House::with("customers.txt", CUSTOMERS).mistakes("on: customer, format: csv"),
        Vec::<String>::new()
    );
}

#[test]
fn the_fields_after_it_are_known() {
    let house = customers();
    let before = || KnownFields::none().with("customer", None);
    let join = |options: &str| testing::options::<Join>(&house.yaml(options));
    let known = join("on: customer, columns: name").fields_after(before());
    assert_eq!(known.names().collect::<Vec<_>>(), ["customer", "name"]);
    assert_eq!(known.kind("name"), Some(&FieldType::Text.field("name")));
    assert!(known.lacks("country"));
    assert_eq!(join("on: customer, on_found: drop").fields_after(before()), before());
    let remarks = join("on: customer").remarks(&before().with("country", None));
    assert_eq!(
        remarks[0].error.message,
        "Messages may have a field `country` before `join`, which adds a column of this name: such messages are \
         rejected."
    );
    std::fs::remove_file(house.path()).unwrap();
    assert!(!join("on: customer").fields_after(before()).lacks("anything"));
    let known = join("on: customer, columns: [name], prefix: c_").fields_after(before());
    assert_eq!(known.names().collect::<Vec<_>>(), ["c_name", "customer"]);
}

#[test]
fn a_table_that_needs_too_much_memory_is_refused() {
    let house = House::with("t.csv", &format!("id,n\na,{}\n", "x".repeat(900_000)));
    let context = Context { memory: Budget::new(2 << 20).share(), ..testing::context() };
    let refused = testing::options::<Join>(&house.yaml("on: id")).build(&context).err().unwrap().to_string();
    assert!(refused.contains("needs 1 MiB or more in memory, and may take 0.5 MiB"), "{refused}");
    assert!(refused.ends_with("Set `memory: 5MiB` or more, or choose fewer `columns`."), "{refused}");
    assert_eq!(context.memory.budget().used(), 0);
}

#[test]
fn a_compressed_table_is_read_and_a_pipe_is_not() {
    let house = House::with("t.csv.gz", "");
    let mut encoder = Compression::Gzip.begin(None).unwrap().unwrap();
    encoder.write_all(b"id,n\na,1\n").unwrap();
    let mut bytes = Vec::new();
    encoder.end(&mut bytes).unwrap();
    std::fs::write(house.path(), bytes).unwrap();
    assert_eq!(house.joined("on: id", &[json!({"id": "a"})]), [json!({"id": "a", "n": "1"})]);
    let pipe = testing::options::<Join>("{ table: /dev/null, on: id, format: csv }");
    assert_eq!(
        pipe.build(&testing::context()).err().unwrap().to_string(),
        "the table `/dev/null` is not a file."
    );
}

proptest! {
    #[test]
    fn it_is_like_a_map_of_rows_for_any_batches(
        rows in prop::collection::vec(("[a-c]{0,2}|[0-9]", "[a-z ]{0,20}"), 0..12),
        messages in prop::collection::vec(prop_oneof![
            Just(Value::Null),
            "[a-c]{0,2}|[0-9]".prop_map(Value::from),
            (0..10).prop_map(Value::from),
            (0..10).prop_map(|n| json!(f64::from(n))),
        ], 0..20),
        size in 1..8usize,
        anti in any::<bool>(),
    ) {
        let text: String = rows.iter().map(|(key, value)| format!("\"{key}\",\"{value}\"\n")).collect();
        let house = House::with("t.csv", &format!("key,value\n{text}"));
        let model: HashMap<&str, &str> = rows.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let key = |message: &Value| match message {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            number => number.as_f64().map(|number| number.to_string()),
        };
        let found = |message: &Value| key(message).and_then(|key| model.get(key.as_str()).copied());
        let numbered: Vec<Value> =
            messages.iter().enumerate().map(|(n, message)| json!({"n": n, "key": message})).collect();
        let batches: Vec<Batch> = numbered.chunks(size).flat_map(parsed).collect();
        let options = if anti { "on: key, duplicates: last, on_found: drop" } else { "on: key, duplicates: last" };
        let joined = written(house.apply(options, batches));
        let expected: Vec<(usize, Option<&str>)> = messages
            .iter()
            .enumerate()
            .map(|(n, message)| (n, found(message)))
            .filter(|(_, value)| !anti || value.is_none())
            .collect();
        let given: Vec<(usize, Option<&str>)> = joined
            .iter()
            .map(|message| (message["n"].as_u64().unwrap() as usize, message.get("value").and_then(Value::as_str)))
            .collect();
        prop_assert_eq!(given, expected);
    }
}
