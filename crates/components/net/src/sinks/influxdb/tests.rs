use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array};
use arrow_schema::Field;
use proptest::prelude::*;
use thalweg_engine::testing::{batch, messages, options, sink_conforms};
use thalweg_record::Batch;

use super::*;
use crate::requests::testing::{Fake, Play, open, with_text, write};
use crate::requests::{Encode, Encoded, Moments};

fn points(measurement: &str, tags: &[&str], fields: Option<&[&str]>, time: Option<&str>) -> Points {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let measurement = measurement.parse().unwrap();
    let (tags, fields) = (names(tags), fields.map(names));
    let columns = Columns { measurement, tags, fields, time: time.map(str::to_owned) };
    Points::new(Some(columns), Moments::default())
}

/// Returns the lines of the messages, and the rejected ones.
fn lines(mut points: Points, batch: &Batch) -> (Vec<String>, Vec<(usize, String)>) {
    let mut into = Encoded::default();
    points.begin(batch);
    points.encode(batch, &(0..batch.rows()).collect::<Vec<_>>(), &mut into);
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let lines = into.parts().iter().map(text).collect();
    (lines, into.take_rejected())
}

#[tokio::test]
async fn it_conforms() {
    let server = Fake::start(|_, _| Play::answer(204, "")).await;
    for options in [
        "database: d, measurement: m, fields: payload",
        "bucket: b, org: o",
        "database: d, compression: gzip",
    ] {
        let yaml = format!("{{ url: '{}', max_delay: 1ms, {options} }}", server.address);
        sink_conforms::<InfluxdbConfig>(&yaml).await;
    }
}

#[test]
fn each_type_has_its_form() {
    let columns: [(&str, ArrayRef); 3] = [
        ("n", Arc::new(Int64Array::from(vec![Some(-1), None, None]))),
        ("f", Arc::new(Float64Array::from(vec![Some(1.5), Some(f64::NAN), None]))),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
    ];
    let columns = columns.map(|(name, column)| (Field::new(name, column.data_type().clone(), true), column));
    let batch = batch(["x"; 3]).set_fields(columns).unwrap();
    let batch = with_text(batch, "s, t", &[Some("a \"b\\\n"), None, None]);
    let batch = with_text(batch, "tag", &[Some("x,y=z \\w"), Some(""), None]);
    let batch = with_text(batch, "at", &[Some("1970-01-01T00:00:00.000000005Z"), None, None]);
    let (lines, rejected) = lines(points("m {tag}", &["tag"], None, Some("at")), &batch);
    assert_eq!(
        lines,
        [
            "m\\ x\\,y=z\\ \\w,tag=x\\,y\\=z\\ \\w n=-1i,f=1.5,b=true,s\\,\\ t=\"a \\\"b\\\\\n\" 5\n",
            "m\\  b=false 1700000000000000001\n",
        ]
    );
    assert_eq!(rejected, [(2, "the message has no field for the point".to_owned())]);
}

/// A `limit` divides batches. The server keeps one of the points with equal times and tags.
#[tokio::test]
async fn the_parts_of_a_batch_get_times_that_differ() {
    let server = Fake::start(|number, _| match number {
        0 => Play::answer(503, "").with("retry-after", "0"),
        _ => Play::answer(204, ""),
    })
    .await;
    let yaml = format!(
        "{{ url: '{}', database: d, measurement: m, fields: payload, max_delay: 0s }}",
        server.address
    );
    let mut sink = open::<InfluxdbConfig>(&yaml).await;
    let whole = batch(["a", "b", "c"]);
    let first = whole.share().select(&[0, 1]).unwrap().unwrap();
    write(&mut sink, &first).await;
    write(&mut sink, &whole.select(&[2]).unwrap().unwrap()).await;
    let bodies: Vec<String> = server.got().into_iter().map(|got| got.body).collect();
    let both = "m payload=\"a\" 1700000000000000000\nm payload=\"b\" 1700000000000000001\n";
    assert_eq!(bodies, [both, both, "m payload=\"c\" 1700000000000000002\n"]);
}

#[test]
fn what_the_protocol_cannot_write_is_rejected() {
    let tags = [Some("a\\"), Some("a\nb"), Some("fine")];
    let messages = with_text(batch(["x"; 3]), "tag", &tags);
    let (written, rejected) = lines(points("m", &["tag"], Some(&["payload"]), None), &messages);
    assert_eq!(written, ["m,tag=fine payload=\"x\" 1700000000000000002\n"]);
    let reason = |name: &str| {
        format!("{name:?} cannot be a measurement or tag: it has a line feed, or ends in a backslash")
    };
    assert_eq!(rejected, [(0, reason("a\\")), (1, reason("a\nb"))]);
    let (_, rejected) =
        lines(points("{tag}", &[], Some(&["payload"]), None), &with_text(batch(["x"]), "tag", &[None]));
    assert_eq!(rejected, [(0, "the message has no measurement".to_owned())]);
    let (written, rejected) = lines(Points::new(None, Moments::default()), &batch(["a b=1\n", " ", "# a"]));
    let empty = "the message is empty, and no line of the line protocol".to_owned();
    assert_eq!((written, rejected), (vec!["a b=1\n".to_owned()], vec![(1, empty.clone()), (2, empty)]));
}

