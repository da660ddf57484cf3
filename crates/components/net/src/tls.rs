//! TLS, using rustls with ring's cryptography.
//!
//! Each configuration receives the crypto provider explicitly. No process-wide default has to be installed,
//! and two parts of a process cannot disagree about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_engine::{Error, Mistake};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Where systems keep their trusted certificates.
const BUNDLES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];

/// TLS of a server.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsServer {
    /// The path of a PEM file with the server's certificate, followed by intermediate certificates.
    certificate: PathBuf,
    /// The path of a PEM file with the private key of `certificate`.
    key: PathBuf,
    /// The path of a PEM file with certificate authorities. If given, each client must present a certificate
    /// issued by one of them. By default clients need no certificate.
    client_ca: Option<PathBuf>,
}

impl TlsServer {
    /// Returns its files, each with the option of a component that names it.
    pub fn files(&self) -> Vec<(&'static str, PathBuf)> {
        [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()]
            .into_iter()
            .flatten()
            .map(|file| ("tls", file.clone()))
            .collect()
    }

    /// Creates TLS options with a certificate and its key. Clients need no certificate.
    pub fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key, client_ca: None }
    }

    /// Reads the files and builds the acceptor.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn acceptor(&self) -> Result<Acceptor, Error> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                let verifier = verifier.map_err(|error| {
                    Error::permanent(format!("the authorities in `{}` cannot be used", path.display()))
                        .caused_by(error)
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder
            .with_single_cert(certificates(&self.certificate)?, key(&self.key)?)
            .map_err(|error| unfit(&self.certificate, &self.key, error))?;
        Ok(Acceptor(TlsAcceptor::from(Arc::new(config))))
    }
}

/// Performs the TLS handshake on clients' connections.
#[derive(Clone)]
pub struct Acceptor(TlsAcceptor);

impl Acceptor {
    /// Sends clients no tickets to resume their sessions. A client that only writes never reads them: when it
    /// closes its connection with unread data, its system resets the connection, and what it wrote last may
    /// be lost.
    #[must_use]
    pub fn without_tickets(self) -> Self {
        let mut config = ServerConfig::clone(self.0.config());
        config.send_tls13_tickets = 0;
        Self(TlsAcceptor::from(Arc::new(config)))
    }

    /// Speaks only this protocol with clients that ask for some (ALPN).
    #[must_use]
    pub fn speaking(self, protocol: &[u8]) -> Self {
        let mut config = ServerConfig::clone(self.0.config());
        config.alpn_protocols = vec![protocol.to_vec()];
        Self(TlsAcceptor::from(Arc::new(config)))
    }

    /// Performs the TLS handshake with a client.
    ///
    /// # Errors
    /// If the handshake fails or takes longer than 10 seconds.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        match tokio::time::timeout(HANDSHAKE, self.0.accept(stream)).await {
            Ok(accepted) => accepted.map(TlsStream::Server),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// TLS of a client.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsClient {
    /// The path of a PEM file with the certificate authorities to trust. By default those that the system
    /// trusts.
    ca: Option<PathBuf>,
    /// The path of a PEM file with a client certificate to present to the server. Needs `key`. By default
    /// none is presented.
    certificate: Option<PathBuf>,
    /// The path of a PEM file with the private key of `certificate`.
    key: Option<PathBuf>,
    /// True to accept any server certificate. An attacker on the network can then read and change all data.
    insecure: bool,
    /// The name that the server's certificate must carry. By default the host of the address.
    server_name: Option<String>,
}

impl TlsClient {
    /// Returns its files, each with the option of a component that names it.
    pub fn files(&self) -> Vec<(&'static str, PathBuf)> {
        [&self.ca, &self.certificate, &self.key]
            .into_iter()
            .flatten()
            .map(|file| ("tls", file.clone()))
            .collect()
    }

    /// Returns the mistake in these options that the schema cannot find.
    pub fn check(&self) -> Option<Mistake> {
        let is_half = self.certificate.is_some() != self.key.is_some();
        is_half.then(|| {
            Mistake::new("tls", "`certificate` and `key` belong together.").help("Give both, or neither.")
        })
    }

    /// Returns the PEM file of the authorities to trust: that of the options, or that of the system. None if
    /// the system has none.
    pub fn authorities(&self) -> Option<PathBuf> {
        self.ca.clone().or_else(|| bundles().next())
    }

    /// Returns the PEM files of the certificate to present and of its key, if there are any.
    pub fn identity(&self) -> Option<(PathBuf, PathBuf)> {
        self.certificate.clone().zip(self.key.clone())
    }

    /// True if any certificate of a server is accepted.
    pub fn is_insecure(&self) -> bool {
        self.insecure
    }

