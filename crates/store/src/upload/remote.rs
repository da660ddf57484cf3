//! Access to an object store by our own requests: its address, and how requests are signed.
//!
//! OpenDAL does not expose the ids of its uploads, so no other process could resume them. Writes are
//! therefore requests of this crate, with the same options, credentials, connections and signing.
//!
//! See docs/decisions/036-uploads-are-our-own-requests.md.

use http::{HeaderMap, HeaderName, HeaderValue};
use opendal::raw::{build_abs_path, normalize_root, percent_encode_path};
use opendal::{Configurator, services};
use reqsign_core::Signer;

use super::signing;
use crate::url::{Kind, Settings};

/// The credentials that requests are signed with.
pub(crate) enum Signing {
    /// Requests are not signed.
    None,
    Amazon(Signer<reqsign_aws_v4::Credential>),
    Google(Signer<reqsign_google::Credential>),
    Microsoft(Signer<reqsign_azure_storage::Credential>),
}

/// The suffix of the host names of Cloudflare's store (R2).
const CLOUDFLARE: &str = ".r2.cloudflarestorage.com";

/// The address of an object store.
pub(crate) struct Remote {
    /// The URL of the bucket or container.
    base: String,
    root: String,
    pub(super) signing: Signing,
    /// Headers of every request.
    pub(super) always: HeaderMap,
    /// Headers of the request that creates an object or begins an upload.
    pub(super) making: HeaderMap,
}

impl Remote {
    /// Creates the access from a store's URL. Returns the reason if its options are wrong.
    pub(crate) fn of(kind: &Kind) -> Result<Option<Self>, String> {
        match kind {
            Kind::Http | Kind::WebDav | Kind::Folders => Ok(None),
            Kind::S3(settings) => s3(config(settings)?, &settings.holder).map(Some),
            Kind::Gcs(settings) => google(config(settings)?, &settings.holder).map(Some),
            Kind::Azure(settings) => azure(config(settings)?, &settings.holder).map(Some),
        }
    }

    /// True if all parts of an upload but the last must have the same size. Cloudflare requires that.
    pub(super) fn wants_equal_parts(&self) -> bool {
        let (_, rest) = self.base.split_once("://").unwrap_or_default();
        rest.split('/').next().is_some_and(|host| host.ends_with(CLOUDFLARE))
    }

    /// Returns the URL of an object. The query must be escaped already.
    pub(super) fn url(&self, path: &str, query: &str) -> String {
        let path = percent_encode_path(&build_abs_path(&self.root, path));
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}/{path}{mark}{query}", self.base)
    }
}

fn config<C: Configurator>(settings: &Settings) -> Result<C, String> {
    C::from_iter(settings.options.clone()).map_err(|error| error.to_string())
}

fn root(root: Option<&String>) -> String {
    normalize_root(root.map_or("", String::as_str))
}

fn s3(config: services::S3Config, bucket: &str) -> Result<Remote, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let region = config.region.clone().or_else(|| variable("AWS_REGION"));
    let region = region.or_else(|| variable("AWS_DEFAULT_REGION")).unwrap_or_else(|| "us-east-1".to_owned());
    let from_environment = || {
        let names = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_S3_ENDPOINT"];
        names.into_iter().filter(|_| !config.disable_config_load).find_map(variable)
    };
    let endpoint = config.endpoint.clone().or_else(from_environment);
    let endpoint = endpoint.unwrap_or_else(|| "https://s3.amazonaws.com".to_owned());
    let mut endpoint = with_scheme(&endpoint).replace(&format!("//{bucket}."), "//");
    if endpoint == "https://s3.amazonaws.com" {
        endpoint = format!("https://s3.{region}.amazonaws.com");
    }
    let base = if config.enable_virtual_host_style {
        endpoint.replace("//", &format!("//{bucket}."))
    } else {
        format!("{endpoint}/{bucket}")
    };
    let customer = [
        (
            "x-amz-server-side-encryption-customer-algorithm",
            &config.server_side_encryption_customer_algorithm,
        ),
        ("x-amz-server-side-encryption-customer-key", &config.server_side_encryption_customer_key),
        ("x-amz-server-side-encryption-customer-key-md5", &config.server_side_encryption_customer_key_md5),
    ];
    let making = [
        ("x-amz-server-side-encryption", &config.server_side_encryption),
        ("x-amz-server-side-encryption-aws-kms-key-id", &config.server_side_encryption_aws_kms_key_id),
        ("x-amz-storage-class", &config.default_storage_class),
        ("x-amz-acl", &config.default_acl),
    ];
    let mut always = headers(customer)?;
    if config.enable_request_payer {
        always.insert("x-amz-request-payer", HeaderValue::from_static("requester"));
    }
    #[expect(deprecated, reason = "it is still an option")]
    let is_anonymous = config.skip_signature || config.allow_anonymous;
    let signing =
        if is_anonymous { Signing::None } else { Signing::Amazon(signing::amazon(&config, "s3", &region)) };
    Ok(Remote { base, root: root(config.root.as_ref()), signing, always, making: headers(making)? })
}

