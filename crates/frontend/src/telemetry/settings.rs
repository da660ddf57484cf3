//! The settings of telemetry: the endpoint of the command line, and the
//! [variables](https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/) that all
//! SDKs of OpenTelemetry have in common.
//!
//! A value that cannot be understood is a mistake. The specification lets an SDK ignore it with a warning,
//! but a run for weeks whose telemetry goes elsewhere is worse than one that does not begin.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use thalweg_engine::Error;
use thalweg_net::otlp::Receiver;
use thalweg_redact::{
    is_named_like_a_secret, keep_address, keep_credential, percent_decoded, without_secrets,
};

use crate::exit::CommandError;

const DISABLED: &str = "OTEL_SDK_DISABLED";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// The protocol that is spoken.
const SPOKEN: &str = "http/protobuf";
/// The endpoint where neither the command nor the environment has one.
const USUAL_ENDPOINT: &str = "http://localhost:4318";
const USUAL_TIMEOUT_MS: u32 = 10_000;
const USUAL_INTERVAL_MS: u32 = 60_000;
/// The part of the batches that is traced by default. A run may read thousands in a second.
const USUAL_RATIO: f64 = 0.001;

/// Where telemetry is sent to, and how.
#[derive(Clone)]
pub struct Telemetry {
    endpoint: String,
    headers: BTreeMap<String, String>,
    timeout: Duration,
    interval: Duration,
    ratio: f64,
    resource: BTreeMap<String, String>,
}

/// Without the headers, which are secret.
impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("endpoint", &without_secrets(&self.endpoint))
            .finish_non_exhaustive()
    }
}

impl Telemetry {
    /// The settings of the environment, for a command that asks for telemetry. `endpoint` is that of the
    /// command, if it has one. `None` if the environment disables it.
    ///
    /// # Errors
    /// If a setting is wrong.
    pub fn of_the_environment(endpoint: Option<&str>) -> Result<Option<Self>, CommandError> {
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Self::of(endpoint, &variable).map_err(CommandError::Usage)
    }

