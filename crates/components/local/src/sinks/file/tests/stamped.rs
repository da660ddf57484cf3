//! Pieces whose names have a time stamp, and a number only if the name is taken, with a link to the current
//! one.

use super::*;

/// Rotation with names as gollum's.
const ROTATE: &str =
    "size: 8B, timestamp: '%Y', separator: _, numbers: if_taken, link: '{stem}_current{extension}'";

fn yaml(rest: &str) -> String {
    format!("{{ path: DIR/o.log, rotate: {{ {ROTATE}{rest}")
}

/// Returns the names of all pieces, with `Y` for the year.
fn names(folder: &Folder) -> Vec<String> {
    let year = chrono::Local::now().format("%Y").to_string();
    let is_link = |name: &str| fs::symlink_metadata(folder.path(name)).unwrap().is_symlink();
    let names = folder.files().into_iter().map(|(name, _)| name).filter(|name| !is_link(name));
    names.map(|name| name.replace(&year, "Y")).collect()
}

fn leads_to(folder: &Folder) -> String {
    let year = chrono::Local::now().format("%Y").to_string();
    let target = fs::read_link(folder.path("o_current.log")).unwrap();
    target.to_str().unwrap().replace(&year, "Y")
}

#[tokio::test]
async fn a_name_gets_a_number_only_if_it_is_taken() {
    let lines = || [batch(["one two", "three", "four"])];
    for (rest, expected) in [
        ("}", ["o_Y.log", "o_Y_1.log", "o_Y_2.log"]),
        (", digits: 3 }", ["o_Y.log", "o_Y_001.log", "o_Y_002.log"]),
        (", compression: gzip }", ["o_Y.log.gz", "o_Y_1.log.gz", "o_Y_2.log.gz"]),
        ("}, atomic: false", ["o_Y.log", "o_Y_1.log", "o_Y_2.log"]),
    ] {
        let folder = Folder::new();
        let yaml = yaml(rest) + " }";
        write_all::<FileConfig>(&folder.yaml(&yaml), lines()).await.unwrap();
        let mut found = names(&folder);
        found.sort_by_key(|name| (name.len(), name.clone()));
        assert_eq!(found, expected);
        assert_eq!(leads_to(&folder), expected[2]);
        // A run that appends keeps all of them, and one that replaces begins again.
        let append = yaml.replace("rotate:", "existing: append, rotate:");
        write_all::<FileConfig>(&folder.yaml(&append), [batch(["five"])]).await.unwrap();
        assert_eq!(names(&folder).len(), 4);
        assert_eq!(leads_to(&folder), expected[2].replace('2', "3"));
        write_all::<FileConfig>(&folder.yaml(&yaml), [batch(["six"])]).await.unwrap();
        assert_eq!(names(&folder), [expected[0]]);
        assert_eq!(leads_to(&folder), expected[0]);
    }
}

#[tokio::test]
async fn the_link_leads_to_the_file_being_written_and_a_roll_changes_it() {
    let folder = Folder::new();
    let mut sink = folder.sink(&(yaml("}") + " }"), false);
    sink.open(None).await.unwrap();
    assert_eq!(leads_to(&folder), "o_Y.log.part");
    write(&mut *sink, &batch(["one"])).await;
    let current = || fs::read_to_string(folder.path("o_current.log")).unwrap();
    assert_eq!(current(), "one\n");
    sink.reopen().await.unwrap();
    assert_eq!(leads_to(&folder), "o_Y.log");
    write(&mut *sink, &batch(["two"])).await;
    assert_eq!((leads_to(&folder).as_str(), current().as_str()), ("o_Y_1.log.part", "two\n"));
    sink.finish().await.unwrap();
    assert_eq!((leads_to(&folder).as_str(), current().as_str()), ("o_Y_1.log", "two\n"));
    // Nothing was written to the last piece of this run: the link leads back.
    let mut sink = folder.sink(&(yaml("}") + ", existing: append }"), false);
    sink.open(None).await.unwrap();
    assert_eq!(leads_to(&folder), "o_Y_2.log.part");
    sink.finish().await.unwrap();
    assert_eq!(leads_to(&folder), "o_Y_1.log");
    assert_eq!(names(&folder), ["o_Y.log", "o_Y_1.log"]);
}

