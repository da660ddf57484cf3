//! The options that all components of this family share: the service, and who may use it.

use schemars::JsonSchema;
use serde::Deserialize;
use thalweg_config::TimeSpan;
use thalweg_engine::{Error, Mistake};
use thalweg_net::requests::StoreOptions;
use thalweg_net::tls::TlsClient;
use thalweg_store::{AmazonAccess, AmazonSigner};

use crate::api::{Access, AwsService};

/// A service of Amazon, and the credentials of its user.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct AwsOptions {
    /// The region, for example `eu-west-1`. By default that of the ARN, or of the URL of the queue, or else
    /// of the environment variable `AWS_REGION` or `AWS_DEFAULT_REGION`.
    #[serde(default)]
    region: Option<String>,
    /// The address of the service, for example `http://localhost:4566`. By default that of the URL of the
    /// queue, or of the environment variable `AWS_ENDPOINT_URL`, or Amazon's in the region.
    #[serde(default)]
    url: Option<String>,
    /// The credentials. By default they are looked for as Amazon's own tools do: in the environment, in the
    /// files of profiles, by the token of a web identity, and in the metadata of the container or machine.
    #[serde(default)]
    auth: AwsAuth,
    /// TLS options. By default certificates that the system trusts are accepted.
    #[serde(default)]
    tls: TlsClient,
    /// How long an answer may take. After that the request is sent again. The default is 30 s.
    #[serde(default = "thalweg_net::net::defaults::half_a_minute")]
    timeout: TimeSpan,
}

/// The credentials of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AwsAuth {
    /// The id of an access key.
    access_key_id: Option<String>,
    /// The access key.
    secret_access_key: Option<String>,
    /// The token that belongs to a temporary access key.
    session_token: Option<String>,
    /// The profile in the files of profiles. The default is that of `AWS_PROFILE`, or `default`.
    profile: Option<String>,
    /// The ARN of a role to assume, with the credentials that are found otherwise.
    role: Option<String>,
    /// The id that the owner of the role asks for.
    external_id: Option<String>,
}

impl AwsOptions {
    /// Returns the mistakes that the schema cannot find.
    pub(crate) fn check(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Some(message) = self.url.as_deref().and_then(mistake_of_url) {
            mistakes.push(Mistake::new("url", message).help("For example `http://localhost:4566`."));
        }
        if self.region.as_deref().is_some_and(|region| !is_region(region)) {
            let mistake = Mistake::new("region", "This is no name of a region.");
            mistakes.push(mistake.help("For example `eu-west-1`."));
        }
        let AwsAuth { access_key_id, secret_access_key, session_token, role, external_id, .. } = &self.auth;
        if access_key_id.is_some() != secret_access_key.is_some()
            || (session_token.is_some() && access_key_id.is_none())
        {
            let mistake = Mistake::new("auth", "An access key has an id and a secret part.");
            mistakes.push(mistake.help("Give `access_key_id` and `secret_access_key`, or neither."));
        }
        if external_id.is_some() && role.is_none() {
            let mistake = Mistake::new("auth", "Only a role has an external id.");
            mistakes.push(mistake.help("Give `role`, or leave `external_id` out."));
        }
        if self.timeout.duration().is_zero() {
            let mistake = Mistake::new("timeout", "No server can answer in no time.");
            mistakes.push(mistake.help("For example `30s`."));
        }
        mistakes.extend(self.tls.check());
        mistakes
    }

    /// Returns the access to a service. `place` is what the component reads or writes there: its name, its
    /// ARN or, of a queue, its URL.
    ///
    /// # Errors
    /// If the region is not known.
    pub(crate) fn access(&self, service: &'static AwsService, place: &str) -> Result<Access, Error> {
        let known = [self.region.as_deref(), region_of(place)].into_iter().flatten().next();
        let region = known.map(str::to_owned).or_else(|| variable("AWS_REGION"));
        let region = region.or_else(|| variable("AWS_DEFAULT_REGION")).ok_or_else(|| {
            Error::permanent("the region is not known: give `region`, or set the variable `AWS_REGION`")
        })?;
        let url = self.url.clone().or_else(|| origin_of(place));
        let url = url.or_else(|| variable(&format!("AWS_ENDPOINT_URL_{}", service.variable)));
        let url = url.or_else(|| variable("AWS_ENDPOINT_URL")).unwrap_or_else(|| {
            let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
            format!("https://{}.{region}.amazonaws.com{suffix}", service.name)
        });
        let auth = self.auth.clone();
        let access = AmazonAccess {
            access_key_id: auth.access_key_id,
            secret_access_key: auth.secret_access_key,
            session_token: auth.session_token,
            profile: auth.profile,
            role: auth.role,
            external_id: auth.external_id,
        };
        Ok(Access { service, url, signer: AmazonSigner::new(service.name, &region, access) })
    }

    /// Returns the options of requests to a server at this URL.
    pub(crate) fn requests(&self, url: String) -> StoreOptions {
        StoreOptions::new(url, self.tls.clone(), self.timeout)
    }

