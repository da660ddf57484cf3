//! Metrics are read from a program that exposes them, and written to a receiver of remote write.

use thalweg_testkit::servers::{Mood, Server, System};

use crate::common::House;

#[test]
fn metrics_that_are_scraped_arrive_at_a_receiver_as_they_are() {
    let exposes = Server::system(System::Metrics, Mood::Well).unwrap();
    let receives = Server::system(System::Prometheus, Mood::Well).unwrap();
    let configuration = format!(
        "sources: {{ program: {{ prometheus_scrape: {{ url: '{}', labels: {{ job: test }} }} }} }}\n\
         pipelines: {{ main: {{ from: program, to: metrics }} }}\n\
         sinks:\n  metrics:\n    prometheus_remote_write:\n      url: 'http://{}'\n      labels: {{ record: '{{payload}}' }}\n",
        exposes.address(),
        receives.address()
    );
    let house = House::with(&[("metrics.yaml", &configuration)]);
    house.run_well(&["run", "--strict", "metrics.yaml"]);
    let received = String::from_utf8(receives.received().unwrap()).unwrap();
    assert_eq!(received, "requests_total{code=\"200\"} 5\nup 1\n");
}
