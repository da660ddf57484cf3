//! The values of a record of each kind of load balancer, in their order.
//!
//! See <https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/access-log-collection.html>,
//! <https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html> and
//! <https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-access-logs.html>.

use thalweg_codec::columns::FieldType::{self, Float, Int, Text, Timestamp};

use crate::access_log::Request;

/// A kind of load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Classic,
    Application,
    Network,
}

/// How a value becomes fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One field.
    Value,
    /// An address and a port.
    Address,
    /// Names, each in quotes, between commas: `"h2","http/1.1"`.
    Names,
    /// The line of a request.
    Request,
}

/// A value of a record.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) form: Form,
    name: &'static str,
    kind: FieldType,
    /// The field of the port of an address.
    port: &'static str,
}

impl Field {
    /// Returns the names and types of its fields.
    pub(super) fn columns(&self) -> impl Iterator<Item = (&'static str, FieldType)> + Clone {
        let port = (self.form == Form::Address).then_some((self.port, Int));
        [(self.name, self.kind)].into_iter().chain(port)
    }
}

const fn value(name: &'static str, kind: FieldType) -> Field {
    Field { form: Form::Value, name, kind, port: "" }
}

const fn text(name: &'static str) -> Field {
    value(name, Text)
}

const fn address(name: &'static str, port: &'static str) -> Field {
    Field { form: Form::Address, name, kind: Text, port }
}

const REQUEST: Field = Field { form: Form::Request, name: "request", kind: Text, port: "" };

const CLASSIC: &[Field] = &[
    value("time", Timestamp),
    text("elb"),
    address("client_ip", "client_port"),
    address("backend_ip", "backend_port"),
    value("request_processing_time", Float),
    value("backend_processing_time", Float),
    value("response_processing_time", Float),
    value("elb_status_code", Int),
    value("backend_status_code", Int),
    value("received_bytes", Int),
    value("sent_bytes", Int),
    REQUEST,
    text("user_agent"),
    text("ssl_cipher"),
    text("ssl_protocol"),
];

const APPLICATION: &[Field] = &[
    text("type"),
    value("time", Timestamp),
    text("elb"),
    address("client_ip", "client_port"),
    address("target_ip", "target_port"),
    value("request_processing_time", Float),
    value("target_processing_time", Float),
    value("response_processing_time", Float),
    value("elb_status_code", Int),
    value("target_status_code", Int),
    value("received_bytes", Int),
    value("sent_bytes", Int),
    REQUEST,
    text("user_agent"),
    text("ssl_cipher"),
    text("ssl_protocol"),
    text("target_group_arn"),
    text("trace_id"),
    text("domain_name"),
    text("chosen_cert_arn"),
    value("matched_rule_priority", Int),
    value("request_creation_time", Timestamp),
    text("actions_executed"),
    text("redirect_url"),
    text("error_reason"),
    text("target_port_list"),
    text("target_status_code_list"),
    text("classification"),
    text("classification_reason"),
    text("conn_trace_id"),
    text("transformed_host"),
    text("transformed_uri"),
    text("request_transform_status"),
];

const NETWORK: &[Field] = &[
    text("type"),
    text("version"),
    value("time", Timestamp),
    text("elb"),
    text("listener"),
    address("client_ip", "client_port"),
    address("destination_ip", "destination_port"),
    value("connection_time", Int),
    value("tls_handshake_time", Int),
    value("received_bytes", Int),
    value("sent_bytes", Int),
    text("incoming_tls_alert"),
    text("chosen_cert_arn"),
    text("chosen_cert_serial"),
    text("tls_cipher"),
    text("tls_protocol_version"),
    text("tls_named_group"),
    text("domain_name"),
    text("alpn_fe_protocol"),
    text("alpn_be_protocol"),
    Field { form: Form::Names, name: "alpn_client_preference_list", kind: Text, port: "" },
    value("tls_connection_creation_time", Timestamp),
];

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Classic, Self::Application, Self::Network];

    /// Returns the kind of a record. Its first value is the type of the connection, except for classic load
    /// balancers, whose first value is the time.
    pub(super) fn of(text: &str) -> Self {
        match text.split(' ').next() {
            Some("tls") => Self::Network,
            Some("http" | "https" | "h2" | "grpcs" | "ws" | "wss") => Self::Application,
            _ => Self::Classic,
        }
    }

    pub(super) fn fields(self) -> &'static [Field] {
        match self {
            Self::Classic => CLASSIC,
            Self::Application => APPLICATION,
            Self::Network => NETWORK,
        }
    }

    /// Returns the number of values that records had from the beginning.
    pub(super) fn least(self) -> usize {
        match self {
            Self::Classic => 12,
            Self::Application => 13,
            Self::Network => 11,
        }
    }

    /// Returns the kind as it is used in a sentence.
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Classic => "a classic load balancer",
            Self::Application => "an application load balancer",
            Self::Network => "a network load balancer",
        }
    }

    /// Returns the names and types of all fields.
    pub(super) fn names(self) -> impl Iterator<Item = (&'static str, FieldType)> + Clone {
        let has_request = self.fields().iter().any(|field| field.form == Form::Request);
        let parts = Request::FIELDS.into_iter().filter(move |_| has_request).map(|name| (name, Text));
        self.fields().iter().flat_map(Field::columns).chain(parts)
    }
}