    /// How long an answer may take.
    pub(crate) fn timeout(&self) -> TimeSpan {
        self.timeout
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the message if a URL is not that of a service. It may contain a password, so it is not shown.
fn mistake_of_url(url: &str) -> Option<&'static str> {
    match url.split_once("://") {
        Some(("http" | "https", rest)) if rest.is_empty() || rest.starts_with('/') => {
            Some("The address has no host.")
        }
        Some(("http" | "https", rest)) if rest.contains(['@', '?', '#']) => {
            Some("The address of a service has neither a user nor a query.")
        }
        Some(("http" | "https", _)) => None,
        _ => Some("The address begins with neither `http://` nor `https://`."),
    }
}

/// True if a region can have this name, which becomes a part of an address.
fn is_region(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Returns the region of an ARN, or of the URL of a queue of Amazon.
fn region_of(place: &str) -> Option<&str> {
    let region = match place.strip_prefix("arn:") {
        Some(rest) => rest.split(':').nth(2),
        None => region_of_host(place.split_once("://")?.1.split(['/', ':']).next()?),
    };
    region.filter(|region| is_region(region))
}

/// Returns the region of a host of Amazon's queues: `sqs.REGION.amazonaws.com`, also with the name of an
/// endpoint before that, or the older `REGION.queue.amazonaws.com`.
fn region_of_host(host: &str) -> Option<&str> {
    if ![".amazonaws.com", ".amazonaws.com.cn", ".api.aws"].iter().any(|end| host.ends_with(end)) {
        return None;
    }
    let labels: Vec<&str> = host.split('.').collect();
    if let Some(at) = labels.iter().position(|label| ["sqs", "sqs-fips"].contains(label)) {
        return labels.get(at + 1).copied();
    }
    match labels[..] {
        ["queue", ..] => Some("us-east-1"),
        [region, "queue", ..] => Some(region),
        _ => None,
    }
}

/// Returns the scheme and the host of a URL.
fn origin_of(place: &str) -> Option<String> {
    let (scheme, rest) = place.split_once("://")?;
    let host = rest.split('/').next().filter(|host| !host.is_empty())?;
    Some(format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{KINESIS, SQS};
    use proptest::prelude::*;
    use thalweg_engine::testing::{messages, options};

    #[test]
    fn options_that_cannot_work_are_mistakes() {
        for (yaml, expected) in [
            ("{ url: 'ftp://h' }", "The address begins with neither `http://` nor `https://`."),
            ("{ url: 'http://u:p@h' }", "The address of a service has neither a user nor a query."),
            ("{ url: 'https:///x' }", "The address has no host."),
            ("{ region: 'a.b' }", "This is no name of a region."),
            ("{ auth: { access_key_id: a } }", "An access key has an id and a secret part."),
            ("{ auth: { session_token: a } }", "An access key has an id and a secret part."),
            ("{ auth: { external_id: a } }", "Only a role has an external id."),
            ("{ timeout: 0s }", "No server can answer in no time."),
        ] {
            assert_eq!(messages(options::<AwsOptions>(yaml).check()), [expected], "{yaml}");
        }
    }

    #[test]
    fn a_service_is_where_the_place_says_unless_the_options_do() {
        let url = |yaml: &str, service, place: &str| {
            options::<AwsOptions>(yaml).access(service, place).map(|access| access.url).unwrap()
        };
        let amazons = "https://sqs.eu-west-1.amazonaws.com/123456789012/q";
        assert_eq!(url("{}", &SQS, amazons), "https://sqs.eu-west-1.amazonaws.com");
        assert_eq!(url("{ region: x, url: 'http://h:1' }", &SQS, amazons), "http://h:1");
        assert_eq!(url("{ region: x }", &SQS, "http://127.0.0.1:5000/1/q"), "http://127.0.0.1:5000");
        let arn = "arn:aws-cn:kinesis:cn-north-1:1:stream/s";
        assert_eq!(url("{}", &KINESIS, arn), "https://kinesis.cn-north-1.amazonaws.com.cn");
        assert_eq!(url("{ region: eu-west-1 }", &KINESIS, arn), "https://kinesis.eu-west-1.amazonaws.com");
    }

    #[test]
    fn the_region_is_in_each_form_of_the_url_of_a_queue() {
        for (host, expected) in [
            ("sqs.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("sqs.eu-west-1.amazonaws.com:443", Some("eu-west-1")),
            ("sqs-fips.us-east-2.amazonaws.com", Some("us-east-2")),
            ("sqs.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("sqs.eu-west-1.api.aws", Some("eu-west-1")),
            ("vpce-1-2.sqs.eu-west-1.vpce.amazonaws.com", Some("eu-west-1")),
            ("eu-west-1.queue.amazonaws.com", Some("eu-west-1")),
            ("queue.amazonaws.com", Some("us-east-1")),
            ("amazonaws.com", None),
            ("sqs.eu-west-1.example.com", None),
            ("localhost:4566", None),
        ] {
            assert_eq!(region_of(&format!("https://{host}/1/q")), expected, "{host}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_place(text in "(arn:|https?://)?\\PC*") {
            let _ = (region_of(&text), origin_of(&text), mistake_of_url(&text));
        }
    }
}
