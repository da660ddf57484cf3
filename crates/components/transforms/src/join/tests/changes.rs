//! Tables that change while messages flow, and their memory.

use thalweg_engine::Outputs;

use super::*;

/// Applies one transform to a message, and returns the name that it finds.
fn name_of(transform: &mut dyn Transform, customer: &str) -> Value {
    let mut out = Outputs::new("test".into());
    transform.apply(with_text(&["1"], &[("customer", &[Some(customer)])]), &mut out).unwrap();
    let [(Output::Main, batch)] = &out.take()[..] else { panic!("one batch") };
    testing::rows(batch.fields())[0].get("name").cloned().unwrap_or_default()
}

#[test]
fn a_table_that_changes_is_read_again_and_one_that_breaks_is_not() {
    let house = customers();
    let context = testing::context();
    let join = testing::options::<Join>(&house.yaml("on: customer, refresh_interval: 0s"));
    let mut workers = [join.build(&context).unwrap(), join.build(&context).unwrap()];
    let mut find = |customer: &str| workers.each_mut().map(|worker| name_of(&mut **worker, customer));
    assert_eq!(find("c8"), [json!("Bob"), json!("Bob")]);
    house.write("customer,name,since\nc8,Robert,2020\n");
    // The first look finds a file that a program may still be writing.
    assert_eq!(find("c8"), [json!("Bob"), json!("Robert")]);
    assert_eq!(find("c8"), [json!("Robert"), json!("Robert")]);
    assert_eq!(find("c7"), [Value::Null, Value::Null]);
    for broken in ["customer,name\nc8\n", "id,name\nc8,No\n", "customer,name\nc8,a\nc8,b\n"] {
        house.write(broken);
        for _ in 0..2 {
            assert_eq!(find("c8"), [json!("Robert"), json!("Robert")], "{broken}");
        }
    }
    std::fs::remove_file(house.path()).unwrap();
    for _ in 0..2 {
        assert_eq!(find("c8"), [json!("Robert"), json!("Robert")]);
    }
    // A program replaces the file by a complete one.
    let new = house.folder.path().join("new");
    std::fs::write(&new, "customer,name\nc8,Rob\n").unwrap();
    std::fs::rename(&new, house.path()).unwrap();
    assert_eq!(find("c8"), [json!("Robert"), json!("Rob")]);
    assert_eq!(find("c8"), [json!("Rob"), json!("Rob")]);
}

#[test]
fn a_table_that_changed_long_ago_is_read_at_the_first_look() {
    let house = customers();
    let join = testing::options::<Join>(&house.yaml("on: customer, refresh_interval: 0s"));
    let mut worker = join.build(&testing::context()).unwrap();
    assert_eq!(name_of(&mut *worker, "c8"), json!("Bob"));
    house.write("customer,name\nc8,Robert\n");
    house.modified(-1);
    assert_eq!(name_of(&mut *worker, "c8"), json!("Robert"));
    house.write("customer,name\nc8,Rob\n");
    house.modified(1);
    assert_eq!(name_of(&mut *worker, "c8"), json!("Robert"));
    assert_eq!(name_of(&mut *worker, "c8"), json!("Rob"));
}

#[test]
fn a_table_that_grows_between_looks_is_not_read_in_part() {
    let house = customers();
    let join = testing::options::<Join>(&house.yaml("on: customer, refresh_interval: 0s"));
    let mut worker = join.build(&testing::context()).unwrap();
    let mut text = "customer,name\nc8,Rob".to_owned();
    for part in ["ert\n", "c9,Ann\n", "c10,Eve\n"] {
        house.write(&text);
        assert_eq!(name_of(&mut *worker, "c8"), json!("Bob"));
        text.push_str(part);
    }
    house.write(&text);
    assert_eq!(name_of(&mut *worker, "c10"), Value::Null);
    assert_eq!(name_of(&mut *worker, "c10"), json!("Eve"));
    assert_eq!(name_of(&mut *worker, "c8"), json!("Robert"));
}

#[test]
fn a_file_that_could_not_be_read_for_a_time_is_read_when_it_can() {
    let house = customers();
    let join = testing::options::<Join>(&house.yaml("on: customer, refresh_interval: 0s"));
    let mut worker = join.build(&testing::context()).unwrap();
    let aside = house.folder.path().join("aside");
    std::fs::rename(house.path(), &aside).unwrap();
    for _ in 0..3 {
        assert_eq!(name_of(&mut *worker, "c8"), json!("Bob"));
    }
    std::fs::write(&aside, "customer,name\nc8,Rob\n").unwrap();
    std::fs::rename(&aside, house.path()).unwrap();
    assert_eq!(name_of(&mut *worker, "c8"), json!("Bob"));
    assert_eq!(name_of(&mut *worker, "c8"), json!("Rob"));
}

#[test]
fn a_table_is_read_again_only_when_it_is_time() {
    let house = customers();
    let context = testing::context();
    let join = testing::options::<Join>(&house.yaml("on: customer, refresh_interval: 365d"));
    let mut worker = join.build(&context).unwrap();
    house.write("customer,name\nc8,Robert\n");
    assert_eq!(name_of(&mut *worker, "c8"), json!("Bob"));
}

#[test]
fn a_table_counts_on_the_memory_once_and_until_its_last_message() {
    let text = |name: &str| {
        let rows: String =
            (0..1000).map(|n| format!("c{n},{}\n", format!("{name} {n} ").repeat(5))).collect();
        format!("customer,name\n{rows}")
    };
    let house = House::with("t.csv", &text("one"));
    let context = testing::context();
    let budget = context.memory.budget().clone();
    let join = testing::options::<Join>(&house.yaml("on: customer, refresh_interval: 0s"));
    let mut worker = join.build(&context).unwrap();
    let used = budget.used();
    assert!((50_000..500_000).contains(&used), "{used}");
    let mut second = join.build(&context).unwrap();
    assert!(name_of(&mut *second, "c1").as_str().unwrap().starts_with("one"));
    assert_eq!(budget.used(), used);
    let mut out = Outputs::new("test".into());
    worker.apply(with_text(&["1"], &[("customer", &[Some("c1")])]), &mut out).unwrap();
    let found = out.take();
    house.write(&text("other"));
    assert!(name_of(&mut *worker, "c1").as_str().unwrap().starts_with("one"));
    assert!(name_of(&mut *worker, "c1").as_str().unwrap().starts_with("other"));
    // A worker that has had no batch since does not keep the former table: only its texts are there.
    let both = budget.used();
    assert!(both < used + 60_000, "{both}");
    drop((worker, second, join));
    // The message has views of the former texts.
    let left = budget.used();
    assert!((20_000..used).contains(&left), "{left}");
    drop(found);
    assert_eq!(budget.used(), 0);
}
