//! A server of Azure blobs: azurite, with the public account of its documentation.

use crate::ask::ask;
use crate::escape::escaped;
use crate::program::Program;
use crate::{Proxy, Tools};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, Mac};
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::SystemTime;

const ACCOUNT: &str = "devstoreaccount1";
/// Published with the emulator; it gives access to nothing else.
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const VERSION: &str = "2021-08-06";

/// A running blob server. Dropping it stops the server and removes its data.
pub struct Azure {
    program: Program,
}

impl Azure {
    /// Starts a server without containers; this takes some seconds.
    pub fn start() -> io::Result<Self> {
        let azurite = Tools::find().azurite()?;
        let command = |address: SocketAddr, data: &std::path::Path| {
            let mut command = Command::new(&azurite);
            command.arg("--location").arg(data);
            command.args([
                "--blobHost",
                &address.ip().to_string(),
                "--blobPort",
                &address.port().to_string(),
            ]);
            // Clients may use newer API versions than the server knows, and tests must not send telemetry.
            command.args(["--silent", "--skipApiVersionCheck", "--disableTelemetry"]);
            command
        };
        let ready = |_: SocketAddr, output: &str| output.contains("successfully listens");
        Ok(Self { program: Program::start("azurite", command, ready)? })
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.program.address
    }

    /// Returns the URL of the server, with the account and without a container.
    pub fn endpoint(&self) -> String {
        format!("http://{}/{ACCOUNT}", self.address())
    }

    /// Returns the name of the account.
    pub fn account(&self) -> &'static str {
        ACCOUNT
    }

    /// Returns the key of the account.
    pub fn key(&self) -> &'static str {
        KEY
    }

    /// Creates an empty container. Its name must have three characters or more.
    pub fn create_container(&self, name: &str) -> io::Result<()> {
        self.create(name, None)
    }

    /// Creates an empty container whose blobs anyone may read without a key.
    pub fn create_public_container(&self, name: &str) -> io::Result<()> {
        self.create(name, Some("x-ms-blob-public-access: blob"))
    }

    fn create(&self, name: &str, access: Option<&str>) -> io::Result<()> {
        let target = format!("/{ACCOUNT}/{name}?restype=container");
        let date = httpdate::fmt_http_date(SystemTime::now());
        let signed =
            signature(name, access, &date).ok_or_else(|| io::Error::other("the key is not Base64"))?;
        let mut headers = vec![
            format!("x-ms-date: {date}"),
            format!("x-ms-version: {VERSION}"),
            format!("Authorization: SharedKey {ACCOUNT}:{signed}"),
            "Content-Length: 0".to_owned(),
        ];
        headers.extend(access.map(str::to_owned));
        match ask(self.address(), "PUT", &target, &headers)? {
            (201, _) => Ok(()),
            (status, body) => {
                let body = String::from_utf8_lossy(&body);
                Err(io::Error::other(format!("the container `{name}` was not created: {status} {body}")))
            }
        }
    }

    /// Returns thalweg's URL of a blob on this server.
    pub fn url(&self, container: &str, key: &str) -> String {
        url(&self.endpoint(), container, key)
    }

    /// Returns the URL of a blob as seen through a proxy to this server.
    pub fn url_through(&self, proxy: &Proxy, container: &str, key: &str) -> String {
        url(&format!("{}/{ACCOUNT}", proxy.endpoint()), container, key)
    }

    /// Returns the environment variables that give a program access to the account.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", KEY.to_owned()),
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

fn url(endpoint: &str, container: &str, key: &str) -> String {
    format!("az://{container}/{}?endpoint={endpoint}&account_name={ACCOUNT}", escaped(key))
}

/// Returns the signature of the request that creates a container. The twelve lines after the method are
/// empty. The account occurs twice, since here it is part of the path as well.
fn signature(container: &str, access: Option<&str>, date: &str) -> Option<String> {
    let access = access.map(|access| format!("{}\n", access.replace(": ", ":"))).unwrap_or_default();
    let text = format!(
        "PUT{}{access}x-ms-date:{date}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container",
        "\n".repeat(12)
    );
    let key = BASE64_STANDARD.decode(KEY).ok()?;
    let mut code = Hmac::<sha2::Sha256>::new_from_slice(&key).ok()?;
    code.update(text.as_bytes());
    Some(BASE64_STANDARD.encode(code.finalize().into_bytes()))
}