    /// The settings of these variables. An empty one is as good as none.
    fn of(endpoint: Option<&str>, variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let given = |name: &str| {
            variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        if given(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        if let Some(other) = given(PROTOCOL).filter(|protocol| protocol != SPOKEN) {
            return Err(format!(
                "`{PROTOCOL}` is `{other}`, but telemetry is sent as `{SPOKEN}` alone: unset it. Receivers usually \
                 take that at port 4318"
            ));
        }
        let endpoint = endpoint.filter(|endpoint| !endpoint.is_empty());
        let endpoint = endpoint.map(str::to_owned).or_else(|| given(ENDPOINT));
        let mut resource = list(RESOURCE, given(RESOURCE))?;
        if let Some(name) = given(SERVICE) {
            resource.insert("service.name".to_owned(), name);
        }
        for (name, value) in [
            ("service.name", "thalweg".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            ("service.instance.id", format!("{:032x}", fastrand::u128(..))),
        ] {
            resource.entry(name.to_owned()).or_insert(value);
        }
        let telemetry = Self {
            endpoint: endpoint.unwrap_or_else(|| USUAL_ENDPOINT.to_owned()),
            headers: list(HEADERS, given(HEADERS))?,
            timeout: milliseconds(TIMEOUT, given(TIMEOUT), USUAL_TIMEOUT_MS)?,
            interval: milliseconds(INTERVAL, given(INTERVAL), USUAL_INTERVAL_MS)?,
            ratio: ratio(given(SAMPLER).as_deref(), given(SAMPLER_ARGUMENT).as_deref())?,
            resource,
        };
        telemetry.keep_secrets();
        match telemetry.receiver() {
            Ok(_) => Ok(Some(telemetry)),
            Err(error) => Err(format!("telemetry cannot be sent: {}", error.full())),
        }
    }

    /// Hides credentials in all messages: a receiver may repeat a token without its scheme, such as `Bearer`.
    fn keep_secrets(&self) {
        keep_address(&self.endpoint);
        for (_, value) in self.headers.iter().filter(|(name, _)| is_named_like_a_secret(name)) {
            keep_credential(value.split_once(' ').map_or(value.as_str(), |(_, token)| token));
        }
    }

    /// Returns the receiver. Its connections belong to the runtime that sends first.
    pub(super) fn receiver(&self) -> Result<Receiver, Error> {
        Receiver::new(&self.endpoint, &self.headers, self.timeout)
    }

    /// How often metrics are sent.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// The part of the batches that is traced.
    pub(super) fn ratio(&self) -> f64 {
        self.ratio
    }

    /// The attributes of the resource.
    pub(super) fn resource(&self) -> &BTreeMap<String, String> {
        &self.resource
    }
}

/// Reads `NAME=VALUE,NAME=VALUE`, percent-encoded. The values may be secret, so a mistake shows none.
fn list(variable: &str, text: Option<String>) -> Result<BTreeMap<String, String>, String> {
    let text = text.unwrap_or_default();
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    // The name of `authorization:Basic SECRET=` would be all before the equals sign, and messages show names.
    let is_name = |name: &str| !name.is_empty() && (variable != HEADERS || name.bytes().all(is_of_a_token));
    let pair = |entry: &str| {
        let (name, value) = entry.split_once('=')?;
        let [name, value] = [name, value].map(|part| percent_decoded(part.trim()));
        is_name(&name).then_some((name, value))
    };
    let pairs: Option<BTreeMap<String, String>> = entries.map(pair).collect();
    pairs.ok_or_else(|| {
        format!(
            "`{variable}` is wrong: write `NAME=VALUE`, several separated by commas, and a comma in a value as \
             `%2C`"
        )
    })
}

/// True if the name of a header may have a byte, by [RFC
/// 9110](https://www.rfc-editor.org/rfc/rfc9110.html#section-5.6.2).
fn is_of_a_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Reads a number of milliseconds.
fn milliseconds(variable: &str, text: Option<String>, usual: u32) -> Result<Duration, String> {
    let number = match text {
        None => Some(usual),
        Some(text) => text.parse::<u32>().ok().filter(|number| *number > 0),
    };
    number.map(|number| Duration::from_millis(number.into())).ok_or_else(|| {
        format!(
            "`{variable}` is wrong: write a number of milliseconds from 1 to {}, such as `{usual}`",
            u32::MAX
        )
    })
}

/// Returns the part of the batches that a sampler chooses.
fn ratio(sampler: Option<&str>, argument: Option<&str>) -> Result<f64, String> {
    match sampler {
        None => Ok(USUAL_RATIO),
        Some("always_on" | "parentbased_always_on") => Ok(1.0),
        Some("always_off" | "parentbased_always_off") => Ok(0.0),
        Some("traceidratio" | "parentbased_traceidratio") => {
            let ratio = argument.map_or(Some(1.0), |text| text.parse::<f64>().ok());
            ratio.filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or_else(|| {
                format!(
                    "`{SAMPLER_ARGUMENT}` is wrong: write a part of the batches from 0 to 1, such as `0.01`"
                )
            })
        }
        Some(_) => Err(format!(
            "`{SAMPLER}` is wrong: write `always_on`, `always_off`, or `traceidratio` with a part from 0 to 1 in \
             `{SAMPLER_ARGUMENT}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_redact::redacted;

    fn of(endpoint: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Telemetry>, String> {
        let found = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Telemetry::of(endpoint, &found)
    }

    #[test]
    fn the_standard_variables_count_and_the_command_has_the_last_word() {
        let usual = of(None, &[("OTEL_EXPORTER_OTLP_HEADERS", "")]).unwrap().unwrap();
        assert_eq!((usual.endpoint.as_str(), usual.ratio), ("http://localhost:4318", 0.001));
        assert_eq!((usual.timeout.as_secs(), usual.interval.as_secs()), (10, 60));
        assert!(usual.headers.is_empty());
        assert_eq!(usual.resource["service.name"], "thalweg");
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:1"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", " api-key = a%2Cb , authorization=Bearer%20SEKRET"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,service.instance.id=7,host.name=h"),
            ("OTEL_SERVICE_NAME", "shop"),
        ];
        let all = of(None, &variables).unwrap().unwrap();
        assert_eq!((all.endpoint.as_str(), all.ratio), ("http://collector:1", 0.25));
        assert_eq!((all.timeout.as_millis(), all.interval.as_millis()), (250, 1500));
        let headers: Vec<_> =
            all.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(headers, [("api-key", "a,b"), ("authorization", "Bearer SEKRET")]);
        let resource = |name: &str| all.resource[name].as_str();
        assert_eq!((resource("service.name"), resource("host.name")), ("shop", "h"));
        assert_eq!(resource("service.instance.id"), "7");
        assert_eq!(of(Some("http://near:2"), &variables).unwrap().unwrap().endpoint, "http://near:2");
        assert!(!format!("{all:?}").contains("SEKRET"));
        assert!(of(None, &[("OTEL_SDK_DISABLED", "True")]).unwrap().is_none());
    }

    #[test]
    fn a_token_is_hidden_without_its_scheme_too() {
        of(None, &[("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20TOKEN-2b9d")]).unwrap();
        assert_eq!(redacted("TOKEN-2b9d has expired, not Bearer"), "… has expired, not Bearer");
    }

    #[test]
    fn a_wrong_setting_is_named_and_shows_no_secret() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "SEKRET"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "=SEKRET"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization:Basic SEKRET="),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization:SEKRET=="),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,authorization%3A%20SEKRET="),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1m"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
            ("OTEL_RESOURCE_ATTRIBUTES", "shop"),
        ] {
            let said = of(None, &[(name, value)]).unwrap_err();
            assert!(said.starts_with(&format!("`{name}` is ")) && !said.contains("SEKRET"), "{said}");
        }
        for ratio in ["-0.1", "1.5", "NaN", "half"] {
            let variables = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", ratio)];
            let said = of(None, &variables).unwrap_err();
            assert!(said.starts_with("`OTEL_TRACES_SAMPLER_ARG` is wrong"), "{said}");
        }
        for endpoint in ["ftp://u:SEKRET@host", "http://u:SEKRET@:x"] {
            let said = of(Some(endpoint), &[]).unwrap_err();
            assert!(said.starts_with("telemetry cannot be sent: ") && !said.contains("SEKRET"), "{said}");
        }
        let said = of(None, &[("OTEL_EXPORTER_OTLP_HEADERS", "a=SEKRET%0A")]).unwrap_err();
        assert!(said.contains("`a` has a character") && !said.contains("SEKRET"), "{said}");
    }
}