#[tokio::test]
async fn each_version_has_its_path() {
    let server = Fake::start(|_, _| Play::answer(204, "")).await;
    for (options, line, authorization) in [
        (
            "database: d, retention_policy: r, auth: { user: me, password: pw }",
            "POST /write?db=d&rp=r&precision=ns",
            "Basic bWU6cHc=",
        ),
        (
            "bucket: b, org: 'o o', precision: us, auth: { token: t }",
            "POST /api/v2/write?bucket=b&org=o+o&precision=us",
            "Token t",
        ),
    ] {
        let yaml = format!("{{ url: '{}', max_delay: 0s, {options} }}", server.address);
        assert_eq!(write(&mut open::<InfluxdbConfig>(&yaml).await, &batch(["m a=1"])).await.0, []);
        let got = server.got().pop().unwrap();
        assert_eq!(
            (got.line.as_str(), got.header("authorization"), got.body.as_str()),
            (line, authorization, "m a=1\n")
        );
    }
}

#[tokio::test]
async fn points_that_are_refused_leave_with_the_reason() {
    // Version 3 names the lines, versions 1 and 2 do not.
    let named = "{\"error\":\"partial write of line protocol occurred\",\"data\":[{\"original_line\":\"m\",\
                 \"line_number\":2,\"error_message\":\"invalid column type for column 'a'\"}]}";
    let unnamed = "{\"error\":\"partial write: field type conflict: input field \\\"a\\\" dropped=1\"}";
    for (answer, end, requests) in
        [(named, "for the line: invalid column type for column 'a'", 2), (unnamed, "dropped=1\"}", 6)]
    {
        let server = Fake::start(move |number, got| match number {
            0 => Play::answer(503, "").with("retry-after", "0"),
            _ if got.body.contains("bad") => Play::answer(400, answer),
            _ => Play::answer(204, ""),
        })
        .await;
        let yaml = format!("{{ url: '{}', database: d, max_delay: 0s }}", server.address);
        let messages = batch(["m a=1", "m a=\"bad\"", "m a=3", "m a=4"]);
        let (rejected, errors) = write(&mut open::<InfluxdbConfig>(&yaml).await, &messages).await;
        assert_eq!((rejected.len(), rejected[0].0, errors.len()), (1, 1, 1));
        assert!(rejected[0].1.ends_with(end), "{}", rejected[0].1);
        assert_eq!(server.got().len(), requests);
    }
}

#[test]
fn mistakes_are_named() {
    let mistakes = |yaml: &str| messages(options::<InfluxdbConfig>(yaml).check());
    assert_eq!(mistakes("{ url: a }"), ["There is nothing to write to."]);
    assert_eq!(mistakes("{ url: a, database: d, bucket: b }"), ["A `bucket` is not in a `database`."]);
    assert_eq!(mistakes("{ url: a, database: d, org: o }"), ["A `database` has no organisation."]);
    assert_eq!(mistakes("{ url: a, bucket: b, retention_policy: r }"), ["A `bucket` has its own retention."]);
    assert_eq!(
        mistakes("{ url: a, bucket: b, tags: t }"),
        ["Without `measurement`, the payload is a whole line."]
    );
}

/// Divides a line at a character that has no backslash before it and is in no quotes: as the server does.
fn divided(line: &str, at: char) -> Vec<String> {
    let (mut pieces, mut is_escaped, mut is_quoted) = (vec![String::new()], false, false);
    for character in line.chars() {
        if character == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        if character == at && !is_escaped && !is_quoted {
            pieces.push(String::new());
        } else {
            pieces.last_mut().unwrap().push(character);
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    pieces
}

proptest! {
    #[test]
    fn no_text_adds_a_tag_a_field_or_a_point(tag in "[a,= ]{1,6}", text in "[a\"\\\\,= \n]{0,8}") {
        let messages = with_text(batch(["x"]), "tag", &[Some(&tag)]);
        let messages = with_text(messages, "text", &[Some(&text)]);
        let (lines, _) = lines(points("m", &["tag"], None, None), &messages);
        let line = lines[0].strip_suffix('\n').unwrap();
        let parts = divided(line, ' ');
        prop_assert_eq!(parts.len(), 3);
        prop_assert_eq!(divided(&parts[0], ',').len(), 2);
        prop_assert_eq!(divided(&parts[1], ',').len(), 1);
        prop_assert_eq!(divided(line, '\n').len(), 1);
    }
}
