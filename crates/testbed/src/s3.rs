//! An S3 server: versitygw over a folder.
//!
//! It checks signatures, supports multipart uploads, and its conditional writes are atomic. It stores objects
//! as plain files that a test can inspect. Other servers were rejected: with them, several clients that race
//! for a name could succeed.

use crate::ask::ask;
use crate::escape::escaped;
use crate::program::Program;
use crate::{Proxy, Tools};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const ACCESS_KEY: &str = "testbed";
const SECRET_KEY: &str = "only-for-tests";
const REGION: &str = "us-east-1";

/// A running S3 server. Dropping it stops the server and removes its data.
pub struct S3 {
    program: Program,
}

impl S3 {
    /// Starts a server without buckets; this takes about half a second.
    pub fn start() -> io::Result<Self> {
        let versitygw = Tools::find().versitygw()?;
        // Another process that has taken the port meanwhile does not answer on this path.
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let health = format!("/health-of-{}-{number}", std::process::id());
        let command = |address: SocketAddr, data: &std::path::Path| {
            let mut command = Command::new(&versitygw);
            command.args(["--port", &address.to_string(), "--region", REGION, "--health", &health]);
            // Like real servers: a connection serves more than one request.
            command.args(["--keep-alive", "--quiet", "posix"]).arg(data);
            command.env("ROOT_ACCESS_KEY", ACCESS_KEY).env("ROOT_SECRET_KEY", SECRET_KEY);
            command
        };
        let ready = |address: SocketAddr, _: &str| {
            ask(address, "GET", &health, &[]).is_ok_and(|(status, _)| status == 200)
        };
        Ok(Self { program: Program::start("versitygw", command, ready)? })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.program.address
    }

    /// Returns the URL of the server, without a bucket.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Returns the access key of the account that may do everything.
    pub fn access_key(&self) -> &'static str {
        ACCESS_KEY
    }

    /// Returns the secret key that signs its requests.
    pub fn secret_key(&self) -> &'static str {
        SECRET_KEY
    }

    /// Returns the region in the signatures.
    pub fn region(&self) -> &'static str {
        REGION
    }

    /// Returns the folder of the objects: a folder for each bucket, and in it a file with the name of the
    /// key. Unfinished objects (parts of uploads) are in folders whose names begin with `.sgwtmp`.
    pub fn folder(&self) -> PathBuf {
        self.program.data()
    }

    /// Creates an empty bucket: for this server, every folder is one.
    pub fn create_bucket(&self, name: &str) -> io::Result<()> {
        std::fs::create_dir(self.folder().join(name))
    }

    /// Returns thalweg's URL of an object on this server.
    pub fn url(&self, bucket: &str, key: &str) -> String {
        url(&self.endpoint(), bucket, key)
    }

    /// Returns the URL of an object as seen through a proxy to this server.
    pub fn url_through(&self, proxy: &Proxy, bucket: &str, key: &str) -> String {
        url(&proxy.endpoint(), bucket, key)
    }

    /// Returns the environment variables with the keys for a program.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("AWS_REGION", REGION.to_owned()),
        ]
    }

    /// Returns the process id of the server.
    pub fn process_id(&self) -> u32 {
        self.program.id()
    }

    /// Returns the output of the server, for the message of a failing test.
    pub fn output(&self) -> String {
        self.program.output()
    }
}

fn url(endpoint: &str, bucket: &str, key: &str) -> String {
    format!("s3://{bucket}/{}?endpoint={endpoint}&region={REGION}", escaped(key))
}
