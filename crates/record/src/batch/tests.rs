use super::*;
use arrow_array::StringArray;

fn meta() -> Arc<Meta> {
    Arc::new(Meta {
        source: "test".into(),
        path: Some("a/path/to/a/file.log".into()),
        time_us: 1,
        sequence: None,
        number: 0,
    })
}

fn batch(lines: &[&str]) -> Batch {
    let mut writer = PayloadWriter::default();
    lines.iter().for_each(|line| writer.push(line.as_bytes()));
    Batch::new(writer.finish(), meta(), Ack::noop())
}

fn lines(batch: &Batch) -> Vec<String> {
    batch.payload().iter().map(|v| String::from_utf8_lossy(v.unwrap_or_default()).into_owned()).collect()
}

#[test]
fn a_partition_holds_every_message_once_and_null_counts_as_no() {
    let condition = BooleanArray::from(vec![Some(true), None, Some(false), Some(true)]);
    let (yes, no) = batch(&["a", "b", "c", "d"]).partition(&condition).unwrap();
    assert_eq!(lines(&yes.unwrap()), ["a", "d"]);
    assert_eq!(lines(&no.unwrap()), ["b", "c"]);
}

#[test]
fn a_batch_is_split_after_some_rows_and_a_part_without_rows_is_none() {
    let (first, rest) = batch(&["a", "b", "c"]).split_at(1);
    assert_eq!((lines(&first), lines(&rest.unwrap())), (vec!["a".into()], vec!["b".into(), "c".into()]));
    let (first, rest) = batch(&["a", "b"]).split_at(2);
    assert!(lines(&first) == ["a", "b"] && rest.is_none());
}

#[test]
fn the_bytes_are_counted_once_however_many_share_them_and_all_come_back() {
    let budget = Budget::new(1 << 20);
    let line = "x".repeat(1000);
    let whole = batch(&[line.as_str(); 100]);
    whole.claim(&budget);
    let counted = budget.used();
    assert!(counted >= 100_000, "{counted}");
    let second = whole.share();
    second.claim(&budget);
    whole.claim(&budget);
    assert_eq!(budget.used(), counted);
    drop(whole);
    assert_eq!(budget.used(), counted);
    drop(second);
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_few_messages_do_not_keep_the_buffer_of_many() {
    let budget = Budget::new(1 << 20);
    let line = "x".repeat(1000);
    let keep: BooleanArray = (0..100).map(|row| Some(row % 50 == 0)).collect();
    let few = batch(&[line.as_str(); 100]).filter(&keep).unwrap().unwrap();
    few.claim(&budget);
    assert!(budget.used() < 5000, "{}", budget.used());
    assert_eq!(lines(&few), [line.clone(), line]);
}

#[test]
fn names_reach_fields_payload_and_meta() {
    let field: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let batch = batch(&["a", "b"]).set_fields([(Field::new("f", DataType::Utf8, true), field)]).unwrap();
    assert_eq!(batch.column("f").unwrap().as_string::<i32>().value(1), "y");
    assert_eq!(batch.column("payload").unwrap().as_string_view().value(0), "a");
    assert_eq!(batch.column("meta.source").unwrap().as_string_view().value(1), "test");
    assert_eq!(batch.column("meta.path").unwrap().as_string_view().value(1), "a/path/to/a/file.log");
    assert!(batch.column("meta.position").is_none());
    assert!(batch.column("nothing").is_none());
}

#[test]
fn a_field_does_not_hide_metadata() {
    let field: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let field = (Field::new("meta.source", DataType::Utf8, true), field);
    let batch = batch(&["a"]).set_fields([field]).unwrap();
    assert_eq!(batch.column("meta.source").unwrap().as_string_view().value(0), "test");
    assert!(batch.field("meta.source").is_none() && batch.fields().num_columns() == 1);
}

#[test]
fn what_is_not_utf8_is_shown_replaced_and_kept_as_it_was() {
    let mut writer = PayloadWriter::default();
    writer.push(b"ok");
    writer.push(b"\xff\xfe");
    let batch = Batch::new(writer.finish(), meta(), Ack::noop());
    assert_eq!(batch.column("payload").unwrap().as_string_view().value(1), "\u{fffd}\u{fffd}");
    assert_eq!(batch.payload().value(1), b"\xff\xfe");
}

#[test]
fn one_message_made_into_several_gives_each_its_fields() {
    let field: ArrayRef = Arc::new(StringArray::from(vec!["x", "y"]));
    let made = batch(&["a", "b"])
        .with_positions(UInt64Array::from(vec![0, 2]))
        .unwrap()
        .set_fields([(Field::new("f", DataType::Utf8, true), field)])
        .unwrap()
        .expand(batch(&["1", "2", "3"]).payload().clone(), vec![1, 1, 0])
        .unwrap()
        .unwrap();
    assert_eq!(lines(&made), ["1", "2", "3"]);
    let fields = made.column("f").unwrap();
    assert_eq!(fields.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["y", "y", "x"]);
    assert_eq!(made.positions().unwrap().values(), &[2, 2, 0]);
    let expanded =
        |rows| batch(&["a"]).expand(batch(&["1"]).payload().clone(), rows).unwrap_err().to_string();
    let beyond = "Invalid argument error: row 1 is out of range: the batch has 1 messages";
    assert_eq!(expanded(vec![1]), beyond);
    assert_eq!(batch(&["a"]).select(&[1]).unwrap_err().to_string(), beyond);
    assert_eq!(expanded(vec![]), "Invalid argument error: 1 values for 0 messages");
}

#[test]
fn merged_batches_have_all_messages_in_order() {
    let merged = Batch::merge(vec![batch(&["a", "b"]), batch(&["c"])]).unwrap().unwrap();
    assert_eq!(lines(&merged), ["a", "b", "c"]);
}

#[test]
fn columns_count_beside_the_payloads() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["four", "12 bytes more"]));
    let views: ArrayRef = Arc::new(StringViewArray::from(vec!["a text that other batches may share"; 2]));
    let made = batch(&["a", "b"])
        .set_fields([
            (Field::new("n", DataType::Int64, true), numbers),
            (Field::new("t", DataType::Utf8, true), texts),
            (Field::new("v", DataType::Utf8View, true), views),
        ])
        .unwrap();
    assert_eq!(
        (made.payload_bytes(), made.columns_bytes()),
        (2, 2 * 16 + 3 * 256 + 2 * 8 + (17 + 2 * 4) + 2 * 16)
    );
    let positions = made.with_positions(UInt64Array::from(vec![0, 1])).unwrap();
    assert_eq!(positions.columns_bytes(), 2 * 24 + 3 * 256 + 2 * 8 + 25 + 2 * 16);
}