fn google(config: services::GcsConfig, bucket: &str) -> Result<Remote, String> {
    let endpoint = config.endpoint.clone().unwrap_or_else(|| "https://storage.googleapis.com".to_owned());
    let making = headers([
        ("x-goog-storage-class", &config.default_storage_class),
        ("x-goog-acl", &config.predefined_acl),
    ])?;
    #[expect(deprecated, reason = "it is still an option")]
    let is_anonymous = config.skip_signature || config.allow_anonymous;
    let signing = if is_anonymous { Signing::None } else { Signing::Google(signing::google(&config)) };
    let base = format!("{}/{bucket}", with_scheme(&endpoint));
    Ok(Remote { base, root: root(config.root.as_ref()), signing, always: HeaderMap::new(), making })
}

fn azure(config: services::AzblobConfig, container: &str) -> Result<Remote, String> {
    let endpoint = with_scheme(config.endpoint.as_deref().unwrap_or_default());
    let mut always = headers([
        ("x-ms-encryption-key", &config.encryption_key),
        ("x-ms-encryption-key-sha256", &config.encryption_key_sha256),
        ("x-ms-encryption-algorithm", &config.encryption_algorithm),
    ])?;
    // Since 2019-12-12, blocks may have 4000 MiB. This version is the one that OpenDAL uses.
    always.insert("x-ms-version", HeaderValue::from_static("2022-11-02"));
    let signing = if config.skip_signature {
        Signing::None
    } else {
        Signing::Microsoft(signing::microsoft(&config, &endpoint))
    };
    let base = format!("{endpoint}/{container}");
    Ok(Remote { base, root: root(config.root.as_ref()), signing, always, making: HeaderMap::new() })
}

fn with_scheme(endpoint: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.contains("://") { endpoint.to_owned() } else { format!("https://{endpoint}") }
}

fn headers<const N: usize>(given: [(&'static str, &Option<String>); N]) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let Some(value) = value else { continue };
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("the value of `{name}` is not valid in an HTTP header"))?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    fn url(of: &str, path: &str) -> String {
        Remote::of(Store::from_url(of).unwrap().0.kind()).unwrap().unwrap().url(path, "q=1")
    }

    #[test]
    fn objects_are_where_opendal_looks_for_them() {
        assert_eq!(
            url("s3://b/?region=eu-west-1&endpoint=https://s3.amazonaws.com", "a b+ä%"),
            "https://s3.eu-west-1.amazonaws.com/b/a%20b%2B%C3%A4%25?q=1"
        );
        assert_eq!(
            url("s3://b/?endpoint=localhost:9/&enable_virtual_host_style=true&root=/x", "k"),
            "https://b.localhost:9/x/k?q=1"
        );
        assert_eq!(url("gs://b/", "a/b"), "https://storage.googleapis.com/b/a/b?q=1");
        assert_eq!(url("az://b/?account_name=me", "a"), "https://me.blob.core.windows.net/b/a?q=1");
    }

    #[test]
    fn a_web_server_and_a_folder_are_no_stores_of_objects() {
        for url in ["http://example.org/x", "/tmp/x"] {
            assert!(Remote::of(Store::from_url(url).unwrap().0.kind()).unwrap().is_none());
        }
    }
}