#[tokio::test]
async fn the_oldest_pieces_are_pruned_whatever_their_names_and_others_stay() {
    let folder = Folder::new();
    let others = ["o_2026.txt", "o_2026_x.log", "o_current.txt", "o-2026.log"];
    others.iter().for_each(|name| folder.put(name, "not a piece"));
    for (name, age) in [("o_2005.log", 900), ("o_2004_2.log", 600), ("o_2004_10.log.gz", 300)] {
        folder.put(name, "old\n");
        let then = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
        let file = fs::File::open(folder.path(name)).unwrap();
        file.set_times(fs::FileTimes::new().set_modified(then)).unwrap();
    }
    let yaml = yaml(", keep: 3, compression: gzip }") + ", existing: append }";
    write_all::<FileConfig>(&folder.yaml(&yaml), [batch(["one two", "three"])]).await.unwrap();
    let mut found = names(&folder);
    found.retain(|name| !others.contains(&name.replace('Y', "2026").as_str()));
    assert_eq!(found, ["o_2004_10.log.gz", "o_Y.log.gz", "o_Y_1.log.gz"]);
    let ages = ["o_2004_10.log.gz", "o_current.log"].map(|name| fs::metadata(folder.path(name)).unwrap());
    assert!(ages[0].modified().unwrap() < ages[1].modified().unwrap());
}

#[tokio::test]
async fn pieces_of_one_moment_have_names_of_their_own_for_each_value() {
    let folder = Folder::new();
    let yaml = folder.yaml(&format!("{{ path: 'DIR/{{k}}.log', rotate: {{ {ROTATE} }} }}"));
    write_all::<FileConfig>(&yaml, [keyed(&[("a", "1"), ("b", "2")])]).await.unwrap();
    assert_eq!(names(&folder), ["a_Y.log", "b_Y.log"]);
    for name in ["a", "b"] {
        let link = fs::read_link(folder.path(&format!("{name}_current.log"))).unwrap();
        assert!(link.to_str().unwrap().starts_with(&format!("{name}_2")), "{link:?}");
    }
}

#[tokio::test]
async fn a_file_in_the_place_of_the_link_stops_the_run_and_stays() {
    let folder = Folder::new();
    folder.put("o_current.log", "precious");
    let yaml = folder.yaml(&(yaml("}") + " }"));
    let error = write_all::<FileConfig>(&yaml, [batch(["one"])]).await.unwrap_err().full();
    let expected = "o_current.log` is not a symbolic link: remove it, or choose another name for `link`";
    assert!(error.contains(expected), "{error}");
    assert_eq!(fs::read_to_string(folder.path("o_current.log")).unwrap(), "precious");
}

/// The name of the link below holds `.part` of a killed process, and the state is that of the first piece.
#[tokio::test]
async fn the_pieces_after_a_checkpoint_are_removed_though_their_names_have_no_order() {
    for rest in ["}", "}, atomic: false", ", compression: gzip }"] {
        let folder = Folder::new();
        let (_store, context) = with_journal();
        let yaml = yaml(rest) + " }";
        let mut sink = folder.sink_in(&yaml, &context);
        sink.open(None).await.unwrap();
        write(&mut *sink, &batch(["one"])).await;
        sink.flush().await.unwrap();
        let state = sink.state();
        // A later piece may have an earlier time stamp, if the clock is set back.
        write(&mut *sink, &batch(["two", "three", "four"])).await;
        folder.put("o_current.log.part", "");
        drop(sink);
        folder.put("o_1999.log", "of another run");
        for _ in 0..2 {
            let mut sink = folder.sink_in(&yaml, &context);
            sink.open(state.clone()).await.unwrap();
            assert_eq!(names(&folder).len(), 2, "{:?}", names(&folder));
            write(&mut *sink, &batch(["two", "three", "four"])).await;
        }
        let mut sink = folder.sink_in(&yaml, &context);
        sink.open(state).await.unwrap();
        write(&mut *sink, &batch(["two", "three", "four"])).await;
        sink.finish().await.unwrap();
        let mut pieces = names(&folder);
        pieces.sort_by_key(|name| (name.len(), name.clone()));
        let year = chrono::Local::now().format("%Y").to_string();
        let how = if rest.contains("gzip") { "gzip" } else { "none" };
        let texts = pieces.iter().filter(|name| !name.starts_with("o_1999"));
        let texts: Vec<String> =
            texts.map(|name| decompressed(&folder.path(&name.replace('Y', &year)), how)).collect();
        assert_eq!(texts, ["one\ntwo\n", "three\n", "four\n"], "{rest}");
    }
}

/// The folder was listed for each piece, so that a thousand pieces took a thousand lists.
#[tokio::test]
async fn the_folder_is_not_listed_again_for_each_piece() {
    let folder = Folder::new();
    let mut sink = folder.sink(&(yaml("}") + " }"), false);
    sink.open(None).await.unwrap();
    write(&mut *sink, &batch(["one two", "three"])).await;
    let year = chrono::Local::now().format("%Y").to_string();
    // A list would show it, and the next piece would come after it. An existing name is not taken.
    folder.put(&format!("o_{year}_90.log"), "of another program");
    folder.put(&format!("o_{year}_2.log"), "of another program");
    write(&mut *sink, &batch(["four five"])).await;
    sink.finish().await.unwrap();
    assert_eq!(names(&folder), ["o_Y.log", "o_Y_1.log", "o_Y_2.log", "o_Y_3.log", "o_Y_90.log"]);
}