/// The lines of a part, and the names of its fields.
type Part = (Vec<String>, Vec<String>);

fn parts(fields: &[(&str, &[Option<&str>])], lines_of: &[&str]) -> Result<Vec<Part>, ArrowError> {
    let column = |(name, values): &(&str, &[Option<&str>])| {
        (
            Field::new(*name, DataType::Utf8View, true),
            Arc::new(StringViewArray::from(values.to_vec())) as ArrayRef,
        )
    };
    let whole = batch(lines_of).set_fields(fields.iter().map(column))?;
    let names =
        |part: &Batch| part.fields().schema().fields().iter().map(|field| field.name().clone()).collect();
    Ok(whole.by_intrinsic_fields().iter().map(|part| (lines(part), names(part))).collect())
}

#[test]
fn messages_without_a_field_called_payload_have_their_payload() {
    let strings = |of: &[&str]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
    let given = parts(
        &[("n", &[Some("1"), None, None, None]), ("payload", &[None, Some("x"), Some("y"), None])],
        &["a", "b", "c", "d"],
    )
    .unwrap();
    assert_eq!(
        given,
        [
            (strings(&["a"]), strings(&["n"])),
            (strings(&["b", "c"]), strings(&["n", "payload"])),
            (strings(&["d"]), strings(&["n"])),
        ]
    );
    let given = parts(&[("meta.time", &[None, Some("t")]), ("payload", &[None, None])], &["a", "b"]).unwrap();
    assert_eq!(given, [(strings(&["a", "b"]), strings(&["meta.time"]))]);
    let whole = parts(&[("payload", &[Some("x"), Some("y")])], &["a", "b"]).unwrap();
    assert_eq!(whole, [(strings(&["a", "b"]), strings(&["payload"]))]);
}

#[test]
fn the_parts_of_a_divided_batch_decide_its_outcome() {
    let settled = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = settled.clone();
    let ack = Ack::new("test".into(), move |settlement| seen.lock().push(settlement.outcome));
    let column = Arc::new(StringViewArray::from(vec![None, Some("x")])) as ArrayRef;
    let whole = batch(&["a", "b"])
        .with_ack(ack)
        .set_fields([(Field::new("payload", DataType::Utf8View, true), column)]);
    let parts = whole.unwrap().by_intrinsic_fields();
    assert!(settled.lock().is_empty());
    parts.into_iter().for_each(|part| part.settle(Outcome::Filtered));
    assert_eq!(*settled.lock(), [Outcome::Filtered]);
}
