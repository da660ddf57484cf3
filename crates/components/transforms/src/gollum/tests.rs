//! The results are those of gollum 0.5.4 and 0.4.6 for the same settings.

use thalweg_engine::{Output, testing};

use super::*;

/// Returns the payloads that a formatter makes of these texts.
fn formatted(formatter: &str, texts: &[&str]) -> Vec<String> {
    let given = testing::apply::<Gollum>(
        &format!("on_error: keep\nformatter:\n{formatter}"),
        [testing::batch(texts.to_vec())],
    );
    given.payloads(Output::Main)
}

#[test]
fn it_conforms() {
    let texts = ["{\"a\": 1}", "", "x|y", "[[\"", "{\"a\":"];
    for formatter in [
        "process_json: { directives: [{ member: a, action: remove }] }",
        "extract_json: { member: a }",
        "json_to_array: { fields: [a, b] }",
        "split_to_json: { keys: [a, b] }",
        "text_to_json: { directives: [{ state: a, token: '|', next: a, actions: [esc] }] }",
        "process_tsv: { directives: [{ column: 0, action: quote }], quoted: true }",
        "collectd_to_influx: { version: 0.9.1 }",
        "trim: { left: '[', right: ']' }",
    ] {
        for on_error in ["keep", "reject"] {
            let yaml = format!("on_error: {on_error}\nformatter: {{ {formatter} }}");
            testing::transform_conforms::<Gollum>(&yaml, &texts);
        }
    }
}

#[test]
fn what_cannot_be_processed_is_rejected_or_kept() {
    let yaml = "formatter: { extract_json: { member: a } }";
    let given = testing::apply::<Gollum>(yaml, [testing::batch(["{\"a\":1}", "x"])]);
    assert_eq!(given.payloads(Output::Main), ["1"]);
    assert_eq!(given.reasons(), ["it is not a JSON object: expected `{` at byte 0"]);
    assert_eq!(formatted("  extract_json: { member: a }", &["{\"a\":1}", "x"]), ["1", "x"]);
}

fn processed(directives: &str, text: &str) -> String {
    formatted(&format!("  process_json: {{ directives: [{directives}] }}"), &[text]).remove(0)
}

