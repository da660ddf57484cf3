//! An S3 server: versitygw over a folder.
//!
//! It checks signatures, knows multipart uploads, and its conditional writes are atomic; and what it stores are plain files
//! that a test can look at. Others that were tried let several of those who race for a name win.

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

/// A running S3 server. Dropping it stops the server and removes what it stored.
pub struct S3 {
    program: Program,
}

impl S3 {
    /// Starts one without buckets; it takes about half a second.
    pub fn start() -> io::Result<Self> {
        let versitygw = Tools::find().versitygw()?;
        // Whoever else has the port by now does not answer there.
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let health = format!("/health-of-{}-{number}", std::process::id());
        let command = |address: SocketAddr, data: &std::path::Path| {
            let mut command = Command::new(&versitygw);
            command.args(["--port", &address.to_string(), "--region", REGION, "--health", &health]);
            // As real ones do: a connection serves more than one request.
            command.args(["--keep-alive", "--quiet", "posix"]).arg(data);
            command.env("ROOT_ACCESS_KEY", ACCESS_KEY).env("ROOT_SECRET_KEY", SECRET_KEY);
            command
        };
        let ready = |address: SocketAddr, _: &str| {
            ask(address, "GET", &health, &[]).is_ok_and(|(status, _)| status == 200)
        };
        Ok(Self { program: Program::start("versitygw", command, ready)? })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.program.address
    }

    /// Its URL, without a bucket.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Who may do everything.
    pub fn access_key(&self) -> &'static str {
        ACCESS_KEY
    }

    /// What they sign with.
    pub fn secret_key(&self) -> &'static str {
        SECRET_KEY
    }

    /// The region that is signed for.
    pub fn region(&self) -> &'static str {
        REGION
    }

    /// Where the objects lie: a folder for each bucket, and in it a file of the key's name. What is under way (parts of
    /// uploads) is in folders whose names begin with `.sgwtmp`.
    pub fn folder(&self) -> PathBuf {
        self.program.data()
    }

    /// Makes an empty bucket: to this server every folder is one.
    pub fn create_bucket(&self, name: &str) -> io::Result<()> {
        std::fs::create_dir(self.folder().join(name))
    }

    /// What thalweg calls an object of it.
    pub fn url(&self, bucket: &str, key: &str) -> String {
        url(&self.endpoint(), bucket, key)
    }

    /// The same by way of a proxy before it.
    pub fn url_through(&self, proxy: &Proxy, bucket: &str, key: &str) -> String {
        url(&proxy.endpoint(), bucket, key)
    }

    /// The environment in which a program finds the keys.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("AWS_REGION", REGION.to_owned()),
        ]
    }

    /// Its process id.
    pub fn process_id(&self) -> u32 {
        self.program.id()
    }

    /// What it has printed, for the message of a test that fails.
    pub fn output(&self) -> String {
        self.program.output()
    }
}

fn url(endpoint: &str, bucket: &str, key: &str) -> String {
    format!("s3://{bucket}/{}?endpoint={endpoint}&region={REGION}", escaped(key))
}