    /// Returns the name that the server's certificate must carry, if it is not the host.
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Reads the files and builds the configuration.
    ///
    /// # Errors
    /// If a file cannot be read or used.
    pub fn config(&self) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = match self.insecure {
            true => builder.dangerous().with_custom_certificate_verifier(Verifier::new(Accepted::Any)),
            false => builder.with_root_certificates(self.trusted()?),
        };
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(private)) => builder
                .with_client_auth_cert(certificates(certificate)?, key(private)?)
                .map_err(|error| unfit(certificate, private, error)),
            _ => Ok(builder.with_no_client_auth()),
        }
    }

    /// As [`config`](Self::config), for clients that know the host only: the certificate must carry
    /// `server_name` if that is given.
    ///
    /// # Errors
    /// As [`config`](Self::config), and if `server_name` is no name.
    pub fn config_with_name(&self) -> Result<ClientConfig, Error> {
        let mut config = self.config()?;
        let Some(name) = self.server_name.as_ref().filter(|_| !self.insecure) else { return Ok(config) };
        let roots = Arc::new(self.trusted()?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider()).build();
        let verifier = verifier.map_err(|error| {
            Error::permanent("the certificate of the server cannot be verified").caused_by(error)
        })?;
        let name = ServerName::try_from(name.clone())
            .map_err(|error| Error::permanent(format!("`{name}` is no name of a server")).caused_by(error))?;
        config.dangerous().set_certificate_verifier(Verifier::new(Accepted::Named(verifier, name)));
        Ok(config)
    }

    /// Returns the authorities to trust.
    fn trusted(&self) -> Result<RootCertStore, Error> {
        match &self.ca {
            Some(path) => roots(path),
            None => Ok(system_roots()),
        }
    }

    /// Builds a connector for connections that the caller opens itself.
    ///
    /// # Errors
    /// As [`config`](Self::config).
    pub fn connector(&self) -> Result<Connector, Error> {
        let connector = TlsConnector::from(Arc::new(self.config()?));
        Ok(Connector { connector, name: self.server_name.clone() })
    }
}

/// Performs the TLS handshake on connections to servers.
#[derive(Clone)]
pub struct Connector {
    connector: TlsConnector,
    name: Option<String>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connector({:?})", self.name)
    }
}

impl Connector {
    /// Performs the TLS handshake with the server at `HOST:PORT`.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn connect(&self, at: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
        let host = if host.is_empty() { "localhost" } else { host.trim_matches(['[', ']']) };
        let name = self.name.as_deref().unwrap_or(host).to_owned();
        let name =
            ServerName::try_from(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(TlsStream::Client(self.connector.connect(name, stream).await?))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn unusable(error: rustls::Error) -> Error {
    Error::permanent("TLS cannot be set up").caused_by(error)
}

fn unfit(certificate: &Path, key: &Path, error: rustls::Error) -> Error {
    let (certificate, key) = (certificate.display(), key.display());
    Error::permanent(format!("the certificate `{certificate}` and the key `{key}` cannot be used"))
        .caused_by(error)
}

fn unreadable(what: &str, path: &Path, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::permanent(format!("cannot read {what} from `{}`, which must be a PEM file", path.display()))
        .caused_by(error)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(unreadable("a certificate", path, "there is none in it")),
        Ok(found) => Ok(found),
        Err(error) => Err(unreadable("a certificate", path, error)),
    }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable("a private key", path, error))
}

fn roots(path: &Path) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(path)?);
    match added {
        0 => Err(unreadable("an authority's certificate", path, "there is none that can be used")),
        _ => Ok(roots),
    }
}

/// Returns the certificates that the system trusts. If none are found, the store is empty and every server is
/// rejected for that reason.
fn system_roots() -> RootCertStore {
    bundles().find_map(|path| roots(&path).ok()).unwrap_or_else(RootCertStore::empty)
}

/// Returns the files in which the system may keep its trusted certificates, as far as they exist.
fn bundles() -> impl Iterator<Item = PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named.into_iter().chain(BUNDLES.iter().map(PathBuf::from)).filter(|path| path.exists())
}

/// Accepts other certificates than those of trusted authorities for the host.
#[derive(Debug)]
struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    accepted: Accepted,
}

/// The certificates that a [`Verifier`] accepts.
#[derive(Debug)]
enum Accepted {
    /// All, for `insecure`.
    Any,
    /// Those with a name that is not the host, for `server_name`.
    Named(Arc<WebPkiServerVerifier>, ServerName<'static>),
}

impl Verifier {
    fn new(accepted: Accepted) -> Arc<Self> {
        Arc::new(Self { algorithms: provider().signature_verification_algorithms, accepted })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match &self.accepted {
            Accepted::Any => Ok(ServerCertVerified::assertion()),
            Accepted::Named(verifier, name) => {
                verifier.verify_server_cert(certificate, intermediates, name, ocsp, now)
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Writes a certificate and its key for tests; returns their paths.
#[cfg(test)]
pub(crate) fn test_files(folder: &Path) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate.display().to_string(), key.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_engine::testing::{messages, options};

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = test_files(folder.path());
        let good: TlsServer = options(&format!("{{ certificate: {certificate}, key: {key} }}"));
        good.acceptor().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "").unwrap();
        for (certificate, key, expected) in [
            (
                "missing.pem",
                key.as_str(),
                "cannot read a certificate from `missing.pem`, which must be a PEM file: I/O error: No such file or directory (os error 2)",
            ),
            (
                empty.to_str().unwrap(),
                &key,
                "cannot read a certificate from `FOLDER/empty.pem`, which must be a PEM file: there is none in it",
            ),
            (
                certificate.as_str(),
                "none.pem",
                "cannot read a private key from `none.pem`, which must be a PEM file: I/O error: No such file or directory (os error 2)",
            ),
            (
                &certificate,
                &certificate,
                "cannot read a private key from `FOLDER/certificate.pem`, which must be a PEM file: no items found",
            ),
        ] {
            let bad: TlsServer = options(&format!("{{ certificate: {certificate}, key: {key} }}"));
            let error = bad.acceptor().map(|_| ()).unwrap_err().full();
            assert_eq!(error.replace(&folder.path().display().to_string(), "FOLDER"), expected);
        }
        let half: TlsClient = options(&format!("{{ certificate: {certificate} }}"));
        assert_eq!(half.check().unwrap().message, "`certificate` and `key` belong together.");
        let trusting: TlsClient = options(&format!("{{ ca: {certificate} }}"));
        assert_eq!(messages(trusting.check()), [""; 0]);
        trusting.config().unwrap();
        options::<TlsClient>("{}").config().unwrap();
    }
}
