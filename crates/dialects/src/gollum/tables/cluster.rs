//! The options of Kafka's clusters, which the consumer and the producer share, and those of librdkafka.

use super::Takes::{Flag, List, Number, Text};
use super::{OptionRule, idle, refused, used};

const RETRIES: &str = "brokers are asked again until one answers";

pub(super) const CLUSTER: &[OptionRule] = &[
    used("Servers", List, "`brokers`"),
    used("ClientId", Text, "`client_id`"),
    idle(
        "Version",
        Text,
        "the versions of requests are agreed upon with each broker, which must be Kafka 3.9 or later",
    ),
    used("TlsEnable", Flag, "enables `tls`"),
    used("TlsKeyLocation", Text, "`tls: { key: … }`"),
    used("TlsCertificateLocation", Text, "`tls: { certificate: … }`"),
    used("TlsCaLocation", Text, "`tls: { ca: … }`"),
    used("TlsServerName", Text, "`tls: { server_name: … }`"),
    used("TlsInsecureSkipVerify", Flag, "`tls: { insecure: true }`"),
    used("SaslEnable", Flag, "enables `auth`, with `mechanism: plain`"),
    used("SaslUser", Text, "`auth: { user: … }`"),
    used("SaslUsername", Text, "`auth: { user: … }`"),
    used("SaslPassword", Text, "`auth: { password: … }`"),
    idle("MaxOpenRequests", Number, "the client chooses how many requests are on their way"),
    idle("ServerTimeoutSec", Number, "a broker that does not answer is asked again"),
    idle("MessageBufferCount", Number, "queues are limited in bytes, all together by `memory`"),
    idle("ElectRetries", Number, RETRIES),
    idle("ElectTimeoutMs", Number, RETRIES),
    idle("MetadataRefreshMs", Number, "changes of the cluster are noticed by the answers of its brokers"),
];

/// The options of clusters of `native.KafkaProducer`.
pub(super) const LIBRDKAFKA: &[OptionRule] = &[
    used("Servers", List, "`brokers`"),
    used("ClientId", Text, "`client_id`"),
    used(
        "SecurityProtocol",
        Text,
        "`ssl` and `sasl_ssl` enable `tls`, `sasl_plaintext` and `sasl_ssl` `auth`",
    ),
    used("SaslMechanism", Text, "`auth: { mechanism: … }`: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`"),
    used("SaslUsername", Text, "`auth: { user: … }`"),
    used("SaslPassword", Text, "`auth: { password: … }`"),
    used("SslKeyLocation", Text, "`tls: { key: … }`"),
    used("SslCertificateLocation", Text, "`tls: { certificate: … }`"),
    used("SslCaLocation", Text, "`tls: { ca: … }`"),
    refused("SslKeyPassword", Text, "decrypt the key, for example with `openssl pkey`, and protect its file"),
    refused("SslCrlLocation", Text, "certificates are not looked up in lists of revoked ones"),
    idle("SslCipherSuites", Text, "the ciphers are those of TLS 1.2 and 1.3 that are known to be safe"),
    idle("ServerTimeoutSec", Number, "a broker that does not answer is asked again"),
    idle("ServerMaxFails", Number, RETRIES),
    idle("MetadataTimeoutMs", Number, RETRIES),
    idle("MetadataRefreshMs", Number, "changes of the cluster are noticed by the answers of its brokers"),
];
