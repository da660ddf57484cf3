//! Runs of more sinks than the runtime has blocking threads.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::House;

/// A configuration of one source that leads to many sinks. `options` says what a sink of a number is.
fn configuration(source: &str, count: usize, options: impl Fn(usize) -> String) -> String {
    let names: Vec<String> = (0..count).map(|number| format!("s{number}")).collect();
    let sinks: Vec<String> =
        names.iter().enumerate().map(|(number, name)| format!("  {name}: {}\n", options(number))).collect();
    format!(
        "memory: 8MiB\nsources: {{ in: {{ generate: {source} }} }}\n\
         pipelines: {{ main: {{ from: in, to: [{}] }} }}\nsinks:\n{}",
        names.join(", "),
        sinks.concat()
    )
}

#[test]
fn two_thousand_sinks_get_everything() {
    let message = format!("{{ message: {}, count: 15000 }}", "x".repeat(100));
    let many = configuration(&message, 2_000, |_| "{ discard: {} }".to_owned());
    House::with(&[("many.yaml", &many)]).run_well(&["run", "many.yaml", "--quiet"]);
}

#[test]
fn two_thousand_files_get_everything() {
    let message = format!("{{ message: {}, count: 5000 }}", "x".repeat(100));
    let many = configuration(&message, 2_000, |number| format!("{{ file: {{ path: out/{number} }} }}"));
    let house = House::with(&[("many.yaml", &many)]);
    house.run_well(&["run", "many.yaml", "--quiet"]);
    for number in 0..2_000 {
        let size = fs::metadata(house.path().join(format!("out/{number}"))).unwrap().len();
        assert_eq!(size, 5_000 * 101, "out/{number}");
    }
}

#[test]
#[cfg(unix)]
fn a_run_of_many_sinks_ends_on_sigterm() {
    let many =
        configuration(&format!("{{ message: {} }}", "x".repeat(100)), 700, |_| "{ discard: {} }".to_owned());
    let house = House::with(&[("many.yaml", &many)]);
    let mut child =
        house.command(&["run", "many.yaml"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let begun = Instant::now();
    let ended = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(50) {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(ended.success(), "{ended}");
}
