use super::*;
use thalweg_record::{Output, testing};

fn built(kind: FieldType, pieces: &[&str]) -> Vec<Result<(), Misfit>> {
    let mut builder = ColumnBuilder::new(kind, &[], pieces.len());
    pieces.iter().map(|piece| builder.push(piece)).collect()
}

#[test]
fn what_fits_a_type_is_read_and_what_does_not_is_refused() {
    use FieldType::*;
    for (kind, fitting, misfits) in [
        (
            Int,
            &["0", "-5", "+7", " 12 ", "9223372036854775807"][..],
            &["", "1.0", "9223372036854775808", "x"][..],
        ),
        (Float, &["0", "1.5", "-1e300", "nan", " .5"], &["", "1,5", "x"]),
        (Bool, &["true", "YES", "0", "off"], &["", "2", "tru"]),
        (Timestamp, &["2024-01-02T03:04:05Z", "1700000000"], &["", "soon"]),
        (Json, &["{}", "[1, 2]", "null"], &["", "{", "x"]),
        (Text, &["", "x"], &[]),
    ] {
        assert!(built(kind, fitting).iter().all(Result::is_ok), "{kind:?}");
        assert!(built(kind, misfits).iter().all(Result::is_err), "{kind:?}");
    }
}

#[test]
fn the_schema_of_batches_of_one_schema_is_one_object() {
    let mut columns = Columns::new(Typing::new(&BTreeMap::new(), None), ["a"]);
    let mut out = Outputs::new("test".into());
    for row in ["one", "two"] {
        let batch = testing::batch([row]);
        columns.begin(batch.payload().data_buffers(), 1);
        columns.push(0, row).unwrap();
        columns.finish(batch, &mut out).unwrap();
    }
    let schemas: Vec<_> = out.take().into_iter().map(|(_, batch)| batch.fields().schema()).collect();
    assert!(Arc::ptr_eq(&schemas[0], &schemas[1]));
}

#[test]
fn a_field_of_the_same_name_is_replaced_in_its_place_and_kept_in_what_is_rejected() {
    let text: ArrayRef = Arc::new(arrow_array::StringViewArray::from(vec!["old", "old"]));
    let field = |name| Field::new(name, DataType::Utf8View, true);
    let batch =
        testing::batch(["x", "y"]).set_fields([(field("a"), text.clone()), (field("b"), text)]).unwrap();
    let mut columns = Columns::new(Typing::new(&BTreeMap::new(), None), ["c", "a"]);
    let mut out = Outputs::new("test".into());
    columns.begin(&[], 2);
    columns.push(0, "new c").unwrap();
    columns.push(1, "new a").unwrap();
    columns.fail(1, "no".into());
    columns.finish(batch, &mut out).unwrap();
    let mut given = out.take();
    given.sort_by_key(|(output, _)| *output);
    let rows: Vec<_> = given.iter().map(|(_, batch)| testing::rows(batch.fields())[0].to_string()).collect();
    assert_eq!(given[0].0, Output::Main);
    assert_eq!(rows[0], r#"{"a":"new a","b":"old","c":"new c"}"#);
    assert!(rows[1].contains(r#""a":"old""#), "{}", rows[1]);
}
