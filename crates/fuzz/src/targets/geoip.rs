//! Databases of places, which the transform `geoip` reads: a damaged one gives errors.

use std::fs;

use tempfile::TempDir;
use thalweg_engine::testing::{batch_with, context, options};
use thalweg_engine::{Outputs, TransformConfig};
use thalweg_record::{Ack, Outcome};
use thalweg_transforms::geoip::GeoIp;

use crate::Target;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "geoip",
    components: &["geoip"],
    longest: 8 << 10,
    words: &["\u{ab}\u{cd}\u{ef}MaxMind.com", "node_count", "record_size", "ip_version", "iso_code", "names"],
    run,
};

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

fn run(bytes: &[u8]) {
    FOLDER.with(|folder| {
        let path = folder.path().join("places.mmdb");
        fs::write(&path, bytes).expect("it is written");
        let yaml = format!(
            "{{ database: '{}', fields: [city, country, location, timezone, proxy] }}",
            path.display()
        );
        bounded((4 << 20) + 40 * bytes.len(), || look_up(&yaml));
    });
}

fn look_up(yaml: &str) {
    let Ok(mut transform) = options::<GeoIp>(yaml).build(&context()) else { return };
    let mut out = Outputs::new("test".into());
    let addresses: [&[u8]; 4] = [b"81.2.69.142", b"2001:db8::1", b"0.0.0.0", b"none"];
    let batch = batch_with(addresses, Ack::new("test".into(), |_| {}));
    transform.apply(batch, &mut out).expect("a transform does not fail as a whole");
    let mut rows = 0;
    for (_, batch) in out.take() {
        rows += batch.rows();
        batch.settle(Outcome::Delivered);
    }
    assert_eq!(rows, addresses.len(), "messages that left");
}