#[test]
fn each_directive_changes_a_member() {
    let cases = [
        ("{member: a, action: rename, parameters: [b]}", r#"{"a":1}"#, r#"{"b":1}"#),
        ("{member: a, action: remove}", r#"{"a":1,"b":2}"#, r#"{"b":2}"#),
        ("{member: a, action: remove, parameters: [x, y]}", r#"{"a":["x","z",1,"y"]}"#, r#"{"a":["z",1]}"#),
        ("{member: a, action: remove, parameters: [x]}", r#"{"a":"x"}"#, r#"{"a":null}"#),
        (
            "{member: a, action: pick, parameters: ['1', b]}",
            r#"{"a":["x","y"]}"#,
            r#"{"a":["x","y"],"b":"y"}"#,
        ),
        ("{member: a, action: pick, parameters: ['-1', b]}", r#"{"a":["x","y"]}"#, r#"{"a":["x","y"]}"#),
        ("{member: a, action: ip}", r#"{"a":["::1","x",3,"10.0.0.1"]}"#, r#"{"a":["::1",3,"10.0.0.1"]}"#),
        (
            "{member: a, action: split, parameters: [',', b, c]}",
            r#"{"a":"1,2,3"}"#,
            r#"{"a":"1,2,3","b":"1","c":"2"}"#,
        ),
        ("{member: a, action: split, parameters: [',', b]}", r#"{"a":"1"}"#, r#"{"a":"1"}"#),
        ("{member: a, action: replace, parameters: [x, yy]}", r#"{"a":"axa"}"#, r#"{"a":"ayya"}"#),
        ("{member: a, action: trim, parameters: ['<>']}", r#"{"a":"<a>"}"#, r#"{"a":"a"}"#),
        ("{member: a, action: flatten}", r#"{"a":{"b":1,"c":{"d":2}}}"#, r#"{"a.b":1,"a.c":{"d":2}}"#),
        ("{member: a, action: flatten, parameters: [_]}", r#"{"a":[5,6]}"#, r#"{"a_0":5,"a_1":6}"#),
        ("{member: a, action: flatten}", r#"{"a":"x"}"#, r#"{"a":"x"}"#),
        (
            "{member: a, action: time, parameters: ['%Y%m%d', '%d.%m.%Y'], length: 8}",
            r#"{"a":"20240203 rest"}"#,
            r#"{"a":"03.02.2024"}"#,
        ),
        (
            "{member: a, action: time, parameters: ['%Y%m%d', '%d.%m.%Y'], length: 8}",
            r#"{"a":"soon"}"#,
            r#"{"a":"soon"}"#,
        ),
        (
            "{member: a, action: unixtimestamp, parameters: [ms, '%Y-%m-%d']}",
            r#"{"a":86400000}"#,
            r#"{"a":"1970-01-02"}"#,
        ),
        ("{member: z, action: remove}", r#"{"b":" x ","a":null}"#, r#"{"a":null,"b":"x"}"#),
        (
            "{member: a, action: agent, parameters: [browser, engine_version]}",
            r#"{"a":"x"}"#,
            r#"{"a":"x","a_browser":"x","a_engine_version":""}"#,
        ),
    ];
    for (directive, text, expected) in cases {
        assert_eq!(processed(directive, text), expected, "{directive}");
    }
}

#[test]
fn wrong_parameters_are_mistakes() {
    let mistake = |formatter: &str| {
        let options = testing::options::<Gollum>(&format!("formatter: {{ {formatter} }}"));
        options.check().into_iter().map(|mistake| mistake.message).collect::<Vec<_>>()
    };
    assert_eq!(
        mistake("process_json: { directives: [{ member: a, action: pick, parameters: [b] }] }"),
        ["`Pick` of `a` does not take 1 parameters"]
    );
    assert_eq!(
        mistake("text_to_json: { directives: [{ state: a, token: x }], start: b }"),
        ["`b` is not a state of any directive"]
    );
}

#[test]
fn members_are_extracted_as_text() {
    let text = r#"{"s":" a ","i":3,"f":1.25,"b":true,"n":null,"l":[1,"x"],"big":1e21}"#;
    let extracted = |options: &str| formatted(&format!("  extract_json: {{ {options} }}"), &[text]).remove(0);
    assert_eq!(extracted("member: s"), " a ");
    assert_eq!(extracted("member: s, trim: true"), "a");
    assert_eq!(extracted("member: i"), "3");
    assert_eq!(extracted("member: f"), "1.25");
    assert_eq!(extracted("member: f, precision: 0"), "1");
    assert_eq!(extracted("member: f, precision: 70000").len(), 70_002);
    assert_eq!(extracted("member: b"), "true");
    assert_eq!(extracted("member: n"), "<nil>");
    assert_eq!(extracted("member: l"), "[1 x]");
    assert_eq!(extracted("member: big"), "1000000000000000000000");
    assert_eq!(extracted("member: none"), "");
}

#[test]
fn json_is_read_by_the_states_of_gollums_page() {
    let directives = r#"
      directives:
        - { state: findKey, token: '"', next: key }
        - { state: findKey, token: '}', pop: true, actions: [end] }
        - { state: key, token: '"', next: findVal, actions: [key] }
        - { state: findVal, token: ':', next: value }
        - { state: value, token: '"', next: string }
        - { state: value, token: '[', next: array, push: true, actions: [arr] }
        - { state: value, token: '{', next: findKey, push: true, actions: [obj] }
        - { state: value, token: ',', next: findKey, actions: [val] }
        - { state: value, token: '}', pop: true, actions: [val, end] }
        - { state: string, token: '"', next: findKey, actions: [esc] }
        - { state: array, token: '[', next: array, push: true, actions: [arr] }
        - { state: array, token: '{', next: findKey, push: true, actions: [obj] }
        - { state: array, token: ']', pop: true, actions: [val, end] }
        - { state: array, token: ',', next: array, actions: [val] }
        - { state: array, token: '"', next: arrString }
        - { state: arrString, token: '"', next: array, actions: [esc] }"#;
    let text = r#"{"a":123,"b":"string","c":[1,2,3],"d":[{"a":1}],"e":[[1,2]],"f":[{"a":1},{"b":2}],"g":[[1,2],[3,4]]}"#;
    assert_eq!(formatted(&format!("  text_to_json:{directives}"), &[text]), [text]);
}

#[test]
fn texts_without_names_get_the_names_of_states() {
    let directives = "
      directives:
        - { state: time, token: ' ', next: level, actions: [dat] }
        - { state: level, token: ' ', next: text, actions: [esc] }
      read_time: '%Y%m%d%H%M%S'";
    let formatter = format!("  text_to_json:{directives}");
    assert_eq!(
        formatted(&formatter, &["20240203040506 info <all> is well", "soon", ""]),
        [
            r#"{"time":"2024-02-03 04:05:06 UTC","level":"info","text":"\u003call\u003e is well"}"#,
            r#"{"time":"soon"}"#,
            "{}"
        ]
    );
}

#[test]
fn directives_that_go_in_a_circle_are_an_error() {
    let yaml =
        "formatter: { text_to_json: { directives: [{ state: a, token: x, next: a, continue: true }] } }";
    let given = testing::apply::<Gollum>(yaml, [testing::batch(["yx"])]);
    assert_eq!(given.reasons(), ["the directives go round in a circle at byte 1, in the state `a`"]);
}

#[test]
fn columns_are_changed_by_directives() {
    let changed = |options: &str, text: &str| {
        formatted(&format!("  process_tsv: {{ delimiter: ',', {options} }}"), &[text]).remove(0)
    };
    assert_eq!(changed("directives: [{column: 1, action: remove}]", "a,b,c"), "a,c");
    assert_eq!(changed("directives: [{column: 5, action: remove}]", "a,b"), "a,b");
    assert_eq!(
        changed(
            "directives: [{column: 0, action: prefix, parameters: [x]}, {column: 0, action: quote}]",
            "a,b"
        ),
        "\"xa\",b"
    );
    assert_eq!(
        changed(
            "directives: [{column: 0, action: time, parameters: ['%Y%m%d', '%d.%m.%y'], length: 8}]",
            "20240102x,b"
        ),
        "02.01.24,b"
    );
    assert_eq!(
        changed("directives: [{column: 0, action: agent, parameters: [browser, os]}]", "x,b"),
        "x,x,,b"
    );
    assert_eq!(
        changed("quoted: true, directives: [{column: 1, action: postfix, parameters: ['!']}]", "a,\"b,c\",d"),
        "a,\"b,c!\",d"
    );
    assert_eq!(
        changed("quoted: true, directives: [{column: 1, action: trim}]", "\"a\",b \",c"),
        "\"a\",b \",c"
    );
    assert_eq!(
        changed("quoted: true, directives: [{column: 0, action: remove}]", "\"a,b"),
        "\"a,b",
        "not closed"
    );
    assert_eq!(changed("quoted: true, directives: [{column: 0, action: remove}]", ""), "");
}

#[test]
fn parts_become_members_and_members_parts() {
    let split = |options: &str, text: &str| {
        formatted(&format!("  split_to_json: {{ {options} }}"), &[text]).remove(0)
    };
    assert_eq!(split("keys: [a, b]", "x|{\"y\": 1}|z"), r#"{"a":"x","b":{"y": 1}}"#);
    assert_eq!(split("keys: [a, b], keep_json: false", "1|2"), r#"{"a":"1","b":"2"}"#);
    assert_eq!(split("keys: [a]", "x|y"), r#"{"a":"x"}"#);
    let listed =
        |text: &str| formatted("  json_to_array: { fields: [a, b, c], separator: ';' }", &[text]).remove(0);
    assert_eq!(listed(r#"{"a":"x","c":true}"#), "x;;true");
    assert_eq!(listed(r#"{"a":1.5,"b":2}"#), "1.5;2;");
}

#[test]
fn points_are_written_for_each_version() {
    let packet = r#"[,{"values":[1901474177],"dstypes":["counter"],"dsnames":["value"],"time":1280959128,"interval":10,"host":"leeloo octo it","plugin":"cpu","plugin_instance":"0","type":"cpu","type_instance":"idle"},"#;
    let packet = &packet[1..];
    let points = |version: &str| {
        formatted(&format!("  collectd_to_influx: {{ version: '{version}' }}"), &[packet]).remove(0)
    };
    assert_eq!(
        points("0.8"),
        r#"{"name": "leeloo octo it.cpu-0.cpu-idle", "columns": ["time", "value"], "points":[[1280959128, 1901474177.000000]]},"#
    );
    assert_eq!(
        points("0.9.0"),
        r#"{"name": "cpu", "timestamp": 1280959128, "precision": "ms", "tags": {"plugin_instance": "0", "type": "cpu", "type_instance": "idle", "host": "leeloo octo it", "dstype": "counter", "dsname": "value"}, "fields": {"value": 1901474177.000000} },"#
    );
    assert_eq!(
        points("0.9.1"),
        r"cpu,plugin_instance=0,type=cpu,type_instance=idle,host=leeloo\ octo\ it,dstype=counter,dsname=value value=1901474177.000000 1280959128000\n"
    );
    let point = |text: &str| formatted("  json_to_influx: { tags: [t], ignore: [x] }", &[text]).remove(0);
    assert_eq!(
        point(r#"{"measurement":"m m","time":"5","t":"a,b","f":"1","g":"q\"","x":"0"}"#),
        r#"m\ m,t=a\,b f=1,g=q\" 5"#
    );
    assert_eq!(point(r#"{"time":"5"}"#), r#"{"time":"5"}"#, "kept: it has no measurement");
}

#[test]
fn text_is_trimmed_to_separators() {
    let trimmed =
        |options: &str, text: &str| formatted(&format!("  trim: {{ {options} }}"), &[text]).remove(0);
    assert_eq!(trimmed("left: '[', right: ']'", "foo[bar[foo]bar]foo"), "bar[foo]bar");
    assert_eq!(trimmed("left: '[[', right: ']'", "a[[b]"), "[b");
    assert_eq!(trimmed("left_offset: 1, right_offset: 2", "abcdef"), "bcd");
    assert_eq!(trimmed("left: '|', left_offset: 9", "a|b"), "");
}
