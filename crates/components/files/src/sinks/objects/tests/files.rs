//! Whole files as objects, beside those of other files and earlier runs.

use super::runs::Runs;
use super::*;

#[tokio::test]
async fn files_of_one_name_do_not_replace_each_other() {
    let runs = Runs::new("", 1);
    let files: Vec<_> = ["a", "b", "c"]
        .into_iter()
        .map(|folder| {
            let path = runs.folder.path().join("in").join(folder).join("x.txt");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, folder).unwrap();
            path
        })
        .collect();
    let run = async |numbers: &[usize], rest: &str| {
        let config = sink(runs.folder.path(), rest);
        let context = Context { resumes: true, journal: Some(runs.journal.clone()), ..context() };
        let mut results = Vec::new();
        for &number in numbers {
            // Each worker has a transform of its own.
            let mut transform = config.files().unwrap().0.build(&context).unwrap();
            let mut file = thalweg_engine::testing::file_at(&files[number]);
            results.push(transform.apply(&mut file).await.map(drop).map_err(|error| format!("{error:?}")));
        }
        results
    };
    let several = "/out/', name: '{name}'";
    run(&[0, 1], several).await;
    // Another run, in which files come again whose delivery was not saved.
    run(&[2, 1, 0], several).await;
    let out: Vec<_> = runs.objects().into_iter().filter(|(name, _)| name.starts_with("out/")).collect();
    assert_eq!(out, named(&[("out/x-2.txt", "b"), ("out/x-3.txt", "c"), ("out/x.txt", "a")]));
    // A changed file replaces its own object.
    fs::write(&files[1], "changed").unwrap();
    run(&[1], several).await;
    assert_eq!(fs::read_to_string(runs.folder.path().join("out/x-2.txt")).unwrap(), "changed");
    let results = run(&[0, 1], "/single'").await;
    assert!(results[0].is_ok());
    assert!(results[1].as_ref().unwrap_err().contains("`url` is for several files"), "{results:?}");
    assert_eq!(fs::read_to_string(runs.folder.path().join("single")).unwrap(), "a");
}

#[tokio::test]
async fn files_that_come_only_once_do_not_replace_those_of_an_earlier_run() {
    type OfRuns = fn(&Runs) -> Option<Journal>;
    let (with_journal, none): (OfRuns, OfRuns) = (|runs| Some(runs.journal.clone()), |_| None);
    for (starts_over, journal, expected) in [
        (true, none, vec![("out/a", "new")]),
        (false, none, vec![("out/a", "old"), ("out/a-2", "new")]),
        (false, with_journal, vec![("out/a", "old"), ("out/a-2", "new")]),
    ] {
        let runs = Runs::new("", 1);
        for text in ["old", "new"] {
            let journal = journal(&runs);
            let context = Context { resumes: journal.is_some(), starts_over, journal, ..context() };
            let config = sink(runs.folder.path(), "/out/'");
            let mut transform = config.files().unwrap().0.build(&context).unwrap();
            let mut file = thalweg_engine::testing::file_of("a", text.as_bytes());
            transform.apply(&mut file).await.unwrap();
        }
        assert_eq!(runs.objects(), named(&expected));
    }
}

#[tokio::test]
async fn two_outputs_of_a_file_do_not_replace_each_other_and_a_file_that_is_read_again_replaces_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in");
    let sink = sink(folder.path(), "/out/', name: x");
    let mut files = sink.files().unwrap().0.build(&context()).unwrap();
    let read = |content: &str| {
        fs::write(&path, content).unwrap();
        thalweg_engine::testing::file_at(&path)
    };
    // As from two pipelines.
    let first = read("one");
    for mut file in [first.share(), first] {
        files.apply(&mut file).await.unwrap();
    }
    files.apply(&mut read("two")).await.unwrap();
    assert_eq!(below(folder.path()).0, named(&[("in", "two"), ("out/x", "two"), ("out/x-2", "one")]));
}

#[tokio::test]
async fn a_file_that_is_built_again_replaces_the_object_that_it_was_before() {
    for existing in ["replace", "update", "skip", "error"] {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Arc::new(thalweg_engine::Store::open(state.path()).unwrap());
        let journal = Some(thalweg_engine::Journal::new(store, "out"));
        let context = Context { resumes: true, journal, ..context() };
        for (name, key, content) in [("x-1", "1", "old"), ("x-2", "1", "new"), ("x-3", "2", "next")] {
            let mut origin = Origin::new("main.pack".into(), name.into(), 3);
            origin.key = Some(key.into());
            let mut file = File::new(origin, Content::from(content.as_bytes().to_vec()));
            let sink = sink(folder.path(), &format!("/', existing: {existing}"));
            sink.files().unwrap().0.build(&context).unwrap().apply(&mut file).await.unwrap();
        }
        let expected = [("x-1", "new"), ("x-3", "next")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(below(folder.path()).0, expected, "{existing}");
    }
}
