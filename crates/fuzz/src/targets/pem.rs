//! PEM files: certificates, keys and authorities of servers and clients.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use thalweg_engine::Error;
use thalweg_engine::testing::options;
use thalweg_net::tls::{TlsClient, TlsServer};

use crate::Target;
use crate::input::Input;
use crate::memory::bounded;

pub(super) const TARGET: Target = Target {
    name: "pem",
    components: &[],
    longest: 8 << 10,
    words: &[
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\n",
        "-----BEGIN EC PRIVATE KEY-----\n",
        "MIIB",
    ],
    run,
};

thread_local! {
    static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder");
}

fn run(bytes: &[u8]) {
    FOLDER.with(|folder| {
        let path = folder.path().join("file.pem");
        let mut input = Input(bytes);
        let kind = input.choice(3);
        fs::write(&path, input.0).expect("it is written");
        bounded((4 << 20) + 40 * bytes.len(), || read(kind, path));
    });
}

/// Reads the file in one of its roles. Any result is right, but an error names the file.
fn read(kind: usize, path: PathBuf) {
    let shown = path.display().to_string();
    let error = match kind {
        0 => TlsServer::new(path.clone(), path).acceptor().err(),
        1 => client(&format!("{{ ca: '{shown}' }}")),
        // The authorities of the system would be read as well.
        _ => client(&format!("{{ certificate: '{shown}', key: '{shown}', insecure: true }}")),
    };
    if let Some(error) = error {
        assert!(error.to_string().contains("file.pem"), "{error}");
    }
}

fn client(yaml: &str) -> Option<Error> {
    options::<TlsClient>(yaml).config().err()
}
